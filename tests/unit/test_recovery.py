"""What a revived thread owes, told by the end of its log."""

import pytest

from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Log,
    Resolution,
    RoundFinished,
    StageChanged,
    ToolCall,
    ToolResult,
)
from clew.domain.lifecycle import Change, next_round, retry_round
from clew.domain.records import SYSTEM, RunScope
from clew.domain.recovery import GoOn, Nothing, Owed, Redispatch, Resume, RunTurn, Wait, owed, woken_by
from clew.domain.thread import Executor, Status, SuspensionKind
from tests.samples import asks, opened, recorded, stamp, waits


def after(*bodies: Body) -> Owed:
    """What is owed when the process died behind these events of a round."""
    first = opened()
    if not bodies:
        return owed(first.thread, first.events)
    then = recorded(first.thread, *bodies)
    return owed(then.thread, [*first.events, *then.events])


def answered(call_id: str = "c1", answer: object = True, *, settles: bool = True) -> Resolution:
    return Resolution(call_id=call_id, outcome="answered", answer=answer, settles=settles)


def done(call_id: str = "c1") -> ToolResult:
    return ToolResult(call_id=call_id, ok=True, result=1)


ANSWER = AssistantMessage(content="so be it")


def test_killed_before_anything_came_of_the_input_the_turn_runs_once_more() -> None:
    assert after() == RunTurn()
    assert after(StageChanged(stage="plan")) == RunTurn()


def test_killed_under_way_it_goes_on_from_its_checkpoint() -> None:
    assert after(ANSWER) == GoOn()
    assert after(Log(message="working")) == GoOn()
    assert after(asks(), done()) == GoOn()


def test_a_call_without_a_result_is_dispatched_again_under_its_own_id() -> None:
    assert after(ANSWER, asks("c7")) == Redispatch((asks("c7"),))


def test_an_id_used_twice_is_a_call_without_a_result_again() -> None:
    assert after(asks("call_0"), done("call_0"), asks("call_0")) == Redispatch((asks("call_0"),))


def test_calls_of_one_turn_are_each_taken_up_unless_they_have_a_result() -> None:
    assert after(asks("a"), asks("b"), asks("c"), done("b")) == Redispatch((asks("a"), asks("c")))


def test_an_approved_call_runs_now_and_the_approval_is_not_its_result() -> None:
    approved = answered(answer={"approved": True}, settles=False)
    assert after(asks(), waits(executor=Executor.SERVER), approved) == Redispatch((asks(),))


def test_while_somebody_is_asked_everything_waits() -> None:
    assert after(asks("a"), waits("b")) == Wait()
    assert after(waits("a"), waits("b"), answered("a")) == Wait()


def test_with_one_call_answered_and_one_cut_short_the_cut_one_comes_first() -> None:
    assert after(asks("server"), asks("human"), waits("human"), answered("human")) == Redispatch(
        (asks("server"),)
    )


def test_answers_go_to_whoever_asked_in_one_go() -> None:
    assert after(waits("a"), waits("b"), answered("b", 2), answered("a", 1)) == Resume({"a": 1, "b": 2})


def test_an_expired_question_is_answered_by_its_expiry() -> None:
    gone = Resolution(call_id="c1", outcome="expired", answer={"ok": False})
    assert after(waits(), gone) == Resume({"c1": {"ok": False}})


def test_answers_that_something_came_of_are_not_given_twice() -> None:
    assert after(waits(), answered(), ANSWER) == GoOn()


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED, Status.STOPPED])
def test_an_ended_round_owes_nothing(status: Status) -> None:
    assert after(asks(), RoundFinished(status=status)) == Nothing()


def test_a_held_thread_owes_nothing() -> None:
    held = opened(held=True)
    assert owed(held.thread, held.events) == Nothing()


def test_a_round_owes_nothing_for_the_one_before() -> None:
    first = opened()
    ended = recorded(first.thread, asks(), RoundFinished(status=Status.FAILED))
    again: Change = next_round(ended.thread, "again", stamp=stamp())
    this_round: list[Event] = [event for event in again.events if event.seq >= again.thread.round_seq]
    assert owed(again.thread, this_round) == RunTurn()


def test_a_client_that_answers_its_own_call_has_settled_it() -> None:
    call = ToolCall(call_id="c1", name="open_file", args={}, executor=Executor.CLIENT)
    asked = waits(executor=Executor.CLIENT, kind=SuspensionKind.CLIENT_EXEC)
    assert after(call, asked, answered(answer="text")) == Resume({"c1": "text"})


def woken(*bodies: Body) -> RunScope:
    """For whom a thread of ann's runs behind these events."""
    first = opened()
    then = recorded(first.thread, *bodies)
    return woken_by(then.thread, [*first.events, *then.events])


def answered_by(name: str, call_id: str = "c1") -> Resolution:
    return Resolution(call_id=call_id, outcome="answered", answer=1, by=name)


EXPIRED = Resolution(call_id="c2", outcome="expired")


@pytest.mark.parametrize(
    ("bodies", "whom"),
    [
        ([waits(), answered_by("ann")], RunScope(user_id="ann", is_system=False)),
        # A key that is no user's own acts for no user, however it is called.
        ([waits(), answered_by("key_1")], RunScope(user_id="", is_system=False)),
        ([waits(), answered_by("")], RunScope(user_id="", is_system=False)),
        # Whoever came last woke it, and a deadline is nobody, whoever answered before it.
        ([waits(), waits("c2"), answered_by("ann"), EXPIRED], SYSTEM),
        ([waits(), waits("c2"), EXPIRED, answered_by("ann")], RunScope(user_id="ann", is_system=False)),
        ([waits(), answered_by("ann"), ANSWER, asks("c3")], RunScope(user_id="ann", is_system=False)),
        ([waits("c2"), EXPIRED, ANSWER], SYSTEM),
    ],
)
def test_a_thread_runs_for_whoever_woke_it_last(bodies: list[Body], whom: RunScope) -> None:
    assert woken(*bodies) == whom


@pytest.mark.parametrize(("by", "whom"), [(None, SYSTEM), ("", RunScope(is_system=False))])
def test_a_round_runs_for_whoever_began_it(by: str | None, whom: RunScope) -> None:
    ended = recorded(opened().thread, RoundFinished(status=Status.FAILED)).thread
    for change in (next_round(ended, "more", stamp=stamp(), by=by), retry_round(ended, stamp=stamp(), by=by)):
        assert woken_by(change.thread, change.events) == whom
