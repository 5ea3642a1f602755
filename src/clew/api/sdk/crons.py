"""/runs/crons and /threads/{id}/runs/crons: scheduled runs."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self
from uuid import uuid4

from fastapi import APIRouter, Path
from pydantic import AfterValidator, BaseModel, Field, model_validator
from starlette.responses import Response

from clew.api.credentials import Principal
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.run_schemas import Id, Modes, Nodes, Object, RunIn, Uuid, nodes_of
from clew.api.sdk.wire import Moment, RequestBody, tell_page
from clew.api.thread_access import ThreadAccess
from clew.domain.assistants import require_one_context
from clew.domain.crons import CronJob, CronSearch, SortKey
from clew.domain.errors import Contradictory, Invalid, InvalidState, NotFound
from clew.domain.events import RunSpec
from clew.domain.thread import Json, Owner
from clew.engine.assistants import AssistantCatalog
from clew.engine.crons import Scheduler

CronId = Annotated[Uuid, Path()]
ThreadId = Annotated[Id, Path()]
OnCompletion = Literal["delete", "keep"]
Column = Literal[
    "cron_id",
    "assistant_id",
    "thread_id",
    "user_id",
    "schedule",
    "timezone",
    "end_time",
    "next_run_date",
    "payload",
    "metadata",
    "on_run_completed",
    "enabled",
    "created_at",
    "updated_at",
]


def _aware(moment: datetime) -> datetime:
    """Without a zone it is UTC."""
    try:
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:
        raise ValueError("a time lies between the years 1 and 9999") from None


Line = Annotated[str, Field(max_length=256)]
EndTime = Annotated[datetime, AfterValidator(_aware)]


# Fields of a single run.
_OF_ONE_RUN = ("after_seconds", "if_not_exists", "on_disconnect", "on_completion")


class CronIn(RunIn):
    """A scheduled run."""

    schedule: Line
    timezone: Line | None = None
    end_time: EndTime | None = None
    enabled: bool = True
    on_run_completed: OnCompletion = "delete"

    @model_validator(mode="before")
    @classmethod
    def _is_for_many(cls, data: Any) -> Any:
        for name in _OF_ONE_RUN:
            if isinstance(data, dict) and data.get(name) is not None:
                raise ValueError(f"{name} is said of a single run, not of a cron")
        return data

    def job(self, caller: Principal, thread_id: str | None, *, now: datetime) -> CronJob:
        return CronJob(
            id=str(uuid4()),
            owner=caller.owner,
            spec=replace(self.spec("", assistant_id=self.assistant_id, graph=""), user=caller.stored_user),
            input=self.input,
            schedule=self.schedule,
            timezone=self.timezone,
            thread_id=thread_id,
            keeps=self.on_run_completed == "keep",
            end_at=self.end_time,
            is_enabled=self.enabled,
            created_at=now,
            updated_at=now,
            counted_at=now,
        )


class CronPatchIn(RequestBody):
    """A change of a scheduled run. Fields that are null or left out stay; only the end can be removed with null."""

    schedule: Line | None = None
    timezone: Line | None = None
    end_time: EndTime | None = None
    enabled: bool | None = None
    on_run_completed: OnCompletion | None = None
    input: Json = None
    config: Object | None = None
    context: Object | None = None
    metadata: Object | None = None
    webhook: Annotated[str, Field(max_length=2000)] | None = None
    interrupt_before: Nodes | None = None
    interrupt_after: Nodes | None = None
    stream_mode: Modes | None = None
    stream_subgraphs: bool | None = None
    stream_resumable: bool | None = None
    durability: Literal["sync", "async", "exit"] | None = None
    """Kept to at least, as that of every run."""

    def change(self) -> Callable[[CronJob], CronJob]:
        """Raises Invalid if it says nothing."""
        if not self.model_dump(exclude_none=True) and "end_time" not in self.model_fields_set:
            raise Invalid("nothing to change")
        return self._changed

    def _changed(self, job: CronJob) -> CronJob:
        changes: dict[str, Any] = {
            "schedule": self.schedule,
            "timezone": self.timezone,
            "is_enabled": self.enabled,
            "keeps": None if self.on_run_completed is None else self.on_run_completed == "keep",
            "input": self.input,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        if "end_time" in self.model_fields_set:
            given["end_at"] = self.end_time
        return replace(job, spec=self._changed_spec(job.spec), **given)

    def _changed_spec(self, spec: RunSpec) -> RunSpec:
        changes: dict[str, Any] = {
            "config": self.config,
            "context": self.context,
            "metadata": None if self.metadata is None else {**spec.metadata, **self.metadata},
            "webhook": self.webhook,
            "stops_before": None if self.interrupt_before is None else tuple(self.interrupt_before),
            "stops_after": None if self.interrupt_after is None else tuple(self.interrupt_after),
            "modes": None if self.stream_mode is None else tuple(dict.fromkeys(self.stream_mode)),
            "subgraphs": self.stream_subgraphs,
            "is_resumable": self.stream_resumable,
        }
        changed = replace(spec, **{name: value for name, value in changes.items() if value is not None})
        require_one_context(changed.config, changed.context)
        return changed


class CronCountIn(RequestBody):
    assistant_id: Line | None = None
    thread_id: Id | None = None
    metadata: Object | None = None


class CronSearchIn(CronCountIn):
    enabled: bool | None = None
    limit: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    offset: Annotated[int, Field(ge=0, le=2**31 - 1, strict=True)] = 0
    sort_by: SortKey | None = None
    sort_order: Literal["asc", "desc"] | None = None
    select: list[Column] | None = None


class CronOut(BaseModel):
    """A cron, or the fields of it that were asked for."""

    cron_id: str = ""
    assistant_id: str = ""
    thread_id: str | None = None
    user_id: str | None = None
    schedule: str = ""
    timezone: str | None = None
    end_time: Moment | None = None
    next_run_date: Moment | None = None
    payload: Object = {}
    metadata: Object = {}
    on_run_completed: OnCompletion | None = None
    enabled: bool = True
    created_at: Moment | None = None
    updated_at: Moment | None = None

    @classmethod
    def of(cls, job: CronJob, select: list[Column] | None = None) -> Self:
        return cls(**{name: value for name, value in _fields(job).items() if not select or name in select})


@dataclass(frozen=True, slots=True, kw_only=True)
class CronsRoutes:
    scheduler: Scheduler
    assistants: AssistantCatalog
    access: ThreadAccess

    def router(self) -> APIRouter:
        router = Router(tags=["langgraph"])
        router.post(
            "/runs/crons",
            dependencies=[needs("write")],
            responses=errors(Contradictory, Invalid, NotFound, InvalidState),
        )(self.create_cron)
        router.post(
            "/threads/{thread_id}/runs/crons",
            dependencies=[needs("write")],
            responses=errors(Contradictory, Invalid, NotFound, InvalidState),
        )(self.create_thread_cron)
        router.post(
            "/runs/crons/search",
            dependencies=[needs("read")],
            responses=errors(Invalid),
            response_model_exclude_unset=True,
        )(self.search_crons)
        router.post("/runs/crons/count", dependencies=[needs("read")], responses=errors(Invalid))(
            self.count_crons
        )
        router.get(
            "/runs/crons/{cron_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.get_cron)
        router.patch(
            "/runs/crons/{cron_id}",
            dependencies=[needs("write")],
            responses=errors(Contradictory, Invalid, NotFound),
        )(self.update_cron)
        router.delete(
            "/runs/crons/{cron_id}",
            dependencies=[needs("write")],
            status_code=204,
            responses=errors(Invalid, NotFound),
        )(self.delete_cron)
        return router

    async def create_cron(self, caller: Caller, body: CronIn) -> CronOut:
        """Start a run at each time of the schedule, each in a thread of its own."""
        return CronOut.of(await self.scheduler.add(body.job(caller, None, now=self.scheduler.clock())))

    async def create_thread_cron(self, caller: Caller, thread_id: ThreadId, body: CronIn) -> CronOut:
        """Start a run in this thread at each time of the schedule."""
        await self.access.at(thread_id, caller.owner)
        return CronOut.of(await self.scheduler.add(body.job(caller, thread_id, now=self.scheduler.clock())))

    async def search_crons(self, caller: Caller, body: CronSearchIn, response: Response) -> list[CronOut]:
        """The caller's crons, the newest first if not told otherwise."""
        wanted = CronSearch(
            assistant_id=await self._named(body.assistant_id, caller.owner),
            thread_id=await self._kept(body.thread_id, caller.owner),
            is_enabled=body.enabled,
            metadata=body.metadata or {},
            sort_by=body.sort_by or "created_at",
            descending=body.sort_order != "asc",
            limit=body.limit,
            offset=body.offset,
        )
        found, total = await self.scheduler.find(caller.owner, wanted)
        tell_page(response, offset=body.offset, limit=body.limit, total=total)
        return [CronOut.of(job, body.select) for job in found]

    async def count_crons(self, caller: Caller, body: CronCountIn) -> int:
        """How many a search would find."""
        wanted = CronSearch(
            assistant_id=await self._named(body.assistant_id, caller.owner),
            thread_id=await self._kept(body.thread_id, caller.owner),
            metadata=body.metadata or {},
        )
        _, total = await self.scheduler.find(caller.owner, wanted)
        return total

    async def get_cron(self, caller: Caller, cron_id: CronId) -> CronOut:
        return CronOut.of(await self.scheduler.crons.get(cron_id, caller.owner))

    async def update_cron(self, caller: Caller, cron_id: CronId, body: CronPatchIn) -> CronOut:
        """Change it; its next time is counted from now on. Metadata is added to what is there."""
        return CronOut.of(await self.scheduler.revise(cron_id, caller.owner, body.change()))

    async def delete_cron(self, caller: Caller, cron_id: CronId) -> None:
        """Runs that were started continue."""
        await self.scheduler.crons.delete(cron_id, caller.owner)

    async def _kept(self, thread_id: str | None, owner: Owner) -> str | None:
        return None if thread_id is None else await self.access.kept_as(thread_id, owner)

    async def _named(self, assistant_id: str | None, owner: Owner) -> str | None:
        """The id of an assistant that may be named by its graph. One that is gone may still have crons."""
        if assistant_id is None:
            return None
        try:
            return (await self.assistants.resolve(assistant_id, owner)).id
        except NotFound:
            return assistant_id


