"""uvicorn's server with Clew's shutdown: it ends open streams, waits for the grace period, then closes the database."""

import asyncio
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn

logger = logging.getLogger(__name__)

# The time for closing the database after the grace period, before the process exits without it.
CLOSING_SECONDS = 3.0
STEP_SECONDS = 0.1


class ClewServer(uvicorn.Server):
    """The first SIGTERM or SIGINT starts the shutdown, the second one exits at once."""

    def __init__(self, config: uvicorn.Config, *, stop: Callable[[], None], grace: float) -> None:
        """`stop` ends the streams of the app."""
        super().__init__(config)
        self._stop = stop
        self._grace = grace
        # Set when it accepts connections, or cannot.
        self.listening = asyncio.Event()
        # Set when the app is closed. After that only an OS thread of a graph can keep the process alive.
        self.is_closed = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn would wait for an open stream for ever; this ends the streams.
        self._stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Replaces uvicorn's own, which raises a caught signal again and ends the process before the app is closed."""
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            # After a signal the handler stays, so that a second one exits at once; else the earlier handlers are restored.
            if not self.should_exit:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        if self.should_exit:
            # Nothing acknowledged is lost: that holds for kill -9, and so for this exit.
            os._exit(128 + sig)
        self.should_exit = True
        logger.info("stopping", extra={"signal": signal.Signals(sig).name})
        threading.Thread(target=self._end_in_time, daemon=True).start()

    def _end_in_time(self) -> None:
        end_in_time(self._grace, lambda: self.is_closed)


def end_in_time(grace: float, is_closed: Callable[[], bool]) -> None:
    """Blocks its thread for the grace period, then exits: an OS thread of a graph may keep the process alive."""
    # In steps: time during which the process was suspended or not scheduled does not count.
    for _ in range(math.ceil((grace + CLOSING_SECONDS) / STEP_SECONDS)):
        time.sleep(STEP_SECONDS)
    os._exit(0 if is_closed() else 1)
