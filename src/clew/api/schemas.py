"""What goes over HTTP: wire names in camelCase, and the mapping from the domain."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from clew.domain.events import Body, Event
from clew.domain.redaction import shown_body
from clew.domain.thread import Json, Stats, Status, Thread


class Wire(BaseModel):
    """Names are camelCase outside and ours inside."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class ErrorDetail(BaseModel):
    code: str
    """For programs; never changes."""
    message: str
    """For people."""
    field: str | None = None
    """The parameter or the part of the body that is wrong."""


class ErrorOut(BaseModel):
    error: ErrorDetail


class StatusOut(Wire):
    status: str


class DeliveredOut(Wire):
    status: Literal["admitted", "duplicate", "ignored"]
    """`duplicate`: it was here before, and is answered once. `ignored`: nothing to answer."""


class IndexOut(Wire):
    name: str
    version: str
    openapi: str


class PendingOut(Wire):
    executor: str
    kind: str
    prompt: Json


class StatsOut(Wire):
    messages: int
    bytes: int
    tokens_in: int
    tokens_out: int
    milliseconds: int

    @classmethod
    def of(cls, stats: Stats) -> Self:
        return cls(
            messages=stats.messages,
            bytes=stats.bytes,
            tokens_in=stats.tokens_in,
            tokens_out=stats.tokens_out,
            milliseconds=stats.milliseconds,
        )


class ThreadOut(Wire):
    id: str
    graph: str
    name: str
    user_id: str
    status: Status
    stage: str
    round: int
    last_seq: int
    failure_reason: str | None
    pending: Mapping[str, PendingOut]
    stats: StatsOut
    created_at: datetime
    last_active_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, thread: Thread) -> Self:
        return cls(
            id=thread.id,
            graph=thread.graph,
            name=thread.name,
            user_id=thread.owner.user_id,
            status=thread.status,
            stage=thread.stage,
            round=thread.round,
            last_seq=thread.last_seq,
            failure_reason=thread.failure_reason,
            pending={
                call_id: PendingOut(executor=call.executor, kind=call.kind, prompt=call.prompt)
                for call_id, call in thread.pending.items()
            },
            stats=StatsOut.of(thread.stats),
            created_at=thread.created_at,
            last_active_at=thread.last_active_at,
            expires_at=thread.expires_at,
        )


class ThreadsOut(Wire):
    threads: list[ThreadOut]
    next: str | None
    """The cursor of the next page, if there is one."""


class EventOut(Wire):
    seq: int
    id: str
    round: int
    type: str
    at: datetime
    redacted: bool
    content: Body | None
    """As it stands in the log; null for what was redacted."""

    @classmethod
    def of(cls, thread: Thread, event: Event) -> Self:
        shown = shown_body(thread, event)
        return cls(
            seq=event.seq,
            id=event.id,
            round=event.round,
            type=event.type,
            at=event.at,
            redacted=shown is None,
            content=shown,
        )


class EventsOut(Wire):
    events: list[EventOut]
    last_seq: int
    """Where the log ended when the thread was looked up."""
