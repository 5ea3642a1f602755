"""Tools of an MCP server behind a real `clew serve`: Clew is killed in the middle of a call."""

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.acceptance.chatting import model_serving
from tests.mcp_servers import Weather, chat_yaml, model_that_mails
from tests.processes import serving, until


@pytest.mark.parametrize("answer", [{"answer": "sent to ann, says the postman"}, {"retry": True}])
def test_a_call_cut_off_by_a_kill_waits_for_a_person(tmp_path: Path, answer: dict[str, object]) -> None:
    there = Weather(tmp_path)
    environ: dict[str, Any] = {"CLEW_RUNNER_POLL_SECONDS": "0.1", "CLEW_RUNNER_LEASE_SECONDS": "1"}
    with model_serving() as model:
        model.fake.answer = model_that_mails
        (tmp_path / "clew.yaml").write_text(chat_yaml(model.url, weather=there.stdio()))
        with serving(tmp_path, **environ) as server:
            there.hold("mail")
            thread = server.post("/api/workflows/start", {"prompt": "Mail Ann the weather"}).json()["id"]
            until(lambda: there.calls == ["forecast Ulm", "mail ann"])
            program = psutil.Process(int(there.lines[-1].rpartition(" ")[2]))
            server.signal(signal.SIGKILL)
            server.wait()
        until(lambda: not program.is_running())
        there.release()
        asked = len(model.fake.requests)
        with serving(tmp_path, **environ) as server:
            until(lambda: server.get(f"/api/threads/{thread}").json()["status"] == "blocked")
            (pending,) = server.get(f"/api/workflows/{thread}").json()["pending"].items()
            call_id, question = pending
            assert question["kind"] == "in_doubt"
            assert question["prompt"]["server"] == "weather"
            assert question["prompt"]["args"] == {"to": "ann"}
            assert len(model.fake.requests) == asked, "the model is not asked again"
            server.post(f"/api/workflows/{thread}/tool-calls/{call_id}/resolve", answer).raise_for_status()
            until(lambda: server.get(f"/api/threads/{thread}").json()["status"] == "completed")
            said = json.dumps(server.get(f"/api/workflows/{thread}/messages").json())
    again = ["mail ann"] if "retry" in answer else []
    assert there.calls == ["forecast Ulm", "mail ann", *again]
    assert "The mail says: sent to ann" in said
