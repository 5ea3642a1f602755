"""Recovery: one pure decision, from the log of a round and the position of its graph to what the run does next.

A state written by hand (`update_state`) loses the interrupts of its graph: LangGraph prepares the same nodes again,
under new ids. `Reopened` and `OpenInterrupt.formerly` connect the new ids with the answers given under the old ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from clew.domain.events import Event, Log, Resolution, RoundStarted, RunSpec, Suspension, UserMessage
from clew.domain.records import SYSTEM, RunScope
from clew.domain.thread import Json, Thread
from clew.domain.tool_calls import GATE, is_yes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenInterrupt:
    """An interrupt of a task that has not ended."""

    id: str
    # The argument of `interrupt()`.
    value: object = None
    # How many questions of the same task were answered before this one.
    index: int = 0
    # The node that asks, after those of the graphs around it: "outer|inner".
    node: str = ""
    # The ids it had before its state was written by hand.
    formerly: tuple[str, ...] = ()
    # The tool call that asks; None for a question of the graph itself.
    call_id: str | None = None

    @property
    def answered_as(self) -> str:
        """The id under which the log keeps the question and its answer."""
        return self.id if self.call_id is None else self.call_id


@dataclass(frozen=True, slots=True)
class Reopened:
    """Questions of a node that were open when its state was written by hand. The node asks them again when it runs."""

    node: str
    ids: tuple[str, ...]
    # The id of its next interrupt; None while the subgraph it belongs to has not begun.
    next_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakpoint:
    """A stop declared when the graph was compiled or by the run. LangGraph gives it no id; its checkpoint has one."""

    id: str
    before: tuple[str, ...] = ()
    # Whether the graph has a channel for the decision. A graph without one cannot be given a no.
    has_channel: bool = False
    # Whether the channel holds a decision: that of this visit, or of one before.
    is_decided: bool = False
    # Whether a command wrote a decision that no checkpoint holds yet: written again it would be written twice.
    is_commanded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the graph stands in the current round, in values of our own."""

    # Whether the graph has taken the round's input.
    has_begun: bool = True
    # Before that: whether a killed attempt left the round's command beside the checkpoint.
    is_input_written: bool = False
    interrupts: tuple[OpenInterrupt, ...] = ()
    reopened: tuple[Reopened, ...] = ()
    stopped_at: Breakpoint | None = None
    has_ended: bool = False
    # Whether a task neither ended nor asks: it was killed, or never begun.
    is_cut_short: bool = False
    # Tool calls that this attempt wants an answer for; None as long as the attempt has run no part of the graph.
    asking: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The graph has not taken the round's input: give it, or the command of `spec` if it has one."""

    input: Json = None
    spec: RunSpec | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Hand these answers, by interrupt id, to the tasks that wait for them."""

    answers: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Continue:
    """Go on from the last checkpoint without input; `approved` is written to the breakpoint's channel first."""

    approved: bool | None = None


@dataclass(frozen=True, slots=True)
class Wait:
    """Answers from outside are missing. What tools ask is in the ledger and not listed here."""

    interrupts: tuple[OpenInterrupt, ...] = ()
    stopped_at: Breakpoint | None = None


@dataclass(frozen=True, slots=True)
class Denied:
    """The answer at a breakpoint was no, and the graph has no channel for it: the run ends here."""


@dataclass(frozen=True, slots=True)
class Done:
    """The graph has ended."""


Decision: TypeAlias = Begin | Resume | Continue | Wait | Denied | Done


def decide(log: Sequence[Event], position: Position) -> Decision:
    """What the run does next. `log` holds the events of the current round."""
    if not position.has_begun:
        # Given once more, a command would be written twice.
        return Continue() if position.is_input_written else round_input(log)
    said = _Answers.of(log)
    if _must_wait(position, said):
        return _unanswered(position, said)
    if position.has_ended:
        return Done()
    stop = position.stopped_at
    if stop is not None and not stop.has_channel and not said.approves(stop):
        return Denied()
    if answers := _answers_to(position, said):
        return Resume(answers)
    # A decision that was written and is not yet in a checkpoint is stored beside it; LangGraph applies it by itself.
    if stop is None or not stop.has_channel or stop.is_commanded:
        return Continue()
    return Continue(approved=said.approves(stop))


def unanswered(log: Sequence[Event], position: Position) -> Wait:
    """The questions of the graph and the breakpoint that this round's log has no answer to."""
    return _unanswered(position, _Answers.of(log))


