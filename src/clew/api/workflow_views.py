"""Workflow views: a thread as the workflow API shows it, with the fields of the app that its graph belongs to."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from starlette.responses import Response, StreamingResponse

from clew.api.messages import log_outs, message_outs
from clew.api.numbers import Numbering, OwnerNumbers
from clew.api.whole_messages import object_without, whole_messages
from clew.api.workflow_apps import View, WorkflowApps, out_models
from clew.api.workflow_schemas import StartedOut, StateOut, StatusOut, WholeWorkflowOut, WorkflowOut
from clew.domain import views
from clew.domain.errors import Corrupt, NotFound, SchemaMismatch
from clew.domain.events import MESSAGES, Log, RoundFinished, RoundStarted
from clew.domain.redaction import without
from clew.domain.thread import Json, Thread
from clew.engine.redaction import redacted_texts
from clew.ports.files import Files
from clew.ports.graphs import GraphDriver
from clew.ports.threads import Store

# Of messages and of logs, in the whole object.
NEWEST = 200


@dataclass(frozen=True, kw_only=True)
class WorkflowViews:
    store: Store
    files: Files
    graph_driver: GraphDriver
    numbering: Numbering
    apps: WorkflowApps

    @cached_property
    def started_models(self) -> Mapping[str, type[StartedOut]]:
        """By graph, where its app shows fields of its own."""
        return out_models(self.apps, StartedOut, "Started{}Out")

    @cached_property
    def whole_models(self) -> Mapping[str, type[WholeWorkflowOut]]:
        """By graph, where its app shows fields of its own."""
        return out_models(self.apps, WholeWorkflowOut, "Whole{}Out")

    async def short(self, thread: Thread) -> WorkflowOut:
        return WorkflowOut.of(thread, await self.numbering.owner(thread.owner), self.apps.status(thread))

    async def page(self, threads: Sequence[Thread]) -> list[WorkflowOut]:
        numbers = await self.numbering.owners(thread.owner for thread in threads)
        return [WorkflowOut.of(thread, numbers[thread.owner], self.apps.status(thread)) for thread in threads]

    def status(self, thread: Thread) -> StatusOut:
        return StatusOut.of(thread, self.apps.status(thread))

    def started(
        self, thread: Thread, numbers: OwnerNumbers, given: Json, state: StateOut | None = None
    ) -> StartedOut:
        """`given` is what its graph begins with."""
        view = self._view(thread)
        values = given if state is None else state.values
        more = None if view is None else view.fields(thread, values, None)
        model = StartedOut if more is None else self.started_models[thread.graph]
        return model.of(thread, numbers, self.apps.status(thread), state=state, **more or {})

    async def state(self, thread: Thread) -> StateOut:
        """Raises NotFound when this server does not have its graph, SchemaMismatch."""
        state = await self.graph_driver.state(thread)
        values = without(state.values, await redacted_texts(self.store, thread))
        return StateOut(values=values, next=list(state.next))

    async def whole(self, thread: Thread, wanted: Collection[str]) -> Response:
        """With the newest messages and logs. `wanted` names the parts of documents to include."""
        until = thread.last_seq + 1
        said = await self.store.read(thread.id, before=until, types=MESSAGES, limit=NEWEST + 1)
        logged = await self.store.read(thread.id, before=until, types=(Log.type,), limit=NEWEST + 1)
        newest = said[-NEWEST:]
        every = await self.store.message_ids(thread.id, before=until)
        more = await self._app_fields(thread)
        model = WholeWorkflowOut if more is None else self.whole_models[thread.graph]
        whole = model.of(
            thread,
            await self.numbering.owner(thread.owner),
            self.apps.status(thread),
            messages=[] if wanted else await message_outs(thread, newest, self.files, self.numbering),
            message_ids=[message_id for message_id in every if message_id not in thread.redacted],
            logs=log_outs(thread, logged[-NEWEST:], self.apps),
            truncated=max(len(said), len(logged)) > NEWEST,
            **more or {},
        )
        if not wanted:
            return Response(whole.model_dump_json(by_alias=True), media_type="application/json")
        shown = list(views.messages(thread, newest))
        pieces = whole_messages(thread, shown, self.files, self.numbering, wanted)
        return StreamingResponse(_with_messages(whole, pieces), media_type="application/json")

    async def _app_fields(self, thread: Thread) -> Mapping[str, Any] | None:
        """The fields of its app; before its graph has a state, of what the graph will begin with."""
        view = self._view(thread)
        if view is None:
            return None
        until = thread.last_seq + 1
        begun = await self.store.read(thread.id, after=0, before=until, types=(RoundStarted.type,), limit=1)
        ended = await self.store.read(thread.id, before=until, types=(RoundFinished.type,), limit=1)
        given = [event.body.input for event in begun if isinstance(event.body, RoundStarted)]
        try:
            values = (await self.graph_driver.state(thread)).values
        except (NotFound, Corrupt, SchemaMismatch):
            values = (
                None  # this server does not have its graph, or its state is corrupt: the rest can be shown
            )
        shown = without(values or (given[0] if given else {}), await redacted_texts(self.store, thread))
        return view.fields(thread, shown, ended[0].at if ended else None)

    def _view(self, thread: Thread) -> View | None:
        app = self.apps.apps.get(thread.graph)
        return None if app is None else app.show


async def _with_messages(whole: WholeWorkflowOut, messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield object_without(whole, "messages") + b',"messages":'
    async for piece in messages:
        yield piece
    yield b"}"
