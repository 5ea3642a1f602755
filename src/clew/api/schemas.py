"""HTTP schemas: wire names in camelCase, and the mapping from the domain."""

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from clew.api.numbers import OwnerNumbers
from clew.domain.events import Body, Event
from clew.domain.redaction import shown_body
from clew.domain.thread import Json, ModelSettings, Stats, Status, Thread
from clew.domain.views import conversation_status


class WireModel(BaseModel):
    """Names are camelCase on the wire and snake_case in code."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True)


class StrictBody(BaseModel):
    """A body that refuses unknown keys, and names the one that was probably meant."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_known_keys(cls, body: object) -> object:
        names = [name for field, info in cls.model_fields.items() for name in field_names(field, info)]
        for key in body if isinstance(body, dict) else ():
            if key not in names:
                shown = key[:64] if key.isprintable() else ascii(key[:64])
                close = get_close_matches(key[:64], names, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise PydanticCustomError(
                    "unknown_key", "unknown key '{field}'{hint}", {"field": shown, "hint": hint}
                )
        return body


def field_names(field: str, info: FieldInfo) -> list[str]:
    """Under what a field may be sent: the name the documentation has comes first."""
    match info.validation_alias:
        case AliasChoices(choices=choices):
            return [*(str(choice) for choice in choices), field]
        case str(alias):
            return [alias, field]
        case _:
            return [field]


class ErrorDetail(BaseModel):
    code: str
    """For programs; never changes."""
    message: str
    """For people."""
    field: str | None = None
    """The parameter or the part of the body that is wrong."""


class ErrorOut(BaseModel):
    error: ErrorDetail


class HealthOut(WireModel):
    status: str


class DeliveredOut(WireModel):
    status: Literal["admitted", "duplicate", "ignored"]
    """`duplicate`: already delivered, and answered once. `ignored`: nothing to answer."""


class IndexOut(WireModel):
    name: str
    version: str
    openapi: str


class PendingOut(WireModel):
    executor: str
    kind: str
    prompt: Json


class StatsOut(WireModel):
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


class ThreadOut(WireModel):
    id: str
    graph: str
    name: str
    mandate_id: int
    """The number of the tenant."""
    user_id: int
    """The number of the user; 0 without a user."""
    tenant: str
    user: str
    status: Status
    stage: str
    round: int
    last_seq: int
    failure_reason: str | None
    pending: Mapping[str, PendingOut]
    stats: StatsOut
    created_at: datetime
    last_active_at: datetime
    last_accessed_at: datetime | None
    expires_at: datetime | None
    conversation_status: Literal["active", "suspended", "idle", "ended"]
    """The status as a conversation has it."""

    @classmethod
    def of(cls, thread: Thread, numbers: OwnerNumbers, **more: Any) -> Self:
        return cls(
            id=thread.id,
            graph=thread.graph,
            name=thread.name,
            mandate_id=numbers.tenant,
            user_id=numbers.user,
            tenant=thread.owner.tenant,
            user=thread.owner.user_id,
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
            last_accessed_at=thread.last_accessed_at,
            expires_at=thread.expires_at,
            conversation_status=conversation_status(thread),
            **more,
        )


class ModelSettingsOut(WireModel):
    provider: str
    model: str
    system_prompt: str


class WholeThreadOut(ThreadOut):
    settings: ModelSettingsOut
    """Of its model when the thread was opened; empty what its graph does not show."""

    @classmethod
    def of(cls, thread: Thread, numbers: OwnerNumbers, **more: Any) -> Self:
        found = ModelSettings.of(thread.settings)
        shown = ModelSettingsOut(
            provider=found.provider, model=found.model, system_prompt=found.system_prompt
        )
        return super().of(thread, numbers, settings=shown, **more)


class ThreadsOut(WireModel):
    threads: list[ThreadOut]
    next: str | None
    """The cursor of the next page, if there is one."""


class EventOut(WireModel):
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


class EventsOut(WireModel):
    events: list[EventOut]
    last_seq: int
    """Where the log ended when the thread was looked up."""
