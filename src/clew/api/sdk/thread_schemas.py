"""Schemas of threads and their states, in LangGraph's words."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeAlias
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from clew.api.sdk.extraction import Paths
from clew.api.sdk.run_schemas import CheckpointIn, CommandIn, Id, Object, Uuid
from clew.api.sdk.wire import Lenient, Moment, RequestBody
from clew.domain.events import TtlChanged
from clew.domain.retention import LONGEST_MINUTES, after, minutes
from clew.domain.thread import Json, Status, Thread
from clew.domain.views import SuperstepUpdate
from clew.ports.checkpoints import CheckpointSizes
from clew.ports.thread_metadata import SortKey

ThreadStatus: TypeAlias = Literal["idle", "busy", "interrupted", "error"]

STATUSES: Mapping[Status, ThreadStatus] = {
    Status.PENDING: "idle",
    Status.RUNNING: "busy",
    Status.BLOCKED: "interrupted",
    Status.COMPLETED: "idle",
    Status.STOPPED: "interrupted",  # its run was cancelled
    Status.FAILED: "error",
}


def statuses_of(wanted: ThreadStatus | None) -> tuple[Status, ...]:
    return tuple(status for status, name in STATUSES.items() if name == wanted)


Minutes = Annotated[float, Field(gt=0, le=LONGEST_MINUTES)]


Strategy: TypeAlias = Literal["delete", "keep_latest"]


class TtlIn(RequestBody):
    ttl: Minutes
    strategy: Strategy = "delete"


class UpdateIn(Lenient):
    """What a node is taken to have returned."""

    values: Json = None
    command: CommandIn | None = None
    as_node: Annotated[str, Field(max_length=256)] | None = None

    @model_validator(mode="after")
    def _is_no_answer(self) -> Self:
        if self.command is not None and self.command.resumes:
            raise ValueError("a superstep answers no question")
        return self

    @property
    def update(self) -> SuperstepUpdate:
        told = None
        if self.command is not None:
            told = self.command.model_dump(mode="json", include={"update", "goto"})
        return SuperstepUpdate(values=self.values, command=told, as_node=self.as_node)


class SuperstepIn(BaseModel):
    updates: Annotated[list[UpdateIn], Field(max_length=1000)]


class ThreadPatchIn(Lenient):
    metadata: Object = Field(default_factory=dict)
    ttl: TtlIn | Minutes | None = None

    def lifetime(self, default: timedelta) -> TtlChanged | None:
        """How long the thread lives, or keeps all of its states and then lives as long as `default` at least."""
        if self.ttl is None:
            return None
        asked = self.ttl if isinstance(self.ttl, TtlIn) else TtlIn(ttl=self.ttl)
        time = minutes(asked.ttl, field="ttl")
        if asked.strategy == "delete":
            return TtlChanged(ttl=time)
        return TtlChanged(ttl=max(default, time), prune_after=time)


class ThreadIn(ThreadPatchIn):
    thread_id: Id | None = None
    if_exists: Literal["raise", "do_nothing"] = "raise"
    supersteps: list[SuperstepIn] = Field(default=[], max_length=1000)

    @property
    def steps(self) -> tuple[tuple[SuperstepUpdate, ...], ...]:
        return tuple(tuple(one.update for one in step.updates) for step in self.supersteps)


class SearchIn(Lenient):
    metadata: Object = Field(default_factory=dict)
    values: Object = Field(default_factory=dict)
    ids: Annotated[list[Id], Field(max_length=1000)] | None = None
    status: ThreadStatus | None = None
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    offset: Annotated[int, Field(ge=0, le=1_000_000, strict=True)] = 0
    sort_by: SortKey = "created_at"
    sort_order: Literal["asc", "desc"] = "desc"
    select: list[str] | None = None
    extract: Paths = Field(default_factory=dict)


class StateIn(Lenient):
    values: Json = None
    as_node: Annotated[str, Field(max_length=256)] | None = None
    checkpoint: CheckpointIn | None = None
    checkpoint_id: UUID | None = None


class StateAtIn(Lenient):
    checkpoint: CheckpointIn
    subgraphs: bool = False
    select: list[str] | None = None


def _unwrapped(value: object) -> object:
    """A checkpoint may be sent as the config that holds it."""
    return value["configurable"] if isinstance(value, dict) and "configurable" in value else value


class HistoryIn(Lenient):
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    before: Annotated[Uuid | CheckpointIn, BeforeValidator(_unwrapped)] | None = None
    metadata: Object = Field(default_factory=dict)
    checkpoint: CheckpointIn | None = None
    select: list[str] | None = None


class PruneIn(Lenient):
    thread_ids: Annotated[list[Id], Field(max_length=1000)]
    strategy: Strategy = "delete"


class TtlOut(BaseModel):
    strategy: Strategy
    ttl_minutes: float
    expires_at: Moment | None

    @classmethod
    def of(cls, thread: Thread) -> Self | None:
        time, expires_at = thread.ttl, thread.expires_at
        strategy: Strategy = "delete"
        if thread.prune_after is not None:
            time, strategy = thread.prune_after, "keep_latest"
            expires_at = after(thread.last_accessed_at or thread.created_at, time)
        if time is None:
            return None
        return cls(strategy=strategy, ttl_minutes=time / timedelta(minutes=1), expires_at=expires_at)


class ThreadDetails(BaseModel):
    thread_id: str
    created_at: Moment
    updated_at: Moment
    state_updated_at: Moment
    metadata: Mapping[str, Json]
    status: ThreadStatus
    config: Mapping[str, Json]
    values: Json
    interrupts: Mapping[str, Json]
    error: Json

    def with_ttl(self, thread: Thread) -> "TimedThreadDetails":
        """With its time to live; null for a thread that is kept."""
        return TimedThreadDetails(**dict(self), ttl=TtlOut.of(thread))

    @classmethod
    def of(
        cls,
        thread: Thread,
        labels: Mapping[str, Json],
        state: Mapping[str, Json],
        *,
        is_busy: bool = False,
        error: Json = None,
    ) -> Self:
        return cls(
            thread_id=thread.id,
            created_at=thread.created_at,
            updated_at=thread.last_active_at,
            state_updated_at=thread.last_active_at,
            metadata=labels,
            status="busy" if is_busy else _status(thread, state),
            config={},
            values=state["values"] if state["created_at"] else None,
            interrupts={task["id"]: task["interrupts"] for task in state["tasks"] if task["interrupts"]},
            error=error,
        )


class TimedThreadDetails(ThreadDetails):
    ttl: TtlOut | None


class TableSizeOut(BaseModel):
    count: int
    bytes: int


class ChannelSizeOut(BaseModel):
    versions: int
    bytes: int


class ValuesSizeOut(TableSizeOut):
    by_channel: Mapping[str, ChannelSizeOut]


class ThreadStorageOut(BaseModel):
    """How many bytes the checkpoints of a thread take, as stored."""

    thread_id: str
    total_bytes: int
    checkpoints: TableSizeOut
    channel_values: ValuesSizeOut
    pending_writes: TableSizeOut

    @classmethod
    def of(cls, thread_id: str, sizes: CheckpointSizes) -> Self:
        values = ValuesSizeOut(
            count=sum(count for count, _ in sizes.channels.values()),
            bytes=sum(number for _, number in sizes.channels.values()),
            by_channel={
                name: ChannelSizeOut(versions=count, bytes=number)
                for name, (count, number) in sizes.channels.items()
            },
        )
        tables = [
            TableSizeOut(count=count, bytes=number) for count, number in (sizes.checkpoints, sizes.writes)
        ]
        return cls(
            thread_id=thread_id,
            total_bytes=values.bytes + sum(one.bytes for one in tables),
            checkpoints=tables[0],
            channel_values=values,
            pending_writes=tables[1],
        )


def _status(thread: Thread, state: Mapping[str, Json]) -> ThreadStatus:
    """A cancelled run interrupts what is left to do; one that was rolled back, or had not begun, leaves nothing."""
    if thread.status is Status.STOPPED and not state["next"]:
        return "idle"
    return STATUSES[thread.status]
