"""Stream parts of runs: handed to readers in this process at once, and through the database to readers elsewhere."""

import asyncio
import logging
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

from clew.domain.errors import ClewError, NotFound, Unavailable
from clew.domain.events import RunSpec
from clew.domain.records import StreamPart
from clew.ports.clock import Clock
from clew.ports.notifier import Notifier, Subscription
from clew.ports.streams import StreamPartStore

logger = logging.getLogger(__name__)

# After a pause the first part is written at once; parts within so many seconds after it are written together.
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
# How often a process with runs reads which threads have readers elsewhere, where no notification says so.
LOOK_SECONDS = 0.5
# What was published so lately is kept for a reader elsewhere of which this process learns only now.
RECENT_SECONDS = 2.0
RECENT_BYTES = 2**20
# A process says for so long that it reads a thread, and says it again well before.
ANNOUNCED = timedelta(seconds=15)
ANNOUNCE_SECONDS = 5.0
# A client that ordered the run waits so long before it says so: most runs begin in its own process.
PATIENCE = 0.3


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
        self._recent: deque[tuple[float, StreamPart]] = deque()
        self._recent_bytes = 0
        self._kept_at = 0.0
        self.is_shared = spec.is_resumable
        self.is_looked_up = False  # whether the thread's readers elsewhere were read since the attempt began

    def __call__(self, name: str, data: bytes) -> None:
        self.number += 1
        chunk = StreamPart(self.number, name, data, self.spec.run_id)
        followers = self._hub.followers(self.spec.run_id)
        for follower in (*followers, *self._hub.thread_followers(self.thread_id)):
            follower.hear(chunk)
        # The run is followed, but not in this process: then a client of another process follows it.
        if self.is_shared or (self.spec.is_followed and not followers):
            self._keep(chunk)
        else:
            self._remember(chunk)

    def share(self) -> None:
        """A client of another process reads the thread: keep what was published lately, and all that follows."""
        if self.is_shared:
            return
        self.is_shared = True
        for _, chunk in self._recent:
            self._keep(chunk)
        self._recent.clear()

    def _remember(self, chunk: StreamPart) -> None:
        now = asyncio.get_running_loop().time()
        self._recent.append((now, chunk))
        self._recent_bytes += len(chunk.data)
        # Before the first look any of them may be awaited elsewhere.
        most, oldest = (RECENT_BYTES, now - RECENT_SECONDS) if self.is_looked_up else (KEPT_BYTES, 0.0)
        while self._recent and (self._recent_bytes > most or self._recent[0][0] < oldest):
            self._recent_bytes -= len(self._recent.popleft()[1].data)

    @property
    def has_recent(self) -> bool:
        return bool(self._recent)

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
            loop = asyncio.get_running_loop()
            self._later = loop.call_at(max(loop.time(), self._kept_at + SOON), self._begin)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._keeping is None and self.unkept:
            self._kept_at = asyncio.get_running_loop().time()
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
        thread_id: str,
        read: Callable[[int], Awaitable[Sequence[StreamPart]]],
        subscription: Subscription,
        is_here: Callable[[], bool],
        announce: Callable[[], Awaitable[None]],
        patience: float,
    ) -> None:
        """`announce` tells other processes that the thread is read here; it is called after `patience` seconds."""
        self.thread_id = thread_id
        self._announce = announce
        self._patience: float | None = patience
        self._read = read
        self._bell = subscription
        self._is_here = is_here
        self._queue: deque[StreamPart] = deque()
        self._page: deque[StreamPart] = deque()  # from the database: these come first
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
        if self._patience == 0:
            await self._say_so()
        found = await self._found()
        if found is None and self._patience is not None and self._patience < seconds:
            await self._wait(self._patience)
            seconds -= self._patience
            found = await self._found()
            if found is None:
                await self._say_so()
        if found is None:
            await self._wait(seconds)
            found = await self._found()
        return found

    async def _say_so(self) -> None:
        """Once: the hub repeats it for as long as there is a reader."""
        self._patience = None
        if not self._is_here():
            await self._announce()

    async def _found(self) -> StreamPart | None:
        if self._bytes > BEHIND_BYTES:
            raise Unavailable("this client reads too slowly for the stream")
        while True:
            if not self._page and (self._is_behind or self._may_have_missed()):
                self._page.extend(await self._read(self._last))
                self._is_behind = bool(self._page)
            if self._page:
                chunk = self._page.popleft()
            elif self._queue:
                chunk = self._queue.popleft()
                self._bytes -= len(chunk.data)
            else:
                return None
            if chunk.number > self._last:
                self._last = chunk.number
                return chunk

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
    def __init__(self, rows: StreamPartStore, notifier: Notifier, clock: Clock, *, process: str) -> None:
        """`process` is this process's name among those that share the database."""
        self._process = process
        self._looks = asyncio.Event()
        self._announced: dict[str, float] = {}  # threads read here, and when that was last said
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
        self._looks.set()
        return telling

    async def flush(self, run_id: str, *, at_end: bool = False) -> None:
        if (telling := self._told.get(run_id)) is None:
            return
        # Before the first checkpoint, too: after a kill its node does not run again and publishes nothing again.
        if telling.has_recent and (at_end or not telling.is_looked_up):
            await self._look()
        await telling.flush()

    @asynccontextmanager
    async def sharing(self) -> AsyncGenerator[None]:
        """Inside the block, parts reach readers in other processes, and theirs reach readers here."""
        looking = asyncio.create_task(self._look_forever())
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    def check(self, thread_id: str) -> None:
        """Another process says something of this thread, perhaps that it is read there."""
        if thread_id in self._told_threads:
            self._looks.set()

    async def _look_forever(self) -> None:
        while True:
            is_busy = bool(self._told or self._announced)
            try:
                async with asyncio.timeout(LOOK_SECONDS if is_busy else None):
                    await self._looks.wait()
                # Once for all that begin in this moment; those that are over by then have looked at their end.
                await asyncio.sleep(SOON)
            except TimeoutError:
                pass
            self._looks.clear()
            await self._look()
            await self._announce_again()

    async def _look(self) -> None:
        """Keep the parts of runs whose threads are read elsewhere."""
        if all(telling.is_shared for telling in self._told.values()):
            return
        here = [*self._told.values()]
        try:
            read = set(await self._rows.read_elsewhere(self._process))
        except ClewError as exc:
            logger.warning("cannot look for readers in other processes", extra={"code": exc.code})
            return
        for telling in here:
            telling.is_looked_up = True
            if telling.thread_id in read:
                telling.share()

    async def _announce(self, thread_id: str) -> None:
        is_new = thread_id not in self._announced
        self._announced[thread_id] = asyncio.get_running_loop().time()
        try:
            await self._rows.announce(self._process, [thread_id], until=ANNOUNCED)
        except ClewError as exc:
            self._announced[thread_id] = 0.0  # soon again
            logger.warning("cannot announce a reader to other processes", extra={"code": exc.code})
        if is_new:
            self._notifier.publish(thread_id, goes_on=True)
        self._looks.set()

    async def _announce_again(self) -> None:
        now = asyncio.get_running_loop().time()
        read = {
            *self._thread_followers,
            *(follower.thread_id for each in self._followers.values() for follower in each),
        }
        self._announced = {one: at for one, at in self._announced.items() if one in read}
        due = [one for one, at in self._announced.items() if now - at >= ANNOUNCE_SECONDS]
        if not due:
            return
        try:
            await self._rows.announce(self._process, due, until=ANNOUNCED)
        except ClewError as exc:
            logger.warning("cannot announce readers to other processes", extra={"code": exc.code})
        else:
            self._announced.update(dict.fromkeys(due, now))

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
            follower = LocalPartReader(
                thread_id,
                read,
                subscription,
                lambda: run_id in self._told,
                lambda: self._announce(thread_id),
                PATIENCE,
            )
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
            follower = LocalPartReader(
                thread_id,
                read,
                subscription,
                lambda: thread_id in self._told_threads,
                lambda: self._announce(thread_id),
                0,
            )
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
