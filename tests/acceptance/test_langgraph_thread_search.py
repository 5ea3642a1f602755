"""Threads by the values of their states, with states from the start, with a time to live, and under ids of any form."""

import inspect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from clew.api.sdk.assistants import AssistantChangeIn, AssistantIn, AssistantSearchIn, AssistantVersionsIn
from clew.api.sdk.crons import CronCountIn, CronIn, CronPatchIn, CronSearchIn
from clew.api.sdk.run_schemas import RunIn
from clew.api.sdk.store import ItemIn, ItemNameIn, ItemSearchIn, NamespacesIn
from clew.api.sdk.thread_schemas import (
    HistoryIn,
    PruneIn,
    SearchIn,
    StateAtIn,
    StateIn,
    ThreadIn,
    ThreadPatchIn,
)
from tests.acceptance import run_graphs
from tests.acceptance.sdk import Clients, SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("search"), run_graphs) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


def step(*words: str, as_node: str = "second") -> Any:
    return {"updates": [{"values": {"words": [*words]}, "as_node": as_node}]}


async def test_threads_are_found_by_the_values_of_their_states(clients: Clients) -> None:
    team = str(uuid4())
    threads = clients.ann.threads
    made = [
        (
            await threads.create(
                graph_id="echo", metadata={"team": team, "n": n}, supersteps=[step(f"w{n}", "all")]
            )
        )["thread_id"]
        for n in range(3)
    ]
    broken = (await threads.create(graph_id="echo", metadata={"team": team}))["thread_id"]

    async def found(values: Any, **more: Any) -> list[str]:
        shown = await threads.search(metadata={"team": team}, values=values, sort_order="asc", **more)
        return [thread["thread_id"] for thread in shown]

    assert await found({"words": ["all"]}) == made
    assert await found({"words": ["all", "w1"]}) == [made[1]]  # in any order, as Postgres means `@>`
    assert await found({"words": ["all"]}, limit=1, offset=1) == [made[1]]
    assert await found({"words": ["nothing"]}) == await found({"colour": None}) == []
    assert await threads.count(metadata={"team": team}, values={"words": ["all"]}) == 3
    assert await threads.count(metadata={"team": team}) == 4
    (one,) = await threads.search(
        ids=[made[2], broken],
        values={"words": ["w2"]},
        select=["thread_id"],
        extract={"last": "values.words[-1]", "n": "metadata.n"},
    )
    assert one == {"thread_id": made[2], "extracted": {"last": "all", "n": 2}}
    assert await clients.rival.threads.count(values={"words": ["all"]}) == 0


async def test_a_search_by_values_is_bounded_and_one_unreadable_state_does_not_spoil_it(
    clients: Clients, stage: Stage
) -> None:
    team = str(uuid4())
    threads = clients.ann.threads
    made = [
        (await threads.create(graph_id="echo", metadata={"team": team}, supersteps=[step("x")]))["thread_id"]
        for _ in range(2)
    ]
    stage.sql(f"UPDATE checkpoints SET body = 'no json' WHERE thread_id = '{made[0]}'")
    found = await threads.search(metadata={"team": team}, values={"words": ["x"]})
    assert [one["thread_id"] for one in found] == [made[1]]
    # 1,001 threads of a team of their own: one row each is enough to be counted.
    crowd = str(uuid4())
    stage.sql(
        "INSERT INTO threads (id, tenant, user_id, graph, name, status, stage, round, round_seq, settings,"
        " fsm_state, stats, redacted, last_seq, created_at, last_active_at, last_accessed_at)"
        f" WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1001) SELECT '{crowd}-' || i,"
        " tenant, user_id, graph, name, status, stage, round, round_seq, settings, fsm_state, stats, redacted,"
        f" last_seq, created_at, last_active_at, last_accessed_at FROM threads, n WHERE id = '{made[1]}'",
    )
    with pytest.raises(UnprocessableEntityError, match="at most 1000"):
        await threads.search(values={"words": ["x"]})
    with pytest.raises(UnprocessableEntityError, match="narrow"):
        await threads.count(values={"words": ["x"]})
    assert await threads.count(metadata={"team": team}, values={"words": ["x"]}) == 1
    stage.sql(f"DELETE FROM threads WHERE id LIKE '{crowd}-%'")


