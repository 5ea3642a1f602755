"""Dispatch loop: sends a thread's new replies to its chat and starts the next round from queued messages.

All of it is in the database: messages in the inbox, replies in the log, how far they were sent in the conversation's
cursor. So the next worker that claims a conversation continues where another died, in any process.
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
    Conflict,
    Duplicate,
    Invalid,
    InvalidState,
    LostLease,
    NotFound,
    Permanent,
    Transient,
)
from clew.domain.questions import decision
from clew.domain.records import Conversation, Incoming
from clew.domain.retry import ErrorClass, Retry, RetryPolicy, decide
from clew.domain.thread import Json, Status, Thread
from clew.engine.commands import Commands
from clew.engine.leased_loop import ConversationJobs, LeasedLoop, about_conversation
from clew.failpoints import failpoint
from clew.ports.channels import Conversations
from clew.ports.guards import Admits
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)

# How many chats one process works on at once.
CONCURRENCY = 32
# About ten minutes in all. A provider's own Retry-After counts more.
PATIENCE = RetryPolicy(max_retries=10, base_delay=1.0, max_delay=300.0)
# At most so many messages of one chat at a time, so that it does not keep a slot for ever.
MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """How far a thread's log was sent to its chat.

    Everything up to `seq`, and of the next reply, which is for the event `of`, so many parts. `round` is the last one
    that was started in this chat; `to` is where replies go. Messages up to the number `asked` came before the
    questions up to the event `asked_until` were sent, so they answer none of them.
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
    """A conversation while this process has its lease."""

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
        self._loop = LeasedLoop(
            ConversationJobs(conversations=conversations, sources=tuple(bots), new_id=new_id),
            self._work,
            name="chats",
            about=about_conversation,
            lease=lease,
            concurrency=CONCURRENCY,
            poll_seconds=poll_seconds,
            notifier=notifier,
            stopping=stopping,
        )
        self.admission = admission(self._loop.wake)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Runs the dispatch loop inside the block. At its end a message that is being sent is completed."""
        return self._loop.running()

    async def _work(self, held: Conversation) -> None:
        if held.thread_id is None:
            await self._fetch(held)
        else:
            cursor = Cursor(**held.cursor) if held.cursor else Cursor()
            await self._dispatch(ChatLease(held=held, bot=self._bots[held.source], cursor=cursor))

    async def _dispatch(self, chat: ChatLease) -> None:
        """Send replies and accept messages in turns, until there are no more of either."""
        held = chat.held
        thread_id = held.thread_id or ""
        for _ in range(MOST):
            thread = await self._find(thread_id)
            if thread is not None and thread.status is Status.BLOCKED:
                await self._reply_to(chat, await self._conversations.first(held, after=chat.cursor.asked))
            if thread is not None and not await self._reply(chat, thread):
                return
            if self._stopping.is_set():
                break
            if thread is not None and thread.status in (Status.RUNNING, Status.PENDING):
                await self._release(chat, thread)
                return
            is_asked = thread is not None and thread.status is Status.BLOCKED
            incoming = await self._conversations.first(held, after=chat.cursor.asked if is_asked else 0)
            if incoming is None:
                await self._release(chat, thread)
                return
            if thread is not None and not is_asked and not chat.bot.leads(thread):
                # The bot's tenant or graph was changed since; a thread never changes either.
                await self._conversations.move(held, self._new_id())
                return
            try:
                took = await self._receive_message(chat, thread, incoming)
            except NotFound:
                # Its thread was deleted for good. The chat continues in a new one.
                await self._conversations.move(held, self._new_id())
                return
            if took is None:
                return
            if not took:
                await self._release(chat, thread)
                return
        await self._conversations.release(held, seen_seq=-1, is_idle=False)

    async def _release(self, chat: ChatLease, thread: Thread | None) -> None:
        is_idle = thread is None or thread.status not in (Status.RUNNING, Status.PENDING)
        seen = 0 if thread is None else thread.last_seq
        await self._conversations.release(chat.held, seen_seq=seen, is_idle=is_idle)

    async def _find(self, thread_id: str) -> Thread | None:
        try:
            return await self._store.get(thread_id)
        except NotFound:
            return None

    async def _reply_to(self, chat: ChatLease, incoming: Incoming | None) -> None:
        """Reply to where this message came from: the earlier address may have expired."""
        to = chat.cursor.to if incoming is None else said_from(incoming.payload).to
        if to != chat.cursor.to:
            await self._save(chat, replace(chat.cursor, to=to), attempts=chat.held.attempts)

    # Replies

    async def _reply(self, chat: ChatLease, thread: Thread) -> bool:
        """Send the replies that are owed, in order. False when they must wait: then the chat was snoozed or released."""
        events = await self._store.read(
            thread.id, after=chat.cursor.seq, before=thread.last_seq + 1, types=replies.TOLD
        )
        owed = replies.owed(
            thread,
            events,
            source=chat.held.source,
            known_round=chat.cursor.round,
            approvers=chat.bot.approvers,
        )
        for outgoing in owed:
            if self._stopping.is_set():
                return True
            before, attempts = chat.cursor, chat.held.attempts
            if outgoing.is_question and outgoing.seq > before.asked_until:
                # Before it is sent, or a quick answer would count as older than the question.
                last = await self._conversations.heartbeat(chat.held, lease=self._lease)
                await self._save(
                    chat, replace(before, asked=last, asked_until=thread.last_seq), attempts=attempts
                )
            try:
                await self._send(chat, outgoing)
            except (Transient, Permanent) as exc:
                if chat.cursor.asked_until > before.asked_until:
                    # It was not delivered. Messages that come before it is sent again must not answer it.
                    unasked = replace(chat.cursor, asked=before.asked, asked_until=before.asked_until)
                    await self._save(chat, unasked, attempts=chat.held.attempts)
                if await self._snooze(chat.held, exc):
                    return False
                logger.warning(
                    "an answer could not be delivered, it stays in its thread",
                    extra={
                        "source": chat.held.source,
                        "thread_id": thread.id,
                        "round": outgoing.round,
                        "error_class": exc.error_class,
                        "attempt": chat.held.attempts + 1,
                    },
                )
                self._count(chat.held.source, "failed")
                if outgoing.is_question:
                    # It is sent once more when a message comes, which waits until then.
                    await self._release(chat, thread)
                    return False
            await self._save(
                chat, replace(chat.cursor, seq=outgoing.seq, of=0, parts=0, round=outgoing.round)
            )
        return True

    async def _send(self, chat: ChatLease, outgoing: Outgoing) -> None:
        wire = chat.bot.wire
        parts = wire.parts(outgoing.text)
        done = chat.cursor.parts if chat.cursor.of == outgoing.seq else 0
        for number, part in enumerate(parts[done:], done + 1):
            is_last = number == len(parts)
            failpoint("answer_before_send")
            await wire.send(chat.cursor.to, part, outgoing.buttons if is_last else ())
            failpoint("answer_after_send")
            if not is_last:
                await self._save(
                    chat, replace(chat.cursor, of=outgoing.seq, parts=number, round=outgoing.round)
                )
        self._count(chat.held.source, "sent")

    async def _save(self, chat: ChatLease, cursor: Cursor, *, attempts: int = 0) -> None:
        chat.held = replace(chat.held, attempts=attempts)
        await self._conversations.save_cursor(chat.held, asdict(cursor), lease=self._lease)
        chat.cursor = cursor

    async def _snooze(self, held: Conversation, exc: Transient | Permanent) -> bool:
        """Whether to try again: then the chat was snoozed until that time."""
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
        # The provider's Retry-After is honoured, however long: the wait is in the database.
        wait = max(verdict.seconds, exc.retry_after or 0.0)
        await self._conversations.snooze(held, wait=timedelta(seconds=wait))
        asyncio.get_running_loop().call_later(wait + 0.01, self._loop.wake)
        self._count(held.source, "retried")
        self._metrics.retries.labels(exc.error_class).inc()
        logger.info(
            "a request to a provider is retried later",
            extra={"source": held.source, "error_class": exc.error_class, "retry_seconds": round(wait, 3)},
        )
        return True

    # Messages

    async def _receive_message(
        self, chat: ChatLease, thread: Thread | None, incoming: Incoming
    ) -> bool | None:
        """Hand a message to the thread; False when it has to wait for the thread, None when the chat was snoozed.

        Raises NotFound if the thread was deleted for good.
        """
        said, bot = said_from(incoming.payload), chat.bot
        await self._reply_to(chat, incoming)
        try:
            is_asked = thread is not None and thread.status is Status.BLOCKED
            received = await self._receive_files(chat, incoming, said, is_asked=is_asked)
            if received is None:
                return None
            if not said.text.strip():
                if not received.files:
                    await self._discard(chat, incoming, said)
                    return True
                said = replace(said, text=", ".join(file.name for file in received.files))
            if thread is not None and is_asked:
                return await self._answer(chat, thread, incoming, said)
            if said.is_press and replies.is_button(said.text):
                await self._discard(chat, incoming, said)  # the question is over
                return True
            request, scope = bot.request(said, incoming.source_id, received.files), bot.scope(said)
            if thread is None:
                await self._commands.start(
                    bot.opening(said), request, Admits(incoming), thread_id=chat.held.thread_id, scope=scope
                )
            else:
                await self._commands.next_round(thread.id, None, request, Admits(incoming), scope=scope)
            await self._notice(chat, said)
        except (AlreadyDone, Conflict, InvalidState) as exc:
            if isinstance(exc, LostLease):
                raise
            # Another worker or client was faster: the next turn reads the thread again.
        except Invalid as exc:
            # It would fail every time, and all later messages would wait for it.
            logger.warning(
                "a message cannot be accepted",
                extra={"source": incoming.source, "source_id": incoming.source_id, "code": exc.code},
            )
            await self._discard(chat, incoming, said)
        return True

    async def _receive_files(
        self, chat: ChatLease, incoming: Incoming, said: ChatMessage, *, is_asked: bool
    ) -> Received | None:
        """The files of a message; remarks on unreadable ones are sent. None when the chat was snoozed."""
        if not said.attachments:
            return Received()
        try:
            if is_asked:  # a question is answered in words
                received = Received(remarks=[phrase(Phrase.UNREADABLE, said.language)])
            else:
                received = await self._files.receive(chat.bot, incoming, said)
        except Transient as exc:
            if await self._snooze(chat.held, exc):
                return None
            received = lost(said)
        try:
            for remark in received.remarks:
                await chat.bot.wire.send(chat.cursor.to, remark)
        except (Transient, Permanent) as exc:
            if await self._snooze(chat.held, exc):
                return None
            logger.warning(
                "a remark was not delivered",
                extra={"source": chat.held.source, "error_class": exc.error_class},
            )
        return received

    async def _answer(self, chat: ChatLease, thread: Thread, incoming: Incoming, said: ChatMessage) -> bool:
        """Take the message as the answer to what the thread asks."""
        approvers = chat.bot.approvers
        if said.is_press:
            press = replies.pressed(said.text, thread.pending)
            if press is None or replies.answerable(press[0], thread.pending[press[0]], approvers) is None:
                await self._discard(chat, incoming, said)
                return True
            await self._resolve(chat, thread, incoming, said, press[0], press[1], "")
            return True
        asked = replies.first_answerable(tuple(thread.pending.items()), approvers)
        if asked is None:
            return False
        call_id, how = asked
        if how == "text":
            await self._resolve(chat, thread, incoming, said, call_id, None, said.text)
            return True
        decided = decision(said.text)
        if decided is None:
            await self._hint(chat)
            await self._discard(chat, incoming, said)
            return True
        await self._resolve(chat, thread, incoming, said, call_id, *decided)
        return True

    async def _resolve(
        self,
        chat: ChatLease,
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
            Admits(incoming),
            approved=approved is not False,
            kind=thread.pending[call_id].kind,
            by=chat.bot.name_of(said),
        )
        await self._notice(chat, said)

    async def _discard(self, chat: ChatLease, incoming: Incoming, said: ChatMessage) -> None:
        await self.admission.inbox.discard(incoming, now=self.admission.clock())
        await self._notice(chat, said)

    async def _hint(self, chat: ChatLease) -> None:
        """Best effort: the question itself was delivered to the chat."""
        try:
            await chat.bot.wire.send(chat.cursor.to, replies.YES_OR_NO)
        except (Transient, Permanent) as exc:
            logger.info("a hint was not delivered", extra={"source": chat.held.source, "code": exc.code})

    async def _notice(self, chat: ChatLease, said: ChatMessage) -> None:
        try:
            await chat.bot.wire.notice(said)
        except (Transient, Permanent) as exc:
            logger.info(
                "a button press was not acknowledged", extra={"source": chat.held.source, "code": exc.code}
            )

    # Accounts to fetch from

    async def _fetch(self, held: Conversation) -> None:
        """Page after page of what customers wrote, each admitted before the cursor moves past it."""
        accounts = self._bots[held.source].accounts
        announced = await self._conversations.first(held)
        if accounts is None or announced is None:
            await self._conversations.release(held, seen_seq=0, is_idle=True)
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
                await self._conversations.save_cursor(held, {"after": cursor}, lease=self._lease)
                if not page.has_more or self._stopping.is_set():
                    break
        except (Transient, Permanent) as exc:
            if await self._snooze(held, exc):
                return
            logger.warning(
                "messages of customers could not be fetched; the next event tries again",
                extra={"source": held.source, "error_class": exc.error_class},
            )
        if not self._stopping.is_set():
            await self.admission.inbox.discard(announced, now=self.admission.clock())
        await self._conversations.release(held, seen_seq=-1, is_idle=False)

    def _count(self, source: str, outcome: str) -> None:
        self._metrics.chat_answers.labels(source.partition(":")[0], outcome).inc()
