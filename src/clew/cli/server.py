"""uvicorn's server, ended our way: streams are told, the grace is kept, and the database is closed after it."""

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

# What closing the database may take beyond the grace, before the process ends without it.
CLOSING_SECONDS = 3.0
STEP_SECONDS = 0.1


class ClewServer(uvicorn.Server):
    """The first SIGTERM or SIGINT begins the end, the second one is the end."""

    def __init__(
        self, config: uvicorn.Config, *, stopping: asyncio.Event, grace: float, announce: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._grace = grace
        self._announce = announce
        # Set when the app is closed. What may still keep the process is a thread of some graph that does not end.
        self.is_closed = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # An open stream would keep uvicorn waiting for ever; this tells it to end.
        self._stopping.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Where uvicorn would raise a caught signal again when it is done, and end us before the app is closed."""
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            # A second signal still means now; only where nobody listened before is it given back.
            if not self.should_exit:
                for number, handler in before.items():
                    signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        if self.should_exit:
            # Nothing that was acknowledged can be lost: that is true for kill -9, so it is for this.
            os._exit(128 + sig)
        self.should_exit = True
        logger.info("stopping", extra={"signal": signal.Signals(sig).name})
        threading.Thread(target=self._end_in_time, daemon=True).start()

    def _end_in_time(self) -> None:
        # Step by step: a process that was halted meanwhile, or had no turn, has its time all the same.
        for _ in range(math.ceil((self._grace + CLOSING_SECONDS) / STEP_SECONDS)):
            time.sleep(STEP_SECONDS)
        os._exit(0 if self.is_closed else 1)
