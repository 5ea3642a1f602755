"""Recorder: writes the events of one run, in order, under its fence; what waits together is committed together."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from clew.domain import lifecycle
from clew.domain.errors import Conflict, LostLease, Unavailable
from clew.domain.events import Body
from clew.domain.thread import Status, Thread
from clew.ports.guards import Fence
from clew.ports.notifier import Notifier
from clew.ports.threads import Store

# What no caller waits for is written after so many seconds, with all that comes before: most nodes are quicker.
SOON = 0.05

# How long to wait before a store that was away is tried again, at first and at most.
SHORTEST_WAIT = 0.05
LONGEST_WAIT = 2.0
# No other writer conflicts this often: the store refuses for a reason that stays.
MOST_CONFLICTS = 100


@dataclass(slots=True, eq=False)
class PendingEvents:
    bodies: tuple[Body, ...]
    done: "asyncio.Future[None] | None"


class Recorder:
    """Appends to the log of one run's thread. Once a commit is refused for good, everything after it is refused, too.

    An unavailable store is waited for: what a tool did is known nowhere else.
    """

    def __init__(
        self,
        thread: Thread,
        *,
        fence: int,
        store: Store,
        notifier: Notifier,
        stamp: Callable[[], lifecycle.Stamp],
    ) -> None:
        self.thread = thread
        self.refusal: Exception | None = None
        self._fence = Fence(fence)
        self._store = store
        self._notifier = notifier
        self._stamp = stamp
        self._waiting: list[PendingEvents] = []
        self._writing: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._is_left = False

    async def record(self, *bodies: Body) -> None:
        """Durable on return."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(PendingEvents(bodies, done))
        self._begin()
        await done

    def note(self, *bodies: Body) -> None:
        """Durable soon, and before anything recorded later."""
        self._add(PendingEvents(bodies, None))
        if self._writing is None and self._later is None:
            self._later = asyncio.get_running_loop().call_later(SOON, self._begin)

    async def flush(self) -> None:
        """Wait until everything recorded so far is durable. Raises the error that refused it."""
        if self._waiting or self._writing is not None:
            await self.record()
        if self.refusal is not None:
            raise self.refusal

    def leave(self) -> None:
        """The run is over: what a caller waits for is still written, but no store is waited for any more."""
        self._is_left = True
        self._waiting = [waiting for waiting in self._waiting if waiting.done is not None]
        if self._later is not None:
            self._later.cancel()  # a caller that waits has begun the writing itself

    def _add(self, waiting: PendingEvents) -> None:
        if self.refusal is not None:
            raise self.refusal
        self._waiting.append(waiting)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        if self._writing is None:
            self._writing = asyncio.create_task(self._write())

    async def _write(self) -> None:
        batch: list[PendingEvents] = []
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                if bodies := [body for waiting in batch for body in waiting.bodies]:
                    await self._commit(bodies)
                for waiting in batch:
                    if waiting.done is not None and not waiting.done.done():
                        waiting.done.set_result(None)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the waiting callers get it
            self._refuse(batch, exc)
        except asyncio.CancelledError:
            self._refuse(batch, Unavailable("the run was given up before this was written"))
            raise
        finally:
            self._writing = None

    def _refuse(self, batch: list[PendingEvents], refusal: Exception) -> None:
        self.refusal = refusal
        batch, self._waiting = [*batch, *self._waiting], []
        for waiting in batch:
            if waiting.done is not None and not waiting.done.done():
                waiting.done.set_exception(refusal)

    async def _commit(self, bodies: list[Body]) -> None:
        change = lifecycle.record(self.thread, bodies, stamp=self._stamp())
        wait = SHORTEST_WAIT
        conflicts = 0
        while True:
            try:
                if change.read_at < self.thread.last_seq and await self._has(change):
                    break
                if change.read_at != self.thread.last_seq:
                    change = lifecycle.record(self.thread, bodies, stamp=self._stamp())
                await self._store.commit(change, self._fence)
                break
            except LostLease:
                raise
            except Conflict:
                # Another writer changed the thread and left it ours: decide again on what is there now.
                conflicts += 1
                if conflicts == MOST_CONFLICTS:
                    raise
            except Unavailable:
                if self._is_left:
                    raise
                # Perhaps it was written, and only the answer was lost: the thread says so once it can be read.
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            await self._look_again()
        self.thread = change.thread
        goes_on = self.thread.status is Status.RUNNING
        self._notifier.publish(self.thread.id, change.read_at, self.thread.last_seq, goes_on=goes_on)

    async def _look_again(self) -> None:
        with contextlib.suppress(Unavailable):  # the next attempt to write will raise the same
            self.thread = await self._store.get(self.thread.id)

    async def _has(self, change: lifecycle.Change) -> bool:
        """Whether the log goes on with this very change."""
        after = await self._store.read(self.thread.id, after=change.read_at, limit=1)
        return bool(after) and after[0].id == change.events[0].id
