"""What a run does next, told by the end of its log and the position of its graph; and for whom it does so."""

from collections.abc import Mapping, Sequence

import pytest

from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Log,
    Resolution,
    RoundFinished,
    RoundStarted,
    RunSpec,
    Suspension,
    UserMessage,
)
from clew.domain.lifecycle import next_round, retry_round
from clew.domain.records import SYSTEM, RunScope
from clew.domain.recovery import (
    Begin,
    Breakpoint,
    Continue,
    Decision,
    Denied,
    Done,
    OpenInterrupt,
    Position,
    Reopened,
    Resume,
    Wait,
    decide,
    failed_attempts,
    unanswered,
    woken_by,
)
from clew.domain.thread import Executor, Status, SuspensionKind
from clew.domain.tool_calls import GATE
from tests.samples import NOW, asks, opened, recorded, stamp, waits

ANSWER = AssistantMessage(content="so be it")
STARTED: Sequence[Body] = (RoundStarted(round=1), UserMessage(content="hello"))
INPUT = {"messages": [{"role": "user", "content": "hello"}]}
STOP = f"{GATE}1"


def log_of(*bodies: Body) -> list[Event]:
    return [
        Event(thread_id="t1", seq=seq, id=f"e{seq}", round=1, at=NOW, body=body)
        for seq, body in enumerate(bodies, 1)
    ]


def asked(call_id: str, *, node: str = "", index: int = 0, args_hash: str = "") -> Suspension:
    return Suspension(
        call_id=call_id,
        executor=Executor.HUMAN,
        kind=SuspensionKind.APPROVAL,
        prompt={},
        node=node,
        index=index,
        args_hash=args_hash,
    )


def answered(call_id: str, answer: object = True, *, settles: bool = True) -> Resolution:
    return Resolution(call_id=call_id, outcome="answered", answer=answer, settles=settles)


# How the log of a round may end, and where its graph may stand. i1 and i2 are questions of one node, c1 a tool call.
LOGS: Mapping[str, Sequence[Body]] = {
    "begun": (),
    "asked": (asked("i1", node="ask"),),
    "answered": (asked("i1", node="ask"), answered("i1", "blue")),
    "both answered": (
        asked("i1", node="ask"),
        answered("i1", "blue"),
        asked("i2", node="ask", index=1),
        answered("i2", "red"),
    ),
    "approved": (asked(STOP), answered(STOP, {"approved": True})),
    "refused": (asked(STOP), answered(STOP, {"approved": False})),
    "refused, retried": (asked(STOP), answered(STOP, False), RoundStarted(round=1)),
    "approved, retried": (asked(STOP), answered(STOP, True), RoundStarted(round=1)),
    "call approved": (asks("c1"), asked("c1", args_hash="ab"), answered("c1", settles=False)),
}

FIRST = OpenInterrupt(id="i1", node="ask")
SECOND = OpenInterrupt(id="i2", node="ask", index=1)
# The graph took the answer to i1 and was killed before it stored what it asks next.
TAKEN = OpenInterrupt(id="i1", node="ask", index=1)
CALL = OpenInterrupt(id="i9", node="tools", call_id="c1")
CALL_AGAIN = OpenInterrupt(id="i9", node="tools", call_id="c1", index=1)
LATER = OpenInterrupt(id="k1", node="ask")
PLAIN = Breakpoint(id=STOP, before=("act",))
TOLD = Breakpoint(id=STOP, before=("act",), has_channel=True)
DECIDED = Breakpoint(id=STOP, before=("act",), has_channel=True, is_decided=True)
COMMANDED = Breakpoint(id=STOP, before=("act",), has_channel=True, is_commanded=True)
# update_state was called while i1 was open: before the node ran again, and after.
AGAIN = Reopened("ask", ("i1",), "j1")
UNKNOWN = Reopened("ask", ("i1",), None)
RENAMED = OpenInterrupt(id="j1", node="ask", formerly=("i1",))
RENAMED_SECOND = OpenInterrupt(id="j2", node="ask", index=1, formerly=("i2",))
STOPPED: frozenset[str] = frozenset()

