"""/threads: create, search, update, copy and delete threads; read their states and history, and update states."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import JSONResponse
from starlette.responses import Response

from clew.api.access import DELETION_SECONDS
from clew.api.audit import note_thread
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.extraction import extracted
from clew.api.sdk.run_schemas import CheckpointIn, Id, Uuid
from clew.api.sdk.streaming import failure
from clew.api.sdk.thread_schemas import (
    HistoryIn,
    PruneIn,
    SearchIn,
    StateAtIn,
    StateIn,
    ThreadDetails,
    ThreadIn,
    ThreadPatchIn,
    ThreadStorageOut,
    TimedThreadDetails,
    statuses_of,
)
from clew.api.sdk.thread_states import ShownStates, selected_state, without_texts
from clew.api.sdk.wire import tell_page
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Conflict, Corrupt, Invalid, InvalidState, NotFound, Permanent, SchemaMismatch
from clew.domain.runs import RunStatus
from clew.domain.thread import Json, Owner, Status, Thread, marked
from clew.domain.views import EMPTY_STATE
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.engine.threads import Threads
from clew.ports.authorization import FilteredOwner
from clew.ports.checkpoints import Checkpoints
from clew.ports.streams import StreamParts
from clew.ports.thread_metadata import ThreadSearch

ThreadId = Annotated[Id, Path()]
Select = Annotated[Sequence[str], Query(max_length=20)]

# Fields of a thread that are shown without reading its state.
WITHOUT_STATE = frozenset(
    {"thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "config"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SdkThreadsRoutes:
    threads: Threads
    runs: Runs
    states: ShownStates
    checkpoints: Checkpoints
    parts: StreamParts
    access: ThreadAccess

    def router(self) -> APIRouter:
        router = Router(prefix="/threads", tags=["langgraph"])
        router.post(
            "",
            dependencies=[needs("write")],
            response_model=ThreadDetails,
            responses=errors(Invalid, Conflict),
        )(self.create_thread)
        router.post("/search", dependencies=[needs("read")], responses=errors(Invalid))(self.search_threads)
        router.post("/count", dependencies=[needs("read")], responses=errors(Invalid))(self.count_threads)
        router.post("/prune", dependencies=[needs("write")], responses=errors(Invalid))(self.prune_threads)
        router.get("/{thread_id}", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.get_labelled_thread
        )
        router.patch("/{thread_id}", dependencies=[needs("write")], responses=errors(Invalid, NotFound))(
            self.patch_thread
        )
        router.delete(
            "/{thread_id}",
            dependencies=[needs("write", seconds=DELETION_SECONDS)],
            status_code=204,
            responses=errors(Invalid, NotFound),
        )(self.delete_labelled_thread)
        router.post(
            "/{thread_id}/copy",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.copy_thread)
        router.get(
            "/{thread_id}/state",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound, SchemaMismatch),
        )(self.get_thread_state)
        router.get(
            "/{thread_id}/state/{checkpoint_id}",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound, SchemaMismatch),
        )(self.get_thread_state_at)
        router.post(
            "/{thread_id}/state/checkpoint",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound, SchemaMismatch),
        )(self.get_thread_state_of)
        router.post(
            "/{thread_id}/state",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.update_thread_state)
        router.post(
            "/{thread_id}/history", dependencies=[needs("read")], responses=errors(Invalid, NotFound)
        )(self.get_thread_history)
        router.get("/{thread_id}/history", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.list_thread_states
        )
        router.get("/{thread_id}/storage", dependencies=[needs("read")], responses=errors(Invalid, NotFound))(
            self.get_thread_storage
        )
        return router

    @direct
    async def create_thread(self, caller: Caller, body: ThreadIn) -> Response:
        """Make a thread, for runs to come."""
        thread_id = body.thread_id or str(uuid4())
        try:
            thread = await self.threads.create(
                thread_id,
                caller.owner,
                body.metadata,
                ttl=body.lifetime(self.threads.ttl),
                is_chosen=body.thread_id is not None,
                supersteps=body.steps,
            )
        except Conflict:
            if body.if_exists == "raise":
                raise Conflict(f"Thread with ID {thread_id} already exists") from None
            thread = await self.access.at(await self.access.kept_as(thread_id, caller.owner), caller.owner)
            note_thread(thread.id)
            return _shown(await self._details(thread))
        note_thread(thread.id)
        if body.steps:
            return _shown(await self._details(thread))
        # It has no run and no state yet. Without metadata nothing is left to be read.
        has_metadata = body.metadata or isinstance(caller.owner, FilteredOwner)
        known = (await self.threads.metadata.of((thread.id,)))[thread.id] if has_metadata else {}
        return _shown(ThreadDetails.of(thread, known, EMPTY_STATE))

    async def search_threads(self, caller: Caller, body: SearchIn) -> Response:
        """Threads by metadata, status and what their newest states hold."""
        wanted = _search(body, caller.owner)
        ids: Sequence[str]
        if body.values:
            matching = await self.states.search(wanted, body.values)
            ids, total = matching[wanted.offset : wanted.offset + wanted.limit], len(matching)
        else:
            ids, total = await asyncio.gather(
                self.threads.metadata.find(wanted), self.threads.metadata.count(wanted)
            )
        has_state = bool(body.extract) or not body.select or not WITHOUT_STATE.issuperset(body.select)
        found = await asyncio.gather(
            *(self._details_of(thread_id, caller.owner, has_state=has_state) for thread_id in ids)
        )
        shown = [one.model_dump(mode="json") for one in found if one is not None]
        answer = JSONResponse([_selected(one, body) for one in shown])
        tell_page(answer, offset=wanted.offset, limit=wanted.limit, total=total)
        return answer

    async def count_threads(self, caller: Caller, body: SearchIn) -> int:
        wanted = _search(body, caller.owner)
        if body.values:
            return len(await self.states.search(wanted, body.values))
        return await self.threads.metadata.count(wanted)

    async def prune_threads(self, caller: Caller, body: PruneIn) -> Mapping[str, int]:
        """Delete threads, or all of their states but the newest."""
        pruned = 0
        for chosen in dict.fromkeys(body.thread_ids):
            thread_id = await self.access.kept_as(chosen, caller.owner)
            try:
                await self.access.at(thread_id, caller.owner)
                if body.strategy == "delete":
                    await self.threads.commands.delete(thread_id, caller.owner)
                elif await self.threads.graph_driver.prune(thread_id):
                    self.threads.graph_driver.drop(thread_id)
                else:
                    continue  # it is running
            except NotFound:
                continue
            pruned += 1
        return {"pruned_count": pruned}

    async def get_labelled_thread(
        self, caller: Caller, thread_id: ThreadId, include: Annotated[str, Query(max_length=200)] = ""
    ) -> TimedThreadDetails | ThreadDetails:
        """A thread; with `include=ttl` when it expires as well."""
        wanted = {name.strip() for name in include.split(",") if name.strip()}
        if unknown := wanted - {"ttl"}:
            raise Invalid(f"no field {min(unknown)!r} to include; there is ttl", field="include")
        thread = await self.access.at(thread_id, caller.owner)
        details = await self._details(thread)
        return details.with_ttl(thread) if wanted else details

    async def patch_thread(
        self,
        caller: Caller,
        thread_id: ThreadId,
        body: ThreadPatchIn,
        prefer: Annotated[str | None, Header(alias="Prefer", max_length=200)] = None,
    ) -> Response:
        """Merge metadata into that of the thread; with `ttl` let it expire that long after its last access."""
        thread = await self.access.at(thread_id, caller.owner)
        await self.threads.metadata.put(thread_id, body.metadata)
        if (lifetime := body.lifetime(self.threads.ttl)) is not None:
            thread = await self.threads.commands.change_ttl(thread_id, caller.owner, lifetime)
        if prefer == "return=minimal":
            return Response(status_code=204)
        return JSONResponse((await self._details(thread)).model_dump(mode="json"))

    async def delete_labelled_thread(self, caller: Caller, thread_id: ThreadId) -> None:
        """Delete it with everything that belongs to it, for good."""
        await self.threads.commands.delete(thread_id, caller.owner)

    async def copy_thread(self, caller: Caller, thread_id: ThreadId) -> ThreadDetails:
        """A new thread in the state of this one."""
        thread = await self.access.at(thread_id, caller.owner)
        return await self._details(await self.threads.copy(thread, str(uuid4())))

    async def get_thread_state(
        self, caller: Caller, thread_id: ThreadId, subgraphs: bool = False, select: Select = ()
    ) -> Json:
        thread = await self.access.at(thread_id, caller.owner)
        return selected_state(await self.states.read(thread, subgraphs=subgraphs), select)

    async def get_thread_state_at(
        self,
        caller: Caller,
        thread_id: ThreadId,
        checkpoint_id: UUID,
        subgraphs: bool = False,
        select: Select = (),
    ) -> Json:
        thread = await self.access.at(thread_id, caller.owner)
        place = {"checkpoint_id": str(checkpoint_id)}
        return selected_state(await self.states.read(thread, place, subgraphs=subgraphs), select)

    async def get_thread_state_of(self, caller: Caller, thread_id: ThreadId, body: StateAtIn) -> Json:
        thread = await self.access.at(thread_id, caller.owner)
        found = await self.states.read(thread, _named(body.checkpoint), subgraphs=body.subgraphs)
        return selected_state(found, body.select)

    async def update_thread_state(self, caller: Caller, thread_id: ThreadId, body: StateIn) -> Json:
        """Write values as if a node had returned them."""
        await self.access.at(thread_id, caller.owner)
        place = _named(body.checkpoint) if body.checkpoint else None
        if place is None and body.checkpoint_id:
            place = {"checkpoint_id": str(body.checkpoint_id)}
        written = await self.threads.update_state(
            thread_id, caller.owner, body.values, as_node=body.as_node, place=place
        )
        await self.parts.tell_update(thread_id, fence=await self.threads.store.fence(thread_id))
        return {"checkpoint": written, "configurable": written, "checkpoint_id": written["checkpoint_id"]}

    async def list_thread_states(
        self,
        caller: Caller,
        thread_id: ThreadId,
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
        before: Annotated[Uuid | None, Query()] = None,
    ) -> Json:
        """Its states, newest first."""
        return await self.get_thread_history(caller, thread_id, HistoryIn(limit=limit, before=before))

    async def get_thread_history(self, caller: Caller, thread_id: ThreadId, body: HistoryIn) -> Json:
        """Its states, newest first."""
        thread = await self.threads.with_graph(await self.access.at(thread_id, caller.owner))
        states = await self.threads.graph_driver.history(
            thread,
            limit=body.limit,
            before=_before(body),
            place=_named(body.checkpoint) if body.checkpoint else None,
            metadata=body.metadata,
        )
        hidden = await redacted_texts(self.threads.store, thread)
        return [selected_state(without_texts(one, hidden), body.select) for one in states]

    async def get_thread_storage(self, caller: Caller, thread_id: ThreadId) -> ThreadStorageOut:
        """How many bytes its checkpoints take in the database: by table, and by channel."""
        await self.access.at(thread_id, caller.owner)
        return ThreadStorageOut.of(thread_id, await self.checkpoints.sizes(thread_id))

    async def _details(self, thread: Thread, *, has_state: bool = True) -> ThreadDetails:
        """What cannot be shown of its state is its own trouble: the thread is shown with the reason."""
        known = (await self.threads.metadata.of((thread.id,)))[thread.id]
        now = EMPTY_STATE
        why: Json = None
        try:
            if has_state and thread.is_readable:
                now = await self.states.read(thread)
        except NotFound:
            pass  # this server no longer has its graph
        except (Corrupt, SchemaMismatch, Permanent) as exc:
            thread = replace(thread, failure_reason=str(exc))
            why = {"error": type(exc).__name__, "message": str(exc)}
        is_busy = await self.runs.queue.is_awaited(thread.id)
        return ThreadDetails.of(thread, known, now, is_busy=is_busy, error=why or await self._error(thread))

    async def _error(self, thread: Thread) -> Json:
        """Why the thread's last run failed, if it did."""
        if not thread.is_readable:
            return {"error": Corrupt.__name__, "message": thread.failure_reason}
        if thread.status is not Status.FAILED:
            return None
        try:
            newest = await self.runs.list(thread, newest=True)
        except Corrupt as exc:
            return {"error": Corrupt.__name__, "message": str(exc)}
        failed = [run for run in newest if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT)]
        return failure(failed[-1]) if failed else {"error": "RunFailed", "message": thread.failure_reason}

    async def _details_of(self, thread_id: str, owner: Owner, *, has_state: bool) -> ThreadDetails | None:
        try:
            return await self._details(
                await self.threads.store.get_listed(thread_id, owner), has_state=has_state
            )
        except NotFound:
            return None


