"""Clients for JavaScript under Node, against a real server: LangGraph's SDK, AG-UI's HttpAgent and LangGraphAgent."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_sync_client

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.clients.node import Script, installed, scripts
from tests.processes import until

# Installing the clients takes longer than any test.
pytestmark = pytest.mark.timeout(300)
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with scripts(installed()) as folder:
        yield folder


@pytest.fixture(scope="module")
def stage(
    folder: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with stage_on("sqlite", request, tmp_path_factory.mktemp("clients"), door_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


def played(path: Path, scenario: str, served: SdkServer, **given: Any) -> Script:
    return Script(path, scenario, address=served.server.address, key=served.keys["ann"], **given)


def test_the_sdk_streams_waits_and_joins(folder: Path, served: SdkServer) -> None:
    with played(folder / "sdk.mjs", "walk", served) as script:
        told = script.all()
    streamed = told["streamed"]
    # The client makes an event of every block, so that a `retry` or a comment would be one without data.
    assert all(part.get("event") and part.get("data") is not None for part in streamed)
    assert streamed[0]["event"] == "metadata"
    assert {part["event"] for part in streamed} >= {"values", "messages", "updates"}
    said = [part["data"][0] for part in streamed if part["event"] == "messages"]
    assert "".join(one["content"] for one in said) == "you said hi"
    assert (told["waited"], told["joined"]) == ("you said ho", "you said he")
    values = [part for part in told["stateless"] if part["event"] == "values"]
    assert values[-1]["data"]["messages"][-1]["content"] == "you said x"
    assert told["history"] > 5
    assert "talk" in told["assistants"]


def test_the_sdk_answers_an_interrupt(folder: Path, served: SdkServer) -> None:
    with played(folder / "sdk.mjs", "interrupt", served) as script:
        told = script.all()
    assert told["asked"]["value"] == told["state"] == {"question": "Who are you?"}
    assert told["answered"] == "you are Ann"


def test_agui_http_agent(folder: Path, served: SdkServer) -> None:
    with played(folder / "agui.mjs", "httpAgent", served) as script:
        told = script.all()
    assert {"STEP_STARTED", "TEXT_MESSAGE_START", "MESSAGES_SNAPSHOT", "RUN_FINISHED"} <= {*told["types"]}
    assert (told["text"], told["deltas"]) == ("you said hi", len("you said hi"))
    assert told["talked"] == [
        ["user", "hi"],
        ["assistant", "you said hi"],
        ["user", "ho"],
        ["assistant", "you said ho"],
    ]
    assert sorted(told["asked"]) == ["left?", "right?"]
    assert sorted(told["answered"]) == [["assistant", "left l"], ["assistant", "right r"], ["user", "hi"]]
    assert told["called"] == {"color": "blue"}
    assert told["state"] == told["after"] == {"color": "red", "strokes": ["line"]}
    assert told["painted"] == ["assistant", "painted a line (success)"]
    assert "it does not work" in str(told["failed"])


def test_agui_langgraph_agent(folder: Path, served: SdkServer) -> None:
    with played(folder / "agui.mjs", "langGraphAgent", served) as script:
        told = script.all()
    assert {"STEP_STARTED", "TEXT_MESSAGE_START", "MESSAGES_SNAPSHOT", "RUN_FINISHED"} <= {*told["types"]}
    assert told["text"] == "you said hi"
    assert told["talked"][2:] == [["user", "ho"], ["assistant", "you said ho"]]
    assert told["asked"] == 1
    assert told["answered"] == ["assistant", "you are Ann"]
    assert told["on_interrupt"] == ['{"question":"Who are you?"}']
    assert told["resumed"] == ["assistant", "you are Bob"]
    assert told["painted"] == ["assistant", "painted a line (success)"]


def test_agui_http_agent_aborts_its_run(folder: Path, served: SdkServer, tmp_path: Path) -> None:
    with played(folder / "agui.mjs", "abort", served, go=str(tmp_path / "go")) as script:
        thread = script.all()["aborted"]
    with get_sync_client(url=served.server.address, api_key=served.keys["ann"]) as client:
        until(lambda: [run["status"] for run in client.runs.list(thread)] == ["interrupted"])


def test_runs_of_all_survive_the_kill_of_their_server(folder: Path, stage: Stage, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with (
        stage.serving() as served,
        played(folder / "sdk.mjs", "begin", served, go=str(go)) as sdk,
        played(folder / "agui.mjs", "begin", served, go=str(go)) as agui,
        played(folder / "agui.mjs", "graphBegin", served, go=str(go)) as graph_agent,
    ):
        place, thread, another = sdk.until("place"), agui.until("thread"), graph_agent.until("place")
        assert place["lastEventId"]
        served.server.signal(signal.SIGKILL)
        served.server.wait()
    with (
        stage.serving() as served,
        played(folder / "sdk.mjs", "rejoin", served, place=place) as sdk,
        played(folder / "agui.mjs", "connect", served, thread=thread) as agui,
        played(folder / "agui.mjs", "graphAgain", served, place=another) as graph_agent,
    ):
        while not str(agui.until("heard")).endswith("a slow "):
            pass
        go.touch()
        told = sdk.all()
        assert told["text"].endswith("answer")
        assert told["values"] == "a slow answer"
        assert None not in told["parts"]
        assert agui.all()["end"] == [["assistant", "hello"], ["assistant", "a slow answer"]]
        assert graph_agent.all()["last"] == ["assistant", "a slow answer"]
        with get_sync_client(url=served.server.address, api_key=served.keys["ann"]) as client:
            state: Any = client.threads.get_state(another["threadId"])["values"]
        said = [one["content"] for one in state["messages"] if one["content"] != "hello"]
        assert said == [str(go), "a slow answer", "again", "a slow answer"]
