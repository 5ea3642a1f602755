"""Writes the events of one run, in order, under its fence; what waits together is committed together."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from clew.domain import lifecycle
from clew.domain.errors import ClewError, Conflict, LostLease
from clew.domain.events import Body
from clew.domain.thread import Thread
from clew.ports import Bus, Store

# What nobody waits for is written after so many seconds, with whatever comes until then: most nodes are quicker.
SOON = 0.01


@dataclass(slots=True, eq=False)
class Waiting:
    bodies: tuple[Body, ...]
    done: "asyncio.Future[None] | None"


class Recorder:
    """One run's pen. Once a commit is refused for good, everything after it is refused the same way."""

    def __init__(
        self,
        thread: Thread,
        *,
        fence: int,
        store: Store,
        bus: Bus,
        stamp: Callable[[], lifecycle.Stamp],
    ) -> None:
        self.thread = thread
        self.refusal: ClewError | None = None
        self._fence = fence
        self._store = store
        self._bus = bus
        self._stamp = stamp
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None

    async def record(self, *bodies: Body) -> None:
        """Durable on return."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._add(Waiting(bodies, done))
        self._begin()
        await done

    def note(self, *bodies: Body) -> None:
        """Durable soon, and before anything recorded later."""
        self._add(Waiting(bodies, None))
        if self._writing is None and self._later is None:
            self._later = asyncio.get_running_loop().call_later(SOON, self._begin)

    async def flush(self) -> None:
        """Wait until everything said so far is durable. Raises what refused it."""
        if self._waiting:
            self._begin()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self.refusal is not None:
            raise self.refusal

    def _add(self, waiting: Waiting) -> None:
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
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                try:
                    await self._commit([body for waiting in batch for body in waiting.bodies])
                except ClewError as exc:
                    self.refusal = exc
                    batch += self._waiting
                    self._waiting = []
                    for waiting in batch:
                        if waiting.done is not None and not waiting.done.done():
                            waiting.done.set_exception(exc)
                    return
                for waiting in batch:
                    if waiting.done is not None and not waiting.done.done():
                        waiting.done.set_result(None)
        finally:
            self._writing = None

    async def _commit(self, bodies: list[Body]) -> None:
        while True:
            change = lifecycle.record(self.thread, bodies, stamp=self._stamp())
            try:
                await self._store.commit(change, fence=self._fence)
            except LostLease:
                raise
            except Conflict:
                # Somebody wrote to the thread beside us and left it ours: decide again on what is there now.
                self.thread = await self._store.get(self.thread.id)
            else:
                self.thread = change.thread
                self._bus.publish(self.thread.id, change.read_at)
                return
