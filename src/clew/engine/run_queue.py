"""Runs that wait for their turn: begun in order as their threads come to rest, by whichever process gets to it."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from clew.domain.errors import AlreadyDone, ClewError, InvalidState, LostLease, NotFound, Unavailable
from clew.domain.events import RunSpec
from clew.domain.records import Conversation, Incoming, RunScope
from clew.domain.runs import SOURCE, Run, RunStatus, answers_pending
from clew.domain.thread import Json, Status, Thread
from clew.engine.commands import Commands, Request
from clew.engine.leased_loop import LeasedLoop
from clew.ports.channels import Conversations
from clew.ports.clock import Clock
from clew.ports.inbox import Inbox
from clew.ports.notifier import Notifier
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

CONCURRENCY = 16
# When we failed ourselves and nobody knows for how long.
TROUBLE = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedRun:
    """A run that waits, with all it takes to begin it."""

    spec: RunSpec
    input: Json
    message: Json
    user_id: str
    at: datetime
    not_before: datetime | None = None
    resumes: bool = False
    resume: Json = None


_QUEUED = TypeAdapter(QueuedRun)


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
    ) -> None:
        self._inbox = inbox
        self._conversations = conversations
        self._store = store
        self._commands = commands
        self._clock = clock
        self._visits = LeasedLoop(
            self._visit,
            sources=(SOURCE,),
            conversations=conversations,
            notifier=notifier,
            new_id=new_id,
            stopping=stopping,
            poll_seconds=poll_seconds,
            lease=lease,
            concurrency=CONCURRENCY,
        )

    async def put(self, thread_id: str, queued: QueuedRun) -> Run:
        """Raises NotFound if the thread was deleted."""
        run_id = queued.spec.run_id
        # One that is for later must not hold up what comes after it, so it waits by itself.
        key = thread_id if queued.not_before is None else f"{thread_id}/{run_id}"
        payload = _QUEUED.dump_python(queued, mode="json")
        incoming = Incoming(
            source=SOURCE,
            source_id=run_id,
            fingerprint=run_id,
            payload=payload,
            conversation=key,
            thread_id=thread_id,
        )
        await self._inbox.admit(incoming, now=self._clock(), is_opened=True)
        self._visits.wake()
        return waiting_run(thread_id, queued)

    async def of(self, thread_id: str) -> list[Run]:
        """What waits for the thread, in order; and what was withdrawn, for as long as that is remembered."""
        return [
            waiting_run(thread_id, queued_from(one), withdrawn_at=one.withdrawn_at)
            for one in await self._inbox.waiting(SOURCE, thread_id)
        ]

    async def is_awaited(self, thread_id: str) -> bool:
        """Whether runs wait for the thread to come to rest. Those that are for later do not."""
        return any(
            one.withdrawn_at is None and one.conversation == thread_id
            for one in await self._inbox.waiting(SOURCE, thread_id)
        )

    async def withdraw(self, thread_id: str, run_id: str) -> bool:
        """Take a run off the queue before its turn; False if it does not wait."""
        for one in await self._inbox.waiting(SOURCE, thread_id):
            if one.source_id == run_id:
                return await self._inbox.withdraw(one, now=self._clock())
        return False

    async def forget(self, thread_id: str, run_id: str) -> None:
        """Tell of it no more, whether it waits or was withdrawn."""
        for one in await self._inbox.waiting(SOURCE, thread_id):
            if one.source_id == run_id:
                await self._inbox.settle(one, now=self._clock())

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Inside the block runs are begun when their turn comes."""
        return self._visits.going_on()

    async def _visit(self, held: Conversation) -> None:
        extra = {"source": held.source, "thread_id": held.thread_id}
        try:
            await self._begin_next(held)
        except (LostLease, Unavailable) as exc:
            logger.info("a run is left for later", extra={**extra, "code": exc.code})
        except Exception:
            logger.exception("a run cannot be begun", extra=extra)
            with suppress(ClewError):
                await self._conversations.put_off(held, wait=TROUBLE)

    async def _begin_next(self, held: Conversation) -> None:
        thread_id = held.thread_id or ""
        while True:
            incoming = await self._conversations.first(held)
            if incoming is None:
                await self._conversations.rest(held, seen_seq=0, is_idle=True)
                return
            queued = queued_from(incoming)
            wait = (queued.not_before - self._clock()) if queued.not_before else timedelta()
            if wait > timedelta():
                await self._conversations.put_off(held, wait=wait)
                return
            try:
                thread = await self._store.get(thread_id)
                if thread.status is Status.RUNNING:
                    await self._conversations.rest(held, seen_seq=thread.last_seq, is_idle=False)
                    return
                await self._carry_out(thread, queued, incoming)
            except (InvalidState, AlreadyDone):
                continue  # somebody else's run came first, or this one was withdrawn
            except NotFound:
                await self._inbox.settle(incoming, now=self._clock())

    async def _carry_out(self, thread: Thread, queued: QueuedRun, incoming: Incoming) -> None:
        scope = RunScope(user_id=queued.user_id, is_system=False)
        if not queued.resumes:
            request = Request(message=queued.message, graph_input=queued.input)
            await self._commands.carry_out(
                thread.id, None, queued.spec, request, admits=incoming, scope=scope
            )
        elif answers_pending(thread, queued.resume):
            await self._commands.answer_all(
                thread.id, None, queued.resume, queued.spec, by=scope.user_id, admits=incoming
            )
        else:
            # What the thread asks now was not asked yet when the answer was given: it is no answer to that.
            await self._inbox.withdraw(incoming, now=self._clock())


def queued_from(incoming: Incoming) -> QueuedRun:
    return _QUEUED.validate_python(incoming.payload)


def waiting_run(thread_id: str, queued: QueuedRun, *, withdrawn_at: datetime | None = None) -> Run:
    return Run(
        thread_id=thread_id,
        spec=queued.spec,
        input=queued.input,
        status=RunStatus.PENDING if withdrawn_at is None else RunStatus.INTERRUPTED,
        created_at=queued.at,
        updated_at=withdrawn_at or queued.at,
    )
