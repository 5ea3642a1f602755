"""Run queue: runs that wait for their turn, started in order as their threads come to rest, in any process."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from clew.domain.errors import AlreadyDone, InvalidState, NotFound
from clew.domain.records import Conversation, Incoming, RunHook
from clew.domain.runs import SOURCE, Run, RunRequest, RunStatus, answers_pending
from clew.domain.thread import Status, Thread
from clew.engine.commands import Commands
from clew.engine.leased_loop import ConversationJobs, LeasedLoop, about_conversation
from clew.ports.channels import Conversations
from clew.ports.clock import Clock
from clew.ports.guards import Admits, QueueRoom
from clew.ports.inbox import Inbox
from clew.ports.notifier import Notifier
from clew.ports.threads import Store

CONCURRENCY = 16

_REQUEST = TypeAdapter(RunRequest)


class RunQueue:
    def __init__(
        self,
        *,
        inbox: Inbox,
        conversations: Conversations,
        store: Store,
        commands: Commands,
        notifier: Notifier,
        clock: Clock,
        new_id: Callable[[], str],
        stopping: asyncio.Event,
        poll_seconds: float,
        lease: timedelta,
        room: QueueRoom | None = None,
    ) -> None:
        """`room` says how many runs may wait."""
        self._inbox = inbox
        self._conversations = conversations
        self._store = store
        self._commands = commands
        self._room = room
        self._clock = clock
        self._loop = LeasedLoop(
            ConversationJobs(conversations=conversations, sources=(SOURCE,), new_id=new_id),
            self._work,
            name="run queue",
            about=about_conversation,
            lease=lease,
            concurrency=CONCURRENCY,
            poll_seconds=poll_seconds,
            notifier=notifier,
            stopping=stopping,
        )

    async def put(self, thread_id: str, request: RunRequest, hook: RunHook | None = None) -> Run:
        """Queue a run, with its hook. Raises NotFound if the thread was deleted, AtCapacity if too many wait."""
        run_id = request.spec.run_id
        # A run that is for later waits by itself, so that it does not hold up the runs behind it.
        key = thread_id if request.not_before is None else f"{thread_id}/{run_id}"
        incoming = Incoming(
            source=SOURCE,
            source_id=run_id,
            fingerprint=run_id,
            payload=_REQUEST.dump_python(request, mode="json"),
            conversation=key,
            thread_id=thread_id,
        )
        await self._inbox.admit(incoming, now=self._clock(), is_opened=True, hook=hook, room=self._room)
        self._loop.wake()
        return _queued_run(thread_id, request)

    async def list(self, thread_id: str) -> Sequence[Run]:
        """The runs queued for the thread, in order, and those that were withdrawn lately."""
        return [
            _queued_run(thread_id, _request(one), withdrawn_at=one.withdrawn_at)
            for one in await self._inbox.waiting(SOURCE, thread_id)
        ]

    async def is_awaited(self, thread_id: str) -> bool:
        """Whether runs wait for the thread to come to rest. Runs for later do not."""
        return await self._inbox.is_awaited(SOURCE, thread_id)

    async def withdraw(self, thread_id: str, run_id: str) -> bool:
        """Take a run off the queue before its turn; False if it is not queued."""
        for one in await self._inbox.waiting(SOURCE, thread_id):
            if one.source_id == run_id:
                return await self._inbox.withdraw(one, now=self._clock())
        return False

    async def discard(self, thread_id: str, run_id: str) -> None:
        """Forget a run, whether it is queued or was withdrawn."""
        for one in await self._inbox.waiting(SOURCE, thread_id):
            if one.source_id == run_id:
                await self._inbox.discard(one, now=self._clock())

    def running(self) -> AbstractAsyncContextManager[None]:
        """Inside the block runs are started when their turn comes."""
        return self._loop.running()

    async def _work(self, held: Conversation) -> None:
        """Start the first run of the queue of a thread that does not run, and check again."""
        thread_id = held.thread_id or ""
        while True:
            incoming = await self._conversations.first(held)
            if incoming is None:
                await self._conversations.release(held, seen_seq=0, is_idle=True)
                return
            request = _request(incoming)
            wait = (request.not_before - self._clock()) if request.not_before else timedelta()
            if wait > timedelta():
                await self._conversations.snooze(held, wait=wait)
                return
            try:
                thread = await self._store.get(thread_id)
                if thread.status is Status.RUNNING:
                    await self._conversations.release(held, seen_seq=thread.last_seq, is_idle=False)
                    return
                await self._start(thread, request, incoming)
            except (InvalidState, AlreadyDone):
                continue  # another run was started first, or this one was withdrawn
            except NotFound:
                await self._inbox.discard(incoming, now=self._clock())

    async def _start(self, thread: Thread, request: RunRequest, incoming: Incoming) -> None:
        if not request.resumes:
            await self._commands.start_run(thread.id, request, Admits(incoming), is_queued=True)
        elif answers_pending(thread, request.resume):
            await self._commands.resume_run(thread.id, request.resume, request, Admits(incoming))
        else:
            # The thread asks something else now than when the answer was given.
            await self._inbox.withdraw(incoming, now=self._clock())


def _request(incoming: Incoming) -> RunRequest:
    return _REQUEST.validate_python(incoming.payload)


def _queued_run(thread_id: str, request: RunRequest, *, withdrawn_at: datetime | None = None) -> Run:
    return Run(
        thread_id=thread_id,
        spec=request.spec,
        input=request.input,
        status=RunStatus.PENDING if withdrawn_at is None else RunStatus.INTERRUPTED,
        created_at=request.asked_at,
        updated_at=withdrawn_at or request.asked_at,
    )
