"""Sees to conversations: says in the chat what its thread has come to, and hands the thread what was said next.

All that is owed stands in the database: messages in the inbox, answers in the log, how far they were said in the
conversation's cursor. So whoever holds a conversation can go on where another died, in any process.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta

from clew.channels import replies
from clew.channels.admission import Admission
from clew.channels.bot import Bot
from clew.channels.files import ChatFiles, Received, lost
from clew.channels.message import ChatMessage, said_from
from clew.channels.phrases import Phrase, phrase
from clew.channels.replies import Outgoing
from clew.channels.wecom import read_customer
from clew.domain.errors import (
    AlreadyDone,
    ClewError,
    Conflict,
    Duplicate,
    Invalid,
    InvalidState,
    LostLease,
    NotFound,
    Permanent,
    Transient,
    Unavailable,
)
from clew.domain.records import Conversation, Incoming
from clew.domain.retry import ErrorClass, Retry, RetryPolicy, decide
from clew.domain.thread import Json, Status, Thread
from clew.engine.commands import Commands
from clew.engine.leased_loop import LeasedLoop
from clew.failpoints import failpoint
from clew.ports.channels import Conversations
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)

# So many chats are answered at once.
CONCURRENCY = 32
# For ten minutes or so. A provider that says when to come again is taken at its word.
PATIENCE = RetryPolicy(max_retries=10, base_delay=1.0, max_delay=300.0)
# When we failed ourselves and nobody knows for how long.
TROUBLE = timedelta(seconds=30)
# One visit takes at most so many messages, so that one chat does not keep a place for ever.
MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a chat was told its thread's log.

    All up to `seq`, and of the next thing to say, because of the event `of`, so many parts. `round` is the last one
    that began in this chat; `to` is where answers go. What came up to the number `asked` was said before the
    questions up to the event `asked_until` were, so it answers none of them.
    """

    seq: int = 0
    of: int = 0
    parts: int = 0
    round: int = 0
    asked: int = 0
    asked_until: int = 0
    to: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ChatLease:
    """A conversation while it is seen to."""

    held: Conversation
    bot: Bot
    cursor: Cursor


