"""Runs as LangGraph's own client orders them, of a real server on either database."""

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients
from tests.acceptance.sdk_runs import Door, heard
from tests.waiting import until

pytestmark = pytest.mark.anyio

NOWHERE = "11111111-2222-4333-8444-555555555555"
X = {"words": ["x"]}
ECHOED = ["x", "first", "second"]
OVER = ("success", "error", "interrupted", "timeout")


SDK_GRAPHS = run_graphs


async def statuses(clients: Clients, thread: str) -> list[tuple[str, str]]:
    """Of the runs of a thread, the oldest first, with the word that each was given."""
    runs = await clients.ann.runs.list(thread, limit=100)
    return [(run["kwargs"]["input"]["words"][0], run["status"]) for run in reversed(runs)]


async def test_a_run_begins_in_the_background_and_is_joined(clients: Clients, thread: str, http: Any) -> None:
    answer = await http.post(
        f"/threads/{thread}/runs", json={"assistant_id": "echo", "input": X, "metadata": {"a": 1}}
    )
    run = answer.json()
    assert answer.headers["Content-Location"] == f"/threads/{thread}/runs/{run['run_id']}"
    assert (run["thread_id"], run["metadata"], run["multitask_strategy"]) == (thread, {"a": 1}, "enqueue")
    assert run["created_at"].endswith("+00:00")
    assert await clients.ann.runs.join(thread, run["run_id"]) == {"words": ECHOED}
    again = await clients.ann.runs.get(thread, run["run_id"])
    assert (again["status"], again["kwargs"]["input"]) == ("success", X)
    assert again["assistant_id"] == run["assistant_id"]
    assert (await clients.ann.threads.get(thread))["values"] == {"words": ECHOED}


async def test_a_run_is_waited_for(clients: Clients, thread: str) -> None:
    assert await clients.ann.runs.wait(thread, "echo", input=X) == {"words": ECHOED}
    (assistant,) = await clients.ann.assistants.search(graph_id="echo")
    more = await clients.ann.runs.wait(thread, assistant["assistant_id"], input=X)
    assert more == {"words": ECHOED + ECHOED}


async def test_a_run_is_streamed_with_where_to_find_it(thread: str, http: httpx.AsyncClient) -> None:
    body = {"assistant_id": "echo", "input": X}
    answer = await http.post(f"/threads/{thread}/runs/stream", json=body)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    place = answer.headers["Content-Location"]
    assert answer.headers["Location"] == f"{place}/stream"
    assert place.startswith(f"/threads/{thread}/runs/")
    assert "id:" not in answer.text
    waited = await http.post(f"/threads/{thread}/runs/wait", json=body)
    assert waited.headers["Location"] == f"{waited.headers['Content-Location']}/join"


@pytest.mark.parametrize(
    ("mode", "parts"),
    [
        ("values", [X, {"words": ["x", "first"]}, {"words": ECHOED}]),
        ("updates", [{"first": {"words": ["first"]}}, {"second": {"words": ["second"]}}]),
        ("custom", [{"heard": "x"}]),
    ],
)
async def test_a_run_is_streamed_in_one_mode(
    clients: Clients, thread: str, mode: str, parts: list[Any]
) -> None:
    told = await heard(clients.ann.runs.stream(thread, "echo", input=X, stream_mode=mode))
    (first, metadata), *others, (last, end) = told
    assert (first, last, end) == ("metadata", "end", {"status": "success"})
    assert (await clients.ann.runs.get(thread, metadata["run_id"]))["status"] == "success"
    assert others == [(mode, part) for part in parts]


async def test_a_run_is_streamed_in_several_modes(clients: Clients, thread: str) -> None:
    modes = ["values", "updates", "custom", "tasks", "checkpoints", "debug"]
    told = await heard(clients.ann.runs.stream(thread, "echo", input=X, stream_mode=modes))
    assert {name for name, _ in told} == {"metadata", "end", *modes}
    tasks = [data for name, data in told if name == "tasks"]
    assert [(task["name"], "result" in task) for task in tasks] == [
        ("first", False),
        ("first", True),
        ("second", False),
        ("second", True),
    ]
    places = [data["checkpoint"]["checkpoint_id"] for name, data in told if name == "checkpoints"]
    history = await clients.ann.threads.get_history(thread)
    assert places == [state["checkpoint"]["checkpoint_id"] for state in reversed(history)]
    assert {data["type"] for name, data in told if name == "debug"} == {"checkpoint", "task", "task_result"}
    assert "clew" not in str(told)


async def test_what_graphs_inside_of_graphs_stream_is_told_with_their_names(
    clients: Clients, thread: str
) -> None:
    told = await heard(
        clients.ann.runs.stream(
            thread, "nested", input=X, stream_mode=["updates", "values"], stream_subgraphs=True
        )
    )
    inner = [(name.partition("|")[0], data) for name, data in told if "|inner:" in name]
    assert ("updates", {"first": {"words": ["first"]}}) in inner
    assert ("values", {"words": ECHOED}) in inner
    assert ("updates", {"inner": {"words": ECHOED}}) in told
    alone = await heard(clients.ann.runs.stream(thread, "nested", input=X, stream_mode="updates"))
    assert [name for name, _ in alone] == ["metadata", "updates", "end"]