def round_input(log: Sequence[Event]) -> Begin:
    """What the round begins with: the input of its run, else what the user said."""
    started = [event.body for event in log if isinstance(event.body, RoundStarted)]
    ordered = next((body for body in started if body.spec is not None), None)
    if ordered is not None:
        # Without an input it goes on from where it stands.
        return Begin(input=ordered.input, spec=ordered.spec)
    given = next((body.input for body in started), None)
    if given is None:
        said = next((event.body.content for event in log if isinstance(event.body, UserMessage)), "")
        given = {"messages": [{"role": "user", "content": said}]}
    return Begin(input=given)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What was asked and answered in a round."""

    asked: Mapping[str, Suspension]
    given: Mapping[str, Resolution]
    # What each node was answered the last time it asked, by the number of the question.
    by_node: Mapping[str, Mapping[int, Resolution]]

    @classmethod
    def of(cls, log: Sequence[Event]) -> Self:
        asked: dict[str, Suspension] = {}
        given: dict[str, Resolution] = {}
        by_node: dict[str, dict[int, Resolution]] = {}
        for event in log:
            match event.body:
                case Suspension(call_id=call_id, node=node, index=index) as body:
                    asked[call_id] = body
                    if node:
                        earlier = by_node.get(node, {})
                        by_node[node] = {number: one for number, one in earlier.items() if number < index}
                case Resolution(call_id=call_id) as body:
                    given[call_id] = body
                    if (question := asked.get(call_id)) is not None and question.node:
                        by_node[question.node][question.index] = body
                case RoundStarted():
                    # A failed round that is retried asks again at the breakpoint that was refused.
                    given = {
                        call_id: body
                        for call_id, body in given.items()
                        if not call_id.startswith(GATE) or is_yes(body.answer)
                    }
                case _:
                    pass
        return cls(asked, given, by_node)

    def approves(self, stop: Breakpoint) -> bool:
        return is_yes(self.given[stop.id].answer)

    def earlier(self, node: str, formerly: Sequence[str]) -> Mapping[int, Resolution]:
        """What this visit to the node was answered before its state was written by hand, by the number of each."""
        if not formerly:
            return {}
        # What a tool asks is kept in the ledger, where the tool finds the answer itself.
        current = {
            question.index: self.given[question.call_id]
            for one in formerly
            if (question := self.asked.get(one)) is not None
            and question.call_id in self.given
            and not question.args_hash
        }
        return {**self.by_node.get(node, {}), **current}


def _must_wait(position: Position, said: _Answers) -> bool:
    if position.stopped_at is not None and position.stopped_at.id not in said.given:
        return True
    is_revived = position.asking is None
    if is_revived and (position.is_cut_short or any(one.call_id is not None for one in position.interrupts)):
        # Some of the step is yet to run; and what a tool asks is known only when the tool is begun.
        return False
    return any(not _is_answered(one, position, said) for one in position.interrupts)


def _unanswered(position: Position, said: _Answers) -> Wait:
    # Tools that wait are known to the ledger; here is what the graph itself asks.
    interrupts = tuple(
        one for one in position.interrupts if one.call_id is None and not _is_answered(one, position, said)
    )
    stop = position.stopped_at
    return Wait(interrupts, None if stop is None or stop.id in said.given else stop)


def _answers_to(position: Position, said: _Answers) -> dict[str, Json]:
    """Answers by the ids of the interrupts that take them."""
    found = {
        one.id: _answer(one, said)
        for one in position.interrupts
        if _is_answered(one, position, said) and not _is_consumed(one, said)
    }
    # What was asked before the state was written by hand is asked next under another id.
    for reopened in position.reopened:
        first = said.earlier(reopened.node, reopened.ids).get(0)
        if reopened.next_id is not None and first is not None:
            found[reopened.next_id] = _resume_value(first)
    return found


def _is_answered(one: OpenInterrupt, position: Position, said: _Answers) -> bool:
    if one.call_id is not None:
        # A tool may ask more than once under one id: approval first, then the client's result.
        return one.call_id not in (position.asking or ())
    return one.id in said.given or one.index in said.earlier(one.node, one.formerly)


def _is_consumed(one: OpenInterrupt, said: _Answers) -> bool:
    """The graph took the answer and was killed before it came further; given twice it would answer the next question."""
    asked = said.asked.get(one.answered_as)
    return asked is not None and one.call_id is None and one.index > asked.index


def _answer(one: OpenInterrupt, said: _Answers) -> Json:
    given = said.given.get(one.answered_as)
    return _resume_value(given or said.earlier(one.node, one.formerly).get(one.index))


def _resume_value(given: Resolution | None) -> Json:
    # LangGraph takes None for no answer at all.
    return {} if given is None or given.answer is None else given.answer


def woken_by(thread: Thread, this_round: Sequence[Event]) -> RunScope:
    """On whose behalf the thread goes on: the user who last began it, retried it or answered. A deadline is the system."""
    for event in reversed(this_round):
        match event.body:
            case RoundStarted(by=None):
                return SYSTEM
            case RoundStarted(by=str(user_id)):
                return RunScope(user_id=user_id, is_system=False)
            case Resolution(outcome="answered", by=by):
                # Only its owner may answer, or a caller that is no user in particular and is named by its key.
                user_id = thread.owner.user_id if by == thread.owner.user_id else ""
                return RunScope(user_id=user_id, is_system=False)
            case Resolution():
                return SYSTEM
            case _:
                pass
    return SYSTEM


def failed_attempts(log: Sequence[Event]) -> int:
    """Failed attempts of the round. Counted in the log, so that a kill between two attempts gives no attempt back.

    Retrying a failed round starts at zero.
    """
    for event in reversed(log):
        match event.body:
            case Log(attempt=attempt) if attempt:
                return attempt
            case RoundStarted():
                return 0
            case _:
                pass
    return 0
