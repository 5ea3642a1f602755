"""Graphs as other people build them: gates inside of gates, branches that fail beside others, messages without ids."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clew.domain.events import AssistantMessage, StageChanged, StageCompleted, Suspension
from clew.domain.records import Lease
from clew.domain.thread import Status, Thread
from clew.engine.commands import Request
from tests.app import House
from tests.databases import query
from tests.odd_graphs import WAITS, open_odd_house
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

SHORT = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_odd_house(where, tmp_path) as house:
        yield house


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    return tmp_path / "marks"


async def yes(house: House, thread: Thread) -> Thread:
    (call_id,) = thread.pending
    await house.app.execution.commands.resolve(thread.id, None, call_id, {"approved": True})
    return await house.rest(thread)


def left(marks: Path) -> list[str]:
    return marks.read_text().split() if marks.exists() else []


@pytest.mark.parametrize("wait", WAITS)
async def test_a_question_waits_as_long_as_it_says(house: House, tmp_path: Path, wait: str) -> None:
    """One that says it in a way nobody can wait for waits until it is answered."""
    thread = await house.run("hurried", log=[], marks=str(tmp_path / wait))
    (suspension,) = await house.bodies(thread, Suspension)
    assert (suspension.deadline is not None) is (wait == "moment")
    if wait == "moment":
        thread = await house.rest(thread)
        assert "tool call expired: no response" in str(await house.state(thread))
    else:
        (call_id,) = thread.pending
        await house.app.execution.commands.resolve(thread.id, None, call_id, "Ada")
        thread = await house.rest(thread)
        assert "answer=Ada" in str(await house.state(thread))
    assert thread.status is Status.COMPLETED


async def steal(house: House, thread: Thread) -> Lease:
    """Take the thread away from whoever runs it, as another process does when a lease runs out."""
    stores = house.app.stores
    async with asyncio.timeout(30):
        while True:
            await query(stores.db, "UPDATE threads SET lease_until = 0 WHERE id = $1", thread.id)
            for lease in await stores.threads.claim("thief", lease=timedelta(minutes=5), limit=1):
                return lease


async def said(house: House, thread: Thread) -> list[Any]:
    return [message.content for message in await house.bodies(thread, AssistantMessage)]


async def decided(house: House, thread: Thread, depth: int) -> Any:
    """What the state says was decided, where the graph is at its gate: so many graphs inside."""
    graph: Any = house.app.execution.registry.graphs[thread.graph]
    state: Any = await graph.aget_state({"configurable": {"thread_id": thread.id}}, subgraphs=True)
    for _ in range(depth):
        (task,) = state.tasks
        state = task.state
    return state.values.get("human_approved")


class TestGates:
    @pytest.mark.accept("001-7")
    @pytest.mark.parametrize("graph", ["plain_gate", "gate_after", "nested_gates"])
    async def test_a_no_is_a_no_for_a_graph_that_has_no_word_for_it(
        self, house: House, marks: Path, graph: str
    ) -> None:
        thread = await house.run(graph, marks=str(marks))
        assert thread.status is Status.BLOCKED
        await house.app.execution.commands.approve(thread.id, None, approved=False, feedback="too risky")
        thread = await house.rest(thread)
        assert (thread.status, thread.failure_reason) == (Status.FAILED, "too risky")
        assert left(marks) == ["plan"]
        # The next round asks anew.
        again = await house.app.execution.commands.next_round(thread.id, None, _input(marks=str(marks)))
        thread = await house.rest(again)
        assert thread.status is Status.BLOCKED
        thread = await yes(house, thread)
        assert "danger" in left(marks)

    @pytest.mark.parametrize("graph", ["plain_gate", "nested_gates"])
    async def test_a_round_that_was_refused_and_is_taken_up_asks_again(
        self, house: House, marks: Path, graph: str
    ) -> None:
        thread = await house.run(graph, marks=str(marks))
        await house.app.execution.commands.approve(thread.id, None, approved=False)
        thread = await house.rest(thread)
        thread = await house.rest(await house.app.execution.commands.resume(thread.id, None))
        assert (thread.status, left(marks)) == (Status.BLOCKED, ["plan"])
        thread = await yes(house, thread)
        assert left(marks) == ["plan", "danger"]

    async def test_only_a_yes_opens_a_gate(self, house: House, marks: Path) -> None:
        for answer in ("no", "yes", {}, {"approved": "yes"}, None, 1, {"approved": False}):
            thread = await house.run("plain_gate", marks=str(marks))
            (call_id,) = thread.pending
            await house.app.execution.commands.resolve(thread.id, None, call_id, answer)
            assert (await house.rest(thread)).status is Status.FAILED
        assert "danger" not in left(marks)

    async def test_every_gate_of_a_graph_in_a_graph_asks(self, house: House, marks: Path) -> None:
        thread = await house.run("nested_gates", marks=str(marks))
        assert (thread.status, left(marks)) == (Status.BLOCKED, ["plan"])
        ((_, first),) = thread.pending.items()
        thread = await yes(house, thread)
        assert (thread.status, left(marks)) == (Status.BLOCKED, ["plan", "danger"])
        ((_, second),) = thread.pending.items()
        assert (first.prompt, second.prompt) == ({"before": ["danger"]}, {"before": ["more_danger"]})
        thread = await yes(house, thread)
        assert (thread.status, left(marks)) == (
            Status.COMPLETED,
            ["plan", "danger", "more_danger"],
        )

    @pytest.mark.accept("001-6", "001-7")
    @pytest.mark.parametrize("approved", [True, False])
    async def test_a_graph_in_a_graph_is_told_what_was_decided(
        self, house: House, marks: Path, approved: bool
    ) -> None:
        thread = await house.run("nested_decision", marks=str(marks))
        assert (thread.status, left(marks)) == (Status.BLOCKED, ["plan"])
        await house.app.execution.commands.approve(thread.id, None, approved=approved)
        thread = await house.rest(thread)
        # It has a way for a no: what becomes of that is its own affair, and the round has failed all the same.
        assert thread.status is (Status.COMPLETED if approved else Status.FAILED)
        assert left(marks) == ["plan", "decided", "danger"]
        assert (await house.state(thread))["log"] == ["plan", f"approved={approved}", "danger"]

    @pytest.mark.accept("001-24")
    @pytest.mark.parametrize("approved", [True, False])
    @pytest.mark.parametrize(
        ("graph", "depth", "nothing"),
        [
            ("two_gates", 0, None),
            ("two_gates_after", 0, None),
            ("two_gates_collected", 0, False),
            ("two_gates_replaced", 0, None),
            ("two_gates_checked", 0, None),
            ("two_gates_inside", 1, None),
            ("two_gates_inside_alike", 1, None),
            ("two_gates_after_inside", 2, None),
            ("two_gates_collected_inside", 1, False),
        ],
    )
    async def test_a_decision_is_about_one_gate_and_one_round(
        self, house: House, marks: Path, graph: str, depth: int, nothing: object, approved: bool
    ) -> None:
        commands = house.app.execution.commands
        thread = await house.run(graph, marks=str(marks))
        for n in range(2):  # the second round knows nothing of what was decided in the first
            assert thread.status is Status.BLOCKED, thread.failure_reason
            assert await decided(house, thread, depth) == nothing
            thread = await yes(house, thread)
            assert thread.status is Status.BLOCKED, thread.failure_reason
            assert await decided(house, thread, depth) == nothing
            ((call_id, _),) = thread.pending.items()
            await commands.resolve(thread.id, None, call_id, {"approved": approved})
            thread = await house.rest(thread)
            # It has a way for a no, and the round has failed all the same.
            assert thread.status is (Status.COMPLETED if approved else Status.FAILED)
            assert left(marks)[4 * n :] == [
                *(f"first_plan={nothing}", "first_deed=True"),
                *("second_plan=True", f"second_deed={approved}"),
            ]
            again = await commands.next_round(thread.id, None, _input(marks=str(marks)))
            thread = await house.rest(again)

    @pytest.mark.parametrize(
        ("graph", "nothing"),
        [
            ("gate_then_fail", None),
            ("gate_then_fail_collected", False),
            ("gate_then_fail_checked", None),
        ],
    )
    async def test_what_was_decided_before_a_failure_is_not_said_of_the_next_plan(
        self, house: House, marks: Path, graph: str, nothing: object
    ) -> None:
        commands = house.app.execution.commands
        plan = f"plan={nothing}"
        thread = await house.run(graph, marks=str(marks))
        await commands.approve(thread.id, None, approved=False)
        thread = await house.rest(thread)
        assert (thread.status, left(marks)) == (Status.FAILED, [plan, "approved=False"])
        # Taken up again it asks again, for a no is no answer to that; and the yes is what it is told.
        thread = await house.rest(await commands.resume(thread.id, None))
        assert (thread.status, await decided(house, thread, 0)) == (Status.BLOCKED, nothing)
        thread = await yes(house, thread)
        assert (thread.status, left(marks)[2:]) == (Status.FAILED, ["approved=True"])
        # A new round begins with nothing decided, though the yes never came to its end.
        thread = await house.rest(await commands.next_round(thread.id, None, _input(marks=str(marks))))
        assert (thread.status, left(marks)[3:]) == (Status.BLOCKED, [plan])
        await commands.approve(thread.id, None, approved=False)
        thread = await house.rest(thread)
        assert left(marks)[4:] == ["approved=False"]

    async def test_what_fails_behind_the_gate_is_tried_again_without_asking(
        self, house: House, marks: Path
    ) -> None:
        thread = await yes(house, await house.run("flaky_gate", marks=str(marks)))
        assert (thread.status, thread.failure_reason) == (Status.COMPLETED, None)
        assert (await house.state(thread))["log"] == ["plan", "approved=True"]
        assert len(await house.bodies(thread, Suspension)) == 1


class TestBranches:
    async def test_one_asks_and_one_fails(self, house: House, marks: Path) -> None:
        thread = await house.run("ask_and_fail", marks=str(marks))
        assert thread.status is Status.BLOCKED
        thread = await yes(house, thread)
        assert thread.status is Status.COMPLETED
        assert sorted((await house.state(thread))["log"]) == ["answer={'approved': True}", "worked"]
        assert len(await house.bodies(thread, Suspension)) == 1

    @pytest.mark.parametrize("graph", ["say_and_fail", "say_and_ask"])
    @pytest.mark.accept("001-14")
    async def test_what_one_branch_said_is_logged_once_whatever_befalls_the_other(
        self, house: House, marks: Path, graph: str
    ) -> None:
        thread = await house.run(graph, marks=str(marks))
        if graph == "say_and_ask":
            thread = await yes(house, thread)
        assert thread.status is Status.COMPLETED
        assert await said(house, thread) == ["said beside it"]
        assert [m.content for m in (await house.state(thread))["messages"]] == ["said beside it"]
        stages = [body.stage for body in await house.bodies(thread, StageChanged)]
        assert stages.count("says") == left(marks).count("says") == 1
        assert [body.stage for body in await house.bodies(thread, StageCompleted)].count("says") == 1


class TestMessages:
    async def test_more_than_one_thing_said_at_once(self, house: House, marks: Path) -> None:
        thread = await house.run("commanding", marks=str(marks))
        assert thread.status is Status.COMPLETED
        assert await said(house, thread) == ["one", "two", "three"]

    @pytest.mark.accept("001-25")
    async def test_a_node_that_returns_the_whole_conversation_adds_what_is_new(self, house: House) -> None:
        thread = await house.run("repeating", "hello")
        assert await said(house, thread) == ["number 1", "number 2"]
        again = await house.app.execution.commands.next_round(thread.id, None, Request(message="more"))
        thread = await house.rest(again)
        assert await said(house, thread) == ["number 1", "number 2", "number 4", "number 5"]

    async def test_messages_without_ids_are_known_again(
        self, where: str, tmp_path: Path, marks: Path
    ) -> None:
        async with open_odd_house(where, tmp_path, **SHORT) as house:
            thread = await house.start("anonymous", marks=str(marks))
            await until(lambda: "waits" in left(marks))
            # Somebody else takes it over in the middle of the second node, and gives it back.
            await house.app.stores.threads.release("thief", await steal(house, thread))
            thread = await house.rest(thread)
            assert thread.status is Status.COMPLETED
            assert sorted(await said(house, thread)) == ["given a name later", "without a name"]
            assert left(marks) == ["speaks", "waits", "waits"]

    async def test_messages_that_are_no_objects_yet_are_said_once(
        self, where: str, tmp_path: Path, marks: Path
    ) -> None:
        async with open_odd_house(where, tmp_path, **SHORT) as house:
            thread = await house.start("in_other_forms", marks=str(marks))
            await until(lambda: "waits" in left(marks))
            assert await said(house, thread) == ["as a pair", "as a dict", "at once"]
            await house.app.stores.threads.release("thief", await steal(house, thread))
            thread = await house.rest(thread)
            assert thread.status is Status.COMPLETED
            assert await said(house, thread) == ["as a pair", "as a dict", "at once"]

    @pytest.mark.mainly_sqlite(False)
    async def test_what_no_database_can_keep_is_kept_as_well_as_it_can_be(
        self, house: House, marks: Path
    ) -> None:
        thread = await house.run("unspeakable", marks=str(marks))
        assert thread.status is Status.COMPLETED
        (completed,) = await house.bodies(thread, StageCompleted)
        assert completed.output == {"log": ["\ufffd"]}


class TestCancelled:
    @pytest.mark.parametrize("graph", ["cancelled", "cancelled_branch"])
    async def test_a_node_that_cancels_itself_has_failed(self, house: House, marks: Path, graph: str) -> None:
        thread = await house.run(graph, marks=str(marks))
        assert thread.status is Status.FAILED
        assert "danger" not in left(marks)


def _input(**state: object) -> Request:
    return Request(graph_input=state)


class TestApprovals:
    @pytest.mark.fault("G10")
    @pytest.mark.parametrize("graph", ["paid_by_args", "paid_by_args_at_once"])
    async def test_nothing_that_needs_a_yes_runs_by_its_arguments_alone(
        self, house: House, marks: Path, graph: str
    ) -> None:
        thread = await house.run(graph, log=[], marks=str(marks))
        assert (thread.status, left(marks)) == (Status.FAILED, [])
        assert "needs the whole call, not only its arguments" in str(thread.failure_reason)

    @pytest.mark.fault("G10")
    async def test_what_was_shown_is_what_runs(self, house: House, marks: Path) -> None:
        for thread in (
            await house.run("paid_without_end", log=[], marks=str(marks)),
            await house.run("endless_agent", str(marks)),
        ):
            (asked,) = thread.pending.values()
            assert asked.prompt["args"]["amount"] is None
            assert (await yes(house, thread)).status is Status.COMPLETED
        assert left(marks) == ["paid=None", "paid=None"]

    async def test_a_tool_that_is_no_coroutine_is_asked_about_and_runs(
        self, house: House, marks: Path
    ) -> None:
        thread = await house.run("paid_by_a_plain_function", log=[], marks=str(marks))
        assert (len(thread.pending), left(marks)) == (1, [])
        assert (await yes(house, thread)).status is Status.COMPLETED
        assert left(marks) == ["paid=5.0"]

    async def test_no_tool_runs_past_a_name_that_is_mistyped(self, house: House, marks: Path) -> None:
        thread = await house.run("misnamed_agent", str(marks))
        assert (thread.status, left(marks)) == (Status.FAILED, [])
        assert "tools that the agent does not have: spent; it has spend" in str(thread.failure_reason)
