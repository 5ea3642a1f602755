"""A local server that speaks OpenAI's chat protocol, and everything that can go wrong with it."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class Say:
    """Answer this, word by word, `seconds` apart."""

    text: str
    seconds: float = 0.0
    # What it thinks before, as reasoning models stream it beside the answer.
    thoughts: str = ""
    # Why it ends.
    finish: str = "stop"


@dataclass(frozen=True, slots=True)
class CallTool:
    """Ask for one tool call."""

    name: str
    arguments: Mapping[str, Any]
    id: str = "call_1"


@dataclass(frozen=True, slots=True)
class Decline:
    """Refuse to answer, in the field that OpenAI has for it."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str = "refused"
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Hang:
    """Take the request and never answer."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """A stream of events that are none."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Begin to answer, then drop the connection."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Begin to answer, then say what is wrong."""

    type: str


@dataclass(frozen=True, slots=True)
class Endless:
    """Answer for ever."""


Move = Say | CallTool | Decline | Refuse | Hang | Garbage | Cut | Trouble | Endless


@dataclass(slots=True)
class OpenAIServer:
    url: str
    answer: Callable[[dict[str, Any]], Move]
    requests: list[dict[str, Any]] = field(default_factory=list)
    # The headers each of them came with, in lower case, and the key.
    headers: list[dict[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    # How many answers were begun and are not finished.
    open: int = 0

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
        move = self.answer(body)
        if isinstance(move, Refuse):
            error = {"error": {"message": move.message, "type": "refused", "code": move.code}}
            return JSONResponse(error, move.status, headers=dict(move.headers))
        if isinstance(move, Hang):
            await self._wait(request)
        if isinstance(move, Say) and not body.get("stream"):
            return JSONResponse(_whole(body, move.text))
        return _Answer(self, _stream(body, move))

    async def _wait(self, request: Request) -> None:
        self.open += 1
        try:
            while not await request.is_disconnected():
                await asyncio.sleep(0.02)
        finally:
            self.open -= 1


class _Answer(StreamingResponse):
    """Counted here and not in what it streams: that is left where it stands when the caller goes."""

    def __init__(self, server: OpenAIServer, content: AsyncIterator[str]) -> None:
        super().__init__(content, media_type="text/event-stream")
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._server.open += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._server.open -= 1


async def _stream(body: dict[str, Any], move: Move) -> AsyncIterator[str]:
    match move:
        case CallTool(name, arguments, id):
            function = {"name": name, "arguments": json.dumps(arguments)}
            delta = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}],
            }
            yield _event(body, [{"index": 0, "delta": delta, "finish_reason": None}])
            yield _chunk(body, "", finish="tool_calls")
            yield _usage(body)
            yield "data: [DONE]\n\n"
        case Decline(text):
            delta = {"role": "assistant", "refusal": text}
            yield _event(body, [{"index": 0, "delta": delta, "finish_reason": None}])
            yield _chunk(body, "", finish="stop")
            yield "data: [DONE]\n\n"
        case Say(text, seconds, thoughts, finish):
            if thoughts:
                delta = {"role": "assistant", "reasoning_content": thoughts}
                yield _event(body, [{"index": 0, "delta": delta, "finish_reason": None}])
            for n, word in enumerate(text.split(" ")):
                yield _chunk(body, f" {word}" if n else word)
                await asyncio.sleep(seconds)
            yield _chunk(body, "", finish=finish)
            yield _usage(body)
            yield "data: [DONE]\n\n"
        case Garbage():
            yield "data: {this is not json\n\n"
        case Cut():
            yield _chunk(body, "half of")
            raise ConnectionResetError
        case Trouble(kind):
            yield _chunk(body, "half of")
            error = {"message": "Bearer sk-secret", "type": kind, "code": None}
            yield f"data: {json.dumps({'error': error})}\n\n"
        case Endless():
            while True:
                yield _chunk(body, "word " * 2000)
                await asyncio.sleep(0)
        case Hang() | Refuse():
            pass


def in_turn(*moves: Move) -> Callable[[dict[str, Any]], Move]:
    """These answers one after another, the last one for ever."""
    left = list(moves)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


@asynccontextmanager
async def openai_server(answer: Callable[[dict[str, Any]], Move]) -> AsyncGenerator[OpenAIServer]:
    fake = OpenAIServer("", answer)
    routes = [
        Route("/v1/chat/completions", fake.chat, methods=["POST"]),
        # As Azure calls it.
        Route("/openai/deployments/{model}/chat/completions", fake.chat, methods=["POST"]),
    ]
    async with serving_app(Starlette(routes=routes)) as url:
        fake.url = f"{url}/v1"
        yield fake


@asynccontextmanager
async def serving_app(app: Starlette) -> AsyncGenerator[str]:
    """Its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listener]))
    try:
        while not server.started:
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


def prompt_of(body: dict[str, Any]) -> str:
    """Everything a request says."""
    return "\n".join(str(message["content"]) for message in body["messages"])


def _chunk(body: dict[str, Any], text: str, finish: str | None = None) -> str:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
    return _event(body, [choice])


def _usage(body: dict[str, Any]) -> str:
    if not body.get("stream_options", {}).get("include_usage"):
        return ""
    return _event(body, [], usage={"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18})


def _event(body: dict[str, Any], choices: Sequence[Any], **more: Any) -> str:
    event = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": body.get("model", "deployed"),
        "choices": choices,
    }
    return f"data: {json.dumps(event | more)}\n\n"


def _whole(body: dict[str, Any], text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": body.get("model", "deployed"),
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }
