"""What LangGraph's clients find on the wire where it is easy to be almost right: streams, errors, statuses, queues."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import NotFoundError

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients
from tests.acceptance.sdk_runs import Door, heard
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

X = {"words": ["x"]}
ECHOED = ["x", "first", "second"]


SDK_GRAPHS = run_graphs


@pytest.mark.parametrize("resumable", [False, True])
async def test_a_stream_of_a_run_holds_events_and_nothing_else(
    http: httpx.AsyncClient, thread: str, resumable: bool
) -> None:
    """The client for JavaScript makes an event of a `retry`, and, after an id, of any block."""
    body = {"assistant_id": "echo", "input": X, "stream_resumable": resumable}
    answer = await http.post(f"/threads/{thread}/runs/stream", json=body)
    *blocks, rest = answer.text.split("\n\n")
    assert rest == ""
    fields = [[line.partition(":")[0] for line in block.splitlines()] for block in blocks]
    assert fields[0] == ["event", "data"]
    assert {name for block in fields for name in block} == (
        {"event", "data"} | ({"id"} if resumable else set())
    )
    assert all(block[:2] == ["event", "data"] for block in fields)


@pytest.mark.parametrize("graph", ["asker", "panel", "nested_asker", "mailer"])
@pytest.mark.parametrize("subgraphs", [False, True])
async def test_a_question_is_streamed_with_the_values(
    clients: Clients, thread: str, graph: str, subgraphs: bool
) -> None:
    given = {"messages": [{"role": "user", "content": "hi"}]} if graph == "mailer" else X
    told = await heard(
        clients.ann.runs.stream(thread, graph, input=given, stream_mode="values", stream_subgraphs=subgraphs)
    )
    values = [data for name, data in told if name == "values"]
    assert all(part.keys() >= given.keys() for part in values)
    asked = {one["id"] for part in values for one in part.get("__interrupt__", ())}
    state = await clients.ann.threads.get_state(thread)
    assert asked
    assert asked <= {one["id"] for one in state["interrupts"]}


async def test_an_ended_run_is_joined_at_once(clients: Clients, thread: str) -> None:
    run: dict[str, Any] = {}
    await clients.ann.runs.wait(thread, "echo", input=X, on_run_created=run.update)
    started = time.monotonic()
    told = await heard(clients.ann.runs.join_stream(thread, run["run_id"]))
    assert time.monotonic() - started < 1.5
    assert [name for name, _ in told] == ["metadata", "end"]


@pytest.mark.parametrize("last", ["abc", "12-3", "", "٣", "9" * 5000, "-1"])
async def test_an_id_of_another_server_is_before_everything(
    http: httpx.AsyncClient, thread: str, last: str
) -> None:
    body = {"assistant_id": "echo", "input": X, "stream_resumable": True, "stream_mode": "updates"}
    run = (await http.post(f"/threads/{thread}/runs", json=body)).json()
    await http.get(f"/threads/{thread}/runs/{run['run_id']}/join")
    headers = [(b"Last-Event-ID", last.encode())]
    answer = await http.get(f"/threads/{thread}/runs/{run['run_id']}/stream", headers=headers)
    assert answer.status_code == 200
    assert answer.text.count("event: updates") == 2


async def test_parts_of_checkpoints_name_their_configs(clients: Clients, thread: str) -> None:
    config = {"configurable": {"color": "red"}}
    told = await heard(
        clients.ann.runs.stream(thread, "echo", input=X, config=config, stream_mode=["checkpoints", "debug"])
    )
    parts = [data for name, data in told if name == "checkpoints"]
    debug = [data["payload"] for name, data in told if name == "debug" and data["type"] == "checkpoint"]
    history = [*reversed(await clients.ann.threads.get_history(thread))]
    for shown in (parts, debug):
        configs = [part["config"]["configurable"] for part in shown]
        assert [one["checkpoint_id"] for one in configs] == [state["checkpoint_id"] for state in history]
        assert {(one["thread_id"], one["color"], one["graph_id"]) for one in configs} == {
            (thread, "red", "echo")
        }
        assert shown[0]["parent_config"] is None
        parents = [part["parent_config"]["configurable"]["checkpoint_id"] for part in shown[1:]]
        assert parents == [one["checkpoint_id"] for one in configs[:-1]]
    assert "clew" not in str(told)
    assert "__pregel" not in str(told)


async def test_a_failure_is_told_whole(clients: Clients, http: httpx.AsyncClient, thread: str) -> None:
    failure = {"error": "ValueError", "message": "it does not work:\n  'here'\n  and there"}
    answer = await clients.ann.runs.wait(thread, "burst", input=X, raise_error=False)
    assert answer == {"__error__": failure}
    told = await heard(clients.ann.runs.stream(thread, "burst", input=X))
    assert told[-1] == ("error", failure)
    shown = await clients.ann.threads.get(thread)
    assert (shown["status"], shown["error"]) == ("error", failure)
    (found,) = await clients.ann.threads.search(ids=[thread])
    assert found["error"] == failure
    (task,) = (await clients.ann.threads.get_state(thread))["tasks"]
    assert task["error"] == repr(ValueError(failure["message"]))
    # For people it is one line.
    native = (await http.get(f"/api/threads/{thread}")).text
    assert "it does not work" in native
    assert "and there" not in native
    await clients.ann.runs.wait(thread, "echo", input=X)
    assert (await clients.ann.threads.get(thread))["error"] is None


async def test_a_cancelled_run_leaves_its_thread_interrupted(
    clients: Clients, thread: str, door: Door
) -> None:
    run = await clients.ann.runs.create(thread, "waiter", input=door.input())
    await door.entered("x")
    await clients.ann.runs.cancel(thread, run["run_id"], wait=True)
    assert (await clients.ann.threads.get(thread))["status"] == "interrupted"
    found = await clients.ann.threads.search(ids=[thread], status="interrupted")
    assert [one["thread_id"] for one in found] == [thread]
    assert await clients.ann.threads.search(ids=[thread], status="idle") == []


async def test_a_state_written_by_hand_says_where_it_is(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    written = await clients.ann.threads.update_state(thread, {"words": ["by hand"]})
    state = await clients.ann.threads.get_state(thread)
    assert written["checkpoint"] == written["configurable"] == state["checkpoint"]
    assert written["checkpoint_id"] == state["checkpoint_id"]


async def test_values_are_extracted_from_the_threads_of_a_search(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    await clients.ann.threads.update(thread, metadata={"customer": {"name": "c"}})
    (found,) = await clients.ann.threads.search(
        ids=[thread],
        select=["thread_id"],
        extract={
            "first": "values.words[0]",
            "last": "values.words[-1]",
            "customer": "metadata.customer.name",
            "graph": "metadata.graph_id",
            "asked": "interrupts",
            "beyond": "values.words[7]",
            "nothing": "values.nothing.at[0].all",
            "letters": "values.words[0][0]",
        },
    )
    assert found == {
        "thread_id": thread,
        "extracted": {
            "first": "x",
            "last": "second",
            "customer": "c",
            "graph": "echo",
            "asked": {},
            "beyond": None,
            "nothing": None,
            "letters": None,
        },
    }


@pytest.mark.parametrize(
    "extract",
    [
        {"a": "thread_id"},
        {"a": "status.x"},
        {"a": ""},
        {"a": 3},
        {f"a{number}": "values.x" for number in range(11)},
    ],
)
async def test_what_cannot_be_extracted_is_refused(http: httpx.AsyncClient, extract: dict[str, Any]) -> None:
    answer = await http.post("/threads/search", json={"extract": extract})
    assert answer.status_code == 422
    assert "extract" in answer.json()["detail"]


async def test_what_is_not_there_is_not_found_in_so_many_words(
    clients: Clients, http: httpx.AsyncClient, thread: str
) -> None:
    missing = str(uuid4())
    for path in (f"/threads/{missing}", f"/threads/{thread}/runs/{missing}", f"/assistants/{missing}"):
        answer = await http.get(path)
        assert answer.status_code == 404
        assert "not found" in answer.json()["detail"]
    with pytest.raises(NotFoundError, match="not found"):
        await clients.ann.threads.get(missing)


async def test_where_there_is_no_route_the_refusal_is_a_detail_under_langgraphs_paths(
    http: httpx.AsyncClient,
) -> None:
    for path in ("/threads/a/b/c", "/runs/a/b/c/d", "/assistants/a/b/c/d", "/store/nothing", "/info/x"):
        answer = await http.get(path)
        assert (answer.status_code, [*answer.json()]) == (404, ["detail"])
    for path in ("/threads", "/runs/wait", "/store/items"):
        answer = await http.request("TRACE", path)
        assert (answer.status_code, [*answer.json()]) == (405, ["detail"])
    for path in ("/api/nothing", "/nothing"):
        assert [*(await http.get(path)).json()] == ["error"]


async def test_who_only_looks_whether_a_server_is_there_is_answered(http: httpx.AsyncClient) -> None:
    for path in ("/ok", "/info"):
        answer = await http.head(path)
        assert (answer.status_code, answer.content) == (200, b"")
    bare = await http.head("/info", headers={"X-API-Key": "nothing"})
    assert bare.status_code == 401


async def test_a_stop_at_a_node_that_is_not_there_is_none(clients: Clients, thread: str) -> None:
    for stops in ({"interrupt_before": ["nosuch"]}, {"interrupt_after": ["nosuch"]}):
        assert (await clients.ann.runs.wait(thread, "echo", input=X, **stops))["words"][-3:] == ECHOED
    stopped = await clients.ann.runs.wait(thread, "echo", input=X, interrupt_before=["nosuch", "second"])
    assert stopped["words"][-1] == "first"
    assert (await clients.ann.threads.get_state(thread))["next"] == ["second"]


async def test_an_answer_to_a_busy_thread_waits_and_answers_no_later_question(
    clients: Clients, thread: str, door: Door
) -> None:
    """As a second click on a button."""
    await clients.ann.runs.wait(thread, "twice_slowly", input=door.input())
    first = await clients.ann.runs.create(thread, "twice_slowly", command={"resume": "yes"})
    await door.entered("x")
    second = await clients.ann.runs.create(thread, "twice_slowly", command={"resume": "yes"})
    assert second["status"] == "pending"
    door.open()
    await clients.ann.runs.join(thread, first["run_id"])

    async def is_over() -> bool:
        run = await clients.ann.runs.get(thread, second["run_id"])
        return bool(run["status"] == "interrupted")

    await until(is_over)
    state = await clients.ann.threads.get_state(thread)
    assert [one["value"] for one in state["interrupts"]] == ["really?"]
    answer = await clients.ann.runs.wait(thread, "twice_slowly", command={"resume": "no"})
    assert answer["words"] == ["x", "answered yes", "x done", "and no"]


async def test_an_answer_for_later_is_to_what_was_asked_then(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "asker", input=X)
    run = await clients.ann.runs.create(thread, "asker", command={"resume": "yes"}, after_seconds=1)
    answer = await asyncio.wait_for(clients.ann.runs.join(thread, run["run_id"]), 30)
    assert answer["words"] == ["x", "answered yes"]
