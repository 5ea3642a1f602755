"""Threads and their states as LangGraph's own client asks for them, of a real server on either database."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients

pytestmark = pytest.mark.anyio

NOWHERE = "11111111-2222-4333-8444-555555555555"


SDK_GRAPHS = run_graphs


async def echoed(clients: Clients, *words: str) -> str:
    """A thread in which these were said, each in a run of its own."""
    thread: str = (await clients.ann.threads.create())["thread_id"]
    for word in words:
        await clients.ann.runs.wait(thread, "echo", input={"words": [word]})
    return thread


async def past(clients: Clients, thread: str, **wanted: Any) -> list[list[str]]:
    return [
        state["values"].get("words", []) for state in await clients.ann.threads.get_history(thread, **wanted)
    ]


async def test_a_thread_is_made_and_found(clients: Clients) -> None:
    made = await clients.ann.threads.create(metadata={"who": "me", "nested": {"n": 1}})
    assert made["metadata"] == {"who": "me", "nested": {"n": 1}}
    assert (made["status"], made["values"], made["interrupts"]) == ("idle", None, {})
    assert made["created_at"] == made["updated_at"]
    assert made["created_at"].endswith("+00:00")
    assert await clients.ann.threads.get(made["thread_id"]) == made
    chosen = str(uuid4())
    assert (await clients.ann.threads.create(thread_id=chosen, graph_id="echo"))["thread_id"] == chosen
    assert (await clients.ann.threads.get(chosen))["metadata"] == {"graph_id": "echo"}


async def test_a_thread_of_the_same_id_is_refused_or_left_as_it_is(clients: Clients) -> None:
    thread = (await clients.ann.threads.create(metadata={"first": True}))["thread_id"]
    for if_exists in ("raise", None):
        with pytest.raises(ConflictError):
            await clients.ann.threads.create(thread_id=thread, if_exists=if_exists)
    again = await clients.ann.threads.create(
        thread_id=thread, metadata={"second": True}, if_exists="do_nothing"
    )
    assert again["metadata"] == {"first": True}
    with pytest.raises((NotFoundError, ConflictError)):
        await clients.bob.threads.create(thread_id=thread, if_exists="do_nothing")
    # Another tenant has ids of its own, and learns of none of these.
    theirs = await clients.rival.threads.create(thread_id=thread, metadata={"theirs": True})
    assert (theirs["thread_id"], theirs["metadata"]) == (thread, {"theirs": True})
    assert (await clients.ann.threads.get(thread))["metadata"] == {"first": True}
    assert (await clients.rival.threads.get(thread))["metadata"] == {"theirs": True}


async def test_metadata_is_added_to_and_replaced_name_by_name(clients: Clients) -> None:
    threads = clients.ann.threads
    thread = (await threads.create(metadata={"kept": 1, "deep": {"a": {"b": 1}}, "deeper": 1}))["thread_id"]
    updated = await threads.update(thread, metadata={"deep": {"c": [1, None]}, "new": "é"})
    assert updated["metadata"] == {"kept": 1, "deep": {"c": [1, None]}, "deeper": 1, "new": "é"}
    assert await threads.update(thread, metadata={"kept": 2}, return_minimal=True) is None
    assert (await threads.get(thread))["metadata"]["kept"] == 2


async def test_a_deleted_thread_is_gone(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    await clients.ann.threads.delete(thread)
    for gone in (
        clients.ann.threads.get(thread),
        clients.ann.threads.delete(thread),
        clients.ann.threads.get_state(thread),
        clients.ann.threads.get_history(thread),
        clients.ann.threads.update(thread, metadata={}),
        clients.ann.threads.update_state(thread, {"words": ["y"]}),
        clients.ann.threads.copy(thread),
        clients.ann.runs.list(thread),
        clients.ann.runs.create(thread, "echo", input={"words": ["y"]}),
    ):
        with pytest.raises(NotFoundError):
            await gone
    assert await clients.ann.threads.search(ids=[thread]) == []


async def test_threads_are_found_by_their_metadata(clients: Clients) -> None:
    team = str(uuid4())
    made = []
    for n in range(5):
        metadata = {"team": team, "place": {"room": n % 2, "tags": ["a", n]}, "n": n}
        made.append((await clients.ann.threads.create(metadata=metadata))["thread_id"])

    async def found(metadata: Any, **wanted: Any) -> list[int]:
        threads = await clients.ann.threads.search(metadata={"team": team, **metadata}, **wanted)
        return [made.index(thread["thread_id"]) for thread in threads]

    assert await found({}) == [4, 3, 2, 1, 0]
    assert await found({"place": {"room": 1}}) == [3, 1]
    assert await found({"place": {"tags": ["a", 2]}}) == [2]
    assert await found({"n": "2"}) == []
    assert await found({"other": 1}) == []
    assert await found({}, sort_by="created_at", sort_order="asc", limit=2, offset=1) == [1, 2]
    assert await found({}, ids=[made[1], made[3], NOWHERE]) == [3, 1]
    by_id = sorted(range(5), key=lambda n: made[n])
    assert await found({}, sort_by="thread_id", sort_order="asc") == by_id
    assert await clients.ann.threads.count(metadata={"team": team, "place": {"room": 0}}) == 3
    (chosen,) = await clients.ann.threads.search(
        metadata={"team": team, "n": 1}, select=["thread_id", "metadata"]
    )
    assert sorted(chosen) == ["metadata", "thread_id"]
    assert await clients.bob.threads.search(metadata={"team": team}) == []
    assert await clients.rival.threads.count(metadata={"team": team}) == 0
    assert await clients.acme.threads.count(metadata={"team": team}) == 5


async def test_a_search_tells_how_many_there_are_and_where_to_go_on(
    clients: Clients, http: httpx.AsyncClient
) -> None:
    team = str(uuid4())
    for _ in range(3):
        await clients.ann.threads.create(metadata={"team": team})

    async def page(offset: int) -> tuple[int, str, str | None]:
        body = {"metadata": {"team": team}, "limit": 2, "offset": offset}
        answer = await http.post("/threads/search", json=body)
        headers = answer.headers
        return len(answer.json()), headers["x-pagination-total"], headers.get("x-pagination-next")

    assert await page(0) == (2, "3", "2")
    assert await page(2) == (1, "3", None)
    assert await page(5) == (0, "3", None)


async def test_threads_are_found_by_their_status(clients: Clients) -> None:
    team = {"team": str(uuid4())}
    for graph in ("echo", "asker", "boom"):
        thread = (await clients.ann.threads.create(metadata=team))["thread_id"]
        await clients.ann.runs.wait(thread, graph, input={"words": ["x"]}, raise_error=False)
    for status, graph in (("idle", "echo"), ("interrupted", "asker"), ("error", "boom")):
        (thread,) = await clients.ann.threads.search(metadata=team, status=status)
        assert (thread["status"], thread["metadata"]["graph_id"]) == (status, graph)
        assert await clients.ann.threads.count(metadata=team, status=status) == 1
    assert await clients.ann.threads.search(metadata=team, status="busy") == []


async def test_a_run_leaves_on_its_thread_what_it_is_found_by(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    metadata = (await clients.ann.threads.get(thread))["metadata"]
    (assistant,) = await clients.ann.assistants.search(graph_id="echo")
    assert metadata == {"graph_id": "echo", "assistant_id": assistant["assistant_id"]}


async def test_the_state_of_a_thread_is_shown_now_and_as_it_was(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    now = await clients.ann.threads.get_state(thread)
    assert now["values"] == {"words": ["x", "first", "second"]}
    assert (now["next"], now["tasks"], now["interrupts"]) == ([], [], [])
    assert datetime.fromisoformat(now["created_at"]).tzinfo is not None
    assert now["checkpoint"]["thread_id"] == thread
    assert not [name for name in now["metadata"] if name.startswith("clew")]
    parent = now["parent_checkpoint"]
    for named in (
        {"checkpoint": parent},
        {"checkpoint": {"checkpoint_id": parent["checkpoint_id"]}},
        {"checkpoint_id": parent["checkpoint_id"]},
    ):
        before = await clients.ann.threads.get_state(thread, **named)
        assert before["values"] == {"words": ["x", "first"]}
        assert before["checkpoint"] == parent
        assert before["next"] == ["second"]
        assert [task["name"] for task in before["tasks"]] == ["second"]
    for missing in ({"checkpoint_id": NOWHERE}, {"checkpoint": {"checkpoint_id": NOWHERE}}):
        with pytest.raises(NotFoundError):
            await clients.ann.threads.get_state(thread, **missing)


async def test_a_thread_without_a_run_has_an_empty_state(clients: Clients) -> None:
    for metadata in ({}, {"graph_id": "echo"}):
        thread = (await clients.ann.threads.create(metadata=metadata))["thread_id"]
        state = await clients.ann.threads.get_state(thread)
        assert (state["values"], state["next"], state["tasks"], state["checkpoint"]) == ({}, [], [], None)
        assert await clients.ann.threads.get_history(thread) == []


async def test_a_state_can_be_written_by_hand(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    written = await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="first")
    state = await clients.ann.threads.get_state(thread)
    assert state["checkpoint"] == written["checkpoint"]
    assert state["values"]["words"] == ["x", "first", "second", "hand"]
    assert state["next"] == ["second"]
    assert state["metadata"]["source"] == "update"
    # It goes on from there.
    values = await clients.ann.runs.wait(thread, "echo", input=None)
    assert values["words"] == ["x", "first", "second", "hand", "second"]


async def test_a_state_of_the_past_can_be_written_by_hand(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    place = (await clients.ann.threads.get_state(thread))["parent_checkpoint"]
    for named in ({"checkpoint": place}, {"checkpoint_id": place["checkpoint_id"]}):
        await clients.ann.threads.update_state(thread, {"words": ["other"]}, as_node="second", **named)
        state = await clients.ann.threads.get_state(thread)
        assert state["values"]["words"] == ["x", "first", "other"]
        assert state["parent_checkpoint"] == place


async def test_a_thread_is_given_a_state_before_its_first_run(clients: Clients) -> None:
    thread = (await clients.ann.threads.create(graph_id="echo"))["thread_id"]
    await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="__start__")
    state = await clients.ann.threads.get_state(thread)
    assert (state["values"], state["next"]) == ({"words": ["hand"]}, ["first"])
    assert (await clients.ann.threads.get(thread))["values"] == {"words": ["hand"]}
    assert (await clients.ann.runs.wait(thread, "echo", input=None))["words"] == ["hand", "first", "second"]


async def test_what_cannot_be_written_is_refused(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    for values, as_node in (
        ({"words": ["y"]}, "nobody"),
        ({"words": "y"}, "first"),
        ("y", "first"),
        (1, None),
    ):
        with pytest.raises(UnprocessableEntityError):
            await clients.ann.threads.update_state(thread, values, as_node=as_node)
    with pytest.raises(NotFoundError):
        await clients.ann.threads.update_state(thread, {"words": ["y"]}, checkpoint_id=NOWHERE)
    without_graph = (await clients.ann.threads.create())["thread_id"]
    with pytest.raises(ConflictError):
        await clients.ann.threads.update_state(without_graph, {"words": ["y"]})
    assert (await clients.ann.threads.get_state(thread))["values"]["words"] == ["x", "first", "second"]


async def test_the_past_of_a_thread_is_listed_newest_first(clients: Clients) -> None:
    thread = await echoed(clients, "x", "y")
    whole = await clients.ann.threads.get_history(thread, limit=100)
    shown = [state["values"].get("words", []) for state in whole]
    assert shown[0] == ["x", "first", "second", "y", "first", "second"]
    assert [len(words) for words in shown] == [6, 5, 4, 3, 3, 2, 1, 0]
    assert await past(clients, thread, limit=3) == shown[:3]
    middle = whole[2]["checkpoint"]
    for before in (middle, middle["checkpoint_id"], {"configurable": middle}):
        assert await past(clients, thread, limit=2, before=before) == shown[3:5]
    run = whole[0]["metadata"]["run_id"]
    assert await past(clients, thread, limit=100, metadata={"run_id": run}) == shown[:4]
    assert await past(clients, thread, metadata={"source": "input"}) == [shown[3], shown[7]]
    assert await past(clients, thread, metadata={"source": "nothing"}) == []


async def test_states_of_graphs_inside_of_graphs_are_shown(clients: Clients) -> None:
    thread = (await clients.ann.threads.create())["thread_id"]
    await clients.ann.runs.wait(thread, "nested_asker", input={"words": ["x"]})
    await clients.ann.runs.wait(thread, "nested_asker", command={"resume": "yes"})
    (task,) = (await clients.ann.threads.get_state(thread))["tasks"]
    assert (task["name"], task["state"]) == ("inner", None)
    place = task["checkpoint"]
    assert place["checkpoint_ns"].startswith("inner:")
    (task,) = (await clients.ann.threads.get_state(thread, subgraphs=True))["tasks"]
    assert task["state"]["values"]["words"] == ["x", "answered yes"]
    assert task["state"]["next"] == ["ask_again"]
    inside = await clients.ann.threads.get_state(thread, checkpoint=task["state"]["checkpoint"])
    assert inside["values"]["words"] == ["x", "answered yes"]
    assert await past(clients, thread, checkpoint=place, limit=1) == [["x", "answered yes"]]
    with pytest.raises(NotFoundError):
        await clients.ann.threads.get_state(thread, checkpoint={"checkpoint_ns": "nobody:1"})
    with pytest.raises(NotFoundError):
        await clients.ann.threads.get_history(thread, checkpoint={"checkpoint_ns": "nobody:1"})


async def test_a_copy_goes_its_own_way(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    await clients.ann.threads.update(thread, metadata={"of": "mine"})
    copy = await clients.ann.threads.copy(thread)
    assert copy["thread_id"] != thread
    assert copy["values"] == {"words": ["x", "first", "second"]}
    assert copy["metadata"]["of"] == "mine"
    assert await past(clients, copy["thread_id"]) == await past(clients, thread)
    await clients.ann.runs.wait(copy["thread_id"], "echo", input={"words": ["y"]})
    assert len((await clients.ann.threads.get(copy["thread_id"]))["values"]["words"]) == 6
    assert len((await clients.ann.threads.get(thread))["values"]["words"]) == 3
    await clients.ann.threads.delete(thread)
    assert len((await clients.ann.threads.get(copy["thread_id"]))["values"]["words"]) == 6


async def test_the_past_is_pruned_and_the_state_stays(clients: Clients) -> None:
    thread = await echoed(clients, "x", "y")
    others = await echoed(clients, "z")
    state = await clients.ann.threads.get_state(thread)
    pruned = await clients.ann.threads.prune([thread, thread, NOWHERE], strategy="keep_latest")
    assert pruned == {"pruned_count": 1}
    assert await past(clients, thread) == [["x", "first", "second", "y", "first", "second"]]
    assert (await clients.ann.threads.get_state(thread))["values"] == state["values"]
    assert len(await past(clients, others)) == 4
    again = await clients.ann.runs.wait(thread, "echo", input={"words": ["z"]})
    assert again["words"][-3:] == ["z", "first", "second"]


async def test_threads_are_pruned_away(clients: Clients) -> None:
    threads = [await echoed(clients, "x") for _ in range(2)]
    assert await clients.rival.threads.prune(threads) == {"pruned_count": 0}
    assert await clients.ann.threads.prune(threads) == {"pruned_count": 2}
    assert await clients.ann.threads.search(ids=threads) == []


async def test_what_is_deleted_is_in_no_state_and_no_past(clients: Clients, http: httpx.AsyncClient) -> None:
    """A message that was taken back through our own API."""
    secret = f"the word is {uuid4()}"
    thread = (await clients.ann.threads.create())["thread_id"]
    said = {"messages": [{"role": "user", "content": secret}]}
    run = await clients.ann.runs.create(
        thread, "talk", input=said, stream_resumable=True, stream_mode=["values", "tasks", "debug"]
    )
    await clients.ann.runs.join(thread, run["run_id"])
    place = (await clients.ann.threads.get_state(thread))["parent_checkpoint"]
    messages = (await http.get(f"/api/workflows/{thread}/messages")).json()["messages"]
    (message,) = [one["id"] for one in messages if one["content"] == secret]
    assert (await http.delete(f"/api/workflows/{thread}/messages/{message}")).is_success

    async def shown() -> AsyncIterator[Any]:
        threads, runs = clients.ann.threads, clients.ann.runs
        yield await threads.get(thread)
        yield await threads.search(ids=[thread])
        yield await threads.get_state(thread, subgraphs=True)
        yield await threads.get_state(thread, checkpoint=place)
        yield await threads.get_history(thread, limit=100)
        yield await runs.list(thread)
        yield await runs.get(thread, run["run_id"])
        yield await runs.join(thread, run["run_id"])
        yield [part async for part in runs.join_stream(thread, run["run_id"], last_event_id="-1")]
        said["messages"][0]["content"] = "again"
        yield await runs.wait(thread, "talk", input=said)
        yield [part async for part in runs.stream(thread, "talk", input=said)]

    async for answer in shown():
        assert secret not in str(answer)
        assert "word is" not in str(answer)
    # A copy would know nothing of what was deleted, and tell it.
    with pytest.raises(ConflictError):
        await clients.ann.threads.copy(thread)


async def test_strangers_find_nothing(clients: Clients) -> None:
    thread = await echoed(clients, "x")
    place = (await clients.ann.threads.get_state(thread))["checkpoint"]
    for stranger in (clients.bob, clients.rival):
        for asked in (
            stranger.threads.get(thread),
            stranger.threads.update(thread, metadata={"a": 1}),
            stranger.threads.delete(thread),
            stranger.threads.copy(thread),
            stranger.threads.get_state(thread),
            stranger.threads.get_state(thread, checkpoint=place),
            stranger.threads.get_state(thread, checkpoint_id=place["checkpoint_id"]),
            stranger.threads.update_state(thread, {"words": ["y"]}),
            stranger.threads.get_history(thread),
        ):
            with pytest.raises(NotFoundError):
                await asked
        own = (await stranger.threads.create(graph_id="echo"))["thread_id"]
        # A place in somebody else's thread is no place in one's own.
        with pytest.raises(NotFoundError):
            await stranger.threads.get_state(own, checkpoint=place)
        assert await stranger.threads.get_history(own, before=place) == []
    assert (await clients.acme.threads.get(thread))["values"]["words"] == ["x", "first", "second"]


async def test_what_is_wrong_is_refused_with_a_detail(clients: Clients, http: httpx.AsyncClient) -> None:
    thread = await echoed(clients, "x")
    deep: Any = 1
    for _ in range(9):
        deep = {"in": deep}
    wrong: list[tuple[str, str, Any]] = [
        ("GET", "threads/not%20an%20id", None),
        ("GET", "threads/not%20an%20id/state", None),
        ("DELETE", "threads/not%20an%20id", None),
        ("POST", "threads/not%20an%20id/history", {}),
        ("POST", "threads/not%20an%20id/runs", {"assistant_id": "echo"}),
        ("GET", f"threads/{thread}/runs/not-an-id", None),
        ("GET", f"threads/{thread}/state/not-an-id", None),
        ("POST", "threads", {"thread_id": "not/an/id"}),
        ("POST", "threads", {"if_exists": "perhaps"}),
        ("POST", "threads", {"metadata": [1]}),
        ("POST", "threads", {"metadata": deep}),
        ("POST", "threads", {"metadata": {str(n): n for n in range(201)}}),
        ("POST", "threads", {"metadata": {"n" * 1001: 1}}),
        ("POST", "threads", {"ttl": -1}),
        ("POST", "threads", {"supersteps": [{"updates": [{}]}]}),
        ("PATCH", f"threads/{thread}", {"metadata": {str(n): n for n in range(201)}}),
        ("POST", "threads/search", {"limit": 0}),
        ("POST", "threads/search", {"limit": 1001}),
        ("POST", "threads/search", {"offset": -1}),
        ("POST", "threads/search", {"status": "asleep"}),
        ("POST", "threads/search", {"sort_by": "color"}),
        ("GET", f"threads/{thread}/history?limit=0", None),
        ("GET", f"threads/{thread}?include=values", None),
        ("GET", f"threads/{thread}/state?select=colour", None),
        ("PATCH", f"threads/{thread}", {"ttl": {"ttl": 0}}),
        ("POST", "threads", {"thread_id": "n" * 129}),
        (
            "POST",
            "threads",
            {"metadata": {"graph_id": "nosuch"}, "supersteps": [{"updates": [{"values": {}}]}]},
        ),
        ("POST", "threads/search", {"ids": ["~"]}),
        ("POST", "threads/count", {"status": "asleep"}),
        ("POST", "threads/prune", {"thread_ids": [thread], "strategy": "half"}),
        ("POST", "threads/prune", {}),
        ("POST", f"threads/{thread}/state/checkpoint", {"checkpoint": {"checkpoint_id": "x"}}),
        ("POST", f"threads/{thread}/state", {"values": {}, "checkpoint_id": "x"}),
        ("POST", f"threads/{thread}/history", {"limit": 0}),
        ("POST", f"threads/{thread}/history", {"limit": 1001}),
        ("POST", f"threads/{thread}/history", {"before": "x"}),
        ("POST", f"threads/{thread}/history", {"before": {"configurable": {"checkpoint_id": "x"}}}),
    ]
    for method, path, body in wrong:
        answer = await http.request(method, f"/{path}", json=body)
        assert (answer.status_code, list(answer.json())) == (422, ["detail"]), (method, path, answer.text)
    assert (await clients.ann.threads.get(thread))["values"]["words"] == ["x", "first", "second"]


async def test_metadata_cannot_be_made_to_grow_without_end(clients: Clients) -> None:
    """Not in one request, and not in many."""
    thread = (await clients.ann.threads.create())["thread_id"]
    await clients.ann.threads.update(thread, metadata={str(n): n for n in range(150)})
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.threads.update(thread, metadata={f"more {n}": n for n in range(60)})
    assert len((await clients.ann.threads.get(thread))["metadata"]) == 150
    await clients.ann.threads.update(thread, metadata={str(n): -n for n in range(150)})


async def test_a_long_value_is_kept_and_found(clients: Clients) -> None:
    """Longer than an index takes, and of letters that cannot be made shorter."""
    value = "".join(str(uuid4()) for _ in range(500))
    thread = (await clients.ann.threads.create(metadata={"long": value}))["thread_id"]
    assert (await clients.ann.threads.get(thread))["metadata"] == {"long": value}
    (found,) = await clients.ann.threads.search(metadata={"long": value})
    assert found["thread_id"] == thread
    assert await clients.ann.threads.search(metadata={"long": value[:-1]}) == []
