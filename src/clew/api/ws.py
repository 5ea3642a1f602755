"""/ws/events: events of many workflows through one WebSocket."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.types import Scope
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from clew.api.access import PUBLIC
from clew.api.auth import KEY_PREFIX, Authenticator
from clew.api.authorization import Authorization, watching
from clew.api.credentials import Principal
from clew.api.errors import error_body, refuse
from clew.api.guard import address_of
from clew.api.limits import RateLimits
from clew.api.routing import Router
from clew.api.streams import LiveEventOut, Streams, first_of
from clew.api.strict_json import check_json
from clew.api.thread_access import ThreadAccess
from clew.api.threads import MAX_SEQ
from clew.api.watch import Watch
from clew.domain.errors import ClewError, Corrupt, Forbidden, Invalid, NotFound, Unauthenticated, Unavailable
from clew.domain.events import AssistantMessage
from clew.domain.thread import Owner, mark_of
from clew.ports.notifier import Notifier, Subscription
from clew.ports.streams import TokenListener, Tokens
from clew.ports.threads import Store

logger = logging.getLogger(__name__)

PING_SECONDS = 30.0
# A socket that reads nothing for this long is dropped; no other client waits for it.
SEND_SECONDS = 5.0
AUTH_SECONDS = 5.0
# Clients send few messages, and short ones.
MAX_MESSAGE = 4096
MESSAGES_PER_SECOND = 50
# Sockets that are not yet authenticated.
STRANGERS = 100
SUBSCRIPTIONS = 1000

GOING_AWAY, UNSUPPORTED, POLICY, TOO_BIG, FAILED, LATER = 1001, 1003, 1008, 1009, 1011, 1013


class HangUp(Exception):
    """The socket is to be closed, with this code."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def ws_router(
    store: Store,
    notifier: Notifier,
    live: Tokens,
    *,
    authenticator: Authenticator,
    access: ThreadAccess,
    streams: Streams,
    limits: RateLimits,
    authorization: Authorization,
    send_seconds: float = SEND_SECONDS,
    ping_seconds: float = PING_SECONDS,
    auth_seconds: float = AUTH_SECONDS,
) -> APIRouter:
    router = Router(tags=["events"])
    door = SocketAuthenticator(authenticator, limits, auth_seconds, authorization)

    # Public for the guard, authenticated inside: a browser can only send its key as the first message.
    @router.websocket("/ws/events", dependencies=[PUBLIC])
    async def watch_events(
        websocket: WebSocket,
        since: Annotated[str | None, Query(max_length=512)] = None,
        workflow_id: Annotated[list[str] | None, Query(max_length=SUBSCRIPTIONS)] = None,
    ) -> None:
        try:
            visitor = await door.admit(websocket)
        except ClewError as exc:
            await refuse(websocket.scope, websocket.receive, websocket.send, exc)
        except HangUp as exc:
            await close(websocket, exc)
        else:
            if visitor is not None:
                await close(websocket, await serve(websocket, visitor, since, workflow_id or ()))

    async def serve(
        websocket: WebSocket, visitor: Visitor, since: str | None, subscribed: Collection[str]
    ) -> HangUp:
        """Serve the client until either side closes; returns the close code and reason."""
        owner = visitor.caller.owner
        line = Line(websocket, send_seconds, mark_of(owner.tenant))
        kept = [await access.kept_as(one, owner) for one in subscribed]
        session = SocketSession(line, store, notifier, live, access, owner, kept, ping_seconds)
        try:
            with streams.one("ws", visitor.caller):
                await first_of(session.run(since), streams.until_over(visitor.check))
        except HangUp as exc:
            return exc
        except Unavailable as exc:
            return HangUp(LATER, str(exc))
        except WebSocketDisconnect:
            return HangUp(GOING_AWAY, "gone")
        return HangUp(GOING_AWAY, "reconnect with ?since=")

    return router


@dataclass(frozen=True, slots=True)
class Visitor:
    caller: Principal
    # Raises when this caller's key is no longer valid.
    check: Callable[[], Awaitable[object]]