POSITIONS: Mapping[str, tuple[Position, Mapping[str, Decision]]] = {
    # position: what is decided at most ends of the log ("*"), and at the others.
    "input not taken": (Position(has_begun=False), {"*": Begin(input=INPUT)}),
    "command written": (Position(has_begun=False, is_input_written=True), {"*": Continue()}),
    "between steps": (Position(), {"*": Continue()}),
    "cut short": (Position(is_cut_short=True), {"*": Continue()}),
    "ended": (Position(has_ended=True), {"*": Done()}),
    "asks": (
        Position(interrupts=(FIRST,)),
        {
            "*": Wait((FIRST,)),
            "answered": Resume({"i1": "blue"}),
            "both answered": Resume({"i1": "blue"}),
        },
    ),
    "asks the second": (
        Position(interrupts=(SECOND,)),
        {"*": Wait((SECOND,)), "both answered": Resume({"i2": "red"})},
    ),
    "asks in a later visit": (Position(interrupts=(LATER,)), {"*": Wait((LATER,))}),
    "answer taken": (
        Position(interrupts=(TAKEN,)),
        {"*": Wait((TAKEN,)), "answered": Continue(), "both answered": Continue()},
    ),
    "asks beside a task cut short": (
        Position(interrupts=(FIRST,), is_cut_short=True),
        {
            "*": Continue(),
            "answered": Resume({"i1": "blue"}),
            "both answered": Resume({"i1": "blue"}),
        },
    ),
    "asks beside a task it ran": (
        Position(interrupts=(FIRST,), is_cut_short=True, asking=STOPPED),
        {
            "*": Wait((FIRST,)),
            "answered": Resume({"i1": "blue"}),
            "both answered": Resume({"i1": "blue"}),
        },
    ),
    "a tool asks, not begun": (
        Position(interrupts=(CALL,)),
        {"*": Resume({"i9": {}}), "call approved": Resume({"i9": True})},
    ),
    "a tool asks": (Position(interrupts=(CALL,), asking=frozenset({"c1"})), {"*": Wait()}),
    "a tool asked": (
        Position(interrupts=(CALL,), asking=STOPPED),
        {"*": Resume({"i9": {}}), "call approved": Resume({"i9": True})},
    ),
    "a tool asks once more, not begun": (
        Position(interrupts=(CALL_AGAIN,)),
        {"*": Resume({"i9": {}}), "call approved": Resume({"i9": True})},
    ),
    "a tool and a node ask, not begun": (
        Position(interrupts=(CALL, FIRST)),
        {
            "*": Resume({"i9": {}}),
            "answered": Resume({"i9": {}, "i1": "blue"}),
            "both answered": Resume({"i9": {}, "i1": "blue"}),
            "call approved": Resume({"i9": True}),
        },
    ),
    "a tool and a node ask": (
        Position(interrupts=(CALL, FIRST), asking=frozenset({"c1"})),
        {"*": Wait((FIRST,)), "answered": Wait(), "both answered": Wait()},
    ),
    "at a breakpoint": (
        Position(stopped_at=PLAIN, is_cut_short=True),
        {
            "*": Wait((), PLAIN),
            "approved": Continue(),
            "approved, retried": Continue(),
            "refused": Denied(),
        },
    ),
    "at a breakpoint with a channel": (
        Position(stopped_at=TOLD, is_cut_short=True),
        {
            "*": Wait((), TOLD),
            "approved": Continue(approved=True),
            "approved, retried": Continue(approved=True),
            "refused": Continue(approved=False),
        },
    ),
    "at a breakpoint with the last decision": (
        Position(stopped_at=DECIDED, is_cut_short=True),
        {
            "*": Wait((), DECIDED),
            "approved": Continue(approved=True),
            "approved, retried": Continue(approved=True),
            "refused": Continue(approved=False),
        },
    ),
    "at a breakpoint, decision written": (
        Position(stopped_at=COMMANDED, is_cut_short=True),
        {
            "*": Wait((), COMMANDED),
            "approved": Continue(),
            "approved, retried": Continue(),
            "refused": Continue(),
        },
    ),
    "at a breakpoint beside a question": (
        Position(stopped_at=TOLD, interrupts=(FIRST,)),
        {
            "*": Wait((FIRST,), TOLD),
            "answered": Wait((), TOLD),
            "both answered": Wait((), TOLD),
            "approved": Wait((FIRST,)),
            "approved, retried": Wait((FIRST,)),
            "refused": Wait((FIRST,)),
        },
    ),
    "written by hand": (
        Position(reopened=(AGAIN,), is_cut_short=True),
        {
            "*": Continue(),
            "answered": Resume({"j1": "blue"}),
            "both answered": Resume({"j1": "blue"}),
        },
    ),
    "written by hand in a graph not begun": (
        Position(reopened=(UNKNOWN,), is_cut_short=True),
        {"*": Continue()},
    ),
    "asks again": (
        Position(interrupts=(RENAMED,), asking=STOPPED),
        {
            "*": Wait((RENAMED,)),
            "answered": Resume({"j1": "blue"}),
            "both answered": Resume({"j1": "blue"}),
        },
    ),
    "asks the second again": (
        Position(interrupts=(RENAMED_SECOND,), asking=STOPPED),
        {"*": Wait((RENAMED_SECOND,)), "both answered": Resume({"j2": "red"})},
    ),
}


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("log", LOGS)
def test_every_end_of_the_log_at_every_position(log: str, position: str) -> None:
    at, decisions = POSITIONS[position]
    assert decide(log_of(*STARTED, *LOGS[log]), at) == decisions.get(log, decisions["*"])