class ChatDispatcher:
    def __init__(
        self,
        *,
        bots: Mapping[str, Bot],
        conversations: Conversations,
        store: Store,
        commands: Commands,
        notifier: Notifier,
        admission: Callable[[Callable[[], None]], Admission],
        files: ChatFiles,
        new_id: Callable[[], str],
        metrics: Metrics,
        stopping: asyncio.Event,
        poll_seconds: float,
        lease: timedelta,
        policy: RetryPolicy = PATIENCE,
    ) -> None:
        self._bots = bots
        self._conversations = conversations
        self._store = store
        self._commands = commands
        self._files = files
        self._new_id = new_id
        self._metrics = metrics
        self._lease = lease
        self._policy = policy
        self._stopping = stopping
        self._visits = LeasedLoop(
            self._visit,
            sources=tuple(bots),
            conversations=conversations,
            notifier=notifier,
            new_id=new_id,
            stopping=stopping,
            poll_seconds=poll_seconds,
            lease=lease,
            concurrency=CONCURRENCY,
        )
        self.admission = admission(self._visits.wake)

    def attending(self) -> AbstractAsyncContextManager[None]:
        """Inside the block conversations are seen to. At its end a message that is being sent is not cut off."""
        return self._visits.going_on()

    async def _visit(self, held: Conversation) -> None:
        extra = {"source": held.source, "thread_id": held.thread_id}
        holding = asyncio.create_task(self._hold(held))
        try:
            if held.thread_id is None:
                await self._fetch(held)
            else:
                cursor = Cursor(**held.cursor) if held.cursor else Cursor()
                await self._see_to(ChatLease(held=held, bot=self._bots[held.source], cursor=cursor))
        except LostLease:
            logger.info("a conversation is seen to by someone else now", extra=extra)
        except Unavailable as exc:
            # The lease runs out by itself.
            logger.warning("a conversation is left for later", extra={**extra, "code": exc.code})
        except Exception:
            # Whatever it is, it is this conversation's; the others go on.
            logger.exception("a conversation cannot be seen to", extra=extra)
            with suppress(ClewError):
                await self._conversations.put_off(held, wait=TROUBLE)
        finally:
            holding.cancel()

    async def _hold(self, held: Conversation) -> None:
        """A provider may take its time; one that is lost is noticed with the next write."""
        while True:
            await asyncio.sleep(self._lease.total_seconds() / 3)
            with suppress(ClewError):
                await self._conversations.renew(held, lease=self._lease)

    async def _see_to(self, visit: ChatLease) -> None:
        """Tell and take in turns, until there is nothing more to tell and nothing that can be taken."""
        held = visit.held
        thread_id = held.thread_id or ""
        for _ in range(MOST):
            thread = await self._found(thread_id)
            if thread is not None and thread.status is Status.BLOCKED:
                await self._turn_to(visit, await self._conversations.first(held, after=visit.cursor.asked))
            if thread is not None and not await self._tell(visit, thread):
                return
            if self._stopping.is_set():
                break
            if thread is not None and thread.status in (Status.RUNNING, Status.PENDING):
                await self._rest(visit, thread)
                return
            is_asked = thread is not None and thread.status is Status.BLOCKED
            incoming = await self._conversations.first(held, after=visit.cursor.asked if is_asked else 0)
            if incoming is None:
                await self._rest(visit, thread)
                return
            if thread is not None and not is_asked and not visit.bot.leads(thread):
                # The bot was given to another tenant or graph since; a thread never changes either.
                await self._conversations.move(held, self._new_id())
                return
            try:
                took = await self._take(visit, thread, incoming)
            except NotFound:
                # Its thread was deleted, and cannot come back. The chat goes on in another.
                await self._conversations.move(held, self._new_id())
                return
            if took is None:
                return
            if not took:
                await self._rest(visit, thread)
                return
        await self._conversations.rest(held, seen_seq=-1, is_idle=False)

    async def _rest(self, visit: ChatLease, thread: Thread | None) -> None:
        is_idle = thread is None or thread.status not in (Status.RUNNING, Status.PENDING)
        seen = 0 if thread is None else thread.last_seq
        await self._conversations.rest(visit.held, seen_seq=seen, is_idle=is_idle)

    async def _found(self, thread_id: str) -> Thread | None:
        try:
            return await self._store.get(thread_id)
        except NotFound:
            return None

    async def _turn_to(self, visit: ChatLease, incoming: Incoming | None) -> None:
        """Answer where this came from: the place before may be good for nothing any more."""
        to = visit.cursor.to if incoming is None else said_from(incoming.payload).to
        if to != visit.cursor.to:
            await self._keep(visit, replace(visit.cursor, to=to), attempts=visit.held.attempts)

    # What is told

    async def _tell(self, visit: ChatLease, thread: Thread) -> bool:
        """Say what is owed, in order. False when that must wait: then it was let go."""
        events = await self._store.read(
            thread.id, after=visit.cursor.seq, before=thread.last_seq + 1, types=replies.TOLD
        )
        owed = replies.owed(
            thread,
            events,
            source=visit.held.source,
            known_round=visit.cursor.round,
            approvers=visit.bot.approvers,
        )
        for outgoing in owed:
            if self._stopping.is_set():
                return True
            before, attempts = visit.cursor, visit.held.attempts
            if outgoing.is_question and outgoing.seq > before.asked_until:
                # Before it is sent, or a quick answer would seem to have come first.
                last = await self._conversations.renew(visit.held, lease=self._lease)
                await self._keep(
                    visit, replace(before, asked=last, asked_until=thread.last_seq), attempts=attempts
                )
            try:
                await self._say(visit, outgoing)
            except (Transient, Permanent) as exc:
                if visit.cursor.asked_until > before.asked_until:
                    # Nobody has seen it. What is said until it is asked again must not answer it.
                    unasked = replace(visit.cursor, asked=before.asked, asked_until=before.asked_until)
                    await self._keep(visit, unasked, attempts=visit.held.attempts)
                if await self._put_off(visit.held, exc):
                    return False
                logger.warning(
                    "an answer could not be delivered, it stays in its thread",
                    extra={
                        "source": visit.held.source,
                        "thread_id": thread.id,
                        "round": outgoing.round,
                        "error_class": exc.error_class,
                        "attempt": visit.held.attempts + 1,
                    },
                )
                self._count(visit.held.source, "failed")
                if outgoing.is_question:
                    # It is asked once more when something comes, which waits until then.
                    await self._rest(visit, thread)
                    return False
            await self._keep(
                visit, replace(visit.cursor, seq=outgoing.seq, of=0, parts=0, round=outgoing.round)
            )
        return True

    async def _say(self, visit: ChatLease, outgoing: Outgoing) -> None:
        wire = visit.bot.wire
        parts = wire.parts(outgoing.text)
        done = visit.cursor.parts if visit.cursor.of == outgoing.seq else 0
        for number, part in enumerate(parts[done:], done + 1):
            is_last = number == len(parts)
            failpoint("answer_before_send")
            await wire.send(visit.cursor.to, part, outgoing.buttons if is_last else ())
            failpoint("answer_after_send")
            if not is_last:
                await self._keep(
                    visit, replace(visit.cursor, of=outgoing.seq, parts=number, round=outgoing.round)
                )
        self._count(visit.held.source, "sent")

    async def _keep(self, visit: ChatLease, cursor: Cursor, *, attempts: int = 0) -> None:
        visit.held = replace(visit.held, attempts=attempts)
        await self._conversations.keep(visit.held, asdict(cursor), lease=self._lease)
        visit.cursor = cursor

    async def _put_off(self, held: Conversation, exc: Transient | Permanent) -> bool:
        """Whether to try again, and then it was let go until that time."""
        if isinstance(exc, Permanent) or exc.error_class is None:
            return False
        verdict = decide(
            self._policy,
            ErrorClass(exc.error_class),
            held.attempts + 1,
            jitter=random.random() / 2,  # noqa: S311 - spreads a crowd
        )
        if not isinstance(verdict, Retry):
            return False
        # The provider's own wish is kept, however long: it is the database that waits.
        wait = max(verdict.seconds, exc.retry_after or 0.0)
        await self._conversations.put_off(held, wait=timedelta(seconds=wait))
        asyncio.get_running_loop().call_later(wait + 0.01, self._visits.wake)
        self._count(held.source, "retried")
        self._metrics.retries.labels(exc.error_class).inc()
        logger.info(
            "a provider is asked again later",
            extra={"source": held.source, "error_class": exc.error_class, "retry_seconds": round(wait, 3)},
        )
        return True

    # What is taken

    async def _take(self, visit: ChatLease, thread: Thread | None, incoming: Incoming) -> bool | None:
        """Hand it to the thread; False when it has to wait for the thread, None when the conversation was put off.

        Raises NotFound if the thread is gone for good.
        """
        said, bot = said_from(incoming.payload), visit.bot
        await self._turn_to(visit, incoming)
        try:
            is_asked = thread is not None and thread.status is Status.BLOCKED
            received = await self._receive(visit, incoming, said, is_asked=is_asked)
            if received is None:
                return None
            if not said.text.strip():
                if not received.files:
                    await self._settle(visit, incoming, said)
                    return True
                said = replace(said, text=", ".join(file.name for file in received.files))
            if thread is not None and is_asked:
                return await self._answer(visit, thread, incoming, said)
            if said.is_press and replies.is_button(said.text):
                await self._settle(visit, incoming, said)  # the question is over
                return True
            request, scope = bot.request(said, incoming.source_id, received.files), bot.scope(said)
            if thread is None:
                await self._commands.start(
                    bot.opening(said), request, admits=incoming, thread_id=visit.held.thread_id, scope=scope
                )
            else:
                await self._commands.next_round(thread.id, None, request, admits=incoming, scope=scope)
            await self._notice(visit, said)
        except (AlreadyDone, Conflict, InvalidState) as exc:
            if isinstance(exc, LostLease):
                raise
            # Somebody was faster: the next look tells what there is to do now.
        except Invalid as exc:
            # It would be so every time, and all that comes after would wait for it.
            logger.warning(
                "a message cannot be taken",
                extra={"source": incoming.source, "source_id": incoming.source_id, "code": exc.code},
            )
            await self._settle(visit, incoming, said)
        return True

    async def _receive(
        self, visit: ChatLease, incoming: Incoming, said: ChatMessage, *, is_asked: bool
    ) -> Received | None:
        """The files of a message, after the person was told which are none. None when the conversation was put off."""
        if not said.attachments:
            return Received()
        try:
            if is_asked:  # a question is answered in words
                received = Received(remarks=[phrase(Phrase.UNREADABLE, said.language)])
            else:
                received = await self._files.receive(visit.bot, incoming, said)
        except Transient as exc:
            if await self._put_off(visit.held, exc):
                return None
            received = lost(said)
        try:
            for remark in received.remarks:
                await visit.bot.wire.send(visit.cursor.to, remark)
        except (Transient, Permanent) as exc:
            if await self._put_off(visit.held, exc):
                return None
            logger.warning(
                "a remark was not delivered",
                extra={"source": visit.held.source, "error_class": exc.error_class},
            )
        return received

    async def _answer(self, visit: ChatLease, thread: Thread, incoming: Incoming, said: ChatMessage) -> bool:
        """Take what was said for the answer to what the thread asks."""
        approvers = visit.bot.approvers
        if said.is_press:
            press = replies.pressed(said.text, thread.pending)
            if press is None or replies.answerable(press[0], thread.pending[press[0]], approvers) is None:
                await self._settle(visit, incoming, said)
                return True
            await self._resolve(visit, thread, incoming, said, press[0], press[1], "")
            return True
        asked = replies.first_answerable(tuple(thread.pending.items()), approvers)
        if asked is None:
            return False
        call_id, how = asked
        if how == "text":
            await self._resolve(visit, thread, incoming, said, call_id, None, said.text)
            return True
        decided = replies.decision(said.text)
        if decided is None:
            await self._hint(visit)
            await self._settle(visit, incoming, said)
            return True
        await self._resolve(visit, thread, incoming, said, call_id, *decided)
        return True

    async def _resolve(
        self,
        visit: ChatLease,
        thread: Thread,
        incoming: Incoming,
        said: ChatMessage,
        call_id: str,
        approved: bool | None,
        words: str,
    ) -> None:
        answer: Json = words
        if approved is not None:
            answer = {"approved": approved} | ({"feedback": words} if words else {})
        await self._commands.resolve(
            thread.id,
            None,
            call_id,
            answer,
            approved=approved is not False,
            kind=thread.pending[call_id].kind,
            by=visit.bot.name_of(said),
            admits=incoming,
        )
        await self._notice(visit, said)

    async def _settle(self, visit: ChatLease, incoming: Incoming, said: ChatMessage) -> None:
        await self.admission.inbox.settle(incoming, now=self.admission.clock())
        await self._notice(visit, said)

    async def _hint(self, visit: ChatLease) -> None:
        """Best effort: the question itself was delivered, and stands in the chat."""
        try:
            await visit.bot.wire.send(visit.cursor.to, replies.YES_OR_NO)
        except (Transient, Permanent) as exc:
            logger.info("a hint was not delivered", extra={"source": visit.held.source, "code": exc.code})

    async def _notice(self, visit: ChatLease, said: ChatMessage) -> None:
        try:
            await visit.bot.wire.notice(said)
        except (Transient, Permanent) as exc:
            logger.info("a press was not acknowledged", extra={"source": visit.held.source, "code": exc.code})

    # What is fetched

    async def _fetch(self, held: Conversation) -> None:
        """Page after page of what customers wrote, each admitted before the cursor moves past it."""
        accounts = self._bots[held.source].accounts
        announced = await self._conversations.first(held)
        if accounts is None or announced is None:
            await self._conversations.rest(held, seen_seq=0, is_idle=True)
            return
        said = said_from(announced.payload)
        cursor = held.cursor["after"] if held.cursor else ""
        try:
            while True:
                page = await accounts.fetch(said.to["open_kfid"], cursor, said.text)
                for item in page.items:
                    with suppress(Duplicate):  # it was counted and logged; the others are worth reading
                        await self.admission.admit(held.source, read_customer(item))
                cursor = page.cursor
                held = replace(held, attempts=0)
                await self._conversations.keep(held, {"after": cursor}, lease=self._lease)
                if not page.has_more or self._stopping.is_set():
                    break
        except (Transient, Permanent) as exc:
            if await self._put_off(held, exc):
                return
            logger.warning(
                "messages of customers could not be fetched; the next event tries again",
                extra={"source": held.source, "error_class": exc.error_class},
            )
        if not self._stopping.is_set():
            await self.admission.inbox.settle(announced, now=self.admission.clock())
        await self._conversations.rest(held, seen_seq=-1, is_idle=False)

    def _count(self, source: str, outcome: str) -> None:
        self._metrics.chat_answers.labels(source.partition(":")[0], outcome).inc()
