"""Context window: a thread's latest summary and the events after it, as the messages a model is sent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from clew.domain.events import AssistantMessage, Content, Event, ToolCall, ToolResult, UserMessage
from clew.domain.records import Summary
from clew.domain.thread import Json
from clew.domain.tool_calls import NO_RESULT, Settled

RESULT_EXPIRED = "[result expired]"
_UNKNOWN = Settled(ok=False, result=None, error=NO_RESULT)
# The parts of a message that are read as words.
TEXTS = ("text", "thinking", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message for a model."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    ok: bool = True
    seq: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """What is sent, which summary it rests on, and which results were left out to make it fit."""

    turns: tuple[Turn, ...]
    summary_version: str | None = None
    evictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBudget:
    """How much of the past is shown. Results of tools go first: the newest are kept whole."""

    results_kept: int = 20
    result_bytes: int = 8_192


@dataclass(slots=True)
class _OpenTurn:
    """An assistant turn whose calls are still being collected."""

    content: Content = ""
    seq: int = 0
    calls: list[ToolCall] = field(default_factory=list)


def unanswered(events: Sequence[Event]) -> tuple[str, ...]:
    """The calls that have no result: a round that failed left them."""
    results = {event.body.call_id for event in events if isinstance(event.body, ToolResult)}
    calls = (event.body.call_id for event in events if isinstance(event.body, ToolCall))
    return tuple(call_id for call_id in calls if call_id not in results)


def render(
    events: Sequence[Event],
    *,
    fates: Mapping[str, Settled] = MappingProxyType({}),
    summary: Summary | None = None,
    system: str = "",
    injected: str = "",
    budget: ContextBudget | None = None,
) -> Rendered:
    """Every call has its result behind it, as providers demand: one that has none gets what became of it, too old a one a stub."""
    turns: list[Turn] = _instructions(system, summary, injected)
    results = {event.body.call_id: event.body for event in events if isinstance(event.body, ToolResult)}
    kept, evictions = _evicted(results, _unread(events), budget or ContextBudget())
    for turn in _turns(events):
        turns.append(turn)
        turns += [
            _result(call, results[call.call_id], kept)
            if call.call_id in results
            else _left(call, fates.get(call.call_id, _UNKNOWN))
            for call in turn.calls
        ]
    return Rendered(
        turns=tuple(turns),
        summary_version=summary.version if summary else None,
        evictions=tuple(evictions),
    )


def _instructions(system: str, summary: Summary | None, injected: str) -> list[Turn]:
    """One system message, before all others: some providers refuse a second one."""
    past = "" if summary is None else f"Summary of the conversation so far:\n{_text(summary.content)}"
    parts = [part for part in (system, past, injected) if part]
    return [Turn(role="system", content="\n\n".join(parts))] if parts else []


def _turns(events: Iterable[Event]) -> Iterable[Turn]:
    assistant: _OpenTurn | None = None
    for event in events:
        match event.body:
            case UserMessage(content=content):
                if assistant is not None:
                    yield _closed(assistant)
                    assistant = None
                yield Turn(role="user", content=content, seq=event.seq)
            case AssistantMessage(content=content):
                if assistant is not None:
                    yield _closed(assistant)
                assistant = _OpenTurn(content=content, seq=event.seq)
            case ToolCall() as call:
                assistant = assistant or _OpenTurn(seq=event.seq)
                assistant.calls.append(call)
            case _:
                pass
    if assistant is not None:
        yield _closed(assistant)


def _closed(assistant: _OpenTurn) -> Turn:
    return Turn(role="assistant", content=assistant.content, calls=tuple(assistant.calls), seq=assistant.seq)


def _result(call: ToolCall, result: ToolResult, kept: set[str]) -> Turn:
    content = RESULT_EXPIRED
    if call.call_id in kept:
        content = _text(result.result if result.ok else result.error)
    return Turn(role="tool", content=content, call_id=call.call_id, ok=result.ok)


def _left(call: ToolCall, fate: Settled) -> Turn:
    content = _text(fate.result if fate.ok else fate.error)
    return Turn(role="tool", content=content, call_id=call.call_id, ok=fate.ok)


def _unread(events: Sequence[Event]) -> set[str]:
    """Whose results came since a model last spoke: all that it asked for at once."""
    unread: set[str] = set()
    for event in events:
        match event.body:
            case AssistantMessage():
                unread.clear()
            case ToolResult(call_id=call_id):
                unread.add(call_id)
            case _:
                pass
    return unread


def _evicted(
    results: dict[str, ToolResult], unread: set[str], budget: ContextBudget
) -> tuple[set[str], list[str]]:
    newest = list(results)[-budget.results_kept :] if budget.results_kept else []
    kept = {call_id for call_id in newest if len(_text(results[call_id].result)) <= budget.result_bytes}
    # A result that no model has read yet is shown whatever its size.
    kept |= unread
    return kept, [call_id for call_id in results if call_id not in kept]


def _text(value: Json) -> str:
    return value if isinstance(value, str) else str(value)


def _length(content: Content) -> int:
    """How much is said. An image is no text, however many letters it takes to write it down."""
    if isinstance(content, str):
        return len(content)
    return sum(
        len(text)
        for part in content
        for text in part.values()
        if isinstance(text, str) and part.get("type") in TEXTS
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """When the past is summed up: beyond so many messages or tokens, all but the newest `keep`."""

    messages: int = 60
    tokens: int = 24_000
    keep: int = 20

    def span(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events to summarize now; empty while the context fits. Never cuts between a call and its result."""
        said = [event for event in events if isinstance(event.body, UserMessage | AssistantMessage)]
        size = sum(_length(event.body.content) for event in said if hasattr(event.body, "content")) // 4
        if (len(said) <= self.messages and size <= self.tokens) or len(said) <= self.keep:
            return ()
        # A user's message begins a turn: nothing before it is open any more.
        starts = [event.seq for event in said[: -self.keep or None] if isinstance(event.body, UserMessage)]
        last = starts[-1] if starts else 0
        return [event for event in events if event.seq < last]