async def test_a_thread_is_created_with_supersteps_and_runs_on_from_there(clients: Clients) -> None:
    threads = clients.ann.threads
    steps = [step("hello", as_node=node) for node in ("__input__", "__start__")]
    steps += [step("one", as_node="first"), step("two")]
    thread = await threads.create(graph_id="echo", supersteps=steps)
    assert thread["values"] == {"words": ["hello", "one", "two"]}
    history = await threads.get_history(thread["thread_id"])
    assert [state["values"].get("words", []) for state in history][:3] == [
        ["hello", "one", "two"],
        ["hello", "one"],
        ["hello"],
    ]
    values = await clients.ann.runs.wait(thread["thread_id"], "echo", input={"words": ["more"]})
    assert values["words"] == ["hello", "one", "two", "more", "first", "second"]
    elsewhere = {"updates": [{"values": None, "command": {"update": {"words": ["c"]}}, "as_node": "first"}]}
    commanded = await threads.create(graph_id="echo", supersteps=[elsewhere])
    assert commanded["values"] == {"words": ["c"]}
    for wrong in ({"supersteps": steps}, {"graph_id": "echo", "supersteps": [step("x", as_node="nosuch")]}):
        chosen = str(uuid4())
        with pytest.raises(UnprocessableEntityError, match="supersteps"):
            await threads.create(thread_id=chosen, **wrong)
        with pytest.raises(NotFoundError):
            await threads.get(chosen)


async def test_how_long_a_thread_lives_is_shown_and_changed(clients: Clients) -> None:
    threads = clients.ann.threads
    thread = (await threads.create(ttl=60))["thread_id"]
    assert "ttl" not in await threads.get(thread)

    async def left() -> tuple[str, float, timedelta]:
        ttl = (await threads.get(thread, include=["ttl"]))["ttl"]
        return (
            ttl["strategy"],
            ttl["ttl_minutes"],
            datetime.fromisoformat(ttl["expires_at"]) - datetime.now(UTC),
        )

    strategy, minutes, rest = await left()
    assert (strategy, minutes) == ("delete", 60)
    assert timedelta(minutes=58) < rest <= timedelta(minutes=60)
    await threads.update(thread, metadata={"a": 1}, ttl={"ttl": 5, "strategy": "delete"})
    _, minutes, rest = await left()
    assert minutes == 5
    assert timedelta(minutes=4) < rest <= timedelta(minutes=5)
    assert (await threads.get(thread))["metadata"] == {"a": 1}
    await clients.ann.runs.wait(thread, "echo", input={"words": ["x"]})
    assert (await left())[1] == 5
    with pytest.raises(NotFoundError):
        await clients.rival.threads.update(thread, metadata={}, ttl=1)
    await threads.update(thread, metadata={}, ttl={"ttl": 7, "strategy": "keep_latest"})
    strategy, minutes, rest = await left()
    assert (strategy, minutes) == ("keep_latest", 7)
    assert timedelta(minutes=6) < rest <= timedelta(minutes=7)
    await threads.update(thread, metadata={}, ttl=60)
    assert (await left())[:2] == ("delete", 60)
    with pytest.raises(UnprocessableEntityError, match="strategy"):
        await threads.update(thread, metadata={}, ttl={"ttl": 5, "strategy": "archive"})


