"""Where each tool call stands, folded from the log."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.events import Body, Event, Resolution, RoundFinished, RoundStarted, ToolResult
from clew.domain.thread import Executor, Status, SuspensionKind
from clew.domain.tool_calls import Call, CallStatus, fold_calls
from tests.samples import NOW, asks, waits

DEADLINE = NOW + timedelta(hours=1)


def events(*bodies: Body) -> list[Event]:
    return [
        Event(thread_id="t1", seq=seq, id=f"evt_{seq}", round=1, at=NOW + timedelta(seconds=seq), body=body)
        for seq, body in enumerate(bodies, 1)
    ]


def folded(*bodies: Body) -> Call:
    (call,) = fold_calls({}, events(*bodies)).values()
    return call


def test_a_call_waits_until_somebody_begins() -> None:
    assert folded(asks()) == Call(
        thread_id="t1",
        id="c1",
        round=1,
        executor=Executor.SERVER,
        name="search",
        args={"q": "x"},
        created_at=NOW + timedelta(seconds=1),
    )


@pytest.mark.parametrize(
    ("result", "status", "shown"),
    [
        (ToolResult(call_id="c1", ok=True, result=[1]), CallStatus.RESOLVED, [1]),
        (ToolResult(call_id="c1", ok=True), CallStatus.RESOLVED, None),
        (ToolResult(call_id="c1", ok=False, error="no"), CallStatus.ERRORED, {"ok": False, "error": "no"}),
        (Resolution(call_id="c1", outcome="expired", answer="e"), CallStatus.EXPIRED, "e"),
        (Resolution(call_id="c1", outcome="cancelled"), CallStatus.ERRORED, None),
    ],
)
def test_how_a_call_ends(result: Body, status: CallStatus, shown: object) -> None:
    call = folded(asks(), waits(deadline=DEADLINE), result)
    assert (call.status, call.result, call.deadline) == (status, shown, None)
    assert call.resolved_at == NOW + timedelta(seconds=3)
    assert not call.status.is_open


def test_the_answer_to_a_question_of_the_graph_itself_ends_it() -> None:
    call = folded(waits(deadline=DEADLINE), Resolution(call_id="c1", outcome="answered", answer="a"))
    assert (call.status, call.result, call.deadline) == (CallStatus.RESOLVED, "a", None)


@pytest.mark.parametrize(
    ("result", "status", "shown"),
    [
        (ToolResult(call_id="c1", ok=True, result="a"), CallStatus.RESOLVED, "a"),
        (ToolResult(call_id="c1", ok=False, error="no"), CallStatus.ERRORED, {"ok": False, "error": "no"}),
    ],
)
def test_the_answer_to_a_tool_ends_as_its_result_says(
    result: ToolResult, status: CallStatus, shown: object
) -> None:
    answer = Resolution(call_id="c1", outcome="answered", answer="a")
    call = folded(asks(), waits(deadline=DEADLINE), answer, result)
    assert (call.status, call.result, call.deadline) == (status, shown, None)


def test_the_first_answer_stays() -> None:
    first = ToolResult(call_id="c1", ok=True, result=1)
    late = (
        ToolResult(call_id="c1", ok=False, error="late"),
        Resolution(call_id="c1", outcome="expired"),
        asks(executor=Executor.CLIENT),
        RoundFinished(status=Status.FAILED),
    )
    assert folded(asks(), first, *late) == folded(asks(), first)


def test_answers_to_unknown_calls_make_no_rows() -> None:
    strays = events(
        ToolResult(call_id="c9", ok=True), Resolution(call_id="c8", outcome="answered", settles=False)
    )
    assert fold_calls({}, strays) == {}


def test_an_open_gate_leaves_the_call_to_be_carried_out_without_a_deadline() -> None:
    gated = folded(asks(), waits(executor=Executor.SERVER, deadline=DEADLINE))
    assert (gated.kind, gated.deadline, gated.prompt) == (
        SuspensionKind.APPROVAL,
        DEADLINE,
        {"text": "may I?"},
    )
    opened = folded(
        asks(),
        waits(executor=Executor.SERVER, deadline=DEADLINE),
        Resolution(call_id="c1", outcome="answered", answer=True, settles=False),
    )
    assert (opened.status, opened.deadline) == (CallStatus.PENDING, None)
    assert (opened.result, opened.resolved_at) == (None, None)


def test_a_question_that_no_tool_asked_is_a_call_without_a_name() -> None:
    call = folded(waits(kind=SuspensionKind.ELICITATION))
    assert (call.name, call.args, call.executor, call.status) == (
        "",
        None,
        Executor.HUMAN,
        CallStatus.PENDING,
    )


def test_a_doubtful_effect_is_told_apart() -> None:
    call = folded(asks(idempotent=False), waits(executor=Executor.SERVER, kind=SuspensionKind.IN_DOUBT))
    assert (call.status, call.status.is_open, call.idempotent) == (CallStatus.IN_DOUBT, True, False)


def test_asking_again_forgets_the_first_answer() -> None:
    again = folded(waits(), Resolution(call_id="c1", outcome="answered", answer=1), waits())
    assert (again.status, again.result, again.resolved_at) == (CallStatus.PENDING, None, None)


def test_the_end_of_a_round_ends_its_open_calls() -> None:
    calls = fold_calls(
        {},
        events(
            asks("a"), asks("b"), ToolResult(call_id="a", ok=True), RoundFinished(status=Status.COMPLETED)
        ),
    )
    assert {call.id: call.status for call in calls.values()} == {
        "a": CallStatus.RESOLVED,
        "b": CallStatus.ERRORED,
    }


def test_folding_in_pieces_is_folding_at_once() -> None:
    log = events(
        asks("a"),
        waits("b"),
        asks("c"),
        ToolResult(call_id="a", ok=True),
        Resolution(call_id="b", outcome="expired"),
    )
    whole = fold_calls({}, log)
    for cut in range(len(log)):
        assert fold_calls(fold_calls({}, log[:cut]), log[cut:]) == whole


FAILED = RoundFinished(status=Status.FAILED)
AGAIN = RoundStarted(round=1)


def test_what_a_failed_round_left_open_is_open_again_when_it_is_taken_up() -> None:
    assert folded(asks(), FAILED, AGAIN) == folded(asks())


def test_what_was_allowed_before_the_round_failed_must_be_allowed_again() -> None:
    said_yes = Resolution(call_id="c1", outcome="answered", answer={"approved": True}, settles=False)
    for before in ((waits(),), (waits(), said_yes)):
        assert folded(asks(), *before, FAILED, AGAIN).kind is SuspensionKind.NONE


def test_what_had_begun_when_the_round_failed_may_have_happened() -> None:
    begun = replace(folded(asks()), status=CallStatus.STARTED, started_at=NOW)
    (call,) = fold_calls({"c1": begun}, events(FAILED, AGAIN)).values()
    assert call == begun


def test_what_ended_before_the_round_failed_has_ended() -> None:
    for ended in (ToolResult(call_id="c1", ok=False, error="no"), ToolResult(call_id="c1", ok=True)):
        assert not folded(asks(), ended, FAILED, AGAIN).status.is_open
    assert folded(asks(), FAILED, RoundStarted(round=2)).status is CallStatus.ERRORED
