"""Schemas of runs: what a client sends to start one, and how it is shown, in LangGraph's words."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Literal, Self, TypeAlias
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from clew.api.sdk.wire import Lenient, Moment, RequestBody, without_effect
from clew.domain.assistants import require_one_context
from clew.domain.events import RunSpec
from clew.domain.runs import Run
from clew.domain.thread import CHOSEN_ID, MARK, Json, is_marked

Mode: TypeAlias = Literal[
    "values", "updates", "messages", "messages-tuple", "custom", "debug", "tasks", "checkpoints", "events"
]
Object: TypeAlias = dict[str, Json]


def _uuid(value: str) -> str:
    """As we write it, however the caller does."""
    return str(UUID(value))


def _named(value: str) -> str:
    if CHOSEN_ID.fullmatch(value) is None and not is_marked(value):
        raise ValueError(
            "a thread id is a UUID, or 1 to 128 letters, digits and characters of _.:@+=-, no dot first"
        )
    with suppress(ValueError):
        return _uuid(value)
    return value


# The id of a thread. LangGraph makes UUIDs; clients and the other APIs have ids of other forms as well.
Id = Annotated[
    str,
    AfterValidator(_named),
    WithJsonSchema({"type": "string", "pattern": f"^{CHOSEN_ID.pattern}({MARK})?$"}),
]
# The id of a run, a cron or a checkpoint.
Uuid = Annotated[str, AfterValidator(_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]


def _listed(value: object) -> object:
    """A single value counts as a list of one."""
    return [value] if isinstance(value, str) else value


Node: TypeAlias = Annotated[str, Field(max_length=256)]
Modes = Annotated[list[Mode], BeforeValidator(_listed, json_schema_input_type=list[Mode] | Mode)]
Nodes = Annotated[list[Node], BeforeValidator(_listed, json_schema_input_type=list[Node] | Node)]


class CheckpointIn(RequestBody):
    """A checkpoint."""

    checkpoint_id: UUID | None = None
    checkpoint_ns: str = ""
    checkpoint_map: dict[str, str] | None = None
    thread_id: str | None = None


class SendIn(BaseModel):
    """A node to go to, with an input of its own."""

    model_config = ConfigDict(frozen=True)

    node: str
    input: Json = None


class CommandIn(BaseModel):
    """A command to the graph beside, or in place of, an input."""

    model_config = ConfigDict(frozen=True)

    resume: Json = None
    update: Object | list[tuple[str, Json]] | None = None
    goto: str | SendIn | list[str | SendIn] | None = None

    @property
    def resumes(self) -> bool:
        return "resume" in self.model_fields_set and self.resume is not None


class RunIn(Lenient):
    """A run to start."""

    assistant_id: Annotated[str, Field(min_length=1, max_length=256)]
    input: Json = None
    command: CommandIn | None = None
    config: Object = Field(default_factory=dict)
    context: Object | None = None
    metadata: Object = Field(default_factory=dict)
    stream_mode: Modes = Field(default=["values"])
    stream_subgraphs: bool = False
    stream_resumable: bool = False
    interrupt_before: Nodes = Field(default=[])
    interrupt_after: Nodes = Field(default=[])
    checkpoint: CheckpointIn | None = None
    checkpoint_id: UUID | None = None
    multitask_strategy: Literal["reject", "interrupt", "rollback", "enqueue"] = "enqueue"
    if_not_exists: Literal["create", "reject"] = "reject"
    on_disconnect: Literal["cancel", "continue"] = "continue"
    on_completion: Literal["delete", "keep"] = "delete"
    after_seconds: Annotated[float, Field(ge=0, le=366 * 86400)] = 0
    webhook: Annotated[str, Field(max_length=2000)] | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    """Kept to at least: every step is durable before the next one begins."""
    checkpoint_during: bool | None = None
    """The older form of `durability`."""
    strict_resume: bool | None = None
    """Always so: an answer to a question that is not open is without_effect."""
    feedback_keys: Annotated[
        Json,
        without_effect("feedback_keys", "Clew does not call LangSmith, which has the addresses for feedback"),
    ] = None
    langsmith_tracer: Annotated[
        Json,
        without_effect(
            "langsmith_tracer", "LANGSMITH_PROJECT of the server's environment says where traces go"
        ),
    ] = None

    def require_one_context(self) -> None:
        """Raises Contradictory."""
        require_one_context(self.config, self.context)

    def spec(self, run_id: str, *, assistant_id: str, graph: str, is_followed: bool = False) -> RunSpec:
        self.require_one_context()
        place = self.checkpoint.checkpoint_id if self.checkpoint else self.checkpoint_id
        command = None
        if self.command is not None and (self.command.update is not None or self.command.goto):
            command = self.command.model_dump(mode="json", include={"update", "goto"})
        return RunSpec(
            run_id=run_id,
            assistant_id=assistant_id,
            graph=graph,
            metadata=self.metadata,
            strategy=self.multitask_strategy,
            config=self.config,
            context=self.context,
            command=command,
            checkpoint_id=str(place) if place else "",
            stops_before=tuple(self.interrupt_before),
            stops_after=tuple(self.interrupt_after),
            modes=tuple(dict.fromkeys(self.stream_mode)),
            subgraphs=self.stream_subgraphs,
            is_resumable=self.stream_resumable,
            is_followed=is_followed,
            webhook=self.webhook or "",
        )

    @property
    def after(self) -> timedelta:
        return timedelta(seconds=self.after_seconds)


class RunOut(BaseModel):
    run_id: str
    thread_id: str
    assistant_id: str
    created_at: Moment
    updated_at: Moment
    status: str
    metadata: Mapping[str, Json]
    kwargs: Mapping[str, Json]
    multitask_strategy: str

    @classmethod
    def of(cls, run: Run) -> Self:
        spec = run.spec
        return cls(
            run_id=run.id,
            thread_id=run.thread_id,
            assistant_id=spec.assistant_id,
            created_at=run.created_at,
            updated_at=run.updated_at,
            status=run.status,
            metadata=spec.metadata,
            kwargs={
                "input": run.input,
                "command": spec.command,
                "config": spec.config,
                "context": spec.context,
                "stream_mode": list(spec.modes),
                "interrupt_before": nodes_of(spec.stops_before),
                "interrupt_after": nodes_of(spec.stops_after),
                "webhook": spec.webhook or None,
                "subgraphs": spec.subgraphs,
                "resumable": spec.is_resumable,
                "temporary": spec.is_temporary,
            },
            multitask_strategy=spec.strategy,
        )


class CancelIn(RequestBody):
    """Which runs to cancel: these of one thread, or all of a status."""

    thread_id: Id | None = None
    run_ids: Annotated[list[Uuid], Field(max_length=1000)] | None = None
    status: Literal["pending", "running", "all"] | None = None


def nodes_of(nodes: Sequence[str]) -> list[str] | str | None:
    return "*" if nodes == ("*",) else list(nodes) or None