async def test_states_are_read_in_part_and_their_size_is_told(
    clients: Clients, http: httpx.AsyncClient
) -> None:
    thread = (await clients.ann.threads.create())["thread_id"]
    await clients.ann.runs.wait(thread, "echo", input={"words": ["x"]})
    state = await clients.ann.threads.get_state(thread, select=["values.words", "values.marks", "next"])
    assert state == {"values": {"words": ["x", "first", "second"]}, "next": []}
    history = await clients.ann.threads.get_history(thread, select=["checkpoint"])
    assert [*history[0]] == ["checkpoint"]
    at = history[0]["checkpoint"]
    assert await clients.ann.threads.get_state(thread, checkpoint=at, select=["next"]) == {"next": []}
    plain = (await http.get(f"/threads/{thread}/history")).json()
    assert plain == await clients.ann.threads.get_history(thread)
    older = await http.get(
        f"/threads/{thread}/history", params={"limit": 1, "before": plain[0]["checkpoint_id"]}
    )
    assert older.json() == [plain[1]]
    sizes = (await http.get(f"/threads/{thread}/storage")).json()
    assert sizes["thread_id"] == thread
    assert sizes["checkpoints"]["count"] == len(plain)
    assert sizes["channel_values"]["by_channel"]["words"]["bytes"] > 0
    parts = ("checkpoints", "channel_values", "pending_writes")
    assert sizes["total_bytes"] == sum(sizes[part]["bytes"] for part in parts) > 0
    cron = await clients.ann.crons.create("echo", schedule="0 0 1 1 *", input={"words": ["x"]})
    assert (await http.get(f"/runs/crons/{cron['cron_id']}")).json() == cron
    assert (await http.get(f"/runs/crons/{uuid4()}")).status_code == 404
    await clients.ann.crons.delete(cron["cron_id"])


async def test_a_thread_id_need_not_be_a_uuid(clients: Clients, http: httpx.AsyncClient) -> None:
    chosen = f"Chat:ann@example.com_{uuid4().hex[:6]}.1"
    for client in (clients.ann, clients.rival):
        assert (await client.threads.create(thread_id=chosen, graph_id="echo"))["thread_id"] == chosen
        with pytest.raises(ConflictError):
            await client.threads.create(thread_id=chosen)
        values = await client.runs.wait(chosen, "echo", input={"words": ["x"]})
        assert values["words"] == ["x", "first", "second"]
    ann = clients.ann
    (run,) = await ann.runs.list(chosen)
    assert (await ann.runs.get(chosen, run["run_id"]))["thread_id"] == chosen
    parts = [part async for part in ann.runs.stream(chosen, "echo", input={"words": ["y"]})]
    assert any(part.event == "values" and part.data["words"][-1] == "second" for part in parts)
    assert len(await ann.threads.get_history(chosen)) > 2
    await ann.threads.update_state(chosen, {"words": ["hand"]}, as_node="second")
    assert [one["thread_id"] for one in await ann.threads.search(ids=[chosen])] == [chosen]
    cron = await ann.crons.create_for_thread(chosen, "echo", schedule="0 0 1 1 *")
    assert [one["thread_id"] for one in await ann.crons.search(thread_id=chosen)] == [chosen]
    await ann.crons.delete(cron["cron_id"])
    copied = await ann.threads.copy(chosen)
    assert copied["values"]["words"][-1] == "hand"
    assert (await http.get(f"/api/threads/{chosen}")).status_code == 200
    with pytest.raises(NotFoundError):
        await clients.bob.threads.get(chosen)
    assert (await ann.threads.prune([chosen]))["pruned_count"] == 1
    with pytest.raises(NotFoundError):
        await ann.threads.get(chosen)
    assert (await clients.rival.threads.get(chosen))["values"]["words"] == ["x", "first", "second"]
    new = f"{chosen}-new"
    await ann.runs.wait(new, "echo", input={"words": ["x"]}, if_not_exists="create")
    assert (await ann.threads.get(new))["thread_id"] == new