async def test_what_a_model_says_is_streamed_as_far_as_it_is_said(clients: Clients, thread: str) -> None:
    said = {"messages": [{"role": "user", "content": "hello"}]}
    told = await heard(clients.ann.runs.stream(thread, "talk", input=said, stream_mode="messages"))
    assert [name for name, _ in told[:2]] == ["metadata", "messages/metadata"]
    partial = [data[0]["content"] for name, data in told if name == "messages/partial"]
    assert [text for n, text in enumerate(partial) if n == 0 or text != partial[n - 1]] == [
        "good day"[: n + 1] for n in range(8)
    ]
    ((message, described),) = told[1][1].items()
    assert described["metadata"]["langgraph_node"] == "speak"
    assert {data[0]["id"] for name, data in told if name == "messages/partial"} == {message}


async def test_what_a_model_says_is_streamed_letter_by_letter(clients: Clients, thread: str) -> None:
    said = {"messages": [{"role": "user", "content": "hello"}]}
    told = await heard(clients.ann.runs.stream(thread, "talk", input=said, stream_mode="messages-tuple"))
    parts = [data for name, data in told if name == "messages"]
    assert "".join(chunk["content"] for chunk, _ in parts) == "good day"
    assert {chunk["type"] for chunk, _ in parts} == {"AIMessageChunk"}
    assert {described["langgraph_node"] for _, described in parts} == {"speak"}
    assert "clew" not in str(told)


async def test_a_run_is_joined_on_its_way(clients: Clients, thread: str, door: Door) -> None:
    run = (await clients.ann.runs.create(thread, "waiter", input=door.input()))["run_id"]
    await door.entered("x")
    told: list[tuple[str, Any]] = []

    async def follow() -> None:
        async for part in clients.ann.runs.join_stream(thread, run):
            told.append((part.event, part.data))  # noqa: PERF401 - one by one, as they come

    following = asyncio.create_task(follow())

    async def is_followed() -> bool:
        return bool(told)

    await until(is_followed)
    door.open()
    await following
    assert [name for name, _ in told] == ["metadata", "values", "end"]
    assert told[1][1]["words"] == ["x", "x done"]
    # Who comes when it is over hears how it ended.
    assert [name for name, _ in await heard(clients.ann.runs.join_stream(thread, run))] == ["metadata", "end"]


async def test_a_resumable_run_is_told_again_from_any_place(clients: Clients, thread: str) -> None:
    run = await clients.ann.runs.create(
        thread, "echo", input=X, stream_resumable=True, stream_mode=["values", "updates"]
    )
    await clients.ann.runs.join(thread, run["run_id"])

    async def told(after: str, **wanted: Any) -> list[Any]:
        stream = clients.ann.runs.join_stream(thread, run["run_id"], last_event_id=after, **wanted)
        return [part async for part in stream]

    whole = await told("-1")
    assert [part.event for part in whole] == ["metadata", "values", *["updates", "values"] * 2, "end"]
    places = [int(part.id) for part in whole[1:-1]]
    assert places == sorted(set(places))
    for n in range(1, 6):
        assert [part.data for part in await told(whole[n].id)][1:] == [part.data for part in whole[n + 1 :]]
    only = await told("-1", stream_mode="updates")
    assert [part.event for part in only] == ["metadata", "updates", "updates", "end"]


async def test_runs_are_listed_newest_first(clients: Clients, thread: str, door: Door) -> None:
    for word in ("a", "b", "c"):
        await clients.ann.runs.wait(thread, "echo", input={"words": [word]})
    await clients.ann.runs.create(thread, "waiter", input=door.input("d"))
    await clients.ann.runs.create(thread, "waiter", input=door.input("e"))
    listed = await clients.ann.runs.list(thread)
    assert [run["kwargs"]["input"]["words"][0] for run in listed] == ["e", "d", "c", "b", "a"]
    assert [run["run_id"] for run in await clients.ann.runs.list(thread, limit=2, offset=1)] == [
        run["run_id"] for run in listed[1:3]
    ]
    for status, words in (
        ("pending", ["e"]),
        ("running", ["d"]),
        ("success", ["c", "b", "a"]),
        ("error", []),
    ):
        found = await clients.ann.runs.list(thread, status=status)
        assert [run["kwargs"]["input"]["words"][0] for run in found] == words
    (chosen,) = await clients.ann.runs.list(thread, limit=1, select=["run_id", "status"])
    assert sorted(chosen) == ["run_id", "status"]


async def test_a_deleted_run_is_told_of_no_more(clients: Clients, thread: str, door: Door) -> None:
    runs = [await clients.ann.runs.create(thread, "waiter", input=door.input(word)) for word in ("a", "b")]
    await clients.ann.runs.delete(thread, runs[1]["run_id"])
    door.open()
    await clients.ann.runs.join(thread, runs[0]["run_id"])
    await clients.ann.runs.delete(thread, runs[0]["run_id"])
    for run in runs:
        with pytest.raises(NotFoundError):
            await clients.ann.runs.get(thread, run["run_id"])
        with pytest.raises(NotFoundError):
            await clients.ann.runs.delete(thread, run["run_id"])
    assert await clients.ann.runs.list(thread) == []
    assert (await clients.ann.threads.get(thread))["values"]["words"] == ["a", "a done"]


