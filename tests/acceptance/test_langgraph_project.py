"""A project of LangGraph's as it is cloned: what of its langgraph.json is obeyed, warned of, or refused."""

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError, UnprocessableEntityError

from tests.acceptance import run_graphs
from tests.acceptance.sdk import clients_of
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.processes import ROOT, clew, one_line, serving
from tests.providers import provider
from tests.waiting import until

pytestmark = pytest.mark.anyio


def write_project(folder: Path, **keys: Any) -> None:
    graphs = {"Echo of words": {"path": f"{run_graphs.__file__}:echo", "description": "Says two words."}}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs, **keys}))


async def test_a_cloned_template_is_served_and_what_has_no_effect_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, env=".env", python_version="3.12", ui={"a": "./ui.tsx"}, grahps={})
    with serving(tmp_path, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
        warnings = [json.loads(line) for line in server.log.splitlines()]
        said = " ".join(line["event"] for line in warnings if line["level"] == "warning")
        for part in (".env, which does not exist", "ui has no effect", "did you mean graphs?"):
            assert part in said
        assert "python_version" not in server.log
        async with get_client(url=server.address, api_key=None) as client:
            found = await client.assistants.search(graph_id="Echo of words")
            assert [(one["name"], one["description"]) for one in found] == [
                ("Echo of words", "Says two words.")
            ]
            given: Any = {"words": ["x"]}
            answer: Any = await client.runs.wait(None, "Echo of words", input=given)
            assert answer["words"] == ["x", "first", "second"]
            assert (await client.assistants.get("Echo of words"))["graph_id"] == "Echo of words"


async def test_a_key_for_langsmith_in_the_environment_is_no_obstacle_where_none_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "lsv2_pt_0123456789abcdef")
    write_project(tmp_path)
    with serving(tmp_path, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
        async with get_client(url=server.address) as client:
            (first, *_) = await client.assistants.search()
            assert first["graph_id"] == "Echo of words"
        async with get_client(url=server.address, api_key="clew_" + "a" * 8 + "_" + "a" * 32) as client:
            with pytest.raises(AuthenticationError):
                await client.assistants.search()


def test_a_server_does_not_start_without_the_protection_it_was_told_of(tmp_path: Path) -> None:
    write_project(tmp_path, ui={"a": "./ui.tsx"}, encryption={"path": "./agent.py:encryption"})
    refused = clew(tmp_path, "serve", "--port", "0")
    assert refused.returncode != 0
    assert "langgraph.json: encryption.path: ./agent.py:encryption: FileNotFoundError" in refused.stderr
    said = clew(tmp_path, "doctor").stdout
    assert "encryption.path" in said
    assert "ui has no effect" in said
    write_project(tmp_path)
    assert clew(tmp_path, "doctor", LANGGRAPH_HTTP="{}").returncode != 0
    said = clew(tmp_path, "doctor", LANGGRAPH_HTTP="{}", CLEW_LANGGRAPH_IGNORE_KEYS="LANGGRAPH_HTTP").stdout
    assert "LANGGRAPH_HTTP is ignored, as CLEW_LANGGRAPH_IGNORE_KEYS says" in said


async def test_the_times_and_the_webhooks_of_a_project_are_obeyed(tmp_path: Path) -> None:
    with provider() as receiver, provider() as other:
        write_project(
            tmp_path,
            store={"ttl": {"default_ttl": 0.02, "refresh_on_read": False}},
            checkpointer={"ttl": {"default_ttl": 90}},
            webhooks={
                "url": {
                    "require_https": False,
                    "disable_loopback": False,
                    "allowed_ports": [urlsplit(receiver.url).port],
                },
                "headers": {"Authorization": "Bearer ${{ env.LG_WEBHOOK_TOKEN }}"},
                "allowed_fields": ["run_id", "status"],
            },
            env={"LG_WEBHOOK_TOKEN": "t0ken-of-the-project"},
        )
        with serving(tmp_path, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
            assert "has no effect" not in server.log
            async with get_client(url=server.address, api_key=None) as client:
                await client.store.put_item(["a"], key="k", value={"v": 1})
                thread = (await client.threads.create())["thread_id"]
                shown = server.get(f"/api/threads/{thread}").json()
                ends, used = (datetime.fromisoformat(shown[name]) for name in ("expiresAt", "lastAccessedAt"))
                assert ends - used == timedelta(minutes=90)
                given: Any = {"words": ["x"]}
                run = await client.runs.create(thread, "Echo of words", input=given, webhook=receiver.url)
                await until(lambda: bool(receiver.requests))
                (told,) = receiver.requests
                assert told.body == {"run_id": run["run_id"], "status": "success"}
                assert told.headers["authorization"] == "Bearer t0ken-of-the-project"
                with pytest.raises(UnprocessableEntityError, match="has a port"):
                    await client.runs.create(thread, "Echo of words", input=given, webhook=other.url)

                async def is_gone() -> bool:
                    return await client.store.get_item(["a"], key="k") is None

                await until(is_gone)
            assert "t0ken" not in server.log
    described = {
        one["key"]: (one["value"], one["source"])
        for one in json.loads(clew(tmp_path, "doctor", "--json").stdout)["settings"]
    }
    assert described["threads.ttl"][0] == "1:30:00"
    assert described["cleanup.every_seconds"] == ("300", f"{tmp_path}/langgraph.json: checkpointer.ttl")


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path) as stage:
        yield stage


async def test_keep_latest_prunes_the_checkpoints_of_idle_threads(stage: Stage) -> None:
    ttl = {"strategy": "keep_latest", "default_ttl": 0.05, "sweep_interval_minutes": 0.01}
    with stage.serving(project={"checkpointer": {"ttl": ttl}}) as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            await clients.ann.runs.wait(thread, "echo", input={"words": ["x"]})
            kept = f"SELECT count(*) FROM checkpoints WHERE thread_id = '{thread}'"
            assert stage.sql(kept)[0][0] > 1
            await until(lambda: stage.sql(kept)[0][0] == 1)
            state = await clients.ann.threads.get_state(thread)
            assert state["values"]["words"] == ["x", "you said x"]


async def test_keep_latest_of_one_thread_prunes_the_checkpoints_of_that_thread(stage: Stage) -> None:
    with stage.serving(project={"checkpointer": {"ttl": {"sweep_interval_minutes": 0.01}}}) as served:
        async with clients_of(served) as clients:
            brief: Any = {"ttl": 0.02, "strategy": "keep_latest"}
            made = [await clients.ann.threads.create(ttl=ttl) for ttl in (brief, 60, None)]
            pruned, hour, later = [one["thread_id"] for one in made]
            for thread in (pruned, hour, later):
                await clients.ann.runs.wait(thread, "echo", input={"words": ["x"]})

            def kept(thread: str) -> int:
                found = stage.sql(f"SELECT count(*) FROM checkpoints WHERE thread_id = '{thread}'")
                return int(found[0][0])

            await until(lambda: kept(pruned) == 1)
            state = await clients.ann.threads.get_state(pruned)
            assert state["values"]["words"] == ["x", "you said x"]
            # A thread gets the strategy later; its copy has it too.
            assert min(kept(hour), kept(later)) > 1
            await clients.ann.threads.update(later, metadata={}, ttl=brief)
            copy = (await clients.ann.threads.copy(later))["thread_id"]
            await until(lambda: (kept(later), kept(copy)) == (1, 1))
            assert kept(hour) > 1


SLOW = """
import asyncio
from pathlib import Path
from typing import TypedDict
from langgraph.graph import StateGraph

class State(TypedDict):
    words: list[str]

async def first(state: State) -> State:
    return {"words": [*state["words"], "first"]}

async def second(state: State) -> State:
    while not Path(__file__).with_name("go").exists():
        await asyncio.sleep(0.01)
    return {"words": [*state["words"], "WORD"]}

graph = StateGraph(State).add_sequence([first, second]).set_entry_point("first")
"""


@pytest.mark.fault("U2")
async def test_a_server_that_reloads_goes_on_with_its_threads_in_the_new_code(tmp_path: Path) -> None:
    agent, project = tmp_path / "agent.py", tmp_path / "langgraph.json"
    agent.write_text(SLOW.replace("WORD", "old"))
    project.write_text(json.dumps({"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}))
    places = f"{ROOT / 'src'}:{ROOT}"
    with serving(tmp_path, "--reload", PYTHONPATH=places, CLEW_SHUTDOWN_SECONDS="0") as server:
        async with get_client(url=server.address, api_key=None) as client:
            thread = (await client.threads.create())["thread_id"]
            given: Any = {"words": []}
            await client.runs.create(thread, "agent", input=given)

            async def comes_to(*words: str) -> bool:
                with suppress(httpx.TransportError):
                    state: Any = await client.threads.get_state(thread)
                    return bool(state["values"].get("words") == [*words])
                return False

            await until(lambda: comes_to("first"))
            agent.write_text(SLOW.replace("WORD", "new"))
            await until(lambda: server.log.count('"listening"') == 2)
            (tmp_path / "go").touch()
            await until(lambda: comes_to("first", "new"))
        project.write_text("{")
        await until(lambda: "the server ended with code 2" in server.log)
        server.signal(signal.SIGTERM)
        server.wait()


def test_only_a_server_for_this_machine_reloads(tmp_path: Path) -> None:
    refused = clew(tmp_path, "serve", "--reload", "--host", "0.0.0.0", "--port", "0")
    assert refused.returncode == 2
    assert "--reload: expected a loopback address" in one_line(refused)
