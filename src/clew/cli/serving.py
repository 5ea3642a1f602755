"""`clew serve`: binds the socket, opens the app, prints its address, and runs until a signal."""

import asyncio
import errno
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.loops.auto import auto_loop_factory

from clew import __version__
from clew.cli.front import Front
from clew.cli.opening import read_settings
from clew.cli.output import say
from clew.cli.protocol import counted
from clew.cli.server import ClewServer
from clew.config import Settings, export_environment
from clew.domain.errors import ConfigError

if TYPE_CHECKING:
    from clew.server.app import Server

logger = logging.getLogger(__name__)

# How long an idle connection is kept. Longer than clients and proxies keep theirs: the client must be the side that
# closes first, or its next request meets a closed connection.
KEEP_ALIVE_SECONDS = 75
# Of one message on a WebSocket, whatever a body may have.
LARGEST_MESSAGE = 1024 * 1024
# Beside those that runs may block.
OWN_THREADS = 32


def serve(
    *,
    host: str | None,
    port: int | None,
    config: Path | None,
    log_format: str | None = None,
    has_runner: bool = True,
    socket_fd: int | None = None,
    is_quiet: bool = False,
) -> None:
    """Returns when the server has ended. Raises ConfigError when it cannot start with these settings.

    `socket_fd` is the bound socket that a process of `clew serve --processes` is given.
    """
    settings = read_settings(config, {"server.host": host, "server.port": port, "logs.format": log_format})
    export_environment(settings)
    if not is_quiet:
        for warning in settings.warnings:
            logger.warning(warning)
    if socket_fd is None:
        opened = bind(settings.server.host, settings.server.port)
    else:
        opened = socket.socket(fileno=socket_fd)
        end_with_parent()
    with opened as listener:
        settings = at(settings, listener)
        main = _serve(
            settings,
            listener,
            has_runner=has_runner,
            is_quiet=is_quiet,
            is_shared=socket_fd is not None,
        )
        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            run_main(runner.get_loop(), main)


def end_with_parent() -> None:
    """The parent holds the other end of our standard input: at its death this process ends, too."""

    def wait() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="clew-parent", daemon=True).start()


def at(settings: Settings, listener: socket.socket) -> Settings:
    """With the address that the socket really has: a name may have meant another, and 0 a free port."""
    bound, real_port, *_ = listener.getsockname()
    return replace(settings, server=settings.server.model_copy(update={"host": bound, "port": real_port}))


def run_main(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, None]) -> None:
    """Run to the end of `main`, also if a callback that a graph's code scheduled on the loop calls `sys.exit`.

    asyncio lets SystemExit and KeyboardInterrupt of a callback out of the loop; the loop can be run on after it.
    """
    task = loop.create_task(main)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as exc:
            if task.done() or signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                raise
            logger.exception("a callback of the event loop raised %s; the server goes on", type(exc).__name__)


