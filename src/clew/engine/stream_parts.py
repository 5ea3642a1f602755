"""Stream parts of runs: handed to readers in this process at once, and through the database to readers elsewhere."""

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from clew.domain.errors import ClewError, NotFound, Unavailable
from clew.domain.events import RunSpec
from clew.domain.records import StreamPart
from clew.ports.clock import Clock
from clew.ports.notifier import Notifier, Subscription
from clew.ports.streams import StreamPartStore

logger = logging.getLogger(__name__)

# Parts published within so many seconds are written together.
SOON = 0.025
# The parts of the attempts under one fence have numbers within a range of this size: numbers grow within a thread.
PARTS = 10_000_000
# Where in that range the end of a run is, and updates of the state by hand.
ENDS = 8_000_000
UPDATES = 9_000_000
STATE_UPDATE = "state_update"
# Of so many threads the last number is known here, so that a second attempt under the same fence goes on from it.
KNOWN = 10_000
# What one follower may be behind, and what is kept of one attempt.
BEHIND_BYTES = 16 * 2**20
KEPT_BYTES = 32 * 2**20


class PartWriter:
    """Publishes the stream parts of one attempt at a run in this process."""

    def __init__(self, hub: "LocalStreamParts", thread_id: str, spec: RunSpec, attempt: int) -> None:
        self._hub = hub
        self.thread_id = thread_id
        self.spec = spec
        last = hub.last_number(thread_id)
        self.number = last if last // PARTS == attempt else attempt * PARTS
        self._bytes = 0
        self.unkept: list[StreamPart] = []
        self._later: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    def __call__(self, name: str, data: bytes) -> None:
        self.number += 1
        chunk = StreamPart(self.number, name, data, self.spec.run_id)
        followers = self._hub.followers(self.spec.run_id)
        for follower in (*followers, *self._hub.thread_followers(self.thread_id)):
            follower.hear(chunk)
        # The run is followed, but not in this process: then a client of another process follows it.
        if self.spec.is_resumable or (self.spec.is_followed and not followers):
            self._keep(chunk)

    async def flush(self) -> None:
        self._begin()
        while self._keeping is not None:
            await asyncio.shield(self._keeping)

    def _keep(self, chunk: StreamPart) -> None:
        self._bytes += len(chunk.data)
        if self._bytes > KEPT_BYTES:
            return
        self.unkept.append(chunk)
        if self._later is None and self._keeping is None:
            self._later = asyncio.get_running_loop().call_later(SOON, self._begin)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._keeping is None and self.unkept:
            self._keeping = asyncio.create_task(self._write())

    async def _write(self) -> None:
        try:
            while some := [*self.unkept]:
                await self._hub.keep(self.thread_id, self.spec.run_id, some)
                del self.unkept[: len(some)]
        finally:
            self._keeping = None


