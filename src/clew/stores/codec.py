"""Domain values to what a row holds and back, the same for every database: JSON as text, times as microseconds."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from clew.domain.errors import Corrupt, Invalid
from clew.domain.events import BODIES, Body, Event
from clew.domain.thread import Json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

# The version of each event type's content. A new one comes with an upcast from the one before.
VERSION = 1

_BODY: Mapping[str, TypeAdapter[Body]] = {name: TypeAdapter(body) for name, body in BODIES.items()}


def micros(at: datetime) -> int:
    return (at - EPOCH) // MICROSECOND


def maybe_micros(at: datetime | None) -> int | None:
    return None if at is None else micros(at)


def moment(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def maybe_moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)


def dump(value: Json) -> str:
    """Raises Invalid for what JSON cannot hold, lone surrogates included."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, ValueError) as exc:
        raise Invalid(f"not storable as JSON: {exc}") from exc


def load(text: str) -> Json:
    try:
        return orjson.loads(text)
    except ValueError as exc:
        raise Corrupt(f"a stored value is not JSON: {exc}") from exc


def dump_body(body: Body) -> str:
    """Fields that have their default are left out: they read back the same."""
    try:
        return _BODY[body.type].dump_json(body, exclude_defaults=True).decode()
    except ValueError as exc:
        raise Invalid(f"not storable as a {body.type}: {exc}") from exc


def load_event(thread_id: str, row: Any) -> Event:
    seq, event_id, round_, type_, version, content, at = row
    if type_ not in _BODY or version > VERSION:
        raise Corrupt(
            f"thread {thread_id!r}: event {seq} is a {type_!r} of version {version}, which this Clew does not know"
        )
    try:
        body = _BODY[type_].validate_json(content)
    except ValidationError as exc:
        # The validator's own words would quote the content, and messages are private.
        raise Corrupt(f"thread {thread_id!r}: event {seq} ({type_}) cannot be read back") from exc
    return Event(thread_id=thread_id, seq=seq, id=event_id, round=round_, at=moment(at), body=body)
