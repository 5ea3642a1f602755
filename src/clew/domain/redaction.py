"""Redaction: which message or document is removed, what is removed with it, and what clients still see of the log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from clew.domain import views
from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import (
    AssistantMessage,
    Body,
    Content,
    DocumentAdded,
    Event,
    Redacted,
    RoundStarted,
    StageCompleted,
    UserMessage,
    last_mark,
)
from clew.domain.records import Document
from clew.domain.thread import Json, Thread

HIDDEN = "[redacted]"
# A shorter text is hidden only where it stands alone: it may be part of any word.
_SHORT = 4
# An image, say, in base64.
_LONG = 64


def taken_back(
    thread: Thread,
    said: Iterable[Event],
    documents: Sequence[Document],
    message_id: str,
    file_id: str = "",
) -> Redacted:
    """What is hidden with a message, or with one file of it. Raises NotFound for what is not shown anyway.

    A document that another message shows stays where it is.
    """
    shown = {message.id: message for message in views.messages(thread, said)}
    message = shown.pop(message_id, None)
    if message is None:
        raise NotFound(f"no message {message_id!r} in thread {thread.id!r}")
    gone = [name for name in message.documents if not file_id or name in _names(file_id, documents)]
    if file_id and not gone:
        raise NotFound(f"no file {file_id!r} in message {message_id!r}")
    left = {name for name in message.documents if name not in gone}
    left.update(name for other in shown.values() for name in other.documents)
    return Redacted(
        message_id=message_id,
        document_id=gone[0] if file_id else "",
        hides=tuple(one.id for one in documents if _is_in(one, gone) and not _is_in(one, left)),
        unnames=not file_id and bool(thread.name) and text_of(message.content).startswith(thread.name),
    )


def require_unredacted(thread: Thread, given: Iterable[Event]) -> None:
    """Raises InvalidState where a round cannot be resumed: its input was redacted, whole or in part."""
    for event in given:
        match event.body:
            case UserMessage() if event.id in thread.redacted:
                what = "the message"
            case UserMessage(documents=names) if any(
                f"{event.id}/{name}" in thread.redacted for name in names
            ):
                what = "a file of the message"
            case _:
                continue
        raise InvalidState(
            f"thread {thread.id!r} cannot be resumed: {what} its round began with was deleted; start a new round"
        )


def shown_documents(thread: Thread, documents: Iterable[Document]) -> list[Document]:
    return [document for document in documents if document.id not in thread.redacted]


def shown_body(thread: Thread, event: Event) -> Body | None:
    """What clients are shown of an event; None if nothing."""
    if event.id in thread.redacted:
        return None
    match event.body:
        case AssistantMessage() as message if last_mark(event.id) in thread.redacted:
            return replace(message, marker="step", documents=_kept(thread, event.id, message.documents))
        case UserMessage(documents=documents) | AssistantMessage(documents=documents) as message if documents:
            return replace(message, documents=_kept(thread, event.id, documents))
        case DocumentAdded(document_id=document_id) if document_id in thread.redacted:
            return None
        case RoundStarted() as started if lacks_a_message(thread):
            opening = started.opening and replace(started.opening, name=thread.name)
            return replace(started, opening=opening, input=None)
        case StageCompleted() as completed if lacks_a_message(thread):
            return replace(completed, output=None)
        case body:
            return body


def _kept(thread: Thread, message_id: str, documents: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in documents if f"{message_id}/{name}" not in thread.redacted)


def lacks_a_message(thread: Thread) -> bool:
    """Whether a whole message was redacted. Inputs and outputs of graphs may quote it, and are then hidden."""
    return any(what.startswith("msg_") and "/" not in what for what in thread.redacted)


def without(value: Json, texts: Sequence[str]) -> Json:
    """The value with none of these texts in it, wherever they stand."""
    known = frozenset(texts)

    def hide(value: Json) -> Json:
        match value:
            case str():
                # Most of what repeats a text is that text and nothing else.
                return HIDDEN if value.strip() in known else _without(value, texts)
            case dict():
                return {key: hide(one) for key, one in value.items()}
            case list():
                return [hide(one) for one in value]
            case _:
                return value

    return hide(value)


def text_of(content: Content) -> str:
    """What a message says, without what stands around it."""
    if isinstance(content, str):
        return content.strip()
    return "\n".join(str(part["text"]) for part in content if "text" in part).strip()


def texts_of(content: Content) -> set[str]:
    """All that a message says, piece by piece: its texts, and what else in it is too long to be a name."""
    if isinstance(content, str):
        return {content.strip()} - {""}
    said = {str(part["text"]).strip() for part in content if "text" in part}
    return (said | {text for text in _strings(list(content)) if len(text) >= _LONG}) - {""}


def _strings(value: Json) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from _strings(one)
        case list():
            for one in value:
                yield from _strings(one)
        case _:
            pass


def _without(value: str, texts: Sequence[str]) -> str:
    for text in texts:
        if len(text) > len(value):
            continue
        if value.strip() == text:
            return HIDDEN
        if len(text) >= _SHORT:
            value = value.replace(text, HIDDEN)
    return value


def _names(file_id: str, documents: Iterable[Document]) -> set[str]:
    """Both names of one document: messages of users call it by its file, those of agents by itself."""
    found = {name for one in documents if file_id in (one.id, one.file_id) for name in (one.id, one.file_id)}
    return found | {file_id}


def _is_in(document: Document, names: Iterable[str]) -> bool:
    return not {document.id, document.file_id}.isdisjoint(names)
