"""What a model is told of a call that its round left without a result."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.errors import ConfigError
from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Resolution,
    RoundFinished,
    RoundStarted,
    ToolCall,
    ToolResult,
    UserMessage,
)
from clew.domain.thread import Executor, Status, SuspensionKind
from clew.domain.tool_calls import (
    CUT_OFF,
    INTERRUPTED,
    NO_RESULT,
    NOT_ANSWERED,
    NOT_APPROVED,
    NOT_BEGUN,
    NOT_REPORTED,
    NOT_RUN,
    Ask,
    Call,
    CallStatus,
    Go,
    OnCrash,
    Settled,
    Terms,
    approved,
    fate,
    fold_calls,
    judge,
)
from clew.graph.context_window import render, unanswered
from clew.graph.tools import tool
from tests.samples import NOW, asks, waits

FAILED = RoundFinished(status=Status.FAILED)


def log(*bodies: Body) -> list[Event]:
    return [
        Event(thread_id="t1", seq=seq, id=f"e{seq}", round=1, at=NOW, body=body)
        for seq, body in enumerate(bodies, 1)
    ]


def allows(*, retry: bool = False) -> Resolution:
    answer = {"retry": True} if retry else {"approved": True}
    return Resolution(call_id="c1", outcome="answered", answer=answer, settles=False)


def begun(call: Call) -> Call:
    """As the store marks it: no event says so."""
    return replace(call, status=CallStatus.STARTED, started_at=NOW)


def left(told: str) -> Settled:
    return Settled(ok=False, result=None, error=told)


@pytest.mark.parametrize(
    ("before", "is_begun", "after", "told"),
    [
        ([asks()], False, [], NOT_BEGUN),
        ([asks()], True, [], CUT_OFF),
        ([asks(), waits()], False, [], NOT_APPROVED),
        ([asks(), waits(), allows()], False, [], NOT_RUN),
        ([asks(), waits(), allows()], True, [], CUT_OFF),
        # Allowed in an earlier attempt at the round, and asked again in the next one.
        ([asks(), waits(), allows(), waits()], False, [], NOT_APPROVED),
        # Asked about because it was begun; a yes to its running again takes nothing of that back.
        ([asks(idempotent=False)], True, [waits(kind=SuspensionKind.IN_DOUBT)], CUT_OFF),
        ([asks(idempotent=False)], True, [waits(kind=SuspensionKind.IN_DOUBT), allows(retry=True)], CUT_OFF),
        ([asks(), waits(), allows(), waits(kind=SuspensionKind.CLIENT_EXEC)], False, [], NOT_REPORTED),
        ([asks(executor=Executor.HUMAN), waits(kind=SuspensionKind.ELICITATION)], False, [], NOT_ANSWERED),
    ],
)
def test_a_model_is_told_what_the_ledger_knows(
    before: list[Body], is_begun: bool, after: list[Body], told: str
) -> None:
    calls = fold_calls({}, log(*before))
    if is_begun:
        calls = {"c1": begun(calls["c1"])}
    calls = fold_calls(calls, log(*after, FAILED))
    assert fate(calls["c1"], is_approved="c1" in approved(log(*before, *after))) == left(told)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (ToolResult(call_id="c1", ok=True, result="found"), Settled(ok=True, result="found")),
        (ToolResult(call_id="c1", ok=True, result=None), Settled(ok=True, result=None)),
        (
            ToolResult(call_id="c1", ok=False, error="no"),
            Settled(ok=False, result={"ok": False, "error": "no"}, error="no"),
        ),
    ],
)
def test_a_result_that_the_log_has_is_told_though_the_graph_lost_it(
    result: ToolResult, told: Settled
) -> None:
    """A graph that fails beside a tool, or right after it, keeps nothing of that step."""
    calls = fold_calls({"c1": begun(fold_calls({}, log(asks()))["c1"])}, log(result, FAILED))
    assert fate(calls["c1"], is_approved=False) == told


def test_a_round_that_was_taken_up_and_failed_again_has_not_begun_what_it_must_ask_about_first() -> None:
    events = log(asks(), waits(), allows(), FAILED, RoundStarted(round=1), FAILED)
    assert fate(fold_calls({}, events)["c1"], is_approved="c1" in approved(events)) == left(NOT_BEGUN)


def test_nothing_is_made_up_about_a_call_the_ledger_does_not_know() -> None:
    assert fate(None, is_approved=False) == left(NO_RESULT)


def test_every_call_is_shown_with_its_result_or_its_fate_behind_it() -> None:
    events = log(
        UserMessage(content="go"),
        AssistantMessage(content="on it"),
        *(asks(f"c{n}") for n in (1, 2, 3)),
        ToolResult(call_id="c2", ok=True, result="found"),
        FAILED,
        RoundStarted(round=2),
        UserMessage(content="and?"),
    )
    assert unanswered(events) == ("c1", "c3")
    shown = render(events, fates={"c1": left(CUT_OFF)}).turns
    assert [turn.role for turn in shown] == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert [(turn.call_id, turn.content, turn.ok) for turn in shown if turn.role == "tool"] == [
        ("c1", CUT_OFF, False),
        ("c2", "found", True),
        ("c3", NO_RESULT, False),
    ]


def test_what_is_in_doubt_has_no_deadline() -> None:
    patient = Terms(approval=True, patience=timedelta(hours=1))
    call = asks(idempotent=False)
    first = judge(call, None, patient, now=NOW)
    assert isinstance(first, Ask)
    assert first.suspension.deadline == NOW + timedelta(hours=1)
    doubtful = judge(call, begun(fold_calls({}, log(call))["c1"]), patient, now=NOW)
    assert isinstance(doubtful, Ask)
    assert (doubtful.suspension.kind, doubtful.suspension.deadline) == (SuspensionKind.IN_DOUBT, None)


@pytest.mark.accept("002-13")
def test_what_is_declared_for_a_crash_must_make_sense() -> None:
    async def pay(n: int) -> str:
        """Pay."""
        return str(n)

    for terms, words in (
        ({"on_crash": "twice"}, "expected one of retry, ask, interrupted"),
        ({"on_crash": "interrupted", "executor": "client"}, "executor='client'"),
        ({"on_crash": "retry", "idempotent": False}, "idempotent=False"),
    ):
        with pytest.raises(ConfigError, match=words):
            tool(**terms)(pay)
    assert tool(on_crash="ask")(pay).terms.on_crash is OnCrash.ASK


@pytest.mark.accept("002-13")
@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("on_crash", OnCrash)
def test_a_call_that_was_begun_and_cut_off(idempotent: bool, on_crash: OnCrash) -> None:
    call = ToolCall(call_id="c1", name="pay", args={}, idempotent=idempotent)
    begun = Call(
        thread_id="t1",
        id="c1",
        round=1,
        executor=Executor.SERVER,
        name="pay",
        args={},
        created_at=NOW,
        status=CallStatus.STARTED,
        started_at=NOW,
    )
    verdict = judge(call, begun, Terms(on_crash=on_crash), now=NOW)
    match on_crash:
        case OnCrash.RETRY:
            assert isinstance(verdict, Go)
        case OnCrash.ASK:
            assert isinstance(verdict, Ask)
            assert verdict.suspension.kind is SuspensionKind.IN_DOUBT
        case OnCrash.INTERRUPTED:
            assert verdict == Settled(ok=False, result=None, error=INTERRUPTED)
    # One that was not begun is simply carried out.
    waiting = replace(begun, status=CallStatus.PENDING, started_at=None)
    assert isinstance(judge(call, waiting, Terms(on_crash=on_crash), now=NOW), Go)
