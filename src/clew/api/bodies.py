"""Bodies come in whole, in time and in bounds before a route sees them, or they do not come in at all."""

import asyncio

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.errors import TooLarge, TooSlow
from clew.api.guard import RULE
from clew.api.strict_json import JSON, check_json
from clew.domain.errors import Invalid

BODY_SECONDS = 30.0


class Disconnected(Exception):
    """The client went away before its body was complete: there is nobody to answer."""


class Bodies:
    """Limits what may be sent. A route that takes a stream gets it as it comes and counts for itself."""

    def __init__(self, app: ASGIApp, *, max_bytes: int, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _check_address(scope)
            if scope[RULE].access.body == "whole" and _may_have_body(scope):
                try:
                    receive = await self._whole(scope, receive)
                except Disconnected:
                    return
        await self._app(scope, receive, send)

    async def _whole(self, scope: Scope, receive: Receive) -> Receive:
        headers = Headers(scope=scope)
        self._check_length(headers.get("content-length", "0"))
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {self._seconds:g} seconds") from None
        if _is_json(headers.get("content-type", "")):
            scope[JSON] = check_json(body)
        return _replay(body, receive)

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            self._check_length(str(size))
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    def _check_length(self, length: str) -> None:
        # Anything but digits never comes this far: the HTTP parser refuses it.
        if int(length) > self._max_bytes:
            raise TooLarge(f"a body may have at most {self._max_bytes} bytes")


def _check_address(scope: Scope) -> None:
    """A NUL cannot be stored, so nothing can be found by it."""
    if "\0" in scope["path"]:
        raise Invalid("the path holds a NUL character", field="path")
    if b"%00" in scope["query_string"]:
        raise Invalid("the query holds a NUL character", field="query")


def _may_have_body(scope: Scope) -> bool:
    """A request to read something has none unless it says so, and to find that out costs more than the rest of this."""
    if scope["method"] != "GET":
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    kind, _, name = media_type.partition("/")
    return kind == "application" and (name == "json" or name.endswith("+json"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """The whole body once; after that whatever the client does, which is to wait or to go."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
