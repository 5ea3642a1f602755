"""Schemas of threads and their states, in LangGraph's words."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self, TypeAlias
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from clew.api.sdk.extraction import Paths
from clew.api.sdk.run_schemas import CheckpointIn, Id, Object
from clew.api.sdk.wire import Moment
from clew.domain.retention import LONGEST_MINUTES, minutes
from clew.domain.thread import Json, Status, Thread
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


class Lenient(BaseModel):
    """Null fields count as left out."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if value is not None}


Minutes = Annotated[float, Field(gt=0, le=LONGEST_MINUTES)]


class TtlIn(BaseModel):
    ttl: Minutes
    strategy: Literal["delete"] = "delete"

    @property
    def time(self) -> timedelta:
        return minutes(self.ttl, field="ttl")


class SuperstepIn(BaseModel):
    updates: list[Object]


class ThreadIn(Lenient):
    thread_id: UUID | None = None
    metadata: Object = Field(default_factory=dict)
    if_exists: Literal["raise", "do_nothing"] = "raise"
    ttl: TtlIn | Minutes | None = None
    supersteps: list[SuperstepIn] | None = None

    @property
    def time(self) -> timedelta | None:
        match self.ttl:
            case None:
                return None
            case TtlIn():
                return self.ttl.time
            case number:
                return minutes(number, field="ttl")


class ThreadPatchIn(Lenient):
    metadata: Object = Field(default_factory=dict)
    ttl: Json = None


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


def _unwrapped(value: object) -> object:
    """A checkpoint may be sent as the config that holds it."""
    return value["configurable"] if isinstance(value, dict) and "configurable" in value else value


class HistoryIn(Lenient):
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    before: Annotated[Id | CheckpointIn, BeforeValidator(_unwrapped)] | None = None
    metadata: Object = Field(default_factory=dict)
    checkpoint: CheckpointIn | None = None


class PruneIn(Lenient):
    thread_ids: Annotated[list[Id], Field(max_length=1000)]
    strategy: Literal["delete", "keep_latest"] = "delete"


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


def _status(thread: Thread, state: Mapping[str, Json]) -> ThreadStatus:
    """A cancelled run interrupts what is left to do; one that was rolled back, or had not begun, leaves nothing."""
    if thread.status is Status.STOPPED and not state["next"]:
        return "idle"
    return STATUSES[thread.status]
