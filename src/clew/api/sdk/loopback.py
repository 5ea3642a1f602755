"""Loopback transport: requests of `langgraph_sdk.get_client()` without a URL, made inside the server, without a network."""

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.auth import WITHIN
from clew.api.credentials import USUAL_SCOPES, Principal
from clew.api.errors import refuse
from clew.domain.errors import Unauthenticated
from clew.domain.thread import Owner

_REGISTERED = "_registered_transports"


class Loopback:
    """The server as code inside it calls it: the caller is the owner of the node's thread, or the caller of a custom route."""

    def __init__(self, app: ASGIApp, owner: Callable[[], Owner | None]) -> None:
        """`owner` returns for whom the calling code acts. Created in the server's event loop."""
        self._app = app
        self._owner = owner
        self._loop = asyncio.get_running_loop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = self._owner()
        if owner is None:
            await refuse(
                scope,
                receive,
                send,
                Unauthenticated(
                    "get_client() without a url works inside of a node or a custom route, and nowhere else"
                ),
            )
            return
        caller = Principal(
            tenant=owner.tenant, user_id=owner.user_id, scopes=frozenset(USUAL_SCOPES), key_id=""
        )
        scope = {**scope, WITHIN: caller}
        here = asyncio.get_running_loop()
        if here is self._loop:
            await self._handle(scope, receive, send)
        else:  # a node that is not async, with an event loop of its own
            work = self._handle(scope, _over(here, receive), _over(here, send))
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        # In a context of its own: tasks started here do not inherit the node's run, config or callbacks.
        await asyncio.create_task(_called(self._app, scope, receive, send), context=Context())


async def _called(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    await app(scope, receive, send)


def _over(loop: asyncio.AbstractEventLoop, function: Any) -> Any:
    """The same, called in another event loop than the one it belongs to."""

    async def call(*message: Message) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(*message), loop))

    return call


class _Transports(list[Any]):
    """Transports of clients without a URL. The SDK sets the app of those it has once; later ones get it here."""

    app: ASGIApp | None = None

    def append(self, transport: Any) -> None:
        if self.app is None:
            super().append(transport)
        else:
            transport.app = self.app


@contextmanager
def loopback(app: ASGIApp) -> Generator[None]:
    """Inside the block clients without a URL, created before or in it, reach this app. Does nothing without the SDK."""
    try:
        from langgraph_sdk.client import configure_loopback_transports  # noqa: PLC0415 - it may not be installed
    except ImportError:
        yield
        return
    transports = _transports()
    transports.app = app
    configure_loopback_transports(app)
    try:
        yield
    finally:
        transports.app = None
        configure_loopback_transports(None)


def _transports() -> _Transports:
    """The SDK's own list, in every module of it that knows the list."""
    known = [
        module
        for name, module in sys.modules.items()
        if name.startswith("langgraph_sdk") and isinstance(getattr(module, _REGISTERED, None), list)
    ]
    for module in known:
        found = getattr(module, _REGISTERED)
        if isinstance(found, _Transports):
            return found
    transports = _Transports(getattr(known[0], _REGISTERED) if known else ())
    for module in known:
        setattr(module, _REGISTERED, transports)
    return transports
