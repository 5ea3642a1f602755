"""Import of an exported thread: reads the zip and makes the change that creates the thread again."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from pydantic import TypeAdapter, ValidationError

from clew.domain import lifecycle
from clew.domain.errors import ClewError, Invalid
from clew.domain.events import (
    BODIES,
    AssistantMessage,
    Body,
    Event,
    Log,
    Opening,
    RoundStarted,
    UserMessage,
    rebuild,
)
from clew.domain.lifecycle import Change, Stamp
from clew.domain.records import Document
from clew.domain.redaction import HIDDEN
from clew.domain.thread import Json, Owner
from clew.domain.tool_calls import CallStatus, fold_calls
from clew.domain.views import SuperstepUpdate
from clew.retention.export import PROBLEMS

OPEN = (CallStatus.PENDING, CallStatus.STARTED, CallStatus.IN_DOUBT)
_DOCUMENT: TypeAdapter[Document] = TypeAdapter(Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    document: Document
    path: str
    """In the zip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedThread:
    change: Change
    """Creates the thread with its whole log. A round that was under way is stopped."""
    documents: tuple[ImportedDocument, ...]
    values: Json
    """The newest state of its graph; None if it had none."""

    @property
    def supersteps(self) -> list[list[SuperstepUpdate]]:
        """Write the state, and let nothing be due to run in it."""
        return [
            [SuperstepUpdate(values=self.values, as_node="__start__")],
            [SuperstepUpdate(as_node="__end__")],
        ]


def read_export(file: IO[bytes], *, owner: Owner | None, now: Callable[[], Stamp]) -> ImportedThread:
    """Raises Invalid for what is not a whole export. With an `owner` the thread is theirs."""
    try:
        with ZipFile(file) as archive:
            names = frozenset(archive.namelist())
            if PROBLEMS in names:
                raise Invalid(f"the export is incomplete: it has a {PROBLEMS}, which says what is missing")
            described = json.loads(archive.read("thread.json"))
            log = list(_events(described, archive.open("log.jsonl"), owner))
            values = json.loads(archive.read("state.json"))
            documents = json.loads(archive.read("documents.json"))
            return ImportedThread(
                change=_change(log, now()),
                documents=tuple(_documents(log[0].thread_id, documents, names)),
                values=values,
            )
    except (BadZipFile, KeyError, TypeError, UnicodeDecodeError, ValidationError, ValueError) as exc:
        raise Invalid("this is no export of a thread, or it is damaged") from exc
    except NotImplementedError as exc:  # a method of compression, or a password
        raise Invalid("this zip was not written by `clew export`") from exc


def _events(described: Mapping[str, Any], lines: IO[bytes], owner: Owner | None) -> Iterator[Event]:
    thread_id, said = str(described["id"]), 0
    for line in lines:
        told = json.loads(line)
        body = _body(told["type"], told["content"])
        if isinstance(body, UserMessage | AssistantMessage):
            said += 1
            body = replace(body, number=said)
        if isinstance(body, RoundStarted) and isinstance(body.opening, Opening) and owner is not None:
            body = replace(body, opening=replace(body.opening, owner=owner))
        yield Event(
            thread_id=thread_id,
            seq=int(told["seq"]),
            id=str(told["id"]),
            round=int(told["round"]),
            at=datetime.fromisoformat(told["at"]),
            body=body,
        )


def _body(kind: str, content: Any) -> Body:
    """What was redacted has no content in an export. Its place in the log stays."""
    if content is None:
        match kind:
            case UserMessage.type:
                return UserMessage(content=HIDDEN)
            case AssistantMessage.type:
                return AssistantMessage(content=HIDDEN)
            case _:
                return Log(message=HIDDEN)
    body: Body = TypeAdapter(BODIES[kind]).validate_json(json.dumps(content))
    return body


def _change(log: list[Event], stamp: Stamp) -> Change:
    try:
        thread = rebuild(log)
        events = tuple(log)
        if not thread.status.is_terminal:
            calls = [call for call in fold_calls({}, log).values() if call.status in OPEN]
            note = Log(message="Stopped by the import of the thread")
            stopped = lifecycle.stop(thread, calls, notes=(note,), stamp=stamp)
            thread, events = stopped.thread, (*events, *stopped.events)
        return Change(thread, events)
    except Invalid:
        raise
    except ClewError as exc:
        raise Invalid(f"the log of the export cannot have happened: {exc}") from exc


def _documents(thread_id: str, told: list[Any], names: frozenset[str]) -> Iterator[ImportedDocument]:
    for one in told:
        path = one.pop("path")
        if path not in names:
            raise Invalid(f"the export lacks the file {path!r}")
        document = _DOCUMENT.validate_json(json.dumps(one | {"thread_id": thread_id}))
        yield ImportedDocument(document=document, path=path)
