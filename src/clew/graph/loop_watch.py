"""Event loop watch, from a thread: logs which node blocks the loop, and measures how late the loop is.

An `async def` node that computes or sleeps without `await` holds up everything else in its process. Leases are kept
meanwhile: the heartbeat has a thread of its own.
"""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from clew.graph.containment import node_of

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
BLOCKED_SECONDS = 2.0


@contextmanager
def watching_loop(
    late: Callable[[float], None], *, blocked_seconds: float = BLOCKED_SECONDS
) -> Generator[None]:
    """For the running event loop, until the block ends. `late` is called each time with how many seconds late the loop was."""
    watch = _Watch(asyncio.get_running_loop(), threading.get_ident(), late, blocked_seconds)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class _Watch:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        loop_thread: int,
        late: Callable[[float], None],
        blocked_seconds: float,
    ) -> None:
        self._loop = loop
        self._loop_thread = loop_thread
        self._late = late
        self._blocked_seconds = blocked_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="clew-loop-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Does not wait: the thread may be about to ask the loop that this is called in."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with suppress(RuntimeError):  # the loop is closed
                self._look()

    def _look(self) -> None:
        answered = threading.Event()
        asked = time.monotonic()
        self._loop.call_soon_threadsafe(answered.set)
        if not answered.wait(self._blocked_seconds):
            described = self._described()
            logger.warning(
                "event loop blocked: write blocking code as a plain `def` node, or await it in a thread",
                extra={**described, "seconds": self._blocked_seconds},
            )
            while not answered.wait(LOOK_SECONDS):
                if self._stopping.is_set():
                    return
            blocked = round(time.monotonic() - asked, 1)
            logger.warning("event loop free again", extra={**described, "seconds": blocked})
        self._late(time.monotonic() - asked)

    def _described(self) -> dict[str, Any]:
        """Which node of which thread runs, and where: the file and line of the innermost code that is not a library's."""
        frame = sys._current_frames().get(self._loop_thread)
        described: dict[str, Any] = {}
        while frame is not None:
            if "source" not in described and not _is_of_a_library(frame):
                described["source"] = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            if (found := node_of(frame)) is not None:
                return {**described, "thread_id": found[0], "stage": found[1]}
            frame = frame.f_back
        return described


def _is_of_a_library(frame: FrameType) -> bool:
    """Of an installed package, or of Python's own: not code of this project."""
    path = frame.f_code.co_filename
    return "site-packages" in path or path.startswith(("<", _PYTHON))


_PYTHON = str(Path(asyncio.__file__).parents[1])
