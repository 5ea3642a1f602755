"""Seed 002, injected context on a model of Anthropic's: a real client, and a server on loopback that answers it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Api
from tests.processes import ROOT, serving

BOT = """
from langchain_anthropic import ChatAnthropic

from clew import Agent
from clew.graph.context_window import Compaction


async def the_time(thread, events):
    return "the time is noon"


bot = Agent(
    model=ChatAnthropic(model_name="claude-3-5-haiku-latest", base_url="{url}", api_key="sk-ant-a-secret", max_retries=0),
    system="You are brief.",
    inject=the_time,
    compaction=Compaction(messages=3, keep=1),
).graph()
"""


@pytest.mark.accept("002-27")
def test_injected_context_reaches_a_model_of_anthropics_in_one_system_message(tmp_path: Path) -> None:
    with _anthropic() as (url, asked):
        (tmp_path / "bot.py").write_text(BOT.format(url=url))
        (tmp_path / "clew.yaml").write_text("graphs:\n  bot: bot:bot\n")
        path = f"{ROOT / 'src'}:{ROOT}:{tmp_path}"
        with serving(tmp_path, PYTHONPATH=path, CLEW_MODEL_CALLS_RECORD="true") as server:
            api = Api(server)
            thread = api.run("bot", "hello")
            assert (thread["status"], thread["failureReason"]) == ("completed", None)
            for n in range(3):  # so many that the beginning is summed up
                api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": f"more {n}"})
                thread = api.rest(thread["id"], after=thread["lastSeq"])
                assert (thread["status"], thread["failureReason"]) == ("completed", None)
            said = [event["content"] for event in api.content(thread["id"], "assistant_msg")]
            assert said == ["noon"] * 4
            assert "the time is noon" not in str(api.events(thread["id"]))
            assert thread["settings"] == {
                "provider": "anthropic",
                "model": "claude-3-5-haiku-latest",
                "systemPrompt": "You are brief.",
            }
            assert "a-secret" not in json.dumps([thread, api.events(thread["id"])])
            (newest, *_) = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
            assert newest["summaryVersion"]
    rounds = [body["system"] for body in asked if "the time is noon" in body["system"]]
    assert rounds[0] == "You are brief.\n\nthe time is noon"
    assert rounds[-1] == "You are brief.\n\nSummary of the conversation so far:\nnoon\n\nthe time is noon"
    assert all(message["role"] != "system" for body in asked for message in body["messages"])


@contextmanager
def _anthropic() -> Iterator[tuple[str, list[Any]]]:
    """Where the server is, and what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for event in _events("noon"):
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _events(text: str) -> list[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-3-5-haiku-latest",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 1},
        },
        {"type": "message_stop"},
    ]