class SocketAuthenticator:
    """Authenticates by a header, or by the first message of a client that cannot send one."""

    def __init__(
        self,
        authenticator: Authenticator,
        limits: RateLimits,
        seconds: float,
        authorization: Authorization,
    ) -> None:
        self._authenticator = authenticator
        self._authorization = authorization
        self._limits = limits
        self._seconds = seconds
        self._strangers = 0

    async def admit(self, websocket: WebSocket) -> Visitor | None:
        """None if the client disconnected. Raises the error before the handshake, and HangUp after it."""
        try:
            visitor = await self._visitor(websocket.scope)
        except Unauthenticated:
            if "authorization" in websocket.headers or "x-api-key" in websocket.headers:
                self._limits.count_wrong_key(address_of(websocket.scope))
                raise
            return await self._introduced(websocket)
        await websocket.accept()
        return visitor

    async def _visitor(self, scope: Scope) -> Visitor:
        async def check() -> Principal:
            caller = await self._authenticator.caller(scope)
            if "read" not in caller.scopes:
                raise Forbidden("this needs a key with the scope 'read'")
            return caller

        return Visitor(await self._authorization.allowed(await check(), watching()), check)

    async def _introduced(self, websocket: WebSocket) -> Visitor | None:
        if self._strangers >= STRANGERS:
            raise Unavailable("too many connections without a key")
        self._strangers += 1
        try:
            await websocket.accept()
            async with asyncio.timeout(self._seconds):
                message = await _receive(websocket)
            if message is None:
                return None
            key = _key_in(message)
            try:
                return await self._visitor(_with_key(websocket.scope, key))
            except Unauthenticated:
                self._limits.count_wrong_key(address_of(websocket.scope))
                raise
        except TimeoutError:
            raise HangUp(POLICY, "no key was sent in time") from None
        except Unavailable as exc:
            raise HangUp(LATER, exc.code) from exc
        except ClewError as exc:
            raise HangUp(POLICY, exc.code) from exc
        finally:
            self._strangers -= 1


class Line:
    """One client's end: one message at a time, each within its time."""

    def __init__(self, websocket: WebSocket, seconds: float, mark: str) -> None:
        self.websocket = websocket
        self._seconds = seconds
        self._mark = mark  # of ids that callers chose; it is never shown
        self._one_at_a_time = asyncio.Lock()

    async def tell(self, event: LiveEventOut) -> None:
        await self.send({"type": "event", "payload": event.model_dump(mode="json")})

    async def send(self, message: dict[str, Any]) -> None:
        text = json.dumps(message, ensure_ascii=False, separators=(",", ":")).replace(self._mark, "")
        try:
            async with self._one_at_a_time, asyncio.timeout(self._seconds):
                await self.websocket.send_text(text)
        except TimeoutError:
            raise HangUp(LATER, "too slow: reconnect with ?since=") from None


