"""/api/workflows/{id}/messages and /logs: poll messages and log entries, and redact messages and their files."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response

from clew.api.access import needs
from clew.api.conditional import NOT_MODIFIED, answer, is_known, not_modified, stream
from clew.api.direct import direct
from clew.api.guard import Caller
from clew.api.numbers import Numbering
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.thread_access import ThreadAccess
from clew.api.whole_messages import Include, read_include, whole_messages
from clew.api.workflow_apps import WorkflowApps
from clew.api.workflow_schemas import DeletedOut, LogOut, LogsOut, MessageOut, MessagesOut, WorkflowId
from clew.domain import views
from clew.domain.errors import Invalid, InvalidState, NotFound
from clew.domain.events import MESSAGES, Event, Log
from clew.domain.thread import Thread
from clew.engine.commands import Commands
from clew.ports.files import Files
from clew.ports.threads import Store

FromId = Annotated[
    str | None, Query(alias="id", max_length=256, description="Begin with this record; it is included.")
]
Limit = Annotated[int, Query(ge=1, le=1000)]
MessageId = Annotated[str, Path(max_length=256)]
FileId = Annotated[str, Path(max_length=256, description="The document's `fileId`, or its own id.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesRoutes:
    commands: Commands
    store: Store
    files: Files
    access: ThreadAccess
    numbering: Numbering
    apps: WorkflowApps

    def router(self) -> APIRouter:
        router = Router(prefix="/api/workflows", tags=["workflows"])
        router.get(
            "/{workflow_id}/messages",
            dependencies=[needs("read")],
            response_model=MessagesOut,
            responses=errors(Invalid, NotFound) | NOT_MODIFIED,
        )(self.list_messages)
        router.get(
            "/{workflow_id}/logs",
            dependencies=[needs("read")],
            response_model=LogsOut,
            responses=errors(Invalid, NotFound) | NOT_MODIFIED,
        )(self.list_logs)
        router.delete(
            "/{workflow_id}/messages/{message_id}",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.delete_message)
        router.delete(
            "/{workflow_id}/messages/{message_id}/files/{file_id}",
            dependencies=[needs("write")],
            responses=errors(Invalid, NotFound, InvalidState),
        )(self.delete_message_file)
        return router

    @direct
    async def list_messages(
        self,
        request: Request,
        caller: Caller,
        workflow_id: WorkflowId,
        from_id: FromId = None,
        limit: Limit = 100,
        include: Include = None,
    ) -> Response:
        """The messages of a workflow, in order. `next` is the `id` the next page begins with."""
        wanted = read_include(include)
        thread = await self.access.at(workflow_id, caller.owner)
        if is_known(request, thread.last_seq):
            return not_modified(thread.last_seq)
        page, following = await self._records(thread, MESSAGES, from_id, "msg_", limit)
        if wanted:
            messages = whole_messages(
                thread, list(views.messages(thread, page)), self.files, self.numbering, wanted
            )
            return stream(_with_next(messages, following), thread.last_seq)
        found = MessagesOut(
            messages=await message_outs(thread, page, self.files, self.numbering), next=following
        )
        return answer(found, thread.last_seq)

    @direct
    async def list_logs(
        self,
        request: Request,
        caller: Caller,
        workflow_id: WorkflowId,
        from_id: FromId = None,
        limit: Limit = 100,
    ) -> Response:
        """The log entries of a workflow, in order. `next` is the `id` the next page begins with."""
        thread = await self.access.at(workflow_id, caller.owner)
        if is_known(request, thread.last_seq):
            return not_modified(thread.last_seq)
        page, following = await self._records(thread, (Log.type,), from_id, "log_", limit)
        return answer(LogsOut(logs=log_outs(thread, page, self.apps), next=following), thread.last_seq)

    async def delete_message(
        self, caller: Caller, workflow_id: WorkflowId, message_id: MessageId
    ) -> DeletedOut:
        """Redact a message. It is no longer shown to clients, nor sent to a model in later rounds."""
        await self.access.at(workflow_id, caller.owner)
        await self.commands.redact(workflow_id, caller.owner, message_id)
        return DeletedOut(id=message_id)

    async def delete_message_file(
        self, caller: Caller, workflow_id: WorkflowId, message_id: MessageId, file_id: FileId
    ) -> DeletedOut:
        """Redact one file of a message. Other messages that show it keep it."""
        thread = await self.access.at(workflow_id, caller.owner)
        named = await self.numbering.file_id(thread.owner.tenant, file_id)
        await self.commands.redact(workflow_id, caller.owner, message_id, named)
        return DeletedOut(id=file_id)

    async def _records(
        self, thread: Thread, types: Collection[str], from_id: str | None, prefix: str, limit: int
    ) -> tuple[Sequence[Event], str | None]:
        """One page, and the id of the first record after it."""
        after = 0
        if from_id is not None:
            if not from_id.startswith(prefix):
                raise NotFound(f"no record {from_id!r} in workflow {thread.id!r}")
            after = await self.store.seq_of(thread.id, from_id) - 1
        # Not beyond the seq in the answer's ETag: a client that polls with that ETag would miss the rest.
        found = await self.store.read(
            thread.id, after=after, before=thread.last_seq + 1, types=types, limit=limit + 1
        )
        return found[:limit], found[limit].id if len(found) > limit else None


def messages_router(
    commands: Commands,
    store: Store,
    files: Files,
    *,
    access: ThreadAccess,
    numbering: Numbering,
    apps: WorkflowApps,
) -> APIRouter:
    return MessagesRoutes(
        commands=commands, store=store, files=files, access=access, numbering=numbering, apps=apps
    ).router()


async def _with_next(messages: AsyncIterator[bytes], following: str | None) -> AsyncIterator[bytes]:
    yield b'{"messages":'
    async for piece in messages:
        yield piece
    yield b',"next":' + to_json(following) + b"}"


async def message_outs(
    thread: Thread, events: Sequence[Event], files: Files, numbering: Numbering
) -> list[MessageOut]:
    messages = list(views.messages(thread, events))
    documents = (
        await files.find_documents(thread.id) if any(message.documents for message in messages) else ()
    )
    numbers = await numbering.files_of(thread.owner, documents)
    return [MessageOut.of(thread, message, documents, numbers) for message in messages]


def log_outs(thread: Thread, events: Sequence[Event], apps: WorkflowApps) -> list[LogOut]:
    return [LogOut.of(thread, line, apps.status(thread, line.status)) for line in views.logs(events)]