def crons_router(scheduler: Scheduler, assistants: AssistantCatalog, *, access: ThreadAccess) -> APIRouter:
    return CronsRoutes(scheduler=scheduler, assistants=assistants, access=access).router()


def _fields(job: CronJob) -> dict[str, Any]:
    spec = job.spec
    payload = {
        "assistant_id": spec.assistant_id,
        "input": job.input,
        "config": spec.config,
        "context": spec.context,
        "metadata": spec.metadata,
        "interrupt_before": nodes_of(spec.stops_before),
        "interrupt_after": nodes_of(spec.stops_after),
        "webhook": spec.webhook or None,
        "multitask_strategy": spec.strategy,
        "stream_mode": list(spec.modes),
        "stream_subgraphs": spec.subgraphs,
        "stream_resumable": spec.is_resumable,
    }
    return {
        "cron_id": job.id,
        "assistant_id": spec.assistant_id,
        "thread_id": job.thread_id,
        "user_id": job.owner.user_id or None,
        "schedule": job.schedule,
        "timezone": job.timezone,
        "end_time": job.end_at,
        "next_run_date": job.next_at,
        "payload": payload,
        "metadata": spec.metadata,
        "on_run_completed": None if job.thread_id is not None else "keep" if job.keeps else "delete",
        "enabled": job.is_enabled,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
    }
