"""Request bodies: read whole, within a time and a size limit, before a route sees them.

A body of up to `SMALL` bytes is always accepted. A larger one, such as an image in a message, takes its bytes from a
budget that all requests share: many of them at once are refused rather than held in memory.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from clew.api.access import RouteAccess
from clew.api.errors import TooLarge, TooManyBodies, TooSlow
from clew.api.strict_json import JSON, storable_json
from clew.domain.errors import Invalid

BODY_SECONDS = 30.0
# What every caller may send at any time; and the most where callers need no key.
SMALL = 1024 * 1024
# So many large bodies are held at once, as far as they are of the largest size.
LARGE_AT_ONCE = 8


class Room:
    """Bytes that large bodies may take in memory, all of them together."""

    def __init__(self, size: int) -> None:
        self._free = size

    def take(self, size: int) -> None:
        """Raises TooManyBodies where there is not enough left."""
        if size > self._free:
            raise TooManyBodies("too many large bodies at once; send it again in a moment")
        self._free -= size

    def give_back(self, size: int) -> None:
        self._free += size


class Disconnected(Exception):
    """The client disconnected before its body was complete: no answer is sent."""


class Bodies:
    """Limits what may be sent. A route that takes a stream gets it as it comes and counts for itself."""

    def __init__(self, *, max_bytes: int, seconds: float = BODY_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._room = Room(max_bytes * LARGE_AT_ONCE)

    @staticmethod
    def reads(access: RouteAccess, scope: Scope) -> bool:
        """Whether this request has a body that is read before its route sees it. Raises Invalid for its address."""
        if scope["type"] != "http":
            return False
        _check_address(scope)
        return access.body == "whole" and _may_have_body(scope)

    @asynccontextmanager
    async def whole(
        self, access: RouteAccess, scope: Scope, receive: Receive, send: Send
    ) -> AsyncGenerator[tuple[Receive, Send]]:
        """Inside the block the body is in memory, at most up to the beginning of the answer. Raises TooLarge, TooSlow,
        TooManyBodies, Invalid, Disconnected."""
        most = min(self._max_bytes, SMALL) if access.scope is None else self._max_bytes
        body = IncomingBody(most, self._room)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                # The answer may take an hour, and no longer needs the body.
                scope.pop(JSON, None)
                body.leave()
            await send(message)

        try:
            yield await self._read(scope, receive, body), answer
        finally:
            body.leave()

    async def _read(self, scope: Scope, receive: Receive, body: "IncomingBody") -> Receive:
        headers = Headers(scope=scope)
        body.expect(int(headers.get("content-length", "0")))
        try:
            async with asyncio.timeout(self._seconds):
                given = await body.read(receive)
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {self._seconds:g} seconds") from None
        if _is_json(headers.get("content-type", "")):
            if len(given) > SMALL:
                scope[JSON], given = await asyncio.to_thread(storable_json, given)
            else:
                scope[JSON], given = storable_json(given)
        return _replay(given, receive)


class IncomingBody:
    """One body as it arrives, and the bytes it takes from the budget until its answer begins."""

    def __init__(self, max_bytes: int, room: Room) -> None:
        self._max_bytes = max_bytes
        self._room = room
        self._taken = 0

    def leave(self) -> None:
        self._room.give_back(self._taken)
        self._taken = 0

    def expect(self, size: int) -> None:
        """Raises TooLarge, or TooManyBodies where other bodies have used up the budget."""
        if size > self._max_bytes:
            raise TooLarge(f"a body may have at most {self._max_bytes} bytes")
        if size > SMALL and size > self._taken:
            self._room.take(size - self._taken)
            self._taken = size

    async def read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            size += len(part)
            self.expect(size)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)


def _check_address(scope: Scope) -> None:
    """A NUL cannot be stored, so nothing can be found by it."""
    if "\0" in scope["path"]:
        raise Invalid("the path holds a NUL character", field="path")
    if b"%00" in scope["query_string"]:
        raise Invalid("the query holds a NUL character", field="query")


def _may_have_body(scope: Scope) -> bool:
    """A GET has no body unless a header announces one; waiting for it costs more than the rest of this check."""
    if scope["method"] != "GET":
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    kind, _, name = media_type.partition("/")
    return kind == "application" and (name == "json" or name.endswith("+json"))


def _replay(body: bytes, receive: Receive) -> Receive:
    """The whole body once; after that the client's own messages, such as its disconnect."""
    given = [body]

    async def replay() -> Message:
        if not given:
            return await receive()
        return {"type": "http.request", "body": given.pop(), "more_body": False}

    return replay
