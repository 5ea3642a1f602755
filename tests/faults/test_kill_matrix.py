"""A server that dies or fails at every named place, with a thread in a model call, in a tool, before and after an approval."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from clew.stores.sql.purge import PURGED
from tests.databases import SHARED, locate, open_database, query
from tests.faults.forkserver import ForkServer
from tests.faults.report import Trials
from tests.faults.sink import Sink, sink
from tests.faults.stage import CLEANUP_KEY, Client, Heard, Server, Stage
from tests.processes import until

# Dozens of servers one after another, and each has to wait for the processor like everybody else.
pytestmark = pytest.mark.timeout(300)

# Where a run can die, and how often it passes there until it is done.
PLACES = (
    "accept_before_commit",
    "accept_after_commit_before_reply",
    "lease_taken",
    "llm_before@1",
    "llm_before@2",
    "llm_after_before_commit@1",
    "llm_after_before_commit@2",
    "toolcall_logged",
    "tool_before_effect",
    "tool_after_effect",
    "tool_result_logged",
    "interrupt_logged",
    "decision_committed_before_resume",
    *(f"checkpoint_put@{n}" for n in range(1, 5)),
    # Not all of them are the thread's own. How many there are depends on what waits together: 22 at least.
    *(f"commit_begun@{n}" for n in (4, 13)),
    *(f"commit_written@{n}" for n in (7, 14)),
    *(f"commit_done@{n}" for n in (5, 16)),
)
ONE_OF_EACH = tuple({place.partition("@")[0]: place for place in PLACES}.values())
TOOLS = ("effect", "effect_once", "effect_approved")
# What is cancelled leaves by the same way as what is raised.
ACTIONS = ("kill", "raise", pytest.param("cancel", marks=pytest.mark.long))
AROUND_A_TOOL = (
    *("lease_taken", "llm_after_before_commit@1", "toolcall_logged"),
    *("tool_before_effect", "tool_after_effect", "tool_result_logged", "checkpoint_put@3"),
)
# Only a model whose answer was not yet durable may be asked again. Of the commits nobody knows whose the n-th is.
ASKED_AGAIN = (
    *("llm_before", "llm_after_before_commit", "checkpoint_put"),
    *("commit_begun", "commit_written", "commit_done"),
)


@pytest.fixture(scope="module")
def world() -> Iterator[Sink]:
    with sink() as there:
        yield there


@pytest.fixture(params=[*SHARED, pytest.param("postgres, workers", marks=pytest.mark.long)])
def stage(request: pytest.FixtureRequest, forks: ForkServer, tmp_path: Path) -> Stage:
    kind = "workers" if "workers" in request.param else "local"
    where = locate(request.param.partition(",")[0], request)
    return Stage(forks, where, tmp_path / "stage", {"CLEW_RUNNER_KIND": kind})


def of_every_change(stage: Stage, places: Sequence[str]) -> Sequence[str]:
    """Every second place on SQLite, the others on Postgres; the long tests visit all of them on both."""
    return places[_of(stage) == "postgres" :: 2]


@pytest.mark.fault("A2", "A3", "A4")
@pytest.mark.parametrize("tool", TOOLS)
def test_a_thread_ends_right_wherever_its_server_died(stage: Stage, world: Sink, tool: str) -> None:
    die_at(of_every_change(stage, places_of(tool)), stage, world, tool)


@pytest.mark.fault("A2", "A3", "A4")
@pytest.mark.long
@pytest.mark.parametrize("tool", TOOLS)
def test_a_thread_ends_right_at_every_place_of_every_database(
    stage: Stage, world: Sink, trials: Trials, tool: str
) -> None:
    die_at(trials.some(places_of(tool)), stage, world, tool)


def places_of(tool: str) -> Sequence[str]:
    """The tool that must be approved and not repeated passes everywhere; with the others it is about the tool."""
    return PLACES if tool == "effect_approved" else AROUND_A_TOOL


def die_at(places: Sequence[str], stage: Stage, world: Sink, tool: str) -> None:
    for n, place in enumerate(places):
        failpoint, _, hit = place.partition("@")
        client = talker(stage, world, tool, str(n))
        stage.twice(f"{failpoint}:kill@{hit or 1}", client.carry_on).check("kill")
        check_tool(client, tool)
        if failpoint not in ASKED_AGAIN:
            asked = [what for what, _ in world.received(client.name)].count("model")
            assert asked == 2 or client.thread["status"] == "blocked", (place, asked)


def check_tool(client: Client, tool: str) -> None:
    """One call, and what it did out there: nobody else was there to do it."""
    calls = client.logged("tool_call")
    results = client.logged("tool_result")
    keys = [key for what, key in client.sink.received(client.name) if what == tool]
    assert len(calls) == 1, (client.name, calls)
    assert set(keys) <= set(calls), (client.name, "done under another key")
    if client.thread["status"] == "blocked":
        assert tool != "effect", client.thread
        assert [call["kind"] for call in client.thread["pending"].values()] == ["in_doubt"], client.thread
        assert results == [], client.name
    else:
        assert (client.thread["status"], results) == ("completed", calls), client.thread
        assert keys, (client.name, "said to be done, and was not")
        assert len(client.logged("assistant_msg")) == 2, client.name
    # Applied once: what came twice came under one key, and only where that is allowed.
    assert tool == "effect" or len(keys) <= 1, (client.name, "done twice")


@pytest.mark.fault("A2")
@pytest.mark.parametrize("action", ["raise", "cancel"])
def test_a_thread_ends_right_whatever_failed(stage: Stage, world: Sink, action: str) -> None:
    fail_at(of_every_change(stage, ONE_OF_EACH), stage, world, action)


@pytest.mark.fault("A2")
@pytest.mark.long
@pytest.mark.parametrize("action", ["raise", "cancel"])
def test_a_thread_ends_right_whatever_failed_on_every_database(
    stage: Stage, world: Sink, trials: Trials, action: str
) -> None:
    fail_at(trials.some(ONE_OF_EACH), stage, world, action)


def fail_at(places: Sequence[str], stage: Stage, world: Sink, action: str) -> None:
    """The server stays up, and its clients get their answers."""
    for place in places:
        failpoint, _, hit = place.partition("@")
        client = talker(stage, world, "effect_approved", f"{action}-{failpoint}")
        hit = hit or "1"
        stage.twice(f"{failpoint}:{action}@{hit}", client.carry_on).check(action)
        check_tool(client, "effect_approved")


@pytest.mark.fault("A2", "C10")
@pytest.mark.parametrize("action", ACTIONS)
def test_what_nobody_answered_expires_once(stage: Stage, world: Sink, action: str) -> None:
    client = talker(stage, world, "effect_if_quick", action)
    client.says_yes = False
    stage.twice(f"expiry_fired:{action}@1", client.carry_on).check(action)
    assert client.thread["status"] == "completed"
    assert client.logged("resolution") == client.logged("suspension") == client.logged("tool_result")
    assert [what for what, _ in world.received(client.name)] == ["model", "model"], "it was never allowed"


@pytest.mark.fault("A2")
@pytest.mark.parametrize("action", ACTIONS)
def test_a_summary_is_made_once_and_nothing_is_said_twice(stage: Stage, world: Sink, action: str) -> None:
    prompts = ("one", "two", "three", "four")
    client = Client(f"{_of(stage)}-{action}", world, "forgetting", prompts)
    stage.twice(f"summary_written:{action}@1", client.carry_on).check(action)
    assert client.thread["status"] == "completed"
    assert len(client.logged("assistant_msg")) == len(prompts)
    ends = asyncio.run(summed_up(stage.where, client.thread_id))
    assert ends, "nothing was summed up"
    assert len(ends) == len(set(ends)), (ends, "the same was summed up twice")


@pytest.mark.fault("A2", "C4")
@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_deleted_is_gone_for_good(stage: Stage, world: Sink, action: str) -> None:
    client = talker(stage, world, "effect", action)

    def delete(server: Server) -> None:
        # Whoever is not told that it is gone says so again.
        answer = server.ask("DELETE", path)
        assert answer.status_code in (200, 404), answer.text
        assert server.ask("GET", path).status_code == 404

    with stage.serving() as server:
        client.carry_on(server)
    path = f"/api/threads/{client.thread_id}"
    stage.twice(f"delete_mid_tables:{action}@1", delete).check(action)
    with stage.serving():
        until(lambda: asyncio.run(threads_with_rows(stage.where)) == set())


@pytest.mark.fault("A2", "C5")
@pytest.mark.parametrize("action", ACTIONS)
def test_a_cleanup_deletes_what_is_due_and_nothing_else(stage: Stage, world: Sink, action: str) -> None:
    old, young = (talker(stage, world, "effect", f"{age}-{action}") for age in ("old", "young"))

    def clean_up(server: Server) -> None:
        def is_gone() -> bool:
            answer = server.ask("POST", "/api/optimize/cleanup", headers={"X-API-Key": CLEANUP_KEY})
            assert answer.status_code == 200, answer.text
            # Not by looking at it, for what somebody looks at is not due any more.
            return old.thread_id not in [thread["id"] for thread in server.get("/api/threads")["threads"]]

        until(is_gone)

    with stage.serving() as server:
        old.carry_on(server)
        young.carry_on(server)
    asyncio.run(age(stage.where, old.thread_id))
    stage.twice(f"cleanup_mid_thread:{action}@1", clean_up).check(action)
    with stage.serving() as server:
        young.carry_on(server)
        until(lambda: asyncio.run(threads_with_rows(stage.where)) == {young.thread_id})


@pytest.mark.fault("A2", "A5")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("how", ["stream", "socket"])
def test_who_listens_is_told_everything_once(stage: Stage, world: Sink, how: str, action: str) -> None:
    for hit in (1, 6):
        client = talker(stage, world, "effect", f"{how}-{action}-{hit}")
        heard: list[Heard] = [(0, "", {})]

        def listen(server: Server, client: Client = client, heard: list[Heard] = heard) -> None:
            client.say(server)
            while heard[-1][1] != "workflow_completed":
                # Cut off, it comes back with the last thing it heard, if there is anybody to come back to.
                server.get("/health")
                heard += up_to_the_end(getattr(server, how)(client.thread_id, heard[-1][0]))
            client.carry_on(server)

        stage.twice(f"event_published_before_sse:{action}@{hit}", listen).check(action)
        assert [seq for seq, *_ in heard] == [0, *client.events], (
            hit,
            "not once, or not in order",
        )


@pytest.mark.fault("A2", "A9")
@pytest.mark.parametrize("action", ["raise", "cancel"])
@pytest.mark.parametrize("where", SHARED)
def test_a_migration_that_failed_is_made_by_the_next_server(
    where: str, action: str, forks: ForkServer, world: Sink, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Killed at every step of it: test_kill_migrations.py."""
    url = (
        request.getfixturevalue("empty_postgres_url") if where == "postgres" else str(tmp_path / "new.sqlite")
    )
    stage = Stage(forks, url, tmp_path / "stage")
    client = talker(stage, world, "effect", f"migration-{action}")
    # The server may die of it, or try again by itself.
    assert stage.twice(f"migration_mid:{action}@1", client.carry_on, from_start=True).fired
    check_tool(client, "effect")


