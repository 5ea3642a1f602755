"""Stream parts of runs: handed to readers in this process at once, and through the database to readers elsewhere."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Generator
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
# An attempt publishes fewer parts than this, so that numbers grow from one attempt to the next.
PARTS = 10_000_000
# What one follower may be behind, and what is kept of one attempt.
BEHIND_BYTES = 16 * 2**20
KEPT_BYTES = 32 * 2**20


class PartWriter:
    """Publishes the stream parts of one attempt at a run in this process."""

    def __init__(self, hub: "LocalStreamParts", thread_id: str, spec: RunSpec, attempt: int) -> None:
        self._hub = hub
        self.thread_id = thread_id
        self.spec = spec
        self._number = attempt * PARTS
        self._bytes = 0
        self.unkept: list[StreamPart] = []
        self._later: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    def __call__(self, name: str, data: bytes) -> None:
        self._number += 1
        chunk = StreamPart(self._number, name, data)
        followers = self._hub.followers(self.spec.run_id)
        for follower in followers:
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
        rows: StreamPartStore,
        subscription: Subscription,
        thread_id: str,
        run_id: str,
        is_here: Callable[[], bool],
    ) -> None:
        self._rows = rows
        self._bell = subscription
        self._thread_id = thread_id
        self._run_id = run_id
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
        if self._is_behind or (not self._queue and not self._is_here()):
            page = await self._rows.after(self._thread_id, self._run_id, self._last)
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

    def begin(self, thread_id: str, spec: RunSpec, *, attempt: int) -> Callable[[str, bytes], None]:
        telling = self._told[spec.run_id] = PartWriter(self, thread_id, spec, attempt)
        return telling

    async def flush(self, run_id: str) -> None:
        if (telling := self._told.get(run_id)) is not None:
            await telling.flush()

    def end(self, run_id: str) -> None:
        self._told.pop(run_id, None)

    def followers(self, run_id: str) -> set[LocalPartReader]:
        return self._followers.get(run_id, set())

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
        with self._notifier.subscribe(thread_id) as subscription:
            follower = LocalPartReader(
                self._rows, subscription, thread_id, run_id, lambda: run_id in self._told
            )
            if after is not None:
                telling = self._told.get(run_id)
                follower.look_back(after, [] if telling is None else telling.unkept)
            self._followers[run_id].add(follower)
            try:
                yield follower
            finally:
                self._followers[run_id].discard(follower)
                if not self._followers[run_id]:
                    del self._followers[run_id]
