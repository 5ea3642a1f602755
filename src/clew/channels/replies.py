"""Replies due to a chat: derived from the log of its thread, so that they are the same after a crash."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, TypeAlias

from clew.channels.message import Button, utf8_bytes
from clew.domain.events import (
    AssistantMessage,
    Content,
    Event,
    RoundFinished,
    RoundStarted,
    Suspension,
    UserMessage,
)
from clew.domain.questions import is_yes_or_no, question_text
from clew.domain.thread import Pending, Status, SuspensionKind, Thread

# Of the log, all that is needed here.
TOLD = (RoundStarted.type, UserMessage.type, AssistantMessage.type, Suspension.type, RoundFinished.type)

FAILED = "Sorry, that did not work. Please try again later."
STOPPED = "This was stopped."
ELSEWHERE = "A person has to check this before I can go on. I will answer here."
YES_OR_NO = "Please answer yes or no."
APPROVE, REJECT = "Approve", "Reject"
# A longer question may be cut by a channel, and only a question shown whole can be approved. In bytes: five parts of
# 2,048 at most, each of them at least half full.
MAX_SHOWN = 5000

Approvers: TypeAlias = Literal["chat", "dashboard"]

_BUTTON = re.compile(r"(?:approve|reject):[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A reply to send, caused by the event `seq`."""

    seq: int
    round: int
    text: str
    buttons: tuple[Button, ...] = ()
    is_question: bool = False


def owed(
    thread: Thread, events: Iterable[Event], *, source: str, known_round: int, approvers: Approvers
) -> list[Outgoing]:
    """The replies for these events: the last message of each round that began here, and its questions.

    `known_round` began here, though its beginning may be before the events.
    """
    ours = {known_round}
    said: list[AssistantMessage] = []
    found: list[Outgoing] = []
    for event in events:
        match event.body:
            case RoundStarted():
                said = []
            case UserMessage(source=from_where) if from_where.startswith(f"{source}/"):
                ours.add(event.round)
            case AssistantMessage(cancelled=False) as body if event.id not in thread.redacted:
                said.append(body)
            case Suspension(call_id=call_id) as body if event.round in ours and call_id in thread.pending:
                # Questions answered elsewhere meanwhile are not sent.
                found.append(_question(event, body, approvers))
            case RoundFinished(status=status) if event.round in ours:
                found.append(Outgoing(seq=event.seq, round=event.round, text=_last_word(status, said)))
            case _:
                pass
    return [outgoing for outgoing in found if outgoing.text.strip()]


def _last_word(status: Status, said: Sequence[AssistantMessage]) -> str:
    """The last message; and where that one only closes the round, as in our own chat, those before it too."""
    if said and said[-1].marker == "last":
        return "\n\n".join(text_of(one.content) for one in said)
    if said and status is Status.COMPLETED:
        return text_of(said[-1].content)
    return {Status.FAILED: FAILED, Status.STOPPED: STOPPED}.get(status, "")


def text_of(content: Content) -> str:
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in content if part.get("type", "text") == "text")
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _question(event: Event, body: Suspension, approvers: Approvers) -> Outgoing:
    pending = Pending(executor=body.executor, kind=body.kind, prompt=body.prompt)
    text = question_text(body.prompt)
    buttons: tuple[Button, ...] = ()
    match answerable(body.call_id, pending, approvers):
        case "approval":
            text += f"\n\n{YES_OR_NO}"
            buttons = _buttons(body.call_id)
        case None:
            text = "" if body.kind is SuspensionKind.CLIENT_EXEC else ELSEWHERE
        case "text":
            pass
    return Outgoing(seq=event.seq, round=event.round, text=text, buttons=buttons, is_question=True)


def answerable(call_id: str, pending: Pending, approvers: Approvers) -> Literal["approval", "text"] | None:
    """How the chat may answer: with yes or no, in its own words, or not at all."""
    if pending.kind is SuspensionKind.ELICITATION:
        return "text"
    if pending.kind is not SuspensionKind.APPROVAL:
        return None  # for a program to answer, or for an operator who can find out what happened
    if is_yes_or_no(call_id, pending):
        is_shown = utf8_bytes(question_text(pending.prompt)) <= MAX_SHOWN
        return "approval" if approvers == "chat" and is_shown else None
    return "text"  # a graph's own question, which may have any answer


def _buttons(call_id: str) -> tuple[Button, ...]:
    mark = mark_of(call_id)
    return (Button(label=APPROVE, data=f"approve:{mark}"), Button(label=REJECT, data=f"reject:{mark}"))


def mark_of(call_id: str) -> str:
    """Short enough for any button; a press on an old one must not answer another question."""
    return sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_button(data: str) -> bool:
    """Whether it is a button of ours, whatever it once asked."""
    return _BUTTON.fullmatch(data) is not None


def pressed(data: str, pending: Iterable[str]) -> tuple[str, bool] | None:
    """The call a button belongs to and whether it was the yes; None if it is not asked any more."""
    word, _, mark = data.partition(":")
    return next(((call_id, word == "approve") for call_id in pending if mark == mark_of(call_id)), None)


def first_answerable(
    pending: Sequence[tuple[str, Pending]], approvers: Approvers
) -> tuple[str, Literal["approval", "text"]] | None:
    for call_id, waits in pending:
        how = answerable(call_id, waits, approvers)
        if how is not None:
            return call_id, how
    return None
