"""Runs that LangGraph's clients ordered, when servers are killed under them or when two share a database."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import APIConnectionError, NotFoundError

from tests.acceptance import run_graphs
from tests.acceptance.sdk import SdkServer, clients_of
from tests.acceptance.sdk_runs import Door, heard
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.faults.report import Trials
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# A server that was killed is missed soon.
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}
X = {"words": ["x"]}


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path, run_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A stage for two servers at once."""
    with stage_on("postgres", request, tmp_path, run_graphs, **QUICK) as stage:
        yield stage


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    folder = tmp_path / "door"
    folder.mkdir()
    door = Door(folder)
    yield door
    door.open()


def kill(served: SdkServer) -> None:
    served.server.signal(signal.SIGKILL)
    served.server.wait()


async def test_a_killed_run_and_those_behind_it_end_in_order(stage: Stage, door: Door) -> None:
    with stage.serving() as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            following = asyncio.create_task(
                heard(clients.ann.runs.stream(thread, "waiter", input=door.input("a")))
            )
            await door.entered("a")
            for word in ("b", "c"):
                await clients.ann.runs.create(thread, "waiter", input=door.input(word))
            kill(served)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    door.open()
    with stage.serving() as served:
        async with clients_of(served) as clients:
            newest, *_ = await clients.ann.runs.list(thread)
            values = await clients.ann.runs.join(thread, newest["run_id"])
            runs = await clients.ann.runs.list(thread)
            assert values["words"] == ["a", "a done", "b", "b done", "c", "c done"]
            assert [(run["kwargs"]["input"]["words"], run["status"]) for run in reversed(runs)] == [
                (["a"], "success"),
                (["b"], "success"),
                (["c"], "success"),
            ]
            assert (await clients.ann.threads.get(thread))["status"] == "idle"
    # What was cut short was begun again, and nothing else was.
    assert door.marks() == ["began a", *(f"{what} {word}" for word in "abc" for what in ("began", "ended"))]


@pytest.mark.fault("A1")
@pytest.mark.parametrize("kills", [2, pytest.param(40, marks=pytest.mark.long)])
async def test_whatever_a_killed_server_took_in_is_done_once_and_in_order(
    stage: Stage, seed: int, trials: Trials, kills: int
) -> None:
    chance = random.Random(seed)
    thread = "01a1e45e-c125-7785-96f2-67a94c6a3e31"
    acknowledged: list[str] = []

    async def order(clients: Any) -> None:
        """Until the server does not answer."""
        with suppress(APIConnectionError, httpx.TransportError):
            for _ in range(1000):
                word = f"w{len(acknowledged)}-{chance.random()}"
                await clients.ann.runs.create(thread, "echo", input={"words": [word]}, if_not_exists="create")
                acknowledged.append(word)

    for _ in trials.run(kills):
        with stage.serving() as served:
            async with clients_of(served) as clients:
                ordering = asyncio.create_task(order(clients))
                await asyncio.wait((ordering,), timeout=chance.uniform(0.1, 0.6))
                kill(served)
                await ordering
    with stage.serving() as served:
        async with clients_of(served) as clients:

            async def are_over() -> bool:
                runs = await clients.ann.runs.list(thread, limit=1000)
                return all(run["status"] == "success" for run in runs)

            await until(are_over)
            words = (await clients.ann.threads.get(thread))["values"]["words"]
    assert acknowledged
    said, firsts, seconds = words[::3], words[1::3], words[2::3]
    assert {*firsts} == {"first"}
    assert {*seconds} == {"second"}
    assert len(said) == len(set(said)) == len(firsts) == len(seconds)
    # One may have been taken in whose answer was cut off.
    assert [word for word in said if word in set(acknowledged)] == acknowledged


async def test_nothing_is_built_on_a_run_whose_undoing_was_cut_short(stage: Stage, door: Door) -> None:
    with stage.serving(CLEW_FAILPOINTS="run_stopped_before_undone:kill") as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            run = (await clients.ann.runs.create(thread, "waiter", input=door.input("undone")))["run_id"]
            await door.entered("undone")
            behind = (await clients.ann.runs.create(thread, "echo", input=X))["run_id"]
            with pytest.raises((APIConnectionError, httpx.TransportError)):
                await clients.ann.runs.cancel(thread, run, action="rollback")
            served.server.wait()
    with stage.serving() as served:
        async with clients_of(served) as clients:
            assert (await clients.ann.runs.join(thread, behind))["words"] == ["x", "first", "second"]
            with pytest.raises(NotFoundError):
                await clients.ann.runs.get(thread, run)


