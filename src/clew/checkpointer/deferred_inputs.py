"""Deferred input checkpoints: each waits for the step that takes the input over, to be stored with it.

A turn begins with two checkpoints: the input as it came, and the state after it was taken in. No node runs between
them, and the first is of no use without the second, so they share a transaction. It saves one of three commits.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

from clew.domain.errors import ClewError
from clew.ports.checkpoints import Superstep

logger = logging.getLogger(__name__)

# Taking an input in is a matter of microseconds. After this long something else happened to the run.
PATIENCE_SECONDS = 0.05

Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DeferredInput:
    """A step with all it was made of, should it have to be stored without its parent."""

    step: Superstep
    checkpoint: Checkpoint
    fence: int | None

    @property
    def line(self) -> Line:
        return self.step.checkpoint.thread_id, self.step.checkpoint.ns


def is_input(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> bool:
    """Whether LangGraph's own first node runs next, which always ends in another checkpoint or in an error."""
    return metadata.get("source") == "input" and "__start__" in (checkpoint.get("updated_channels") or ())


class DeferredInputs:
    """Input checkpoints that wait. Each leaves through `take`, or is committed: after a delay, or on request."""

    def __init__(self, commit: Callable[[list[DeferredInput]], Coroutine[Any, Any, None]]) -> None:
        self._commit = commit
        self._waiting: dict[Line, DeferredInput] = {}
        self._timers: dict[Line, asyncio.TimerHandle] = {}
        self._committing: dict[Line, asyncio.Task[None]] = {}

    def add(self, pending: DeferredInput) -> None:
        line = pending.line
        self._waiting[line] = pending
        self._timers[line] = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._start, line)

    async def take(self, line: Line) -> DeferredInput | None:
        """What waits on this line; now it is the caller's to commit. What is being committed already is waited for."""
        if (task := self._committing.get(line)) is not None:
            await asyncio.wait((task,))
        return self._pop(line)

    async def settle(self, thread_id: str | None = None) -> None:
        """Commit what waits for this thread, or for all, and wait for what is being committed."""
        if not self._waiting and not self._committing:
            return
        for line in [line for line in self._waiting if thread_id in (None, line[0])]:
            self._start(line)
        for line, task in list(self._committing.items()):
            if thread_id in (None, line[0]):
                await asyncio.wait((task,))

    def _pop(self, line: Line) -> DeferredInput | None:
        pending = self._waiting.pop(line, None)
        if pending is not None:
            self._timers.pop(line).cancel()
        return pending

    def _start(self, line: Line) -> None:
        pending = self._pop(line)
        if pending is not None:
            task = self._committing[line] = asyncio.create_task(self._commit([pending]))
            task.add_done_callback(lambda done: self._done(line, done))

    def _done(self, line: Line, task: asyncio.Task[None]) -> None:
        del self._committing[line]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its run is over, or will meet the same error with its next checkpoint.
            # What it says may quote what was to be stored, and that is private.
            name = error.code if isinstance(error, ClewError) else type(error).__name__
            logger.warning("an input checkpoint of thread %s was not stored: %s", line[0], name)
