"""Deferred task writes: each waits a moment for the checkpoint of the step it ends, to be stored with it.

A step of one task ends with two writes, which follow each other at once: what the task returned, and the checkpoint that
takes it over. They share a transaction, which saves one of two. A task that others of its step outlive does not wait for
them: the moment is a few turns of the event loop.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from clew.checkpointer.deferred_inputs import Line
from clew.ports.checkpoints import TaskWrites

# Turns of the event loop from the writes of a step's last task to its checkpoint, and some more.
PATIENCE_TURNS = 12


@dataclass(frozen=True, slots=True, eq=False)
class DeferredWrites:
    line: Line
    writes: TaskWrites
    fence: int | None
    done: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def end(self, error: BaseException | None = None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
            self.done.exception()  # retrieved here too: the caller may be gone


class WritesInWaiting:
    """Writes that wait. They leave through `take`, or are committed: after some turns, or on request."""

    def __init__(self, commit: Callable[[DeferredWrites], Coroutine[Any, Any, None]]) -> None:
        self._commit = commit
        self._waiting: defaultdict[Line, list[DeferredWrites]] = defaultdict(list)
        self._committing: dict[DeferredWrites, asyncio.Task[None]] = {}

    def add(self, deferred: DeferredWrites) -> None:
        self._waiting[deferred.line].append(deferred)
        self._wait(deferred, PATIENCE_TURNS)

    def take(self, line: Line, checkpoint_id: str | None, fence: int | None) -> Sequence[DeferredWrites]:
        """What waits to be stored with the step on top of this checkpoint; now it is the caller's to commit and end."""
        here = self._waiting.get(line, ())
        taken = [one for one in here if (one.writes.checkpoint_id, one.fence) == (checkpoint_id, fence)]
        for one in taken:
            self._leave(one)
        return taken

    async def settle(self, thread_id: str | None = None) -> None:
        """Commit what waits for this thread, or for all, and wait for what is being committed."""
        if not self._waiting and not self._committing:
            return
        for line in [line for line in self._waiting if thread_id in (None, line[0])]:
            for deferred in [*self._waiting[line]]:
                self._start(deferred)
        for deferred, task in [*self._committing.items()]:
            if thread_id in (None, deferred.line[0]):
                await asyncio.wait((task,))

    def _wait(self, deferred: DeferredWrites, turns: int) -> None:
        if deferred not in self._waiting.get(deferred.line, ()):
            return
        if turns:
            asyncio.get_running_loop().call_soon(self._wait, deferred, turns - 1)
        else:
            self._start(deferred)

    def _leave(self, deferred: DeferredWrites) -> None:
        self._waiting[deferred.line].remove(deferred)
        if not self._waiting[deferred.line]:
            del self._waiting[deferred.line]

    def _start(self, deferred: DeferredWrites) -> None:
        self._leave(deferred)
        task = self._committing[deferred] = asyncio.create_task(self._ended(deferred))
        task.add_done_callback(lambda _: self._committing.pop(deferred))

    async def _ended(self, deferred: DeferredWrites) -> None:
        try:
            await self._commit(deferred)
        except BaseException as exc:
            deferred.end(exc)
            if isinstance(exc, Exception):
                return
            raise
        deferred.end()