@pytest.mark.fault("A5", "E3")
async def test_a_stream_goes_on_where_it_was_after_a_kill(stage: Stage, door: Door) -> None:
    told: list[Any] = []

    async def follow(stream: AsyncIterator[Any]) -> None:
        with suppress(APIConnectionError, httpx.TransportError):
            async for part in stream:
                told.append(part)  # noqa: PERF401 - one by one, until the server is killed

    async def waits() -> bool:
        return any(part.event == "custom" and "waits" in part.data for part in told)

    modes = ["values", "custom"]
    with stage.serving() as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            run = await clients.ann.runs.create(
                thread, "walk", input=door.input(), stream_mode=modes, stream_resumable=True
            )
            stream = clients.ann.runs.join_stream(thread, run["run_id"], last_event_id="-1")
            following = asyncio.create_task(follow(stream))
            await until(waits)
            kill(served)
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    before = [part for part in told if part.event in modes]
    door.open()
    with stage.serving() as served:
        async with clients_of(served) as clients:
            await follow(clients.ann.runs.join_stream(thread, run["run_id"], last_event_id=before[-1].id))
            await clients.ann.runs.join(thread, run["run_id"])
            again: list[Any] = [
                part async for part in clients.ann.runs.join_stream(thread, run["run_id"], last_event_id="-1")
            ]
    assert (told[-1].event, told[-1].data) == ("end", {"status": "success"})
    parts = [part for part in told if part.event in modes]
    numbers = [int(part.id) for part in parts]
    assert len(parts) > len(before)
    assert numbers == sorted(set(numbers))
    values = [part.data["words"] for part in parts if part.event == "values"]
    assert list(dict.fromkeys(map(tuple, values))) == [
        ("x",),
        ("x", "first"),
        ("x", "first", "first done"),
        ("x", "first", "first done", "second"),
    ]
    # Who comes when all is over hears no less than what was kept, and nothing under another number.
    kept = {part.id: part.data for part in again if part.event in modes}
    assert kept.items() <= {part.id: part.data for part in parts}.items()


async def test_a_run_in_one_server_is_followed_through_another(shared: Stage, door: Door) -> None:
    with shared.serving(CLEW_RUNNER_CONCURRENCY="1") as busy, shared.serving() as other:
        async with clients_of(busy) as here, clients_of(other) as there:
            # The one has its hands full, so that whatever is ordered there is run by the other.
            blocking = await here.ann.runs.create(None, "waiter", input=door.input("block"))
            await door.entered("block")
            thread = (await here.ann.threads.create())["thread_id"]
            modes = ["values", "updates", "custom"]
            told = await heard(here.ann.runs.stream(thread, "echo", input=X, stream_mode=modes))
            assert [name for name, _ in told] == [
                *("metadata", "values", "custom", "updates", "values", "updates", "values", "end")
            ]
            assert await here.ann.runs.wait(thread, "echo", input=X) == {
                "words": ["x", "first", "second"] * 2
            }
            run = await there.ann.runs.create(thread, "echo", input=X, stream_resumable=True)
            assert (await here.ann.runs.join(thread, run["run_id"]))["words"][-1] == "second"
            stream = here.ann.runs.join_stream(thread, run["run_id"], last_event_id="-1")
            assert [name for name, _ in await heard(stream)] == ["metadata", *["values"] * 3, "end"]
            assert (await there.ann.runs.get(blocking["thread_id"], blocking["run_id"]))[
                "status"
            ] == "running"


async def test_a_run_in_one_server_is_cancelled_through_another(shared: Stage, door: Door) -> None:
    with shared.serving() as one, shared.serving() as other:
        async with clients_of(one) as here, clients_of(other) as there:
            thread = (await here.ann.threads.create())["thread_id"]
            await here.ann.runs.wait(thread, "waiter", input=X)
            for action, left in (("rollback", []), ("interrupt", ["interrupt"])):
                run = await here.ann.runs.create(thread, "waiter", input=door.input(action))
                following = asyncio.create_task(heard(here.ann.runs.join_stream(thread, run["run_id"])))
                await door.entered(action)
                await there.ann.runs.cancel(thread, run["run_id"], action=action)
                assert (await following)[-1][0] in ("end", "error")
                state = await there.ann.threads.get_state(thread)
                assert state["values"]["words"] == ["x", "x done", *left]
            door.open()
            values = await there.ann.runs.wait(thread, "echo", input=X)
            assert values["words"] == ["x", "x done", "interrupt", "x", "first", "second"]
            assert await here.ann.threads.get_state(thread) == await there.ann.threads.get_state(thread)


@pytest.mark.fault("C10")
async def test_two_servers_begin_each_run_of_a_queue_once_and_in_order(shared: Stage, door: Door) -> None:
    with shared.serving() as one, shared.serving() as other:
        async with clients_of(one) as here, clients_of(other) as there:
            thread = (await here.ann.threads.create())["thread_id"]
            run = await here.ann.runs.create(thread, "waiter", input=door.input("0"))
            words = [str(n) for n in range(1, 50)]
            for n, word in enumerate(words):
                runs = (here if n % 2 else there).ann.runs
                run = await runs.create(thread, "waiter", input={"words": [word]})
            door.open()
            async with asyncio.timeout(90):
                values = await there.ann.runs.join(thread, run["run_id"])
            assert values["words"] == [said for word in ("0", *words) for said in (word, f"{word} done")]
            runs = await here.ann.runs.list(thread, limit=100)
            assert [run["status"] for run in runs] == ["success"] * 50