async def test_a_cancelled_run_ends_where_it_is(clients: Clients, thread: str, door: Door) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    run = (await clients.ann.runs.create(thread, "waiter", input=door.input("y")))["run_id"]
    await door.entered("y")
    stream = asyncio.create_task(heard(clients.ann.runs.join_stream(thread, run)))
    await clients.ann.runs.cancel(thread, run, wait=True)
    assert (await stream)[-1] == ("end", {"status": "interrupted"})
    assert (await clients.ann.runs.get(thread, run))["status"] == "interrupted"
    now = await clients.ann.threads.get(thread)
    assert (now["status"], now["values"]["words"]) == ("interrupted", [*ECHOED, "y"])
    # One that is over stays as it is.
    await clients.ann.runs.cancel(thread, run)
    await clients.ann.runs.cancel(thread, run, action="rollback")
    assert (await clients.ann.runs.get(thread, run))["status"] == "interrupted"
    assert door.marks() == ["began y"]


async def test_a_run_that_is_rolled_back_was_never_there(clients: Clients, thread: str, door: Door) -> None:
    await clients.ann.runs.wait(thread, "waiter", input=X)
    before = await clients.ann.threads.get_history(thread)
    run = (await clients.ann.runs.create(thread, "waiter", input=door.input("y")))["run_id"]
    await door.entered("y")
    await clients.ann.runs.cancel(thread, run, wait=True, action="rollback")
    with pytest.raises(NotFoundError):
        await clients.ann.runs.get(thread, run)
    assert await clients.ann.threads.get_history(thread) == before
    assert (await clients.ann.threads.get(thread))["status"] == "idle"
    assert (await clients.ann.runs.wait(thread, "waiter", input=X))["words"] == ["x", "x done"] * 2


async def test_what_waits_behind_a_run_that_is_rolled_back_is_not_built_on_it(
    clients: Clients, thread: str, door: Door
) -> None:
    for n in range(10):
        run = (await clients.ann.runs.create(thread, "waiter", input=door.input(f"y{n}")))["run_id"]
        await door.entered(f"y{n}")
        behind = (await clients.ann.runs.create(thread, "echo", input=X))["run_id"]
        await clients.ann.runs.cancel(thread, run, action="rollback")
        await clients.ann.runs.join(thread, behind)
    assert (await clients.ann.threads.get_state(thread))["values"]["words"] == ECHOED * 10


async def test_a_run_is_cancelled_before_its_turn(clients: Clients, thread: str, door: Door) -> None:
    words = ("a", "b", "c", "d")
    runs = [
        (await clients.ann.runs.create(thread, "waiter", input=door.input(word)))["run_id"] for word in words
    ]
    waits = asyncio.create_task(clients.ann.runs.join(thread, runs[1]))
    await clients.ann.runs.cancel(thread, runs[1])
    await clients.ann.runs.cancel(thread, runs[2], action="rollback")
    await waits
    assert (await clients.ann.runs.get(thread, runs[1]))["status"] == "interrupted"
    assert await heard(clients.ann.runs.join_stream(thread, runs[1])) == [
        ("metadata", {"run_id": runs[1], "attempt": 1}),
        ("end", {"status": "interrupted"}),
    ]
    with pytest.raises(NotFoundError):
        await clients.ann.runs.get(thread, runs[2])
    door.open()
    await clients.ann.runs.join(thread, runs[3])
    assert door.marks() == ["began a", "ended a", "began d", "ended d"]
    assert sorted(await statuses(clients, thread)) == [
        ("a", "success"),
        ("b", "interrupted"),
        ("d", "success"),
    ]


async def test_runs_are_cancelled_together(clients: Clients, thread: str, door: Door) -> None:
    words = ("a", "b", "c", "d")
    runs = [
        (await clients.ann.runs.create(thread, "waiter", input=door.input(word)))["run_id"] for word in words
    ]
    await door.entered("a")
    await clients.ann.runs.cancel_many(thread_id=thread, run_ids=[runs[1], NOWHERE])
    assert await statuses(clients, thread) == [
        ("a", "running"),
        ("b", "interrupted"),
        ("c", "pending"),
        ("d", "pending"),
    ]
    await clients.ann.runs.cancel_many(thread_id=thread, status="pending")
    assert [status for _, status in await statuses(clients, thread)] == ["running", *["interrupted"] * 3]
    await clients.ann.runs.cancel_many(thread_id=thread, status="all", action="rollback")
    assert {status for _, status in await statuses(clients, thread)} == {"interrupted"}
    assert (await clients.ann.threads.get(thread))["status"] == "idle"
    assert door.marks() == ["began a"]


async def test_runs_need_no_thread(clients: Clients) -> None:
    assert await clients.ann.runs.wait(None, "echo", input=X) == {"words": ECHOED}
    told = await heard(clients.ann.runs.stream(None, "echo", input=X, stream_mode="values"))
    assert told[-2:] == [("values", {"words": ECHOED}), ("end", {"status": "success"})]
    run = await clients.ann.runs.create(None, "echo", input=X, on_completion="keep")
    assert await clients.ann.runs.join(run["thread_id"], run["run_id"]) == {"words": ECHOED}


async def test_runs_are_created_together_or_not_at_all(clients: Clients, http: httpx.AsyncClient) -> None:
    one = {"assistant_id": "echo", "input": X, "on_completion": "keep"}
    runs = await clients.ann.runs.create_batch([one, {**one, "input": {"words": ["y"]}}])
    ended = [await clients.ann.runs.join(run["thread_id"], run["run_id"]) for run in runs]
    assert [values["words"][0] for values in ended] == ["x", "y"]
    count = await clients.ann.threads.count()
    for wrong in ({"assistant_id": "nobody"}, {**one, "command": {"resume": 1}}):
        assert (await http.post("/runs/batch", json=[one, wrong])).is_client_error
    assert (await http.post("/runs/batch", json=[one] * 101)).status_code == 422
    assert await clients.ann.threads.count() == count


