"""Interrupts of AG-UI: what a thread asks, and the calls that it leaves to the client."""

from collections.abc import Iterator, Mapping

from ag_ui.core import (
    BaseEvent,
    CustomEvent,
    Interrupt,
    RunFinishedCancelledOutcome,
    RunFinishedInterruptOutcome,
    RunFinishedSuccessOutcome,
)
from ag_ui.core.events import RunFinishedOutcome
from pydantic_core import to_json

from clew.api.agui.messages import is_chat
from clew.domain.questions import is_yes_or_no, question_text
from clew.domain.thread import Json, Pending, Status, SuspensionKind, Thread
from clew.domain.tool_calls import GATE

ASKED = "langgraph:interrupt"
STOPPED = "langgraph:breakpoint"
# The name of the event by which older clients learn of an interrupt.
ON_INTERRUPT = "on_interrupt"
YES_OR_NO: Mapping[str, Json] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "feedback": {"type": "string"}},
    "required": ["approved"],
}


def outcome_of(thread: Thread, output: Json, *, is_cancelled: bool) -> RunFinishedOutcome:
    if is_cancelled:
        return RunFinishedCancelledOutcome()
    if found := [*_interrupts(thread)]:
        return RunFinishedInterruptOutcome(interrupts=found)
    return RunFinishedSuccessOutcome(pending_tool_call_ids=_unanswered(output) or None)


def for_older_clients(outcome: RunFinishedOutcome) -> Iterator[BaseEvent]:
    """An event for each interrupt: before 1.0 the end of a run did not name them."""
    if isinstance(outcome, RunFinishedInterruptOutcome):
        for one in outcome.interrupts:
            value = (one.metadata or {})["langgraph"]["raw"]
            text = value if isinstance(value, str) else to_json(value).decode()
            yield CustomEvent(name=ON_INTERRUPT, value=text, raw_event={"id": one.id, "value": value})


def _interrupts(thread: Thread) -> Iterator[Interrupt]:
    if thread.status is not Status.BLOCKED or all(_is_clients(one) for one in thread.pending.values()):
        return
    for call_id, pending in thread.pending.items():
        yield _interrupt(call_id, pending)


def _is_clients(pending: Pending) -> bool:
    return pending.kind is SuspensionKind.CLIENT_EXEC


def _interrupt(call_id: str, pending: Pending) -> Interrupt:
    asked = pending.prompt
    told = asked if isinstance(asked, dict) else {}
    schema = told.get("responseSchema") or told.get("response_schema")
    if schema is None and is_yes_or_no(call_id, pending):
        schema = YES_OR_NO
    own_call = call_id if "tool" in told and "args" in told else None
    return Interrupt(
        id=call_id,
        reason=_text(told, "reason") or (STOPPED if call_id.startswith(GATE) else ASKED),
        message=_text(told, "message") or question_text(asked),
        tool_call_id=_text(told, "toolCallId", "tool_call_id") or own_call,
        response_schema=schema if isinstance(schema, dict) else None,
        expires_at=_text(told, "expiresAt", "expires_at"),
        metadata={"langgraph": {"raw": asked}},
    )


def _text(told: Mapping[str, Json], *names: str) -> str | None:
    return next((told[name] for name in names if isinstance(told.get(name), str)), None)


def _unanswered(output: Json) -> list[str]:
    """The calls of tools since the user's last message that have no result: those are the client's."""
    if not is_chat(output):
        return []
    called: dict[str, None] = {}
    for message in output["messages"]:
        match message:
            case {"type": "human"}:
                called.clear()
            case {"type": "ai", "tool_calls": [*calls]}:
                called |= {str(call.get("id")): None for call in calls}
            case {"type": "tool"}:
                called.pop(str(message.get("tool_call_id")), None)
            case _:
                pass
    return [*called]