async def test_nothing_is_left_of_a_thread_that_is_deleted_with_its_queue(stage: Stage, door: Door) -> None:
    with stage.serving() as served:
        async with clients_of(served) as clients:

            async def order(thread: str, n: int) -> None:
                with suppress(NotFoundError):
                    await clients.ann.runs.create(
                        thread,
                        "waiter",
                        input=door.input(str(n)),
                        stream_resumable=True,
                        after_seconds=3600 if n % 3 == 2 else None,
                    )

            threads = []
            for _ in range(3):
                metadata = {"a": {"b": 1}}
                threads.append((await clients.ann.threads.create(metadata=metadata))["thread_id"])
                for n in range(6):
                    await order(threads[-1], n)
                await door.entered("0")
                # Others are on their way while it is deleted.
                late = [asyncio.create_task(order(threads[-1], n)) for n in range(10)]
                await clients.ann.threads.delete(threads[-1])
                await asyncio.gather(*late)
            door.open()

            async def are_gone() -> bool:
                return not await asyncio.to_thread(left_of, stage, threads)

            await until(are_gone)
            # The server is as well as ever.
            assert (await clients.ann.runs.wait(None, "echo", input=X))["words"] == ["x", "first", "second"]
    assert not left_of(stage, threads)


def left_of(stage: Stage, threads: list[str]) -> dict[str, int]:
    """How many rows there are in which tables, but those that say that they were deleted, and by whom."""
    is_sqlite = stage.environ["CLEW_DATABASE_URL"].startswith("sqlite")
    tables = stage.sql(
        "SELECT m.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c"
        " ON c.name = 'thread_id' WHERE m.type = 'table'"
        if is_sqlite
        else "SELECT table_name FROM information_schema.columns"
        " WHERE column_name = 'thread_id' AND table_schema = 'public'"
    )
    ids = ", ".join(f"'{thread}'" for thread in threads)
    left = {"threads": stage.sql(f"SELECT count(*) FROM threads WHERE id IN ({ids})")[0][0]}
    for (table,) in tables:
        left[table] = stage.sql(f"SELECT count(*) FROM {table} WHERE thread_id IN ({ids})")[0][0]
    assert left.pop("tombstones") == len(threads)
    assert left.pop("audit") >= len(threads)
    assert {"labels", "chunks", "inbox", "conversations", "events", "checkpoints"} <= left.keys()
    return {table: count for table, count in left.items() if count}


async def test_a_state_written_over_a_gate_is_asked_about_though_a_kill_came_first(stage: Stage) -> None:
    """Who approves then has seen the gate before the state was written; that counts for nothing."""
    with stage.serving(CLEW_FAILPOINTS="state_written_before_asked:kill") as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            await clients.ann.runs.wait(thread, "echo", input=X, interrupt_before=["second"])
            with pytest.raises((APIConnectionError, httpx.TransportError)):
                await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="first")
            served.server.wait()
    with stage.serving() as served:
        address, headers = served.server.address, {"X-API-Key": served.keys["ann"]}
        async with (
            clients_of(served) as clients,
            httpx.AsyncClient(base_url=address, headers=headers) as http,
        ):
            asked = [*(await http.get(f"/api/threads/{thread}")).json()["pending"]]
            assert (await http.post(f"/api/workflows/{thread}/approve")).status_code == 200

            async def asks_anew() -> bool:
                found = (await http.get(f"/api/threads/{thread}")).json()
                return found["status"] == "blocked" and [*found["pending"]] != asked

            await until(asks_anew)
            values = await clients.ann.runs.wait(thread, "echo", input=None)
            assert values["words"] == ["x", "first", "hand", "second"]


async def test_an_answer_reaches_its_question_though_a_kill_came_after_the_state_was_written(
    stage: Stage,
) -> None:
    with stage.serving(CLEW_FAILPOINTS="state_written_before_asked:kill") as served:
        async with clients_of(served) as clients:
            thread = (await clients.ann.threads.create())["thread_id"]
            await clients.ann.runs.wait(thread, "asker", input=X)
            with pytest.raises((APIConnectionError, httpx.TransportError)):
                await clients.ann.threads.update_state(thread, {"words": ["hand"]})
            served.server.wait()
    with stage.serving() as served:
        async with clients_of(served) as clients:
            values = await clients.ann.runs.wait(thread, "asker", command={"resume": "yes"})
            assert values["words"] == ["x", "hand", "answered yes"]