async def test_what_has_no_effect_is_named_in_the_log(
    clients: Clients, http: httpx.AsyncClient, served: SdkServer
) -> None:
    thread = (await clients.ann.threads.create())["thread_id"]
    for more, named in (
        ({"feedback_keys": ["score"]}, "feedback_keys"),
        ({"langsmith_tracing": {"project_name": "p"}}, "langsmith_tracer"),
    ):
        for _ in range(2):
            stream = clients.ann.runs.stream(thread, "echo", input={"words": ["x"]}, **more)
            assert [part.event async for part in stream][-1] == "end"
        assert served.server.log.count(f"the field '{named}' of a request has no effect") == 1
    await clients.ann.runs.wait(thread, "echo", input={"words": ["x"]}, durability="exit", strict_resume=True)
    with pytest.raises(ConflictError):
        await clients.ann.runs.create(
            thread, "echo", command={"resume": {"0" * 32: "yes"}}, strict_resume=True
        )
    body = {"assistant_id": "echo", "input": {"words": ["x"]}, "new_in_a_later_version": 1, "private text": 2}
    assert (await http.post(f"/threads/{thread}/runs", json=body)).status_code == 200
    assert "'new_in_a_later_version' of a request (RunIn) has no effect" in served.server.log
    assert "private text" not in served.server.log
    for name, value in (("after_seconds", 5), ("on_completion", "keep"), ("if_not_exists", "create")):
        body = {"assistant_id": "echo", "schedule": "* * * * *", name: value}
        answer = await http.post("/runs/crons", json=body)
        assert (answer.status_code, name in answer.text) == (422, True)


# Parameters of the SDK's methods that are not sent in the body under their own names.
IN_THE_PATH = {"thread_id", "run_id", "cron_id", "assistant_id"}
BY_THE_CLIENT = {
    *("headers", "params", "on_run_created", "raise_error", "version", "return_minimal", "response_format"),
    *("transport", "run_start_timeout", "payloads"),
}
RENAMED = {"langsmith_tracing": "langsmith_tracer"}
IN_THE_QUERY = {
    "threads.get": {"include"},
    "threads.get_state": {"checkpoint_id"},
    "threads.create": {"graph_id"},  # becomes metadata
    "threads.join_stream": {"last_event_id", "stream_mode"},
    "runs.cancel": {"wait", "action"},
    "runs.cancel_many": {"run_ids", "status", "action"},
    "runs.join_stream": {"cancel_on_disconnect", "stream_mode", "last_event_id"},
    "runs.list": {"limit", "offset", "status", "select"},
    "store.get_item": {"namespace", "key", "refresh_ttl"},
    "assistants.delete": {"delete_threads"},
    "assistants.get_graph": {"xray"},
    "assistants.get_subgraphs": {"namespace", "recurse"},
    "assistants.set_latest": {"version"},
}
BODIES: dict[str, Any] = {
    "threads.count": SearchIn,
    "threads.create": ThreadIn,
    "threads.get_history": HistoryIn,
    "threads.get_state": StateAtIn,
    "threads.prune": PruneIn,
    "threads.search": SearchIn,
    "threads.update": ThreadPatchIn,
    "threads.update_state": StateIn,
    "runs.create": RunIn,
    "runs.stream": RunIn,
    "runs.wait": RunIn,
    "crons.count": CronCountIn,
    "crons.create": CronIn,
    "crons.create_for_thread": CronIn,
    "crons.search": CronSearchIn,
    "crons.update": CronPatchIn,
    "store.delete_item": ItemNameIn,
    "store.list_namespaces": NamespacesIn,
    "store.put_item": ItemIn,
    "store.search_items": ItemSearchIn,
    "assistants.count": AssistantSearchIn,
    "assistants.create": AssistantIn,
    "assistants.get_versions": AssistantVersionsIn,
    "assistants.search": AssistantSearchIn,
    "assistants.update": AssistantChangeIn,
}


def test_every_parameter_of_the_sdk_is_a_field_that_is_known_here() -> None:
    """A field that is known is honoured, or refused by name. A new parameter of a newer SDK fails here first."""
    client = get_client(url="http://127.0.0.1:1")
    unknown = []
    for resource in ("threads", "runs", "crons", "store", "assistants"):
        for name, method in inspect.getmembers(getattr(client, resource), inspect.ismethod):
            call = f"{resource}.{name}"
            if name.startswith("_"):
                continue
            sent = set(inspect.signature(method).parameters) - BY_THE_CLIENT - IN_THE_QUERY.get(call, set())
            known = set(BODIES[call].model_fields) if call in BODIES else set()
            sent = {RENAMED.get(one, one) for one in sent} - known
            unknown += [f"{call}({one})" for one in sorted(sent - IN_THE_PATH)]
    assert unknown == []
