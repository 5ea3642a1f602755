"""Codec: domain values as row values and back, the same for every database: JSON as text, times as microseconds.

One JSON codec for everything, so that an event and the rows derived from it accept and return the same values: whole
numbers of any size, no NaN (it becomes null), keys as strings, text without lone surrogates.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from clew.domain.errors import Corrupt, Invalid
from clew.domain.events import BODIES, Body, Event
from clew.domain.thread import Json

T = TypeVar("T")
logger = logging.getLogger(__name__)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_MOMENT = datetime.min.replace(tzinfo=UTC)
LAST_MOMENT = datetime.max.replace(tzinfo=UTC)
_FIRST = (FIRST_MOMENT - EPOCH) // MICROSECOND
_LAST = (LAST_MOMENT - EPOCH) // MICROSECOND

# What reading a row may raise that holds something else than we wrote.
UNREADABLE = (Corrupt, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

# The version of each event type's content. A new one comes with an upcast from the one before.
VERSION = 1

# The columns of an event, as `load_event` takes them.
EVENT_COLUMNS = "seq, id, round, type, version, content, at"

# Less than this is certainly read back.
NESTING = 150

_BODY: Mapping[str, TypeAdapter[Body]] = {name: TypeAdapter(body) for name, body in BODIES.items()}


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def bounded_moment(value: int) -> datetime:
    """A time that may lie beyond the calendar, because too much was once added to one: then the end of it."""
    if value > _LAST:
        return LAST_MOMENT
    return moment(max(value, _FIRST))


def maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def moment(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def dump(value: Json) -> str:
    """Raises Invalid for what JSON cannot hold, lone surrogates included."""
    try:
        return _readable(to_json(value, inf_nan_mode="null"))
    except ValueError as exc:
        raise Invalid(f"not storable as JSON: {exc}") from exc


def load(text: str) -> Json:
    try:
        return from_json(text)
    except (TypeError, ValueError) as exc:
        raise Corrupt("a stored value is not JSON") from exc


def dump_body(body: Body) -> str:
    """Fields that have their default are left out: they read back the same."""
    try:
        return _readable(_BODY[body.type].dump_json(body, exclude_defaults=True))
    except ValueError as exc:
        raise Invalid(f"not storable as a {body.type}: {exc}") from exc


def _readable(json: bytes) -> str:
    """Refuses nesting that the writer can write and the reader cannot read, now rather than when it is wanted back."""
    if len(json) > NESTING and json.count(b"[") + json.count(b"{") > NESTING:
        from_json(json)
    return json.decode()


def load_event(thread_id: str, row: Any) -> Event:
    seq, event_id, round_, type_, version, content, at = row
    if type_ not in _BODY or version not in range(1, VERSION + 1):
        raise Corrupt(
            f"thread {thread_id!r}: event {seq} is a {type_!r} of version {version}, which this Clew does not know"
        )
    try:
        body = _BODY[type_].validate_json(content)
        return Event(thread_id=thread_id, seq=seq, id=event_id, round=round_, at=moment(at), body=body)
    except (TypeError, ValueError, OverflowError) as exc:
        # The validator's own text would quote the content, and messages are private.
        raise Corrupt(f"thread {thread_id!r}: event {seq} ({type_}) cannot be read back") from exc


def legible(rows: Iterable[Any], read: Callable[[Any], T], table: str) -> list[T]:
    """What can be read of the rows. The others are left out and logged: one of them must not hide all."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except UNREADABLE as exc:
            logger.warning(
                "a row of %s cannot be read back and is left out: %s",
                table,
                type(exc).__name__,
                extra={"code": Corrupt.code},
            )
    return found
