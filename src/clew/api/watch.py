"""Watch: the events of many threads for one client, with its subscriptions and its position in each thread."""

import heapq
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from clew.api.streams import LiveEventOut
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import Corrupt, NotFound
from clew.domain.events import Event, Suspension
from clew.domain.thread import Owner, Status, Thread
from clew.domain.views import Token
from clew.failpoints import failpoint
from clew.ports.authorization import FilteredOwner
from clew.ports.notifier import Subscription
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

PAGE = 50
# Without a notification the open threads are read this often: one can be lost, or be published in another process.
LOOK_SECONDS = 10.0
# Events of two threads have no order but their times, and a commit may be overtaken: what is this much older than the
# last event a client saw may be new to it.
OVERTAKEN = timedelta(seconds=2)
# Threads a watch remembers its position in, and threads a backfill goes through.
PLACES = 10_000
BACKFILLED = 1000

OPEN = (Status.PENDING, Status.RUNNING, Status.BLOCKED)

Tell = Callable[[LiveEventOut], Awaitable[None]]


class Watch:
    """Sends the events of every thread of one owner, or of those subscribed to. Only threads of the owner are sent."""

    def __init__(
        self, store: Store, access: ThreadAccess, owner: Owner, subscribed: Iterable[str], tell: Tell
    ) -> None:
        self._store = store
        self._access = access
        self._owner = owner
        self._subscribed = set(subscribed)
        self._seen: set[str] = set()  # of those subscribed to, the ones that exist and belong to the owner
        self._tell = tell
        self._places: dict[str, int] = {}  # the last seq sent, by thread
        # Threads of which nothing was sent up to our position in them except these events.
        self._announced: dict[str, frozenset[int]] = {}
        self._grown: dict[str, int | None] = {}  # while open threads were announced
        self._open: set[str] = set()
        self._foreign: set[str] = set()
        self._damaged: set[str] = set()

    async def subscribe(self, thread_id: str) -> None:
        """Send its pending calls at once and its events from now on. Raises NotFound, and Corrupt if unreadable."""
        thread = await self._store.get(thread_id, self._owner)
        self._subscribed.add(thread_id)
        self._seen.add(thread_id)
        self.keep()
        await self._announce(thread)

    def unsubscribe(self, thread_id: str) -> None:
        """A client without subscriptions gets the events of all threads, as at the beginning."""
        self._subscribed.discard(thread_id)
        self._seen.discard(thread_id)

    def subscribe_all(self) -> None:
        self._subscribed.clear()
        self._seen.clear()

    def keep(self) -> None:
        """Record an access to the threads subscribed to. A client that gets all threads accesses none of them."""
        self._access.keep(self._seen)

    def wants(self, thread_id: str) -> bool:
        return not self._subscribed or thread_id in self._subscribed

    def wants_token(self, token: Token) -> bool:
        mine = token.owner.tenant == self._owner.tenant and self._owner.user_id in ("", token.owner.user_id)
        if isinstance(
            self._owner, FilteredOwner
        ):  # a token does not say what the filters ask for: its thread was read
            mine = mine and token.thread_id in self._places
        return mine and self.wants(token.thread_id)

    async def unknown(self) -> list[str]:
        """The threads subscribed to that do not exist."""
        unknown: list[str] = []
        for one in sorted(self._subscribed):
            with self._its_own_trouble(one):
                unknown += [one] if await self._find(one) is None else []
        return unknown

    async def announce(self, subscription: Subscription) -> None:
        """Send the calls that wait for an answer. Their events were sent earlier, to others or by another process.

        Threads notified meanwhile are left for later: their events are sent from the seq of the notification.
        """
        if self._subscribed:
            await self._announce_all(await self._find_subscribed(), subscription)
            return
        before: tuple[datetime, str] | None = None
        while len(self._places) < PLACES:
            page = await self._store.find(self._owner, status=OPEN, before=before, limit=PAGE)
            await self._announce_all(page, subscription)
            if len(page) < PAGE:
                return
            before = (page[-1].created_at, page[-1].id)

    async def backfill(self, thread_id: str, seq: int) -> int:
        """Send every event after that one, in order; returns how many. Raises NotFound if there is no such event."""
        since: datetime | None = None
        with self._its_own_trouble(thread_id):
            since = await self._time_of(thread_id, seq)
        if since is None:
            raise NotFound("no such event")
        starts = await self._starts(thread_id, seq, since - OVERTAKEN)
        for thread, after in starts:
            self._remember(
                thread, after
            )  # also where nothing is new: a notification of events the client has may still arrive
        count = 0
        async for thread, event in _merged([self._events(thread, after) for thread, after in starts]):
            await self._tell_event(thread, event)
            count += 1
        return count

    async def _time_of(self, thread_id: str, seq: int) -> datetime | None:
        thread = await self._store.get(thread_id, self._owner)
        if not seq:
            return thread.created_at
        found = await self._store.read(thread_id, after=seq - 1, limit=1)
        return found[0].at if found else None

    async def tell_on(self, subscription: Subscription) -> None:
        """Send new events, for ever."""
        grown, self._grown = self._grown, {}
        for thread_id, after in grown.items():
            await self._catch_up(thread_id, after)
        while True:
            rung = await subscription.wait(LOOK_SECONDS)
            for thread_id, after in subscription.rung().items():
                await self._catch_up(thread_id, after)
            if not rung:
                await self._look_around()

    async def _look_around(self) -> None:
        for thread_id in list(self._open):
            await self._catch_up(thread_id, None)
        if not self._subscribed:
            for thread in await self._store.find(self._owner, status=OPEN, limit=PAGE):
                await self._catch_up(thread.id, None)

    async def _catch_up(self, thread_id: str, after: int | None) -> None:
        """Send what is new in one thread; `after` is its seq before, for a thread without a position yet."""
        with self._its_own_trouble(thread_id):
            await self._tell_new(thread_id, after)

    async def _tell_new(self, thread_id: str, after: int | None) -> None:
        if thread_id in self._foreign and after is not None:
            return
        if not self.wants(thread_id):
            self._places.pop(thread_id, None)
            self._open.discard(thread_id)
            return
        announced = self._announced.pop(thread_id, None)
        if announced is not None and after is not None and after < self._places.get(thread_id, 0):
            # It grew just before it was announced, and the notification arrives only now.
            self._places[thread_id] = after
        while True:
            thread = await self._find(thread_id)
            if thread is None:
                await self._lost(thread_id)
                return
            start = self._places.get(thread_id, thread.round_seq - 1 if after is None else after)
            self._remember(thread, start)
            if start >= thread.last_seq:
                return
            for event in await self._page(thread, start):
                if event.seq in (announced or ()):
                    self._remember(thread, event.seq)
                else:
                    await self._tell_event(thread, event)

    async def _lost(self, thread_id: str) -> None:
        self._open.discard(thread_id)
        self._seen.discard(thread_id)
        if self._places.pop(thread_id, None) is not None:
            await self._tell(LiveEventOut.of_deleted(thread_id))
        elif len(self._foreign) < PLACES:
            # A thread's owner never changes. A soft-deleted thread is notified without a seq when it is restored.
            self._foreign.add(thread_id)

    @contextmanager
    def _its_own_trouble(self, thread_id: str) -> Generator[None]:
        """Skip a corrupt thread, and log it once; the other threads' events are still sent."""
        try:
            yield
        except Corrupt:
            self._open.discard(thread_id)
            if thread_id not in self._damaged and len(self._damaged) < PLACES:
                self._damaged.add(thread_id)
                logger.exception("a corrupt thread is skipped", extra={"thread_id": thread_id})

    async def _announce_all(self, threads: Iterable[Thread], subscription: Subscription) -> None:
        for thread in threads:
            self._grown = {**subscription.rung(), **self._grown}
            if thread.id not in self._grown:
                with self._its_own_trouble(thread.id):
                    self._announced[thread.id] = await self._announce(thread)

    async def _announce(self, thread: Thread) -> frozenset[int]:
        """Send the calls it waits for; returns the seqs of the events sent."""
        self._remember(thread, self._places.get(thread.id, thread.last_seq))
        if thread.status is not Status.BLOCKED:
            return frozenset()
        asked = await self._store.read(
            thread.id, after=thread.round_seq - 1, before=thread.last_seq + 1, types=(Suspension.type,)
        )
        newest = {event.body.call_id: event for event in asked if isinstance(event.body, Suspension)}
        waiting = [event for call_id, event in newest.items() if call_id in thread.pending]
        for event in waiting:
            await self._tell(LiveEventOut.of(thread, event))
        return frozenset(event.seq for event in waiting)

    async def _tell_event(self, thread: Thread, event: Event) -> None:
        failpoint("event_published_before_sse")
        await self._tell(LiveEventOut.of(thread, event))
        self._remember(thread, event.seq)

    def _remember(self, thread: Thread, seq: int) -> None:
        self._places.pop(thread.id, None)
        self._places[thread.id] = seq
        if len(self._places) > PLACES:
            # The least recently updated one: its next notification holds the seq it had.
            del self._places[next(iter(self._places))]
        if thread.status.is_terminal and seq >= thread.last_seq:
            self._open.discard(thread.id)
        elif len(self._open) < PLACES:
            self._open.add(thread.id)

    async def _starts(self, thread_id: str, seq: int, since: datetime) -> list[tuple[Thread, int]]:
        """The threads in which something may be new, and after which seq."""
        if self._subscribed:
            threads = await self._find_subscribed()
        else:
            threads = [*await self._store.find(self._owner, active_since=since, limit=BACKFILLED + 1)]
        if len(threads) > BACKFILLED:
            raise NotFound("too much has happened since")
        starts: list[tuple[Thread, int]] = []
        for thread in threads:
            after = thread.last_seq  # of a corrupt thread nothing is sent
            with self._its_own_trouble(thread.id):
                after = seq if thread.id == thread_id else await self._seq_at(thread, since)
            starts.append((thread, after))
        return starts

    async def _find_subscribed(self) -> list[Thread]:
        found: list[Thread] = []
        for one in sorted(self._subscribed):
            with self._its_own_trouble(one):
                found += [thread] if (thread := await self._find(one)) is not None else []
        return found

    async def _find(self, thread_id: str) -> Thread | None:
        try:
            thread = await self._store.get(thread_id, self._owner)
        except NotFound:
            return None
        if thread_id in self._subscribed:
            self._seen.add(thread_id)
        return thread

    async def _seq_at(self, thread: Thread, since: datetime) -> int:
        """The seq of the last event before that time, searched from the end: little is newer."""
        before = thread.last_seq + 1
        while before > 1:
            page = await self._store.read(thread.id, before=before, limit=PAGE)
            for event in reversed(page):
                if event.at < since:
                    return event.seq
            before = page[0].seq if page else 0
        return 0

    async def _events(self, thread: Thread, after: int) -> AsyncGenerator[tuple[Thread, Event], None]:
        while after < thread.last_seq:
            page: Sequence[Event] = ()
            with self._its_own_trouble(thread.id):
                page = await self._page(thread, after)
            if not page:
                return
            for event in page:
                yield thread, event
                after = event.seq

    async def _page(self, thread: Thread, after: int) -> Sequence[Event]:
        # Not beyond what we know of the thread: what it has hidden since would be shown.
        return await self._store.read(thread.id, after=after, before=thread.last_seq + 1, limit=PAGE)


async def _merged(
    logs: list[AsyncGenerator[tuple[Thread, Event], None]],
) -> AsyncGenerator[tuple[Thread, Event], None]:
    """Several logs as one, by time; each of them in its own order."""
    heads: list[tuple[datetime, int, tuple[Thread, Event]]] = []
    for number, log in enumerate(logs):
        if (first := await anext(log, None)) is not None:
            heads.append((first[1].at, number, first))
    heapq.heapify(heads)
    while heads:
        _, number, head = heads[0]
        yield head
        if (following := await anext(logs[number], None)) is None:
            heapq.heappop(heads)
        else:
            heapq.heapreplace(heads, (following[1].at, number, following))
