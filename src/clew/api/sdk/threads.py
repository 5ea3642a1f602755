"""/threads: create, search, update, copy and delete threads; read their states and history, and update states."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import APIRouter, Header, Path
from fastapi.responses import JSONResponse
from starlette.responses import Response

from clew.api.access import DELETION_SECONDS
from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.extraction import extracted
from clew.api.sdk.run_schemas import CheckpointIn, Id
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
    statuses_of,
)
from clew.api.sdk.wire import tell_page
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Conflict, Corrupt, Invalid, InvalidState, NotFound, Permanent, SchemaMismatch
from clew.domain.redaction import without
from clew.domain.runs import RunStatus, still_asked
from clew.domain.thread import Json, Owner, Status, Thread, marked
from clew.domain.thread_metadata import ThreadSearch
from clew.domain.views import EMPTY_STATE
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.engine.threads import Threads

ThreadId = Annotated[Id, Path()]

# Fields of a thread that are shown without reading its state.
WITHOUT_STATE = frozenset(
    {"thread_id", "created_at", "updated_at", "state_updated_at", "metadata", "status", "config"}
)


def langgraph_threads_router(threads: Threads, runs: Runs, *, access: ThreadAccess) -> APIRouter:
    router = Router(prefix="/threads", tags=["langgraph"])
    store, graph_driver, labels, commands = (
        threads.store,
        threads.graph_driver,
        threads.metadata,
        threads.commands,
    )

    @router.post("", responses=errors(Invalid, Conflict))
    @needs("write")
    async def create_thread(caller: Caller, body: ThreadIn) -> ThreadDetails:
        """Create a thread for later runs."""
        thread_id = str(body.thread_id or uuid4())
        if body.supersteps:
            raise Invalid("threads cannot be created with supersteps; copy one", field="supersteps")
        try:
            thread = await threads.create(
                thread_id,
                caller.owner,
                body.metadata,
                ttl=body.time,
                is_chosen=body.thread_id is not None,
            )
        except Conflict:
            if body.if_exists == "raise":
                raise Conflict(f"Thread with ID {thread_id} already exists") from None
            thread = await access.at(await access.kept_as(thread_id, caller.owner), caller.owner)
        return await details(thread)

    @router.post("/search", responses=errors(Invalid))
    @needs("read")
    async def search_threads(caller: Caller, body: SearchIn) -> Response:
        """Search threads by metadata and status."""
        wanted = _search(body, caller.owner)
        ids, total = await asyncio.gather(labels.find(wanted), labels.count(wanted))
        has_state = bool(body.extract) or not body.select or not WITHOUT_STATE.issuperset(body.select)
        found = await asyncio.gather(
            *(details_of(thread_id, caller.owner, has_state=has_state) for thread_id in ids)
        )
        shown = [one.model_dump(mode="json") for one in found if one is not None]
        answer = JSONResponse([_selected(one, body) for one in shown])
        tell_page(answer, offset=wanted.offset, limit=wanted.limit, total=total)
        return answer

    @router.post("/count", responses=errors(Invalid))
    @needs("read")
    async def count_threads(caller: Caller, body: SearchIn) -> int:
        return await labels.count(_search(body, caller.owner))

    @router.post("/prune", responses=errors(Invalid))
    @needs("write")
    async def prune_threads(caller: Caller, body: PruneIn) -> Mapping[str, int]:
        """Delete threads, or all of their states but the newest."""
        pruned = 0
        for chosen in dict.fromkeys(body.thread_ids):
            thread_id = await access.kept_as(chosen, caller.owner)
            try:
                await access.at(thread_id, caller.owner)
                if body.strategy == "delete":
                    await commands.delete(thread_id, caller.owner)
                elif await graph_driver.prune(thread_id):
                    graph_driver.drop(thread_id)
                else:
                    continue  # it is running
            except NotFound:
                continue
            pruned += 1
        return {"pruned_count": pruned}

    @router.get("/{thread_id}", responses=errors(Invalid, NotFound))
    @needs("read")
    async def get_labelled_thread(caller: Caller, thread_id: ThreadId) -> ThreadDetails:
        return await details(await access.at(thread_id, caller.owner))

    @router.patch("/{thread_id}", responses=errors(Invalid, NotFound))
    @needs("write")
    async def patch_thread(
        caller: Caller,
        thread_id: ThreadId,
        body: ThreadPatchIn,
        prefer: Annotated[str | None, Header(alias="Prefer", max_length=200)] = None,
    ) -> Response:
        """Merge metadata into that of the thread."""
        if body.ttl is not None:
            raise Invalid("a thread's ttl can only be set when it is created", field="ttl")
        thread = await access.at(thread_id, caller.owner)
        await labels.put(thread_id, body.metadata)
        if prefer == "return=minimal":
            return Response(status_code=204)
        return JSONResponse((await details(thread)).model_dump(mode="json"))

    @router.delete("/{thread_id}", status_code=204, responses=errors(Invalid, NotFound))
    @needs("write", seconds=DELETION_SECONDS)
    async def delete_labelled_thread(caller: Caller, thread_id: ThreadId) -> None:
        """Delete it with everything that belongs to it, permanently."""
        await commands.delete(thread_id, caller.owner)

    @router.post("/{thread_id}/copy", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def copy_thread(caller: Caller, thread_id: ThreadId) -> ThreadDetails:
        """A new thread in the state of this one."""
        thread = await access.at(thread_id, caller.owner)
        return await details(await threads.copy(thread, str(uuid4())))

    @router.get("/{thread_id}/state", responses=errors(Invalid, NotFound, SchemaMismatch))
    @needs("read")
    async def get_thread_state(caller: Caller, thread_id: ThreadId, subgraphs: bool = False) -> Json:
        thread = await access.at(thread_id, caller.owner)
        return await state(thread, subgraphs=subgraphs)

    @router.get("/{thread_id}/state/{checkpoint_id}", responses=errors(Invalid, NotFound, SchemaMismatch))
    @needs("read")
    async def get_thread_state_at(
        caller: Caller, thread_id: ThreadId, checkpoint_id: UUID, subgraphs: bool = False
    ) -> Json:
        thread = await access.at(thread_id, caller.owner)
        return await state(thread, {"checkpoint_id": str(checkpoint_id)}, subgraphs=subgraphs)

    @router.post("/{thread_id}/state/checkpoint", responses=errors(Invalid, NotFound, SchemaMismatch))
    @needs("read")
    async def get_thread_state_of(caller: Caller, thread_id: ThreadId, body: StateAtIn) -> Json:
        thread = await access.at(thread_id, caller.owner)
        return await state(thread, _named(body.checkpoint), subgraphs=body.subgraphs)

    @router.post("/{thread_id}/state", responses=errors(Invalid, NotFound, InvalidState))
    @needs("write")
    async def update_thread_state(caller: Caller, thread_id: ThreadId, body: StateIn) -> Json:
        """Write values as if a node had returned them."""
        await access.at(thread_id, caller.owner)
        place = _named(body.checkpoint) if body.checkpoint else None
        if place is None and body.checkpoint_id:
            place = {"checkpoint_id": str(body.checkpoint_id)}
        written = await threads.update_state(
            thread_id, caller.owner, body.values, as_node=body.as_node, place=place
        )
        return {"checkpoint": written, "configurable": written, "checkpoint_id": written["checkpoint_id"]}

    @router.post("/{thread_id}/history", responses=errors(Invalid, NotFound))
    @needs("read")
    async def get_thread_history(caller: Caller, thread_id: ThreadId, body: HistoryIn) -> Json:
        """Its states, newest first."""
        thread = await threads.with_graph(await access.at(thread_id, caller.owner))
        states = await graph_driver.history(
            thread,
            limit=body.limit,
            before=_before(body),
            place=_named(body.checkpoint) if body.checkpoint else None,
            metadata=body.metadata,
        )
        hidden = await redacted_texts(store, thread)
        return [_without(one, hidden) for one in states]

    async def details(thread: Thread, *, has_state: bool = True) -> ThreadDetails:
        """A thread whose state cannot be read is shown with the reason."""
        known = (await labels.of((thread.id,)))[thread.id]
        now = EMPTY_STATE
        why: Json = None
        try:
            if has_state and thread.is_readable:
                now = await state(thread)
        except NotFound:
            pass  # this server no longer has its graph
        except (Corrupt, SchemaMismatch, Permanent) as exc:
            thread = replace(thread, failure_reason=str(exc))
            why = {"error": type(exc).__name__, "message": str(exc)}
        is_busy = await runs.queue.is_awaited(thread.id)
        return ThreadDetails.of(thread, known, now, is_busy=is_busy, error=why or await error(thread))

    async def error(thread: Thread) -> Json:
        """Why the thread's last run failed, if it did."""
        if not thread.is_readable:
            return {"error": Corrupt.__name__, "message": thread.failure_reason}
        if thread.status is not Status.FAILED:
            return None
        try:
            newest = await runs.list(thread, newest=True)
        except Corrupt as exc:
            return {"error": Corrupt.__name__, "message": str(exc)}
        failed = [run for run in newest if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT)]
        return failure(failed[-1]) if failed else {"error": "RunFailed", "message": thread.failure_reason}

    async def details_of(thread_id: str, owner: Owner, *, has_state: bool) -> ThreadDetails | None:
        try:
            return await details(await store.get_listed(thread_id, owner), has_state=has_state)
        except NotFound:
            return None

    async def state(
        thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Mapping[str, Json]:
        posed = await threads.with_graph(thread)
        found = await graph_driver.snapshot(posed, place, subgraphs=subgraphs) if posed.graph else EMPTY_STATE
        if place is None and thread.status is Status.BLOCKED:
            found = _asking(found, thread)
        if place is not None and found["checkpoint"] is None:
            raise NotFound(f"thread {thread.id!r} has no such checkpoint")
        return _without(found, await redacted_texts(store, thread))

    return router


def _selected(shown: Mapping[str, Json], body: SearchIn) -> dict[str, Json]:
    """The fields that were asked for, and what was to be extracted."""
    selected = {name: shown[name] for name in body.select or shown if name in shown}
    if body.extract:
        selected["extracted"] = {name: extracted(shown, path) for name, path in body.extract.items()}
    return selected


def _search(body: SearchIn, owner: Owner) -> ThreadSearch:
    if body.values:
        raise Invalid("threads are found by their metadata, not by what is in their states", field="values")
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


def _asking(state: Mapping[str, Json], thread: Thread) -> Mapping[str, Json]:
    """The state with the interrupts that still wait for an answer."""
    asks = still_asked(thread, state["interrupts"])
    asked_by = {one["id"]: number for number, task in enumerate(state["tasks"]) for one in task["interrupts"]}
    # A question that is not a LangGraph interrupt was asked beside one that is.
    first = min((asked_by[one["id"]] for one in asks if one["id"] in asked_by), default=0)
    tasks = [
        {**task, "interrupts": [one for one in asks if asked_by.get(one["id"], first) == number]}
        for number, task in enumerate(state["tasks"])
    ]
    return {**state, "tasks": tasks, "interrupts": asks}


def _without(state: Mapping[str, Json], hidden: Sequence[str]) -> Mapping[str, Json]:
    """The state without these redacted texts in the graph's inputs and outputs."""
    if not hidden:
        return state
    shown = {name: without(state[name], hidden) for name in ("values", "interrupts")}
    return {**state, **shown, "tasks": [_task_without(task, hidden) for task in state["tasks"]]}


def _task_without(task: Mapping[str, Json], hidden: Sequence[str]) -> Mapping[str, Json]:
    shown = {name: without(task[name], hidden) for name in ("result", "error", "interrupts")}
    return {**task, **shown, "state": task["state"] and _without(task["state"], hidden)}