async def test_runs_of_a_thread_wait_for_each_other(clients: Clients, thread: str, door: Door) -> None:
    words = [str(n) for n in range(10)]
    runs = [
        (await clients.ann.runs.create(thread, "waiter", input=door.input(word)))["run_id"] for word in words
    ]
    assert [status for _, status in await statuses(clients, thread)] == ["running", *["pending"] * 9]
    assert (await clients.ann.threads.get(thread))["status"] == "busy"
    door.open()
    await clients.ann.runs.join(thread, runs[-1])
    assert door.marks() == [f"{what} {word}" for word in words for what in ("began", "ended")]
    assert await statuses(clients, thread) == [(word, "success") for word in words]
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


async def test_a_busy_thread_refuses_what_is_to_be_refused(clients: Clients, thread: str, door: Door) -> None:
    await clients.ann.runs.create(thread, "waiter", input=door.input())
    for asked in (
        clients.ann.runs.create(thread, "echo", input=X, multitask_strategy="reject"),
        clients.ann.runs.create(thread, "echo", command={"resume": 1}, multitask_strategy="reject"),
        clients.ann.threads.update_state(thread, {"words": ["hand"]}),
    ):
        with pytest.raises(ConflictError):
            await asked
    with pytest.raises(httpx.HTTPStatusError) as refused:
        await heard(clients.ann.runs.stream(thread, "echo", input=X, multitask_strategy="reject"))
    assert refused.value.response.status_code == 409
    assert len(await clients.ann.runs.list(thread)) == 1


async def test_a_run_takes_the_place_of_another(clients: Clients, thread: str, door: Door) -> None:
    for word in ("a", "b"):
        await clients.ann.runs.create(thread, "waiter", input=door.input(word))
    await door.entered("a")
    values = await clients.ann.runs.wait(thread, "echo", input=X, multitask_strategy="interrupt")
    assert values["words"] == ["a", *ECHOED]
    assert await statuses(clients, thread) == [("a", "interrupted"), ("b", "interrupted"), ("x", "success")]


async def test_a_run_takes_the_place_of_another_as_if_that_had_not_been(
    clients: Clients, thread: str, door: Door
) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    await clients.ann.runs.create(thread, "waiter", input=door.input("a"))
    await door.entered("a")
    values = await clients.ann.runs.wait(thread, "echo", input=X, multitask_strategy="rollback")
    assert values["words"] == ECHOED + ECHOED
    assert await statuses(clients, thread) == [("x", "success"), ("x", "success")]


async def test_a_run_for_later_holds_up_nobody(clients: Clients, thread: str) -> None:
    late = await clients.ann.runs.create(thread, "echo", input={"words": ["late"]}, after_seconds=3600)
    soon = await clients.ann.runs.create(thread, "echo", input={"words": ["soon"]}, after_seconds=1)
    assert (await clients.ann.threads.get(thread))["status"] == "idle"
    now = await clients.ann.runs.wait(thread, "echo", input=X, multitask_strategy="reject")
    assert now["words"] == ECHOED
    assert (await clients.ann.runs.join(thread, soon["run_id"]))["words"] == [*ECHOED, "soon", *ECHOED[1:]]
    assert (await clients.ann.runs.get(thread, late["run_id"]))["status"] == "pending"
    await clients.ann.runs.cancel(thread, late["run_id"])
    assert (await clients.ann.runs.get(thread, late["run_id"]))["status"] == "interrupted"


async def test_a_thread_is_made_for_a_run_if_that_is_wanted(clients: Clients) -> None:
    thread = str(uuid4())
    with pytest.raises(NotFoundError):
        await clients.ann.runs.create(thread, "echo", input=X)
    runs = await asyncio.gather(
        *(clients.ann.runs.create(thread, "echo", input=X, if_not_exists="create") for _ in range(4))
    )
    for run in runs:
        await clients.ann.runs.join(thread, run["run_id"])
    assert (await clients.ann.threads.get(thread))["values"]["words"] == ECHOED * 4
    with pytest.raises(NotFoundError):
        await clients.bob.runs.create(thread, "echo", input=X, if_not_exists="create")
    # Another tenant gets a thread of its own under this id, and learns of none.
    theirs = await clients.rival.runs.create(thread, "echo", input=X, if_not_exists="create")
    assert theirs["thread_id"] == thread
    await clients.rival.runs.join(thread, theirs["run_id"])
    assert (await clients.rival.threads.get(thread))["values"]["words"] == ECHOED
    assert (await clients.ann.threads.get(thread))["values"]["words"] == ECHOED * 4
    # In a new thread there is nothing to go on with.
    for more in ({"command": {"resume": 1}}, {"input": X, "checkpoint_id": NOWHERE}):
        with pytest.raises(NotFoundError):
            await clients.ann.runs.create(str(uuid4()), "echo", if_not_exists="create", **more)


