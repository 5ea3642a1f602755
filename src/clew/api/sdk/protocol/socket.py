"""WebSocket /threads/{id}/stream/events: commands and events of the thread protocol on one connection."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from clew.api.access import PUBLIC
from clew.api.errors import refuse
from clew.api.routing import Router
from clew.api.sdk.protocol.commands import Answer, error, is_command, success
from clew.api.sdk.protocol.filters import EventFilter, whole_number
from clew.api.sdk.protocol.routes import MALFORMED, ProtocolRoutes
from clew.api.sdk.thread_follower import CaughtUp, Quiet
from clew.api.streams import first_of
from clew.api.strict_json import check_json
from clew.api.ws import (
    FAILED,
    GOING_AWAY,
    LATER,
    MESSAGES_PER_SECOND,
    POLICY,
    UNSUPPORTED,
    HangUp,
    Line,
    SocketAuthenticator,
    Visitor,
    close,
)
from clew.domain.errors import ClewError, Invalid, NotFound, Unavailable
from clew.domain.thread import mark_of

# As events of a run may be large, a client gets more time than for our own events.
SEND_SECONDS = 35.0
# Of one connection.
SUBSCRIPTIONS = 50
# How many events one connection remembers as sent.
REMEMBERED = 4096
# How often it is checked whether a thread exists by now.
LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolSocketRoutes:
    routes: ProtocolRoutes
    door: SocketAuthenticator

    def router(self) -> APIRouter:
        router = Router(tags=["langgraph"])
        # Public for the guard, authenticated inside: a browser can only send its key as the first message.
        router.websocket("/threads/{thread_id}/stream/events", dependencies=[PUBLIC])(self.serve)
        return router

    async def serve(self, websocket: WebSocket, thread_id: str) -> None:
        try:
            visitor = await self.door.admit(websocket)
        except ClewError as exc:
            await refuse(websocket.scope, websocket.receive, websocket.send, exc)
        except HangUp as exc:
            await close(websocket, exc)
        else:
            if visitor is not None:
                await close(websocket, await self._serve(websocket, visitor, thread_id))

    async def _serve(self, websocket: WebSocket, visitor: Visitor, thread_id: str) -> HangUp:
        line = Line(websocket, SEND_SECONDS, mark_of(visitor.caller.owner.tenant))
        socket = ProtocolSocket(self.routes, visitor, line, thread_id)
        try:
            with self.routes.streams.one("ws", visitor.caller):
                await first_of(socket.run(), self.routes.streams.until_over(visitor.check))
        except HangUp as exc:
            return exc
        except Unavailable as exc:
            return HangUp(LATER, str(exc))
        except WebSocketDisconnect:
            return HangUp(GOING_AWAY, "gone")
        finally:
            socket.close()
        return HangUp(GOING_AWAY, "reconnect with since")


class ProtocolSocket:
    """One connection with its subscriptions."""

    def __init__(self, routes: ProtocolRoutes, visitor: Visitor, line: Line, thread_id: str) -> None:
        self._routes = routes
        self._caller = visitor.caller
        self._line = line
        self._thread_id = thread_id
        self._subscriptions: dict[str, asyncio.Task[None]] = {}
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sent: OrderedDict[int, None] = OrderedDict()

    async def run(self) -> None:
        """Until the client goes, or a subscription cannot go on."""
        await first_of(self._listen(), self._wait_for_end())

    def close(self) -> None:
        for task in self._subscriptions.values():
            task.cancel()

    async def _wait_for_end(self) -> None:
        await self._broken

    async def _listen(self) -> None:
        time = asyncio.get_running_loop().time
        begun, heard = time(), 0
        while (text := await self._receive()) is not None:
            if time() - begun >= 1:
                begun, heard = time(), 0
            heard += 1
            if heard > MESSAGES_PER_SECOND:
                raise HangUp(POLICY, "too many messages")
            await self._line.send(await self._answer(text))

    async def _receive(self) -> str | None:
        received = await self._line.websocket.receive()
        if received["type"] == "websocket.disconnect":
            return None
        text = received.get("text")
        if text is None:
            raise HangUp(UNSUPPORTED, "messages are text")
        return str(text)

    async def _answer(self, text: str) -> Answer:
        try:
            message = check_json(text.encode("utf-8", "surrogatepass"))
        except Invalid:
            return error(None, "invalid_argument", "Protocol commands must be valid JSON.")
        if not is_command(message):
            command_id = message.get("id") if isinstance(message, dict) else None
            return error(command_id, "invalid_argument", MALFORMED)
        params = message.get("params") or {}
        match message["method"]:
            case "subscription.subscribe" | "subscription.reconnect":
                return await self._subscribe(message["id"], params)
            case "subscription.unsubscribe":
                return self._unsubscribe(message["id"], params)
            case _ if self._caller.user is not None:
                # Its handlers are asked about requests, not about messages.
                return error(message["id"], "not_supported", "Send this command to /commands.")
            case _:
                return await self._routes.commands.carry_out(self._caller, await self._kept_id(), message)

    async def _subscribe(self, command_id: int, params: Mapping[str, Any]) -> Answer:
        """Events that are kept come before the answer, as far as there are any."""
        if len(self._subscriptions) >= SUBSCRIPTIONS:
            return error(command_id, "invalid_argument", f"more than {SUBSCRIPTIONS} subscriptions")
        try:
            wanted, since = EventFilter.of(params), whole_number(params, "since")
        except Invalid as exc:
            return error(command_id, "invalid_argument", str(exc))
        name = params.get("subscription_id")
        subscription_id = name if isinstance(name, str) and 0 < len(name) <= 100 else str(uuid4())
        caught_up: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._tell(wanted, since, caught_up))
        task.add_done_callback(self._ended)
        if (before := self._subscriptions.pop(subscription_id, None)) is not None:
            before.cancel()
        self._subscriptions[subscription_id] = task
        await asyncio.wait((task, caught_up), return_when=asyncio.FIRST_COMPLETED)
        replayed = caught_up.result() if caught_up.done() else 0
        return success(command_id, {"subscription_id": subscription_id, "replayed_events": replayed})

    def _unsubscribe(self, command_id: int, params: Mapping[str, Any]) -> Answer:
        name = params.get("subscription_id")
        task = self._subscriptions.pop(name, None) if isinstance(name, str) else None
        if task is None:
            return error(command_id, "no_such_subscription", f"Unknown subscription: {str(name)[:80]}")
        task.cancel()
        return success(command_id, {})

    async def _tell(self, wanted: EventFilter, since: int | None, caught_up: "asyncio.Future[int]") -> None:
        thread_id = await self._existing(caught_up)
        replayed = 0
        with await self._routes.follow(self._caller, thread_id, since) as events:
            if events.gap is not None:
                await self._line.send(dict(events.gap))
            async for event in events.events():
                match event:
                    case CaughtUp():
                        if not caught_up.done():
                            caught_up.set_result(replayed)
                    case Quiet():
                        pass
                    case _ if wanted.admits(event) and self._is_unsent(
                        event["seq"], is_live=caught_up.done()
                    ):
                        await self._line.send(event)
                        replayed += 1
                    case _:
                        pass

    async def _existing(self, caught_up: "asyncio.Future[int]") -> str:
        """The thread's id once it is there: a client may subscribe before its first run creates the thread."""
        while True:
            thread_id = await self._kept_id()
            with self._routes.runs.notifier.subscribe(thread_id) as subscription:
                with suppress(NotFound):
                    return (await self._routes.access.at(thread_id, self._caller.owner)).id
                if not caught_up.done():
                    caught_up.set_result(0)
                await subscription.wait(LOOK_SECONDS)

    async def _kept_id(self) -> str:
        return await self._routes.access.kept_as(self._thread_id, self._caller.owner)

    def _is_unsent(self, seq: int, *, is_live: bool) -> bool:
        """What two subscriptions admit is sent once; one that is new gets what came before in any case."""
        if seq in self._sent and is_live:
            return False
        self._sent[seq] = None
        if len(self._sent) > REMEMBERED:
            self._sent.popitem(last=False)
        return True

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled() or self._broken.done():
            return
        match task.exception():
            case None:
                pass
            case HangUp() | WebSocketDisconnect() as exc:
                self._broken.set_exception(exc)
            case NotFound():
                self._broken.set_exception(HangUp(GOING_AWAY, "the thread was deleted"))
            case ClewError() as exc:
                self._broken.set_exception(HangUp(LATER, exc.code))
            case _:
                self._broken.set_exception(HangUp(FAILED, "internal"))