def test_the_table_names_no_end_of_a_log_that_is_not_tried() -> None:
    assert {name for _, decisions in POSITIONS.values() for name in decisions} <= {"*", *LOGS}


SPEC = RunSpec(run_id="r1", assistant_id="a1", graph="g", command={"goto": "act"})


@pytest.mark.parametrize(
    ("bodies", "begin"),
    [
        ([RoundStarted(round=1, input={"n": 1}), UserMessage(content="hello")], Begin(input={"n": 1})),
        ([RoundStarted(round=1)], Begin(input={"messages": [{"role": "user", "content": ""}]})),
        ([RoundStarted(round=1, input={"n": 1}, spec=SPEC)], Begin(input={"n": 1}, spec=SPEC)),
        # A run without an input goes on from where the thread stands.
        ([RoundStarted(round=1, spec=SPEC), UserMessage(content="hello")], Begin(input=None, spec=SPEC)),
        # A held round gets its run, and a failed one its retry, after the first start.
        ([*STARTED, RoundStarted(round=1, spec=SPEC)], Begin(input=None, spec=SPEC)),
        (
            [RoundStarted(round=1, input={"n": 1}), RoundStarted(round=1, input={"n": 2})],
            Begin(input={"n": 1}),
        ),
    ],
)
def test_a_round_begins_with_the_input_of_its_run_or_what_the_user_said(
    bodies: list[Body], begin: Begin
) -> None:
    assert decide(log_of(*bodies), Position(has_begun=False)) == begin


def test_answers_go_to_the_tasks_that_asked_in_one_go() -> None:
    two = Position(interrupts=(OpenInterrupt(id="a", node="x"), OpenInterrupt(id="b", node="y")))
    log = log_of(*STARTED, asked("a", node="x"), asked("b", node="y"), answered("b", 2), answered("a", 1))
    assert decide(log, two) == Resume({"a": 1, "b": 2})


def test_with_one_of_two_answered_the_run_waits_for_the_other() -> None:
    one, other = OpenInterrupt(id="a", node="x"), OpenInterrupt(id="b", node="y")
    log = log_of(*STARTED, asked("a", node="x"), asked("b", node="y"), answered("a", 1))
    assert decide(log, Position(interrupts=(one, other))) == Wait((other,))


def test_an_expired_question_is_answered_by_its_expiry() -> None:
    gone = Resolution(call_id="i1", outcome="expired", answer={"ok": False})
    assert decide(log_of(*STARTED, asked("i1"), gone), Position(interrupts=(FIRST,))) == Resume(
        {"i1": {"ok": False}}
    )


def test_an_answer_of_none_is_given_as_an_empty_one() -> None:
    log = log_of(*STARTED, asked("i1"), answered("i1", None))
    assert decide(log, Position(interrupts=(FIRST,))) == Resume({"i1": {}})


def test_a_node_that_asks_anew_forgets_what_it_was_answered_the_last_time() -> None:
    log = log_of(
        *STARTED,
        *LOGS["both answered"],
        asked("k1", node="ask"),
        answered("k1", "green"),
        asked("k2", node="ask", index=1),
    )
    again = Reopened("ask", ("k2",), "j1")
    assert decide(log, Position(reopened=(again,), is_cut_short=True)) == Resume({"j1": "green"})
    second = OpenInterrupt(id="j2", node="ask", index=1, formerly=("k2",))
    assert decide(log, Position(interrupts=(second,), asking=STOPPED)) == Wait((second,))


def test_an_answer_whose_question_names_no_node_is_found_by_its_former_id() -> None:
    log = log_of(*STARTED, asked("i1"), answered("i1", "blue"))
    assert decide(log, Position(interrupts=(RENAMED,), asking=STOPPED)) == Resume({"j1": "blue"})


def test_what_a_tool_was_answered_is_in_the_ledger_and_not_given_to_its_node() -> None:
    log = log_of(*STARTED, *LOGS["call approved"])
    again = Reopened("tools", ("c1",), "j1")
    assert decide(log, Position(reopened=(again,), is_cut_short=True)) == Continue()


def test_a_breakpoint_and_the_questions_of_the_graph_are_open_until_they_are_answered() -> None:
    at = Position(interrupts=(FIRST, CALL), stopped_at=DECIDED)
    assert unanswered(log_of(*STARTED), at) == Wait((FIRST,), DECIDED)
    assert unanswered(log_of(*STARTED, *LOGS["answered"], *LOGS["approved"]), at) == Wait()


def test_failed_attempts_are_counted_since_the_round_was_last_started() -> None:
    tried = Log(message="failed", attempt=2)
    assert failed_attempts(log_of(*STARTED)) == 0
    assert failed_attempts(log_of(*STARTED, Log(message="failed", attempt=1), tried, ANSWER)) == 2
    assert failed_attempts(log_of(*STARTED, tried, RoundStarted(round=1))) == 0


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