async def test_a_question_ends_a_run_and_its_answer_begins_one(clients: Clients, thread: str) -> None:
    told = await heard(clients.ann.runs.stream(thread, "asker", input=X, stream_mode=["values", "updates"]))
    (asked,) = [data["__interrupt__"] for name, data in told if name == "updates"]
    assert [one["value"] for one in asked] == [{"question": "sure?"}]
    assert told[-1] == ("end", {"status": "success"})
    now = await clients.ann.threads.get(thread)
    assert now["status"] == "interrupted"
    ((shown,),) = now["interrupts"].values()
    assert (shown["id"], shown["value"]) == (asked[0]["id"], {"question": "sure?"})
    state = await clients.ann.threads.get_state(thread)
    assert state["next"] == ["ask"]
    assert [one["id"] for one in state["interrupts"]] == [asked[0]["id"]]
    told = await heard(clients.ann.runs.stream(thread, "asker", command={"resume": "yes"}))
    assert told[-2][1]["words"] == ["x", "answered yes"]
    after = await clients.ann.threads.get(thread)
    assert (after["status"], after["interrupts"]) == ("idle", {})
    assert [run["status"] for run in await clients.ann.runs.list(thread)] == ["success", "success"]
    with pytest.raises(ConflictError):
        await clients.ann.runs.create(thread, "asker", command={"resume": "yes"})


async def test_who_waits_for_a_run_is_told_what_it_asks(clients: Clients, thread: str) -> None:
    values = await clients.ann.runs.wait(thread, "asker", input=X)
    assert values["words"] == ["x"]
    assert [one["value"] for one in values["__interrupt__"]] == [{"question": "sure?"}]
    told = await heard(clients.ann.runs.stream(thread, "asker", input=X, stream_mode="values"))
    assert [one["value"] for one in told[-2][1]["__interrupt__"]] == [{"question": "sure?"}]


@pytest.mark.parametrize("answer", [False, {"approved": False}, "", 0, [], {"a": {"b": None}}, "no"])
async def test_an_answer_is_what_the_graph_makes_of_it(clients: Clients, thread: str, answer: Any) -> None:
    """Also one that means no to ourselves."""
    await clients.ann.runs.wait(thread, "asker", input=X)
    values = await clients.ann.runs.wait(thread, "asker", command={"resume": answer})
    assert values["words"] == ["x", f"answered {answer}"]
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


async def test_questions_come_one_after_the_other(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "twice", input=X)
    values = await clients.ann.runs.wait(thread, "twice", command={"resume": "one"})
    assert [one["value"] for one in values["__interrupt__"]] == ["really?"]
    values = await clients.ann.runs.wait(thread, "twice", command={"resume": "two"})
    assert values == {"words": ["x", "answered one", "and two"]}


@pytest.mark.fault("C11")
async def test_questions_asked_together_are_answered_together(clients: Clients, thread: str) -> None:
    asked = (await clients.ann.runs.wait(thread, "panel", input=X))["__interrupt__"]
    ids = {one["value"]: one["id"] for one in asked}
    with pytest.raises(httpx.HTTPStatusError):
        await clients.ann.runs.wait(thread, "panel", command={"resume": "both"})
    answers = {ids["left?"]: "L", ids["right?"]: "R"}
    values = await clients.ann.runs.wait(thread, "panel", command={"resume": answers})
    assert sorted(values["words"]) == ["left L", "right R", "x"]


@pytest.mark.fault("C11")
async def test_questions_asked_together_are_answered_one_by_one(clients: Clients, thread: str) -> None:
    asked = (await clients.ann.runs.wait(thread, "panel", input=X))["__interrupt__"]
    ids = {one["value"]: one["id"] for one in asked}
    values = await clients.ann.runs.wait(thread, "panel", command={"resume": {ids["right?"]: "R"}})
    assert [one["value"] for one in values["__interrupt__"]] == ["left?"]
    now = await clients.ann.threads.get(thread)
    assert now["status"] == "interrupted"
    assert [one["value"] for some in now["interrupts"].values() for one in some] == ["left?"]
    values = await clients.ann.runs.wait(thread, "panel", command={"resume": {ids["left?"]: "L"}})
    assert sorted(values["words"]) == ["left L", "right R", "x"]


@pytest.mark.fault("C11")
async def test_tools_that_need_a_yes_are_answered_by_their_calls(clients: Clients, thread: str) -> None:
    told = await heard(clients.ann.runs.stream(thread, "mailer", input={"messages": []}))
    assert [one["value"]["tool"] for one in told[-2][1]["__interrupt__"]] == ["send_mail"]
    now = await clients.ann.threads.get(thread)
    (asked,) = now["interrupts"].values()
    assert {one["id"]: one["value"]["args"] for one in asked} == {
        "call-ann": {"to": "ann"},
        "call-bob": {"to": "bob"},
    }
    assert (await clients.ann.threads.get_state(thread))["interrupts"] == asked
    with pytest.raises(ConflictError):
        await clients.ann.runs.create(thread, "mailer", command={"resume": True})
    values = await clients.ann.runs.wait(thread, "mailer", command={"resume": {"call-bob": False}})
    assert [one["id"] for one in values["__interrupt__"]] == ["call-ann"]
    values = await clients.ann.runs.wait(thread, "mailer", command={"resume": True})
    answers = {one["tool_call_id"]: one["content"] for one in values["messages"] if one["type"] == "tool"}
    assert answers["call-ann"] == "sent to ann"
    assert "refused" in answers["call-bob"]
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


async def test_a_run_stops_where_it_is_told_to_and_goes_on(clients: Clients, thread: str) -> None:
    values = await clients.ann.runs.wait(thread, "echo", input=X, interrupt_before=["second"])
    assert values == {"words": ["x", "first"]}
    now = await clients.ann.threads.get(thread)
    assert (now["status"], (await clients.ann.threads.get_state(thread))["next"]) == (
        "interrupted",
        ["second"],
    )
    assert await clients.ann.runs.wait(thread, "echo", input=None) == {"words": ECHOED}
    assert await clients.ann.runs.wait(thread, "echo", input=X, interrupt_after=["first"])
    assert (await clients.ann.threads.get_state(thread))["next"] == ["second"]
    # Or it begins anew.
    assert (await clients.ann.runs.wait(thread, "echo", input=X))["words"] == [*ECHOED, "x", "first", *ECHOED]


