"""`clew worker`: opens the app without listening, and runs threads until a signal."""

import asyncio
import logging
import os
import signal
import threading
from pathlib import Path

from uvicorn.loops.auto import auto_loop_factory

from clew import __version__
from clew.cli.opening import read_settings
from clew.cli.output import say
from clew.cli.server import end_in_time
from clew.cli.serving import node_threads, run_main, settle
from clew.config import Settings, export_environment
from clew.domain.errors import ConfigError
from clew.server.app import open_app
from clew.server.services import ProcessRole

logger = logging.getLogger(__name__)


class Signals:
    """The first SIGTERM or SIGINT starts the shutdown, the second one exits at once."""

    def __init__(self, stopping: asyncio.Event, grace: float) -> None:
        self._stopping = stopping
        self._grace = grace
        self.is_closed = False

    def handle(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._caught, number)

    def _caught(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            os._exit(128 + number)
        logger.info("stopping", extra={"signal": number.name})
        self._stopping.set()
        ending = threading.Thread(target=end_in_time, args=(self._grace, lambda: self.is_closed), daemon=True)
        ending.start()


def work(*, graphs: str | None, concurrency: int | None, config: Path | None, log_format: str | None) -> None:
    """Returns when the worker has ended. Raises ConfigError when it cannot start with these settings."""
    settings = read_settings(config, {"runner.concurrency": concurrency, "logs.format": log_format})
    export_environment(settings)
    for warning in settings.warnings:
        logger.warning(warning)
    if settings.database.url.kind == "memory":
        raise ConfigError("the database is memory://, which no other process can share with a worker")
    named = () if graphs is None else tuple(name.strip() for name in graphs.split(",") if name.strip())
    if graphs is not None and not named:
        raise ConfigError("--graphs: expected names of graphs with commas between")
    role = ProcessRole(listens=False, graphs=named)
    with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
        run_main(runner.get_loop(), _work(settings, role))


async def _work(settings: Settings, role: ProcessRole) -> None:
    asyncio.get_running_loop().set_default_executor(node_threads(settings))
    async with open_app(settings, role=role) as app:
        signals = Signals(app.stopping, settings.server.shutdown_seconds)
        signals.handle()
        settle()
        runs = role.graphs or sorted(app.execution.registry.graphs)
        say(f"Clew {__version__} worker")
        say(f"  data      {settings.database.url}")
        say(f"  graphs    {', '.join(runs)}")
        say(f"  slots     {settings.runner.concurrency}")
        logger.info("working", extra={"backend": settings.database.url.kind, "version": __version__})
        await app.stopping.wait()
    signals.is_closed = True
    logger.info("stopped")