class SocketSession:
    """The concurrent tasks of one client: sending events, pinging it, and reading its messages."""

    def __init__(
        self,
        line: Line,
        store: Store,
        notifier: Notifier,
        live: Tokens,
        access: ThreadAccess,
        owner: Owner,
        subscribed: Collection[str],
        ping_seconds: float,
    ) -> None:
        self._line = line
        self._access = access
        self._owner = owner
        self._notifier = notifier
        self._live = live
        self._ping_seconds = ping_seconds
        self._watch = Watch(store, access, owner, subscribed, self._tell_event)
        self._speech: TokenListener | None = None

    async def _kept_as(self, thread_id: str) -> str:
        return await self._access.kept_as(thread_id, self._owner)

    async def run(self, since: str | None) -> None:
        with (
            self._notifier.subscribe() as subscription,
            self._live.listen(self._watch.wants_token) as self._speech,
        ):
            await first_of(
                self._tell(since, subscription), self._tell_tokens(self._speech), self._ping(), self._listen()
            )

    async def _tell(self, since: str | None, subscription: Subscription) -> None:
        try:
            await self._begin(since, subscription)
            await self._watch.tell_on(subscription)
        except ClewError as exc:
            logger.warning("a socket ended early", extra={"code": exc.code})
            raise HangUp(LATER if isinstance(exc, Unavailable) else FAILED, exc.code) from exc

    async def _begin(self, since: str | None, subscription: Subscription) -> None:
        for thread_id in await self._watch.unknown():
            await self._line.send({"type": "error"} | error_body("NOT_FOUND", f"no workflow {thread_id!r}"))
        self._watch.keep()
        if since is not None:
            try:
                thread_id, seq = _place(since)
                count = await self._watch.backfill(await self._kept_as(thread_id), seq)
            except NotFound:
                await self._line.send({"type": "backfill_expired"})
            else:
                await self._line.send({"type": "backfill_complete", "count": count})
                return
        await self._watch.announce(subscription)

    async def _tell_event(self, event: LiveEventOut) -> None:
        if event.event_type == AssistantMessage.type and self._speech is not None:
            self._speech.forget(event.data.get("ref", ""))
        await self._line.tell(event)

    async def _tell_tokens(self, speech: TokenListener) -> None:
        while True:
            await self._line.tell(LiveEventOut.of_token(await speech.next()))

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._ping_seconds)
            await self._line.send({"type": "ping"})
            self._watch.keep()

    async def _listen(self) -> None:
        """Until the client goes."""
        time = asyncio.get_running_loop().time
        begun, heard = time(), 0
        while True:
            try:
                message = await _receive(self._line.websocket)
                if message is None:
                    return
                if time() - begun >= 1:
                    begun, heard = time(), 0
                heard += 1
                if heard > MESSAGES_PER_SECOND:
                    raise HangUp(POLICY, "too many messages")
                await self._obey(message)
            except (Invalid, NotFound, Corrupt) as exc:
                field = exc.field if isinstance(exc, Invalid) else None
                await self._line.send({"type": "error"} | error_body(exc.code, str(exc), field))

    async def _obey(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "subscribe", "workflow_id": str(thread_id)} if len(thread_id) <= 256:
                await self._watch.subscribe(await self._kept_as(thread_id))
            case {"type": "unsubscribe", "workflow_id": str(thread_id)}:
                self._watch.unsubscribe(await self._kept_as(thread_id))
            case {"type": "subscribe_all"}:
                self._watch.subscribe_all()
            case {"type": "ping"}:
                await self._line.send({"type": "pong"})
            case {"type": "pong" | "auth"}:
                pass
            case {"type": "subscribe" | "unsubscribe"}:
                raise Invalid("a workflow_id is needed", field="workflow_id")
            case _:
                raise Invalid("no such message; see docs/howto/stream-events.md", field="type")


async def _receive(websocket: WebSocket) -> dict[str, Any] | None:
    """One message, None when the client is gone. Raises Invalid for what is not a JSON object."""
    received = await websocket.receive()
    if received["type"] == "websocket.disconnect":
        return None
    text = received.get("text")
    if text is None:
        raise HangUp(UNSUPPORTED, "messages are text")
    if len(text) > MAX_MESSAGE:
        raise HangUp(TOO_BIG, f"a message may have at most {MAX_MESSAGE} characters")
    message = check_json(text.encode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise Invalid("a message is a JSON object", field="message")
    return message


def _key_in(message: dict[str, Any]) -> str:
    match message:
        case {"type": "auth", "key": str(key)} if key.isascii():
            return key
        case _:
            raise Unauthenticated('the first message must be {"type": "auth", "key": "..."}')


def _with_key(scope: Scope, key: str) -> Scope:
    """The handshake as if it had brought the key: for one of ours, and for the project's own handler."""
    headers = [*scope["headers"], (b"x-api-key", key.encode())]
    if not key.startswith(KEY_PREFIX):
        headers.append((b"authorization", f"Bearer {key}".encode()))
    return {**scope, "headers": headers}


def _place(since: str) -> tuple[str, int]:
    """The workflow and the sequence in an event's id. Raises NotFound."""
    thread_id, _, seq = since.rpartition(":")
    if not thread_id or not (seq.isascii() and seq.isdigit()) or int(seq) > MAX_SEQ:
        raise NotFound("no such event")
    return thread_id, int(seq)


async def close(websocket: WebSocket, exc: HangUp) -> None:
    if websocket.application_state is not WebSocketState.CONNECTED:
        return
    try:
        # A client that reads nothing does not get the close frame either.
        async with asyncio.timeout(1):
            await websocket.close(exc.code, exc.reason)
    except (TimeoutError, RuntimeError, WebSocketDisconnect):
        logger.info("a socket was dropped", extra={"code": exc.reason})
