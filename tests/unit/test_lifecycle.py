"""The rules of a thread's life: which command may follow which, and what each of them leaves in the log."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.errors import Conflict, Corrupt, Invalid, InvalidState, NotFound
from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Log,
    Redacted,
    Resolution,
    RoundFinished,
    RoundStarted,
    StageChanged,
    ToolResult,
    TtlChanged,
    UserMessage,
    apply,
    rebuild,
)
from clew.domain.lifecycle import (
    CANCELLED,
    EXPIRED,
    Change,
    begin,
    expire,
    finish,
    next_round,
    record,
    redact,
    resolve,
    retry_round,
    stop,
)
from clew.domain.thread import Executor, Json, Stats, Status, SuspensionKind, Thread, may_follow
from clew.domain.tool_calls import Call, fold_calls
from tests.samples import EVERY_BODY, NOW, asks, opened, recorded, said, stamp, suspend, waits

P, R, B, C, F, S = (
    Status.PENDING,
    Status.RUNNING,
    Status.BLOCKED,
    Status.COMPLETED,
    Status.FAILED,
    Status.STOPPED,
)


def thread_in(status: Status) -> Thread:
    """A thread that got into this state by the commands that lead there."""
    match status:
        case Status.PENDING:
            return opened(held=True).thread
        case Status.RUNNING:
            return opened().thread
        case Status.BLOCKED:
            return suspend(opened().thread, [waits()], stamp=stamp()).thread
        case _:
            return finish(opened().thread, status, stamp=stamp()).thread


def call(call_id: str = "c1", *, name: str = "search") -> Call:
    return Call(
        thread_id="t1", id=call_id, round=1, executor=Executor.SERVER, name=name, args={}, created_at=NOW
    )


@pytest.mark.parametrize(
    ("before", "allowed"),
    [(None, {P, R}), (P, {R, S}), (R, {B, C, F, S}), (B, {R, F, S}), (C, {R}), (F, {R}), (S, {R})],
)
def test_which_status_may_follow_which(before: Status | None, allowed: set[Status]) -> None:
    staying = {before} if before else set()
    assert {after for after in Status if may_follow(before, after)} == allowed | staying


def test_a_new_thread_runs_at_once_and_knows_what_it_was_born_with() -> None:
    change = opened(ttl=timedelta(days=1))
    thread = change.thread
    assert (thread.status, thread.round, thread.round_seq, thread.last_seq) == (R, 1, 1, 2)
    assert (thread.owner.tenant, thread.graph, thread.ttl) == ("acme", "chat", timedelta(days=1))
    assert (thread.created_at, thread.last_active_at, thread.round_started_at) == (NOW, NOW, NOW)
    assert [event.type for event in change.events] == ["round_started", "user_msg"]
    assert change.read_at == 0


def test_a_held_thread_waits_for_the_word() -> None:
    held = opened(held=True).thread
    assert (held.status, held.round_started_at) == (P, None)
    begun = begin(held, stamp=stamp(5)).thread
    assert (begun.status, begun.round) == (R, 1)
    assert begun.round_seq == 1, "its input was given when it was made"
    assert begun.round_started_at == NOW + timedelta(seconds=5)
    with pytest.raises(InvalidState):
        begin(begun, stamp=stamp())


def test_a_held_thread_cannot_end_but_by_being_stopped() -> None:
    for status in (C, F):
        with pytest.raises(InvalidState):
            finish(thread_in(P), status, stamp=stamp())
    with pytest.raises(InvalidState):
        suspend(thread_in(P), [waits()], stamp=stamp())
    assert stop(thread_in(P), [], stamp=stamp()).thread.status is S


@pytest.mark.parametrize("status", [C, F, S])
def test_a_new_round_follows_an_ended_one(status: Status) -> None:
    before = thread_in(status)
    after = next_round(before, "again", stamp=stamp(9), graph_input={"x": 1}, documents=("d1",)).thread
    assert (after.status, after.round, after.round_seq) == (R, 2, before.last_seq + 1)
    assert after.failure_reason is None


@pytest.mark.parametrize("status", [P, R, B])
def test_a_new_round_must_wait_for_the_running_one(status: Status) -> None:
    with pytest.raises(InvalidState):
        next_round(thread_in(status), "again", stamp=stamp())


def test_a_failed_round_is_taken_up_where_it_stood() -> None:
    first = opened()
    failed = finish(recorded(first.thread, asks()).thread, F, stamp=stamp(5), reason="no model").thread
    again = retry_round(failed, stamp=stamp(10)).thread
    assert (again.status, again.round, again.round_seq) == (R, 1, 1)
    assert (again.failure_reason, again.round_started_at) == (None, NOW + timedelta(seconds=10))
    assert finish(again, C, stamp=stamp(12)).thread.stats.milliseconds == 7000


@pytest.mark.parametrize("status", [P, R, B, C, S])
def test_only_a_failed_round_is_taken_up(status: Status) -> None:
    with pytest.raises(InvalidState):
        retry_round(thread_in(status), stamp=stamp())


def test_a_thread_waits_until_every_question_is_answered_in_any_order() -> None:
    asked = suspend(opened().thread, [waits("c1"), waits("c2"), waits("c3")], stamp=stamp()).thread
    order = ["c1", "c2", "c3"]
    random.Random(7).shuffle(order)
    thread = asked
    for number, call_id in enumerate(order, 1):
        assert thread.status is B
        thread = resolve(thread, call(call_id), {"n": number}, stamp=stamp()).thread
    assert (thread.status, dict(thread.pending)) == (R, {})


def test_the_first_answer_stays() -> None:
    asked = thread_in(B)
    answered = resolve(asked, call(), True, stamp=stamp()).thread
    for late in (answered, thread_in(C)):
        with pytest.raises(InvalidState):
            resolve(late, call(), False, stamp=stamp())
        with pytest.raises(InvalidState):
            expire(late, call(), stamp=stamp())
    with pytest.raises(InvalidState):
        resolve(asked, call("unknown"), True, stamp=stamp())


@pytest.mark.parametrize("executor", [Executor.SERVER, Executor.CLIENT, Executor.PROVIDER])
def test_an_approval_opens_the_gate_and_is_not_the_tools_result(executor: Executor) -> None:
    asked = recorded(opened().thread, asks(), waits(executor=executor)).thread
    change = resolve(asked, call(), {"approved": True}, stamp=stamp(), by="ann")
    (gate,) = change.events
    assert gate.body == Resolution(
        call_id="c1", outcome="answered", answer={"approved": True}, settles=False, by="ann"
    )
    assert change.thread.status is R


def test_a_refusal_is_the_tools_error() -> None:
    asked = recorded(opened().thread, asks(), waits(executor=Executor.SERVER)).thread
    change = resolve(asked, call(), {"approved": False}, stamp=stamp(), by="ann", approved=False)
    assert change.events[-1].body == ToolResult(
        call_id="c1", ok=False, error="refused by ann", result={"approved": False}
    )
    assert change.thread.status is R


def test_a_refusal_says_why() -> None:
    asked = recorded(opened().thread, asks(), waits(executor=Executor.SERVER)).thread
    answer = {"approved": False, "feedback": "not to him"}
    change = resolve(asked, call(), answer, stamp=stamp(), by="ann", approved=False)
    assert getattr(change.events[-1].body, "error", "") == "refused by ann: not to him"


def test_a_persons_own_answer_is_the_result() -> None:
    asked = recorded(opened().thread, asks(), waits(kind=SuspensionKind.ELICITATION)).thread
    answer, result = (event.body for event in resolve(asked, call(), "blue", stamp=stamp()).events)
    assert answer == Resolution(call_id="c1", outcome="answered", answer="blue")
    assert result == ToolResult(call_id="c1", ok=True, result="blue")


def test_a_question_that_no_tool_asked_gets_an_answer_and_no_result() -> None:
    asked = suspend(opened().thread, [waits(kind=SuspensionKind.ELICITATION)], stamp=stamp()).thread
    question = call(name="")
    for change in (
        resolve(asked, question, "blue", stamp=stamp()),
        expire(asked, question, stamp=stamp()),
    ):
        assert [event.type for event in change.events] == ["resolution"]
        assert change.thread.status is R


@pytest.mark.parametrize(
    ("answer", "runs_again"),
    [({"retry": True}, True), ({"retry": "yes"}, False), ({"ok": True}, False), (None, False), ("x", False)],
)
def test_only_the_word_of_a_person_runs_a_call_in_doubt_again(answer: Json, runs_again: bool) -> None:
    doubted = recorded(
        opened().thread, asks(idempotent=False), waits(kind=SuspensionKind.IN_DOUBT, executor=Executor.SERVER)
    )
    change = resolve(doubted.thread, call(), answer, stamp=stamp())
    types = [event.type for event in change.events]
    assert types == (["resolution"] if runs_again else ["resolution", "tool_result"])


@pytest.mark.parametrize(
    ("kind", "no"), [(SuspensionKind.APPROVAL, {"approved": False}), (SuspensionKind.ELICITATION, {})]
)
def test_silence_is_no_approval(kind: SuspensionKind, no: Json) -> None:
    waiting = recorded(opened().thread, asks(), waits(kind=kind)).thread
    body = expire(waiting, call(), stamp=stamp()).events[0].body
    assert isinstance(body, Resolution)
    assert body.answer == {"ok": False, "error": EXPIRED} | no


def test_expiry_is_a_tool_error_and_the_thread_goes_on() -> None:
    change = expire(thread_in(B), call(), stamp=stamp())
    resolution, result = (event.body for event in change.events)
    assert isinstance(resolution, Resolution)
    assert resolution.outcome == "expired"
    assert result == ToolResult(call_id="c1", ok=False, error=EXPIRED)
    assert change.thread.status is R


def test_stopping_leaves_no_call_without_a_result() -> None:
    first = opened()
    then = recorded(first.thread, asks("c1"), asks("c2"), waits("c2"))
    calls = fold_calls({}, [*first.events, *then.events])
    change = stop(then.thread, calls.values(), stamp=stamp(), notes=[Log(message="stopped")])
    cancelled = [event.body for event in change.events if isinstance(event.body, ToolResult)]
    assert [(body.call_id, body.error) for body in cancelled] == [("c1", CANCELLED), ("c2", CANCELLED)]
    assert (change.thread.status, dict(change.thread.pending)) == (S, {})
    after = fold_calls(calls, change.events)
    assert not any(call.status.is_open for call in after.values())


@pytest.mark.parametrize("status", [C, F, S])
def test_what_has_ended_cannot_be_stopped(status: Status) -> None:
    with pytest.raises(InvalidState):
        stop(thread_in(status), [], stamp=stamp())


@pytest.mark.parametrize("status", [P, R, B])
def test_a_round_finishes_only_in_a_status_that_is_an_end(status: Status) -> None:
    with pytest.raises(Invalid) as refused:
        finish(opened().thread, status, stamp=stamp())
    assert refused.value.field == "status"


def test_only_a_failure_has_a_reason_to_show() -> None:
    failed = finish(opened().thread, F, stamp=stamp(), reason="no model").thread
    stopped = finish(opened().thread, S, stamp=stamp(), reason="by user").thread
    assert (failed.failure_reason, stopped.failure_reason) == ("no model", None)


@pytest.mark.parametrize("ended", [C, F, S])
@pytest.mark.parametrize("body", EVERY_BODY, ids=lambda body: type(body).__name__)
def test_late_writes_never_adorn_an_ended_round(ended: Status, body: Body) -> None:
    thread = thread_in(ended)
    if isinstance(body, Redacted | TtlChanged):
        assert recorded(thread, body).thread.status is ended
    elif isinstance(body, RoundStarted) and not body.held:
        assert recorded(thread, body).thread.status is R
    else:
        with pytest.raises(InvalidState):
            recorded(thread, body)


def test_only_an_ended_round_is_redacted_and_its_log_stays() -> None:
    first = opened()
    message_id = first.events[1].id
    with pytest.raises(InvalidState):
        redact(first.thread, message_id, stamp=stamp())
    ended = finish(first.thread, C, stamp=stamp())
    whole = redact(ended.thread, message_id, stamp=stamp()).thread
    part = redact(ended.thread, message_id, stamp=stamp(), document_id="d1").thread
    assert sorted(whole.redacted) == [message_id]
    assert sorted(part.redacted) == [f"{message_id}/d1"]
    assert whole.status is C


def test_messages_are_counted_and_log_lines_know_the_status_they_were_written_under() -> None:
    first = opened()
    then = recorded(first.thread, AssistantMessage(content="a"), said(), Log(message="x", status=F))
    numbers = [
        event.body.number
        for event in (*first.events, *then.events)
        if isinstance(event.body, UserMessage | AssistantMessage)
    ]
    assert numbers == [1, 2, 3]
    last = then.events[-1].body
    assert isinstance(last, Log)
    assert last.status is R


def test_ids_say_what_a_record_is() -> None:
    change = recorded(opened().thread, said(), AssistantMessage(content=""), Log(message=""), asks())
    assert [event.id[:4] for event in change.events] == ["msg_", "msg_", "log_", "evt_"]


def test_what_a_thread_has_cost() -> None:
    thread = opened(message="héllo").thread
    parts: list[dict[str, Json]] = [
        {"type": "text", "text": "äh"},
        {"type": "image", "url": "u"},
        {"type": "text", "text": None},
    ]
    spoken = AssistantMessage(content=parts, tokens_in=3, tokens_out=4)
    thread = recorded(thread, spoken, spoken).thread
    thread = finish(thread, C, stamp=stamp(1.5)).thread
    assert thread.stats == Stats(messages=3, bytes=6 + 3 + 3, tokens_in=6, tokens_out=8, milliseconds=1500)
    again = next_round(thread, None, stamp=stamp(60)).thread
    assert finish(again, C, stamp=stamp(61)).thread.stats.milliseconds == 2500


def test_a_clock_set_back_never_takes_time_back() -> None:
    assert finish(opened().thread, C, stamp=stamp(-3600)).thread.stats.milliseconds == 0


def test_a_stage_lasts_until_the_next_one() -> None:
    thread = recorded(opened().thread, StageChanged(stage="plan"), said()).thread
    assert thread.stage == "plan"


def test_the_persisted_state_is_idle_or_awaiting_and_nothing_in_between() -> None:
    assert {status: thread_in(status).fsm_state["state"] for status in Status} == {
        P: "idle",
        R: "idle",
        B: "awaiting_input",
        C: "idle",
        F: "idle",
        S: "idle",
    }
    blocked = thread_in(B)
    assert blocked.fsm_state == {
        "state": "awaiting_input",
        "pending": {"c1": {"executor": "human", "kind": "approval", "prompt": {"text": "may I?"}}},
        "last_seq": blocked.last_seq,
    }


def test_a_log_alone_tells_the_thread() -> None:
    first = opened(ttl=timedelta(days=3))
    then = recorded(first.thread, StageChanged(stage="plan"), asks(), waits(), seconds=2)
    assert rebuild([*first.events, *then.events]) == then.thread


def test_a_log_with_a_hole_is_corrupt() -> None:
    first = opened()
    then = recorded(first.thread, said(), said())
    with pytest.raises(Corrupt):
        rebuild([*first.events, then.events[1]])
    with pytest.raises(Corrupt):
        apply(first.thread, first.events[-1])


def test_a_log_that_cannot_have_happened_is_corrupt() -> None:
    with pytest.raises(NotFound):
        rebuild([])
    with pytest.raises(Corrupt):
        rebuild(recorded(opened().thread, said()).events)
    ended = finish(opened().thread, C, stamp=stamp())
    forged = Event(thread_id="t1", seq=4, id="msg_x", round=1, at=NOW, body=said())
    with pytest.raises(Corrupt):
        rebuild([*opened().events, *ended.events, forged])
    with pytest.raises(Corrupt):
        record(None, [said()], stamp=stamp(), thread_id="t1")


def test_a_change_needs_events_and_a_thread_to_put_them_in() -> None:
    with pytest.raises(Invalid):
        record(opened().thread, [], stamp=stamp())
    with pytest.raises(Invalid):
        record(None, [said()], stamp=stamp())


@pytest.mark.parametrize(
    "broken",
    [
        lambda events: (),
        lambda events: events[:1],
        lambda events: (events[1], events[0]),
        lambda events: (events[0], replace(events[1], thread_id="t2")),
        lambda events: (events[0], replace(events[1], seq=9)),
    ],
    ids=["none", "too few", "out of order", "of another thread", "with a hole"],
)
def test_a_change_is_numbered_one_by_one(broken: Callable[[tuple[Event, ...]], tuple[Event, ...]]) -> None:
    change = recorded(opened().thread, said(), said())
    with pytest.raises(Conflict):
        Change(change.thread, broken(change.events))


@pytest.mark.parametrize("status", [R, B])
def test_a_round_begins_only_when_none_is_under_way(status: Status) -> None:
    with pytest.raises(InvalidState):
        recorded(thread_in(status), RoundStarted(round=2))


def test_a_finish_forgets_what_was_pending() -> None:
    failed = recorded(thread_in(B), RoundFinished(status=F, reason="gave up")).thread
    assert (failed.status, dict(failed.pending)) == (F, {})