async def test_a_run_stops_before_every_step(clients: Clients, thread: str) -> None:
    steps = [
        (await clients.ann.runs.wait(thread, "echo", input=given, interrupt_before="*"))["words"]
        for given in (X, None, None)
    ]
    assert steps == [["x"], ["x", "first"], ECHOED]


async def test_a_state_is_changed_where_a_run_stopped(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X, interrupt_before=["second"])
    await clients.ann.threads.update_state(thread, {"words": ["hand"]})
    assert (await clients.ann.threads.get_state(thread))["next"] == ["second"]
    values = await clients.ann.runs.wait(thread, "echo", input=None)
    assert values["words"] == ["x", "first", "hand", "second"]
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


async def test_a_state_is_changed_where_a_run_asked(clients: Clients, thread: str) -> None:
    """Written as if the node that asked had answered: it is not asked any more."""
    await clients.ann.runs.wait(thread, "asker", input=X)
    await clients.ann.threads.update_state(thread, {"words": ["by hand"]}, as_node="ask")
    state = await clients.ann.threads.get_state(thread)
    assert (state["next"], state["interrupts"]) == ([], [])
    values = await clients.ann.runs.wait(thread, "asker", input=None)
    assert values == {"words": ["x", "by hand"]}
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


async def test_a_run_begins_at_a_place_in_the_past(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    place = (await clients.ann.threads.get_history(thread))[1]["checkpoint"]
    again = await clients.ann.runs.wait(thread, "echo", input=None, checkpoint=place)
    assert again["words"] == ECHOED
    other = await clients.ann.runs.wait(
        thread, "echo", input={"words": ["y"]}, checkpoint_id=place["checkpoint_id"]
    )
    assert other["words"] == ["x", "first", "y", "first", "second"]


async def test_a_command_updates_and_goes_elsewhere(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    command = {"update": {"words": ["told"]}, "goto": "second"}
    words = (await clients.ann.runs.wait(thread, "echo", command=command))["words"]
    assert words == [*ECHOED, "told", "second"]
    send = {"goto": {"node": "first", "input": {"words": ["sent"]}}}
    told = await heard(clients.ann.runs.stream(thread, "echo", command=send, stream_mode="custom"))
    assert ("custom", {"heard": "sent"}) in told
    await clients.ann.runs.wait(thread, "asker", input=X)
    both = {"resume": "yes", "update": {"words": ["besides"]}}
    words = (await clients.ann.runs.wait(thread, "asker", command=both))["words"]
    assert {"answered yes", "besides"} <= {*words}


async def test_what_a_run_is_ordered_with_reaches_its_graph(clients: Clients, thread: str) -> None:
    run: dict[str, Any] = {}
    words = (
        await clients.ann.runs.wait(
            thread,
            "teller",
            input=X,
            config={
                "configurable": {"color": "red", "n": 7, "loud": True},
                "tags": ["urgent"],
                "metadata": {"m": "config"},
            },
            metadata={"k": "run"},
            on_run_created=run.update,
        )
    )["words"]
    told = {"color=red", "n=7", "tag=urgent", "k=run", "m=config", "loud=True", "graph_id=teller"}
    assert told <= {*words}
    (ran,) = await clients.ann.runs.list(thread)
    assert {f"thread_id={thread}", f"run_id={ran['run_id']}", f"assistant_id={ran['assistant_id']}"} <= {
        *words
    }


async def test_an_assistant_brings_its_config_and_context_along(clients: Clients, thread: str) -> None:
    assistant = await clients.ann.assistants.create(
        "teller", config={"tags": ["its own"], "recursion_limit": 9}, context={"loud": True, "name": "Ann"}
    )
    words = (
        await clients.ann.runs.wait(
            thread,
            assistant["assistant_id"],
            input=X,
            config={"configurable": {"color": "blue", "loud": False}},
        )
    )["words"]
    assert {"color=blue", "tag=its own", "loud=False", "name=Ann"} <= {*words}
    assert f"assistant_id={assistant['assistant_id']}" in words
    with pytest.raises(httpx.HTTPStatusError):
        await clients.rival.runs.wait(None, assistant["assistant_id"], input=X)


async def test_a_caller_cannot_say_what_is_not_its_own(clients: Clients, thread: str) -> None:
    mine = (await clients.ann.runs.wait(None, "echo", input=X, on_completion="keep"))["words"]
    assert mine == ECHOED
    victim = str((await clients.rival.threads.create())["thread_id"])
    await clients.rival.runs.wait(victim, "echo", input={"words": ["secret"]})
    forged = {
        "thread_id": victim,
        "checkpoint_ns": "inner",
        "checkpoint_id": NOWHERE,
        "clew_fence": 99,
        "clew_tenant": "rival",
        "__pregel_checkpointer": None,
        "run_id": NOWHERE,
        "assistant_id": NOWHERE,
        "graph_id": "echo",
        "clew_round": 99,
    }
    words = (
        await clients.ann.runs.wait(
            thread, "teller", input=X, config={"configurable": forged, "metadata": forged}, metadata=forged
        )
    )["words"]
    assert f"thread_id={thread}" in words
    assert not {f"{name}={value}" for name, value in forged.items()} & {*words}
    assert "secret" not in str(words)
    assert (await clients.rival.threads.get(victim))["values"]["words"] == ["secret", "first", "second"]


async def test_a_caller_cannot_say_who_it_is(clients: Clients) -> None:
    forged = {
        "langgraph_auth_user": "root",
        "langgraph_auth_user_id": "root",
        "langgraph_auth_permissions": "root",
        "langgraph_auth_anything": "root",
        "langgraph_request_id": "root",
    }
    assistant = await clients.ann.assistants.create(
        "teller", config={"configurable": forged, "metadata": forged}, metadata=forged
    )
    thread = str((await clients.ann.threads.create(metadata=forged))["thread_id"])
    for name in ("teller", assistant["assistant_id"]):
        for more in ({"config": {"configurable": forged}}, {"context": forged}):
            answer = await clients.ann.runs.wait(thread, name, input=X, metadata=forged, **more)
            assert "langgraph_auth" not in str(answer)
            assert "root" not in str(answer)
    states = await clients.ann.threads.get_history(thread)
    assert not [state for state in states if "root" in str(state["metadata"])]


async def test_checkpoints_tell_of_their_thread_their_assistant_and_the_attempt(clients: Clients) -> None:
    assistant = await clients.ann.assistants.create("echo", metadata={"team": "a", "same": "assistant"})
    thread = str(
        (await clients.ann.threads.create(metadata={"customer": "c", "same": "thread"}))["thread_id"]
    )
    name = assistant["assistant_id"]
    config = {"metadata": {"m": "config"}}
    run: dict[str, Any] = {}
    await clients.ann.runs.wait(
        thread, name, input=X, metadata={"k": "run", "same": "run"}, config=config, on_run_created=run.update
    )
    told = (await clients.ann.threads.get_state(thread))["metadata"]
    expected = {
        "team": "a",
        "customer": "c",
        "m": "config",
        "k": "run",
        "same": "run",
        "run_attempt": 1,
        "run_id": run["run_id"],
        "assistant_id": name,
        "graph_id": "echo",
    }
    assert {key: told.get(key) for key in expected} == expected
    assert (await clients.ann.runs.get(thread, run["run_id"]))["metadata"] == {"k": "run", "same": "run"}
    other = await clients.ann.runs.wait(thread, "teller", input=X)
    assert {"customer=c", "same=thread", "run_attempt=1", "graph_id=teller"} <= {*other["words"]}
    await clients.ann.threads.update_state(thread, {"words": ["by hand"]})
    assert (await clients.ann.threads.get_state(thread))["metadata"]["graph_id"] == "teller"


async def test_a_graph_in_circles_ends_at_its_limit(clients: Clients, thread: str) -> None:
    answer = await clients.ann.runs.wait(
        thread, "circles", input=X, config={"recursion_limit": 5}, raise_error=False
    )
    assert answer["__error__"]["error"] == "GraphRecursionError"
    assert "Recursion limit of 5 reached" in answer["__error__"]["message"]
    assert len((await clients.ann.threads.get_state(thread))["values"]["words"]) == 6


async def test_a_failed_run_tells_what_failed(clients: Clients, thread: str) -> None:
    failure = {"error": "ValueError", "message": "it does not work"}
    answer = await clients.ann.runs.wait(thread, "boom", input=X, raise_error=False)
    assert answer == {"__error__": failure}
    with pytest.raises(Exception, match="ValueError: it does not work"):
        await clients.ann.runs.wait(thread, "boom", input=X)
    told = await heard(clients.ann.runs.stream(thread, "boom", input=X))
    assert told[-1] == ("error", failure)
    assert (await clients.ann.threads.get(thread))["status"] == "error"
    assert {run["status"] for run in await clients.ann.runs.list(thread)} == {"error"}
    # It is none the worse for it.
    assert (await clients.ann.runs.wait(thread, "echo", input=X))["words"][-3:] == ECHOED
    assert (await clients.ann.threads.get(thread))["status"] == "idle"


@pytest.mark.parametrize("way", ["stream", "wait", "join"])
async def test_a_run_ends_with_the_connection_if_that_is_wanted(
    clients: Clients, thread: str, door: Door, http: httpx.AsyncClient, way: str
) -> None:
    body = {"assistant_id": "waiter", "input": door.input(), "on_disconnect": "cancel"}
    if way == "join":
        run = (await clients.ann.runs.create(thread, "waiter", input=door.input()))["run_id"]
        asked = http.stream("GET", f"/threads/{thread}/runs/{run}/stream?cancel_on_disconnect=true")
    else:
        asked = http.stream("POST", f"/threads/{thread}/runs/{way}", json=body)
    async with asked as answer:
        assert answer.is_success
        await door.entered("x")

    async def is_cancelled() -> bool:
        (run,) = await clients.ann.runs.list(thread)
        return bool(run["status"] == "interrupted")

    await until(is_cancelled)


async def test_a_run_goes_on_without_its_client(
    clients: Clients, thread: str, door: Door, http: httpx.AsyncClient
) -> None:
    body = {"assistant_id": "waiter", "input": door.input()}
    for way in ("stream", "wait"):
        async with http.stream("POST", f"/threads/{thread}/runs/{way}", json=body) as answer:
            assert answer.is_success
    door.open()

    async def are_over() -> bool:
        return {run["status"] for run in await clients.ann.runs.list(thread)} == {"success"}

    await until(are_over)
    assert door.marks() == ["began x", "ended x"] * 2


async def test_whoever_follows_a_thread_that_is_deleted_is_told(
    clients: Clients, thread: str, door: Door
) -> None:
    run = (await clients.ann.runs.create(thread, "waiter", input=door.input()))["run_id"]
    await door.entered("x")
    stream = asyncio.create_task(heard(clients.ann.runs.stream(thread, "echo", input=X)))
    waits = asyncio.create_task(clients.ann.runs.join(thread, run))

    async def is_queued() -> bool:
        return len(await clients.ann.runs.list(thread)) == 2

    await until(is_queued)
    await clients.ann.threads.delete(thread)
    async with asyncio.timeout(30):
        name, data = (await stream)[-1]
        assert (name, data["error"]) == ("error", "NotFound")
        assert (await waits)["__error__"]["error"] == "NotFound"


async def test_strangers_find_no_run(clients: Clients, thread: str, door: Door) -> None:
    run = (await clients.ann.runs.create(thread, "waiter", input=door.input()))["run_id"]
    for stranger in (clients.bob, clients.rival):
        for asked in (
            stranger.runs.list(thread),
            stranger.runs.get(thread, run),
            stranger.runs.cancel(thread, run),
            stranger.runs.cancel_many(thread_id=thread, status="all"),
            stranger.runs.delete(thread, run),
            stranger.runs.create(thread, "echo", input=X),
        ):
            with pytest.raises(NotFoundError):
                await asked
        for asked in (
            stranger.runs.wait(thread, "echo", input=X),
            stranger.runs.join(thread, run),
            heard(stranger.runs.stream(thread, "echo", input=X)),
            heard(stranger.runs.join_stream(thread, run)),
        ):
            with pytest.raises(httpx.HTTPStatusError) as refused:
                await asked
            assert refused.value.response.status_code == 404
        own = (await stranger.threads.create())["thread_id"]
        with pytest.raises(NotFoundError):
            await stranger.runs.get(own, run)
    assert (await clients.acme.runs.get(thread, run))["status"] == "running"


async def test_what_is_wrong_is_refused_with_a_detail(
    clients: Clients, thread: str, http: httpx.AsyncClient
) -> None:
    good = {"assistant_id": "echo", "input": X}
    wrong: list[Any] = [
        {},
        {**good, "assistant_id": ""},
        {**good, "assistant_id": "nobody"},
        {**good, "stream_mode": "songs"},
        {**good, "stream_mode": ["values", "songs"]},
        {**good, "config": []},
        {**good, "context": 1},
        {**good, "metadata": "x"},
        {**good, "multitask_strategy": "hope"},
        {**good, "if_not_exists": "guess"},
        {**good, "on_disconnect": "cry"},
        {**good, "after_seconds": -1},
        {**good, "after_seconds": 1e300},
        {**good, "checkpoint_id": "x"},
        {**good, "checkpoint": {"checkpoint_id": "x"}},
        {**good, "interrupt_before": 7},
        {**good, "command": "go"},
        {**good, "command": {"goto": 7}},
        {**good, "command": {"goto": {"input": 1}}},
        {**good, "durability": "perhaps"},
    ]
    for body in wrong:
        for path in (f"/threads/{thread}/runs", f"/threads/{thread}/runs/wait", "/runs/stream"):
            answer = await http.post(path, json=body)
            assert (answer.status_code, list(answer.json())) == (422, ["detail"]), (body, answer.text)
    run = (await clients.ann.runs.create(thread, "echo", input=X))["run_id"]
    for method, path, body in (
        ("GET", f"/threads/{thread}/runs?limit=0", None),
        ("GET", f"/threads/{thread}/runs?limit=1001", None),
        ("GET", f"/threads/{thread}/runs?status=asleep", None),
        ("POST", f"/threads/{thread}/runs/{run}/cancel?action=explode", None),
        ("POST", f"/threads/{thread}/runs/not-an-id/cancel", None),
        ("GET", f"/threads/{thread}/runs/{run}/stream?stream_mode=songs", None),
        ("POST", "/runs/cancel", {"status": "all"}),
        ("POST", "/runs/cancel", {"thread_id": thread, "status": "asleep"}),
        ("POST", "/runs", {**good, "command": {"resume": 1}}),
        ("POST", "/runs/batch", good),
    ):
        answer = await http.request(method, path, json=body)
        assert (answer.status_code, list(answer.json())) == (422, ["detail"]), (path, body, answer.text)
    assert (await http.post("/runs", json={"assistant_id": NOWHERE})).status_code == 404
    for path in (f"/threads/{thread}/runs/{NOWHERE}", f"/threads/{NOWHERE}/runs/{run}"):
        assert (await http.get(path)).status_code == 404
        assert (await http.get(f"{path}/join")).status_code == 404
        assert (await http.get(f"{path}/stream")).status_code == 404
        assert (await http.post(f"{path}/cancel")).status_code == 404
        assert (await http.delete(path)).status_code == 404


async def test_a_place_that_is_in_no_past_is_not_found(clients: Clients, thread: str) -> None:
    await clients.ann.runs.wait(thread, "echo", input=X)
    with pytest.raises(NotFoundError):
        await clients.ann.runs.create(thread, "echo", input=X, checkpoint_id=NOWHERE)
    assert (await clients.ann.threads.get_state(thread))["values"]["words"] == ECHOED
