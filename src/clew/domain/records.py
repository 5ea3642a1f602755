"""Records kept beside the log: summaries, audited model calls, files, documents, deliveries, API keys, leases."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from clew.domain.thread import Json, Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScope:
    """On whose behalf a thread goes on. Deadlines act for the system, which is no user."""

    user_id: str = ""
    is_system: bool = True
    user: Mapping[str, Json] | None = None  # of custom authentication
    headers: Mapping[str, str] = field(default_factory=dict)  # of the request, that its graph may read
    trace: str = ""  # the caller's `traceparent`


SYSTEM = RunScope()


# The fence of a thread's first claim.
FIRST_FENCE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to run a thread for a while. Every write under it shows its fence."""

    thread_id: str
    fence: int
    recoveries: int  # how often this round was taken over from a runner that died


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the events from `from_seq` to `to_seq` came to. Derived: without it reading is slower, nothing else."""

    from_seq: int
    to_seq: int
    content: Json
    version: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """Exactly what was sent to a model, and what it cost."""

    id: str
    thread_id: str
    turn_ref: int
    model: str
    rendered_context: Json  # None once a message it may hold was redacted
    created_at: datetime
    status: Literal["ok", "failed", "cancelled"] = "ok"
    usage: Json = field(default_factory=dict)
    latency_ms: int = 0
    summary_version: str | None = None
    evictions: Json = field(default_factory=list)
    # What the provider answered, if the call failed. It may quote what was sent.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A user's upload; its bytes are kept once under their sha256."""

    id: str
    owner: Owner
    name: str
    mime: str
    size: int
    sha256: str
    created_at: datetime


# What has an integer beside its name.
NumberKind = Literal["tenant", "user", "file"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentItem:
    """One part of a document: a page, a sheet, an image."""

    sequence_nr: int
    name: str
    ext: str
    content_type: str
    data: str
    metadata: Json = field(default_factory=dict)
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file as one thread uses it."""

    id: str
    thread_id: str
    file_id: str
    name: str
    ext: str
    mime: str
    size: int
    sha256: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """Something a channel delivered; admitted once, however often it is delivered."""

    source: str
    source_id: str
    fingerprint: str
    payload: Json
    # In a conversation it waits behind what came before; `thread_id` is where that is led, or will be if it is new.
    conversation: str | None = None
    number: int = 0  # greater than that of all that came before it there; given when admitted
    thread_id: str | None = None
    withdrawn_at: datetime | None = None  # its turn will not come


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHook:
    """What happens when a run ends: a webhook is called, its temporary thread is deleted."""

    run_id: str
    thread_id: str
    webhook: str = ""  # the URL to call; empty once that is done
    is_temporary: bool = False  # the thread is deleted after the run
    attempts: int = 0  # calls of the webhook that failed
    wait: timedelta = field(default=timedelta(), compare=False)  # before its first check


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedWebhook:
    """A webhook that was given up, and is kept until it is called again, dismissed, or its thread is deleted."""

    run_id: str
    thread_id: str
    owner: Owner
    url: str
    attempts: int
    reason: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class StreamPart:
    """A part of what a run streams: JSON under a name."""

    number: int  # grows within the thread, from one attempt to the next and from one run to the next
    name: str
    data: bytes
    run_id: str = ""  # where parts of several runs are read


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a provider's webhook sent: header names in small letters, the body as it came, and read if it is JSON."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""
    json: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A chat of a channel, held by one worker at a time.

    The `cursor` is whatever its channel keeps there. One without a thread is an account to fetch messages from.
    """

    source: str
    key: str
    thread_id: str | None
    cursor: Json
    holder: str
    wakes: int
    attempts: int  # how often it was snoozed since it last succeeded


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A credential. Only the hash of its secret is kept."""

    id: str
    hash: str
    prefix: str
    name: str
    owner: Owner
    scopes: frozenset[str]
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, *, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)
