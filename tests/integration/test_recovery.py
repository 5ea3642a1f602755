"""What a run meets while it runs: a store that fails, a thread taken away, a graph that will not end."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.domain.errors import ClewError, InvalidState, Unavailable
from clew.domain.events import AssistantMessage, Body, Log, Opening, Resolution, ToolCall, ToolResult, rebuild
from clew.domain.lifecycle import Stamp
from clew.domain.records import SYSTEM, Lease
from clew.domain.thread import Owner, Status, SuspensionKind, Thread
from clew.domain.tool_calls import CUT_OFF, NOT_BEGUN, NOT_RUN
from clew.engine import outages
from clew.engine.commands import Request
from clew.engine.recorder import Recorder
from clew.engine.run_context import LocalRunContext, RunStores
from clew.failpoints import FailpointHit, installed
from clew.ports.checkpoints import Superstep
from clew.runners import heartbeat, local
from clew.stores.postgres import PostgresDatabase
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.purge import PURGED
from clew.stores.sql.tool_calls import CallRows
from tests.app import House, open_house
from tests.databases import query
from tests.odd_graphs import open_odd_house
from tests.postgres import PostgresServer
from tests.waiting import until

pytestmark = pytest.mark.anyio

QUICK = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}  # and a lease of 30 s: nobody waits for one to run out
SHORT = QUICK | {"CLEW_RUNNER_LEASE_SECONDS": "0.5"}


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_odd_house(where, tmp_path, **QUICK) as house:
        yield house


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


def left(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []


async def steal(house: House, thread: Thread) -> Lease:
    """Take the thread away from whoever runs it, as another process does when a lease runs out."""
    stores = house.app.stores
    async with asyncio.timeout(30):
        while True:
            await query(stores.db, "UPDATE threads SET lease_until = 0 WHERE id = $1", thread.id)
            for lease in await stores.threads.claim("thief", lease=timedelta(minutes=5), limit=1):
                return lease


class TestStore:
    @pytest.mark.parametrize("action", ["raise", "io_error"])
    @pytest.mark.parametrize("hit", range(3, 9))
    async def test_a_commit_that_fails_leaves_no_thread_hanging(
        self, house: House, action: str, hit: int
    ) -> None:
        store = house.app.stores.threads
        with installed(f"commit_begun:{action}@{hit}"):
            try:
                thread = await house.start("agent", "tools: look_up word=clew")
            except (FailpointHit, OSError, ClewError):
                # The caller got an error: the thread was not stored, or it runs to its end like any other.
                threads = await store.find(limit=2)
                assert len(threads) <= 1
            else:
                threads = [thread]
            ended = [await house.rest(replace(thread, last_seq=0)) for thread in threads]
        assert {thread.status for thread in ended} <= {Status.COMPLETED, Status.FAILED}
        again = await house.run("agent", "tools: look_up word=clew")
        assert again.status is Status.COMPLETED, "the next one is not held up"

    async def test_the_database_goes_away_under_a_run_and_comes_back(
        self, own_postgres: PostgresServer, tmp_path: Path, marks: Path
    ) -> None:
        url = own_postgres.create_database("clew")
        async with open_odd_house(url, tmp_path, **QUICK) as house:
            done = [await house.start("agent", "slowly: one two three four five six") for _ in range(3)]
            await until(lambda: bool(house.app.execution.commands.drafts))
            await asyncio.to_thread(own_postgres.stop, "immediate")
            await asyncio.sleep(2)
            await asyncio.to_thread(own_postgres.start)
            ended = [await house.rest(thread, seconds=60) for thread in done]
            assert [thread.status for thread in ended] == [Status.COMPLETED] * 3
            for thread in ended:
                assert len(await house.bodies(thread, AssistantMessage)) == 1

    @pytest.mark.parametrize("processes", [pytest.param(1, marks=pytest.mark.long), 2])
    async def test_an_outage_longer_than_a_lease_takes_no_thread_from_who_lives(
        self,
        own_postgres: PostgresServer,
        tmp_path: Path,
        processes: int,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        url = own_postgres.create_database("clew")
        marks = tmp_path / "walk"
        # Time for whoever lives to renew its lease once the database is back, on a busy machine too; but less than
        # the walk takes.
        monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.2)
        monkeypatch.setattr(local, "PATIENT_BEATS", 12.5)
        async with AsyncExitStack() as stack:
            house, *_ = [
                await stack.enter_async_context(open_house(url, tmp_path, **QUICK)) for _ in range(processes)
            ]
            walk = await house.start("walking", log=[], marks=str(marks))
            await until(marks.exists)
            ((fence,),) = await query(house.app.stores.db, "SELECT fence FROM threads")
            await asyncio.to_thread(own_postgres.stop, "immediate")
            await until(lambda: caplog.text.count("cannot claim threads") >= 10 * processes)
            await asyncio.to_thread(_start_after_every_lease, own_postgres, url)
            walk = await house.rest(walk, seconds=40)
            assert walk.status is Status.COMPLETED
            # The step whose end could not be stored was repeated, by the same run: the fence moved at the end only.
            assert len(set(marks.read_text().splitlines())) == 40
            assert list(await query(house.app.stores.db, "SELECT fence FROM threads")) == [(fence + 1,)]

    async def test_a_run_outlives_an_outage_in_each_of_its_steps(
        self, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put, puts = CheckpointRows.put, 0

        async def every_other_time(self: CheckpointRows, steps: Sequence[Superstep], **more: Any) -> None:
            nonlocal puts
            puts += 1
            if puts % 2:
                raise Unavailable("the database is away for a moment")
            await put(self, steps, **more)

        monkeypatch.setattr(CheckpointRows, "put", every_other_time)
        async with open_house(where, tmp_path, **QUICK) as house:
            thread = await house.run("writing", log=[], marks="")
            assert puts >= 40
            assert (thread.status, thread.failure_reason) == (Status.COMPLETED, None)
            assert not [log for log in await house.bodies(thread, Log) if log.attempt]

    async def test_a_run_that_can_never_store_anything_is_given_up(
        self, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def never(self: CheckpointRows, steps: Sequence[Superstep], **more: Any) -> None:
            raise Unavailable("it goes away each time")

        monkeypatch.setattr(outages, "PATIENCE_SECONDS", 0.2)
        monkeypatch.setattr(outages, "LONGEST_PAUSE", 0.05)
        monkeypatch.setattr(CheckpointRows, "put", never)
        async with open_house(where, tmp_path, **QUICK) as house:
            thread = await house.run("two_steps", log=[], marks="")
        assert thread.status is Status.FAILED
        assert thread.failure_reason == "internal: it goes away each time"

    async def test_a_tool_whose_mark_was_written_though_the_answer_was_lost_runs_once_and_no_person_is_asked(
        self, house: House, marks: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start, lost = CallRows.start, 0

        async def unanswered(self: CallRows, *args: Any, **more: Any) -> bool:
            nonlocal lost
            marked = await start(self, *args, **more)
            lost += 1
            if lost == 1:
                raise Unavailable("the answer was lost")
            return marked

        monkeypatch.setattr(CallRows, "start", unanswered)
        thread = await house.run("asking_tool", marks=str(marks))
        await house.app.execution.commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        assert lost > 1
        assert [pending.kind for pending in thread.pending.values()] == [SuspensionKind.ELICITATION]


def _start_after_every_lease(server: PostgresServer, url: str) -> None:
    """As if it had been away for longer than any lease."""
    server.start()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE threads SET lease_until = 0 WHERE lease_until IS NOT NULL")


class TestLostWords:
    @pytest.mark.fault("C12")
    async def test_a_node_ended_and_its_step_did_not(self, house: House) -> None:
        """What it said is among its writes alone: its channel keeps a value for one step, and there was none."""
        stores, execution = house.app.stores, house.app.execution
        thread = await execution.commands.start(
            Opening(owner=Owner(), graph="whispering"), Request(message="go"), held=True
        )
        log = await house.log(thread)

        def stamp() -> Stamp:
            return Stamp(execution.commands.clock(), execution.commands.new_id)

        def bodies() -> AsyncGenerator[Body]:
            recorder = Recorder(
                thread, fence=0, store=stores.threads, notifier=execution.notifier, stamp=stamp
            )
            memory = RunStores(calls=stores.calls, summaries=stores.summaries)
            run = LocalRunContext(log, recorder, memory, fence=0, stamp=stamp, scope=SYSTEM)
            return execution.graph_driver.run(log, run, fence=0)

        async with aclosing(bodies()) as dying:
            async for body in dying:
                if isinstance(body, AssistantMessage):
                    break
        await query(stores.db, "DELETE FROM checkpoints WHERE seq = (SELECT max(seq) FROM checkpoints)")
        revived = [body.content async for body in bodies() if isinstance(body, AssistantMessage)]
        assert revived == ["one", "two"]


class TestRounds:
    async def test_a_round_begun_while_the_old_run_still_unwinds_is_run(
        self, where: str, tmp_path: Path, marks: Path
    ) -> None:
        async with open_odd_house(where, tmp_path, **SHORT) as house:
            commands = house.app.execution.commands
            thread = await house.start("stubborn", log=["be stubborn"], marks=str(marks))
            await until(lambda: "stubborn" in left(marks))
            thread = await commands.stop(thread.id, None)
            again = await commands.next_round(
                thread.id, None, Request(graph_input={"log": ["again"], "marks": str(marks)})
            )
            thread = await house.rest(again)
            assert thread.round == 2

    async def test_a_tool_that_ran_is_not_repeated_when_its_failed_round_is_taken_up(
        self, house: House, marks: Path
    ) -> None:
        thread = await house.run("once_then_fail", marks=str(marks))
        assert thread.status is Status.FAILED
        thread = await house.rest(await house.app.execution.commands.resume(thread.id, None))
        assert thread.status is Status.COMPLETED
        assert left(marks).count("once") == 1
        assert len(await house.bodies(thread, ToolCall)) == 1
        assert len(await house.bodies(thread, ToolResult)) == 1

    @pytest.mark.parametrize(
        ("graph", "tool", "told"),
        [("agent", "look_up word=x", "x means something"), ("langchain_agent", "count upto=3", "0 1 2")],
        ids=["agent", "langchain_agent"],
    )
    async def test_a_result_is_told_in_the_next_round_though_its_own_failed_right_after_it(
        self, house: House, graph: str, tool: str, told: str
    ) -> None:
        with installed("tool_result_logged:raise"):
            thread = await house.run(graph, f"tools: {tool}")
        assert thread.status is Status.FAILED
        next_round = house.app.execution.commands.next_round
        thread = await house.rest(await next_round(thread.id, None, Request(message="recall")))
        assert (await house.bodies(thread, AssistantMessage))[-1].content == told

    @pytest.mark.parametrize(
        ("fault", "needs_approval", "told"),
        [
            ("toolcall_logged:raise", False, NOT_BEGUN),
            ("tool_before_effect:raise", False, CUT_OFF),
            ("tool_after_effect:raise", True, CUT_OFF),
            ("toolcall_logged:raise@2", True, NOT_RUN),
        ],
        ids=["not begun", "begun", "done", "approved"],
    )
    @pytest.mark.parametrize(
        ("graph", "free", "guarded"),
        [
            ("agent", "look_up word=x", "send_mail to=ada"),
            ("langchain_agent", "count upto=3", "wire_money file=/dev/null,n=1"),
        ],
        ids=["agent", "langchain_agent"],
    )
    async def test_a_round_after_one_that_failed_in_a_tool_is_told_what_is_known_of_it(
        self, house: House, graph: str, free: str, guarded: str, fault: str, needs_approval: bool, told: str
    ) -> None:
        commands = house.app.execution.commands
        with installed(fault):
            thread = await house.run(graph, f"tools: {guarded if needs_approval else free}")
            if needs_approval:
                await commands.approve(thread.id, None, approved=True)
                thread = await house.rest(thread)
        assert thread.status is Status.FAILED
        for _ in range(2):  # and in every round from then on
            thread = await house.rest(await commands.next_round(thread.id, None, Request(message="recall")))
            assert thread.status is Status.COMPLETED, thread.failure_reason
            assert (await house.bodies(thread, AssistantMessage))[-1].content == told

    async def test_what_a_stopped_round_said_is_not_said_again_after_a_takeover(self, house: House) -> None:
        commands = house.app.execution.commands
        thread = await house.run("agent", "tools: send_mail to=ada")
        thread = await commands.stop(thread.id, None)
        thread = await commands.next_round(
            thread.id, None, Request(message="slowly: one two three four five six seven eight")
        )
        await until(lambda: thread.id in commands.drafts)
        await house.app.stores.threads.release("thief", await steal(house, thread))
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert len(await house.bodies(thread, AssistantMessage)) == 2
        assert len(await house.bodies(thread, ToolCall)) == 1


class TestStop:
    @pytest.mark.accept("001-35")
    async def test_a_node_that_never_stops_talking_can_be_stopped(self, house: House, marks: Path) -> None:
        thread = await house.start("talkative", marks=str(marks))
        await until(lambda: "talks" in left(marks))
        thread = await house.app.execution.commands.stop(thread.id, None)
        assert thread.status is Status.STOPPED


class TestTools:
    @pytest.mark.parametrize("graph", ["numbering", "numbering_agent"])
    async def test_a_model_that_numbers_its_calls_anew_in_every_turn(self, house: House, graph: str) -> None:
        thread = await house.run(graph, "go")
        assert (thread.status, thread.failure_reason) == (Status.COMPLETED, None)
        calls = await house.bodies(thread, ToolCall)
        results = {result.call_id: result.result for result in await house.bodies(thread, ToolResult)}
        assert len(calls) == len(results) == 4
        assert [results[call.call_id] for call in calls] == [f"<{call.args['text']}>" for call in calls]
        said = await house.bodies(thread, AssistantMessage)
        assert said[-1].content == "<0> <1> <2> <3>"

    async def test_a_tool_that_asks_after_it_was_approved(self, house: House, marks: Path) -> None:
        commands = house.app.execution.commands
        thread = await house.run("asking_tool", marks=str(marks))
        assert [call.kind for call in thread.pending.values()] == [SuspensionKind.APPROVAL]
        await commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        ((call_id, pending),) = thread.pending.items()
        assert (pending.kind, left(marks)) == (SuspensionKind.ELICITATION, [])
        await commands.resolve(thread.id, None, call_id, "ada")
        thread = await house.rest(thread)
        assert (thread.status, left(marks)) == (Status.COMPLETED, ["careful"])
        (result,) = await house.bodies(thread, ToolResult)
        assert result.result == "done, for ada"

    @pytest.mark.fault("F10")
    async def test_ten_megabytes_of_a_result(self, house: House) -> None:
        thread = await house.run("heavy", marks="")
        assert thread.status is Status.COMPLETED
        (result,) = await house.bodies(thread, ToolResult)
        assert len(result.result) == 10_000_000

    async def test_a_tool_cut_off_by_a_failure_beside_it_is_asked_about(
        self, house: House, marks: Path
    ) -> None:
        thread = await house.run("cut_off", marks=str(marks))
        assert thread.status is Status.BLOCKED
        assert [call.kind for call in thread.pending.values()] == [SuspensionKind.IN_DOUBT]
        assert left(marks).count("takes_long") == 1
        (call_id,) = thread.pending
        await house.app.execution.commands.resolve(thread.id, None, call_id, {"retry": True})
        thread = await house.rest(thread)
        assert (thread.status, left(marks).count("takes_long")) == (Status.COMPLETED, 2)


class TestWakers:
    async def test_whoever_came_too_late_lends_nobody_a_name(self, house: House) -> None:
        commands = house.app.execution.commands
        thread = await house.run("plain_gate", marks="/dev/null")
        outcomes = await asyncio.gather(
            *(commands.approve(thread.id, None, approved=True, by=name) for name in ("ann", "bob")),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, InvalidState) for outcome in outcomes) == 1
        await house.rest(thread)
        assert len(await house.bodies(thread, Resolution)) == 1

    async def test_what_was_given_more_time_does_not_expire(self, house: House) -> None:
        stores, commands = house.app.stores, house.app.execution.commands
        thread = await house.run("question_first", marks="/dev/null")
        (call_id,) = thread.pending
        overdue = await stores.calls.get(thread.id, call_id)
        for deadline in (None, commands.clock() + timedelta(hours=1)):
            assert await stores.calls.reschedule(thread.id, call_id, deadline)
            with pytest.raises(InvalidState):
                await commands.expire(overdue)
        assert (await stores.threads.get(thread.id)).status is Status.BLOCKED


class TestRaces:
    @pytest.mark.fault("C2")
    @pytest.mark.parametrize(
        "times", [16, pytest.param(1000, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
    )
    async def test_decisions_of_every_kind_at_once_leave_one_story(
        self, house: House, marks: Path, times: int
    ) -> None:
        commands, stores = house.app.execution.commands, house.app.stores
        chance = random.Random(7)
        for n in range(times):
            mine = marks.with_name(f"marks_{n}")
            thread = await house.run("plain_gate", marks=str(mine))
            (call_id,) = thread.pending
            call = await stores.calls.get(thread.id, call_id)
            await stores.calls.reschedule(thread.id, call_id, commands.clock() - timedelta(seconds=1))
            rivals: list[Any] = [
                commands.approve(thread.id, None, approved=True),
                commands.approve(thread.id, None, approved=False),
                commands.expire(call),
                commands.stop(thread.id, None),
            ]
            if n % 2:
                rivals.append(commands.delete(thread.id, None))
            chance.shuffle(rivals)
            outcomes = await asyncio.gather(*rivals, return_exceptions=True)
            assert all(o is None or isinstance(o, Thread | ClewError) for o in outcomes), outcomes
            if n % 2:
                assert await rows_of(house, thread.id) == {}
                continue
            async with asyncio.timeout(30):
                while not (thread := await stores.threads.get(thread.id)).status.is_terminal:
                    await asyncio.sleep(0.01)
            log = await house.log(thread)
            assert rebuild(log) == thread
            answers = [event.body for event in log if isinstance(event.body, Resolution)]
            assert len(answers) <= 1
            assert "danger" not in left(mine) or answers[0].answer == {"approved": True}

    async def test_a_thread_deleted_while_it_runs_stays_deleted(self, house: House, marks: Path) -> None:
        chance = random.Random(11)
        gone: list[str] = []
        for n in range(8):
            graph, said = chance.choice([("agent", "tools: look_up word=x"), ("two_naps", None)])
            mine = marks.with_name(f"marks_{n}")
            thread = await (house.start(graph, said) if said else house.start(graph, marks=str(mine)))
            await asyncio.sleep(chance.uniform(0, 0.1))
            await house.app.execution.commands.delete(thread.id, None)
            gone.append(thread.id)
        for seconds in (0, 1.5):  # longer than any of them would have run
            await asyncio.sleep(seconds)
            assert [await rows_of(house, thread_id) for thread_id in gone] == [{}] * len(gone)

    @pytest.mark.fault("B9")
    async def test_callers_who_go_away_leave_nothing_open(self, house: House) -> None:
        """FAULTS B9, with 200 of them."""
        commands = house.app.execution.commands
        chance = random.Random(13)
        thread = await house.run("agent", "hello")

        async def cancelled(work: Any) -> None:
            task = asyncio.ensure_future(work)
            await asyncio.sleep(chance.uniform(0, 0.004))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        for n in range(200):
            await cancelled(
                (
                    lambda: house.start("agent", "hello"),
                    lambda: commands.next_round(thread.id, None, Request(message="more")),
                    lambda: commands.stop(thread.id, None),
                    lambda: house.log(thread),
                )[n % 4]()
            )
        assert (await house.run("agent", "still there?")).status is Status.COMPLETED
        await nobody_holds_a_lock(house)


async def rows_of(house: House, thread_id: str) -> dict[str, int]:
    """Where anything of the thread is left."""
    counts = {
        table: (
            await query(house.app.stores.db, f"SELECT COUNT(*) FROM {table} WHERE {key} = $1", thread_id)
        )[0][0]
        for table, key in {"threads": "id", **dict.fromkeys(PURGED, "thread_id")}.items()
    }
    return {table: count for table, count in counts.items() if count}


async def nobody_holds_a_lock(house: House) -> None:
    """Another connection writes at once."""
    db = house.app.stores.db
    if isinstance(db, PostgresDatabase):
        # Between two statements of its own a transaction is idle too, so only one that stays so was left open.
        async with asyncio.timeout(30):
            while (
                await query(
                    db,
                    "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
                    " AND state LIKE 'idle in transaction%'",
                )
            )[0][0]:
                await asyncio.sleep(0.01)
        return
    path = (await query(db, "PRAGMA database_list"))[0][2]
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