def talker(stage: Stage, world: Sink, tool: str, name: str) -> Client:
    name = f"{_of(stage)}-{tool}-{name}"
    return Client(name, world, "acting", (f"tools: {tool} at={world.place(name)}",))


def _of(stage: Stage) -> str:
    return "postgres" if stage.where.startswith("postgres") else "sqlite"


def up_to_the_end(events: Iterator[Heard]) -> Iterator[Heard]:
    for event in events:
        yield event
        if event[1] == "workflow_completed":
            return


async def summed_up(where: str, thread_id: str) -> list[int]:
    """Up to where each summary of the thread goes."""
    async with open_database(where) as db:
        rows = await query(db, "SELECT to_seq FROM summaries WHERE thread_id = $1", thread_id)
    return [to_seq for (to_seq,) in rows]


async def age(where: str, thread_id: str) -> None:
    """As if nobody had looked at it for a long time."""
    async with open_database(where) as db:
        long_ago = "UPDATE threads SET last_accessed_at = 1, expires_at = 1 WHERE id = $1"
        await query(db, long_ago, thread_id)


async def threads_with_rows(where: str) -> set[str]:
    """Of which threads anything is left in any table."""
    found: set[str] = set()
    async with open_database(where) as db:
        for table in PURGED:
            found |= {row[0] for row in await query(db, f"SELECT DISTINCT thread_id FROM {table}")}
        return found | {row[0] for row in await query(db, "SELECT id FROM threads")}