class LocalPartReader:
    """Parts on their way to one client."""

    def __init__(
        self,
        read: Callable[[int], Awaitable[Sequence[StreamPart]]],
        subscription: Subscription,
        is_here: Callable[[], bool],
    ) -> None:
        self._read = read
        self._bell = subscription
        self._is_here = is_here
        self._queue: deque[StreamPart] = deque()
        self._bytes = 0
        self._told = asyncio.Event()
        self._last = 0
        self._is_behind = False  # there may be parts in the database that come before those in the queue

    def look_back(self, after: int, unkept: list[StreamPart]) -> None:
        self._last = after
        self._is_behind = True
        for chunk in unkept:
            self.hear(chunk)

    def hear(self, chunk: StreamPart) -> None:
        self._bytes += len(chunk.data)
        self._queue.append(chunk)
        self._told.set()

    async def next(self, seconds: float) -> StreamPart | None:
        """Raises Unavailable when the client is too far behind: it may reconnect for the rest."""
        found = await self._found()
        if found is None:
            await self._wait(seconds)
            found = await self._found()
        return found

    async def _found(self) -> StreamPart | None:
        if self._bytes > BEHIND_BYTES:
            raise Unavailable("this client reads too slowly for the stream")
        if self._is_behind or self._may_have_missed():
            page = await self._read(self._last)
            self._is_behind = bool(page)
            self._queue.extendleft(reversed(page))
            self._bytes += sum(len(chunk.data) for chunk in page)
        while self._queue:
            chunk = self._queue.popleft()
            self._bytes -= len(chunk.data)
            if chunk.number > self._last:
                self._last = chunk.number
                return chunk
        return None

    def _may_have_missed(self) -> bool:
        """What ran elsewhere is in the database, also when it goes on here."""
        if not self._queue:
            return not self._is_here()
        return 0 < self._last // PARTS < self._queue[0].number // PARTS

    async def _wait(self, seconds: float) -> None:
        self._told.clear()
        waits = [asyncio.create_task(self._told.wait()), asyncio.create_task(self._bell.wait(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


class LocalStreamParts:
    def __init__(self, rows: StreamPartStore, notifier: Notifier, clock: Clock) -> None:
        self._rows = rows
        self._notifier = notifier
        self._clock = clock
        self._told: dict[str, PartWriter] = {}
        self._followers: defaultdict[str, set[LocalPartReader]] = defaultdict(set)
        self._thread_followers: defaultdict[str, set[LocalPartReader]] = defaultdict(set)
        self._told_threads: Counter[str] = Counter()
        self._last_numbers: OrderedDict[str, int] = OrderedDict()

    def begin(self, thread_id: str, spec: RunSpec, *, attempt: int) -> Callable[[str, bytes], None]:
        self.end(spec.run_id)
        telling = self._told[spec.run_id] = PartWriter(self, thread_id, spec, attempt)
        self._told_threads[thread_id] += 1
        return telling

    async def flush(self, run_id: str) -> None:
        if (telling := self._told.get(run_id)) is not None:
            await telling.flush()

    def end(self, run_id: str) -> None:
        if (telling := self._told.pop(run_id, None)) is None:
            return
        self._told_threads[telling.thread_id] -= 1
        if not self._told_threads[telling.thread_id]:
            del self._told_threads[telling.thread_id]
        self._last_numbers[telling.thread_id] = telling.number
        self._last_numbers.move_to_end(telling.thread_id)
        if len(self._last_numbers) > KNOWN:
            self._last_numbers.popitem(last=False)

    def last_number(self, thread_id: str) -> int:
        return self._last_numbers.get(thread_id, 0)

    def followers(self, run_id: str) -> set[LocalPartReader]:
        return self._followers.get(run_id, set())

    def thread_followers(self, thread_id: str) -> set[LocalPartReader]:
        return self._thread_followers.get(thread_id, set())

    async def newest(self, thread_id: str, up_to: int) -> StreamPart | None:
        return await self._rows.newest(thread_id, up_to)

    async def first(self, thread_id: str, run_id: str | None = None) -> int | None:
        return await self._rows.first(thread_id, run_id)

    async def tell_update(self, thread_id: str, *, fence: int) -> None:
        first = fence * PARTS + UPDATES
        last = await self._rows.newest(thread_id, first + PARTS - UPDATES - 1)
        number = first if last is None else max(first, last.number + 1)
        part = StreamPart(number, STATE_UPDATE, b"{}")
        await self.keep(thread_id, "", [part])
        for follower in self.thread_followers(thread_id):
            follower.hear(part)

    async def keep(self, thread_id: str, run_id: str, some: list[StreamPart]) -> None:
        """Parts that cannot be stored are lost: the log is what counts."""
        try:
            await self._rows.add(thread_id, run_id, some, now=self._clock())
        except NotFound:
            return
        except ClewError as exc:
            logger.warning(
                "stream parts of a run are not stored", extra={"thread_id": thread_id, "code": exc.code}
            )
            return
        self._notifier.publish(thread_id, goes_on=True)

    @contextmanager
    def follow(self, thread_id: str, run_id: str, *, after: int | None = None) -> Generator[LocalPartReader]:
        async def read(number: int) -> Sequence[StreamPart]:
            return await self._rows.after(thread_id, run_id, number)

        with self._notifier.subscribe(thread_id) as subscription:
            follower = LocalPartReader(read, subscription, lambda: run_id in self._told)
            if after is not None:
                telling = self._told.get(run_id)
                follower.look_back(after, [] if telling is None else telling.unkept)
            with _among(self._followers, run_id, follower):
                yield follower

    @contextmanager
    def follow_thread(self, thread_id: str, *, after: int) -> Generator[LocalPartReader]:
        async def read(number: int) -> Sequence[StreamPart]:
            return await self._rows.of_thread(thread_id, number)

        with self._notifier.subscribe(thread_id) as subscription:
            follower = LocalPartReader(read, subscription, lambda: thread_id in self._told_threads)
            here = [telling for telling in self._told.values() if telling.thread_id == thread_id]
            follower.look_back(after, [part for telling in here for part in telling.unkept])
            with _among(self._thread_followers, thread_id, follower):
                yield follower


@contextmanager
def _among(
    readers: defaultdict[str, set[LocalPartReader]], key: str, reader: LocalPartReader
) -> Generator[None]:
    readers[key].add(reader)
    try:
        yield
    finally:
        readers[key].discard(reader)
        if not readers[key]:
            del readers[key]
