"""Thread ids chosen by callers: each belongs to its tenant, whatever ids other tenants have; see domain/thread."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.credentials import PRINCIPAL
from clew.domain.errors import NotFound
from clew.domain.thread import KeptUnderMark, is_marked, mark_of, marked

TenantOf = Callable[[str], Awaitable[str | None]]

# How the paths of routes name a thread.
_NAMES = ("thread_id", "workflow_id")
_TEXTS = ("application/json", "text/event-stream")


class ChosenIds:
    """Finds a thread by the id its caller chose, where it is stored with a tenant mark."""

    def __init__(self, app: ASGIApp, tenant_of: TenantOf) -> None:
        self._app = app
        self._tenant_of = tenant_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = next((name for name in _NAMES if name in scope.get("path_params", ())), None)
        if scope["type"] != "http" or name is None or PRINCIPAL not in scope:
            await self._app(scope, receive, send)
            return
        chosen = scope["path_params"][name]
        if is_marked(chosen):
            raise NotFound(f"no thread {chosen!r}")  # a marked id is never shown
        body = _Again(receive)
        has_begun = False

        async def answer(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            body.forget()
            await send(message)

        try:
            await self._app(scope, body, answer)
        except NotFound as exc:
            tenant = scope[PRINCIPAL].tenant
            kept = marked(chosen, tenant)
            is_kept = isinstance(exc, KeptUnderMark) or await self._tenant_of(kept) == tenant
            if has_begun or not is_kept:
                raise
            scope["path_params"] = {**scope["path_params"], name: kept}
            await self._app(scope, body.again(), send)


class _Again:
    """A request that can be read once more from its beginning."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._heard: list[Message] = []

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._heard.append(message)
        return message

    def forget(self) -> None:
        """Drop the recorded body: it takes memory, and an answer that has begun is not repeated."""
        self._heard.clear()

    def again(self) -> Receive:
        heard = iter(self._heard)

        async def receive() -> Message:
            return next(heard, None) or await self._receive()

        return receive


def without_marks(scope: Scope, send: Send) -> Send:
    """Sends an answer without the marks in its ids, errors and headers included."""
    start: Message | None = None
    is_text = False

    async def unmarked(message: Message) -> None:
        nonlocal start, is_text
        principal = scope.get(PRINCIPAL)
        mark = b"" if principal is None else mark_of(principal.tenant).encode()
        if message["type"] == "http.response.start" and mark:
            is_text = _is_text(message)
            start = _without(message, mark)
            return
        if message["type"] == "http.response.body" and mark:
            if is_text and mark in message.get("body", b""):
                message = {**message, "body": message["body"].replace(mark, b"")}
                if start is not None and "content-length" in MutableHeaders(raw=start["headers"]):
                    MutableHeaders(raw=start["headers"])["content-length"] = str(len(message["body"]))
            if start is not None:
                begun, start = start, None
                await send(begun)
        await send(message)

    return unmarked


def _is_text(start: MutableMapping[str, Any]) -> bool:
    return MutableHeaders(raw=list(start.get("headers", []))).get("content-type", "").startswith(_TEXTS)


def _without(start: MutableMapping[str, Any], mark: bytes) -> Message:
    return {
        **start,
        "headers": [(name, value.replace(mark, b"")) for name, value in start.get("headers", [])],
    }