def bind(host: str, port: int) -> socket.socket:
    """A socket with this address that does not listen yet. Raises ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise ConfigError(f"--host {host}: {exc.strerror}") from exc
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as exc:
        listener.close()
        raise _cannot_bind(host, port, exc) from exc
    return listener


def node_threads(settings: Settings) -> ThreadPoolExecutor:
    """Threads for nodes that are plain functions, of which each run may block one; and some for the server's own work.

    Python's own number is a few more than there are cores: then some blocked nodes hold up uploads.
    """
    return ThreadPoolExecutor(settings.runner.concurrency + OWN_THREADS, thread_name_prefix="clew")


async def _serve(
    settings: Settings, listener: socket.socket, *, has_runner: bool, is_quiet: bool, is_shared: bool
) -> None:
    """The process listens at once, and says that it is loading. A socket that is shared with other processes is theirs
    until this one is ready."""
    asyncio.get_running_loop().set_default_executor(node_threads(settings))
    front = Front(f"{settings.server.root_path}{settings.http.mount_prefix}")
    server = ClewServer(_config(settings, front), stop=front.stop, grace=settings.server.shutdown_seconds)
    loading = asyncio.current_task()

    def ended(_: "asyncio.Task[None]") -> None:
        server.listening.set()
        if loading is not None and not front.is_open:
            loading.cancel()

    def begin() -> "asyncio.Task[None]":
        task = asyncio.create_task(server.serve([listener]), name="http server")
        task.add_done_callback(ended)
        return task

    serving = None if is_shared else begin()
    try:
        load = await asyncio.to_thread(_imported)
        async with load(settings, has_runner=has_runner) as app:
            keys = await app.stores.keys.find()
            settle()
            front.open(app.http, app.stopping)
            serving = serving or begin()
            await server.listening.wait()
            if server.started:
                announce(settings, keys=bool(keys), is_quiet=is_quiet)
            await _over(serving, settings)
    except asyncio.CancelledError:
        if serving is None or not serving.done():
            raise
        await _over(serving, settings)  # while the app was loading: by a signal, or it could not listen
    finally:
        if serving is not None and not serving.done():
            serving.remove_done_callback(ended)
            server.should_exit = True
            await serving
    server.is_closed = True
    logger.info("stopped")


async def _over(serving: "asyncio.Task[None]", settings: Settings) -> None:
    try:
        await serving
    except OSError as exc:
        raise _cannot_bind(settings.server.host, settings.server.port, exc) from exc


def _imported() -> Callable[..., AbstractAsyncContextManager["Server"]]:
    """What takes seconds to import. In a thread, so that the loop answers meanwhile."""
    from clew.server import engine, sdk  # noqa: F401, PLC0415 - LangGraph; `open_app` needs them next
    from clew.server.app import open_app  # noqa: PLC0415 - the routes, with FastAPI
    from clew.server.services import ProcessRole  # noqa: PLC0415 - the same

    def load(settings: Settings, *, has_runner: bool) -> AbstractAsyncContextManager["Server"]:
        return open_app(settings, role=ProcessRole(has_runner=has_runner))

    return load


def _config(settings: Settings, app: ASGIApp) -> uvicorn.Config:
    http, ws = counted(settings.limits.connections_per_address)
    return uvicorn.Config(
        app,
        http=http,
        ws=ws,
        ws_max_size=min(settings.limits.body_bytes, LARGEST_MESSAGE),
        root_path=settings.server.root_path,
        lifespan="off",  # open_app is the life of this app
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=round(settings.server.shutdown_seconds),
    )


def settle() -> None:
    """Freeze what is loaded by now: garbage collections that scan it again and again would pause all requests.

    A run makes thousands of objects that are freed with it, so a collection after every seven hundred is not needed.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def announce(settings: Settings, *, keys: bool, is_quiet: bool = False) -> None:
    server = settings.server
    shown = f"[{server.host}]" if ":" in server.host else server.host
    address = f"http://{shown}:{server.port}{server.root_path}{settings.http.mount_prefix}"
    others = []
    if settings.custom_auth is not None:
        others.append("or what auth.path accepts")
    if settings.auth.issuer is not None:
        others.append("or a token of auth.issuer")
    needed = keys or others or server.auth == "keys" or not server.is_loopback
    if not is_quiet:
        say(f"Clew {__version__}")
        say(f"  address   {address}")
        forgets = ", lost when this process ends" if settings.database.url.kind == "memory" else ""
        say(f"  data      {settings.database.url}{forgets}")
        say(f"  API keys  {', '.join(['needed', *others]) if needed else 'not needed from this machine'}")
    logger.info(
        "listening", extra={"address": address, "backend": settings.database.url.kind, "version": __version__}
    )


def _cannot_bind(host: str, port: int, exc: OSError) -> ConfigError:
    if exc.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} on {host} is in use; choose another with --port, or --port 0 for a free one"
        )
    if exc.errno == errno.EACCES:
        return ConfigError(f"port {port} on {host} cannot be used: ports below 1024 need privileges")
    return ConfigError(f"cannot listen on {host}, port {port}: {exc.strerror}")