def _shown(details: ThreadDetails) -> Response:
    return Response(details.model_dump_json(), media_type="application/json")


def sdk_threads_router(
    runs: Runs, checkpoints: Checkpoints, parts: StreamParts, *, access: ThreadAccess
) -> APIRouter:
    threads = runs.threads
    return SdkThreadsRoutes(
        threads=threads,
        runs=runs,
        states=ShownStates(threads=threads),
        checkpoints=checkpoints,
        parts=parts,
        access=access,
    ).router()


def _selected(shown: Mapping[str, Json], body: SearchIn) -> dict[str, Json]:
    """The fields that were asked for, and what was to be extracted."""
    selected = {name: shown[name] for name in body.select or shown if name in shown}
    if body.extract:
        selected["extracted"] = {name: extracted(shown, path) for name, path in body.extract.items()}
    return selected


def _search(body: SearchIn, owner: Owner) -> ThreadSearch:
    return ThreadSearch(
        owner=owner,
        labels=body.metadata,
        ids=None if body.ids is None else tuple(_as_chosen_and_kept(body.ids, owner)),
        statuses=statuses_of(body.status),
        sort_by=body.sort_by,
        descending=body.sort_order == "desc",
        limit=body.limit,
        offset=body.offset,
    )


def _as_chosen_and_kept(ids: Iterable[str], owner: Owner) -> Iterator[str]:
    for thread_id in ids:
        yield thread_id
        yield marked(thread_id, owner.tenant)


def _named(place: CheckpointIn) -> dict[str, str]:
    named = {"checkpoint_ns": place.checkpoint_ns}
    if place.checkpoint_id is not None:
        named["checkpoint_id"] = str(place.checkpoint_id)
    return named


def _before(body: HistoryIn) -> dict[str, str] | None:
    match body.before:
        case None:
            return None
        case str(checkpoint_id):
            return {"checkpoint_id": checkpoint_id}
        case place:
            return _named(place)
