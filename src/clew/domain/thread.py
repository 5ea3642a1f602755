"""Thread: one conversation or workflow, its statuses, and which may follow which."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Self, TypeAlias

from clew.domain.errors import NotFound

# What JSON can hold. Not spelled out recursively: every checker and every decoder would pay for it.
Json: TypeAlias = Any

CANNOT_BE_READ = "what is stored of this thread cannot be read back"


class Status(StrEnum):
    PENDING = "pending"  # created, and not started yet
    RUNNING = "running"  # a runner holds it, or will claim it
    BLOCKED = "blocked"  # waits for a person or a client; nothing of it is in memory
    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_terminal(self) -> bool:
        return self in (Status.COMPLETED, Status.FAILED, Status.STOPPED)


ACTIVE = (Status.PENDING, Status.RUNNING, Status.BLOCKED)

FOLLOWS: Mapping[Status | None, frozenset[Status]] = MappingProxyType(
    {
        None: frozenset({Status.PENDING, Status.RUNNING}),
        Status.PENDING: frozenset({Status.RUNNING, Status.STOPPED}),
        Status.RUNNING: frozenset({Status.BLOCKED, Status.COMPLETED, Status.FAILED, Status.STOPPED}),
        Status.BLOCKED: frozenset({Status.RUNNING, Status.FAILED, Status.STOPPED}),
        Status.COMPLETED: frozenset({Status.RUNNING}),
        Status.FAILED: frozenset({Status.RUNNING}),
        Status.STOPPED: frozenset({Status.RUNNING}),
    }
)


# Priorities are LangGraph's: runs of the lowest number are started first.
FIRST, LAST = -5, 5


def may_follow(before: Status | None, after: Status) -> bool:
    """Keeping a status is always allowed; a new thread has none to keep."""
    return before is after or after in FOLLOWS[before]


class Executor(StrEnum):
    """Who carries a tool call out."""

    SERVER = "server"
    HUMAN = "human"
    CLIENT = "client"
    PROVIDER = "provider"


class SuspensionKind(StrEnum):
    """What a suspended call waits for."""

    NONE = ""
    APPROVAL = "approval"
    ELICITATION = "elicitation"
    CLIENT_EXEC = "client_exec"
    IN_DOUBT = "in_doubt"  # its effect may have happened, and repeating it is not safe


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A call that a client or a person must answer before the thread goes on."""

    executor: Executor
    kind: SuspensionKind
    prompt: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What a thread has cost so far; grows with every round."""

    messages: int = 0
    bytes: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    milliseconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose thread it is. The tenant separates customers; the user separates users of one tenant."""

    tenant: str = "default"
    user_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """The newest known state of a thread: a cache over its events, never the truth."""

    id: str
    owner: Owner
    graph: str
    name: str
    status: Status
    stage: str
    round: int
    round_seq: int  # where the current round begins in the log
    last_seq: int
    created_at: datetime
    last_active_at: datetime
    round_started_at: datetime | None = None
    failure_reason: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    ttl: timedelta | None = None  # None: keep
    prune_after: timedelta | None = None  # so long after the last access only the newest checkpoint stays
    priority: int | None = None  # of its runs, from FIRST to LAST; None counts as 0
    pending: Mapping[str, Pending] = field(default_factory=dict)
    # Ids of messages and documents that are not shown, `message/document` where it is that message's alone, and
    # `message/last` for a message that is no longer the last one of its round.
    redacted: frozenset[str] = frozenset()
    stats: Stats = Stats()
    # Moved by every access to the thread, so the store keeps them and the log does not hold them.
    last_accessed_at: datetime | None = field(default=None, compare=False)
    expires_at: datetime | None = field(default=None, compare=False)
    # Of its newest lease when it was read. Claims raise it, so the log does not hold it either.
    fence: int = field(default=0, compare=False)

    @classmethod
    def unreadable(cls, thread_id: str, owner: Owner, *, graph: str, created_at: datetime) -> Self:
        """What a list shows of a thread of which neither the row nor the log can be read back."""
        return cls(
            id=thread_id,
            owner=owner,
            graph=graph,
            name="",
            status=Status.FAILED,
            stage="",
            round=0,
            round_seq=0,
            last_seq=0,
            created_at=created_at,
            last_active_at=created_at,
            failure_reason=CANNOT_BE_READ,
        )

    @property
    def is_readable(self) -> bool:
        return self.last_seq > 0

    @property
    def fsm_state(self) -> dict[str, Json]:
        """What a revived thread must know at once. Streaming and running tools are not states one can come back to."""
        return {
            "state": "awaiting_input" if self.pending else "idle",
            "pending": {
                call_id: {"executor": str(call.executor), "kind": str(call.kind), "prompt": call.prompt}
                for call_id, call in self.pending.items()
            },
            "last_seq": self.last_seq,
        }


# So much of a system prompt is kept with every thread: its row is written with every event.
LONGEST_PROMPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    provider: str = ""
    model: str = ""
    system_prompt: str = ""

    def snapshot(self) -> dict[str, Json]:
        """What a thread keeps of them among its settings."""
        prompt = self.system_prompt
        if len(prompt) > LONGEST_PROMPT:
            prompt = prompt[: LONGEST_PROMPT - 1] + "…"
        kept = {"provider": self.provider, "model": self.model, "system_prompt": prompt}
        return {name: value for name, value in kept.items() if value}

    @classmethod
    def of(cls, settings: Mapping[str, Json]) -> "ModelSettings":
        """Read from a thread's settings; empty where those have none."""
        return cls(
            provider=str(settings.get("provider", "")),
            model=str(settings.get("model", "")),
            system_prompt=str(settings.get("system_prompt", "")),
        )


# What a thread id that a client chose is made of. None of these characters means anything in a path or in a mark.
# Clients read `.` and `..` in a path as folders, so none begins with a dot.
CHOSEN_ID = re.compile(r"[A-Za-z0-9_:@+=-][A-Za-z0-9_.:@+=-]{0,127}", re.ASCII)
MARK = r"~[0-9a-f]{16}"
_MARKED = re.compile(CHOSEN_ID.pattern + MARK, re.ASCII)


class KeptUnderMark(NotFound):
    """There is no thread of this id, and there will be none: the caller's is kept with a mark."""


@lru_cache(1024)
def mark_of(tenant: str) -> str:
    return f"~{sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def marked(thread_id: str, tenant: str) -> str:
    """Under which a thread is kept where another tenant's has the id that was chosen for it."""
    return thread_id + mark_of(tenant)


def is_marked(thread_id: str) -> bool:
    return _MARKED.fullmatch(thread_id) is not None
