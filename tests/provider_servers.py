"""Local servers that speak the protocols of Ollama, Gemini and Bedrock, as far as Clew asks them."""

import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.openai_server import serving_app


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    headers: Mapping[str, str]  # in lower case
    body: dict[str, Any]


@dataclass(slots=True)
class ProviderServer:
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    # A status other than 200 is an error; 307 leads to `elsewhere`.
    status: int = 200
    elsewhere: str = ""
    text: str = "It is about a thread."
    thoughts: str = "Hm, let me think."
    end: str = ""

    async def handle(self, request: Request) -> Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        body = json.loads(await request.body() or b"{}")
        self.asked.append(Asked(request.url.path, headers, body))
        if self.status == 307:
            return RedirectResponse(self.elsewhere, 307)
        answer = next(one for path, one in _ANSWERS.items() if path in request.url.path)
        return answer(self)


def _ollama(server: ProviderServer) -> Response:
    if server.status != 200:
        return JSONResponse({"error": "refused: sk-secret"}, server.status)
    said = [{"thinking": server.thoughts, "content": ""}, {"content": server.text}]
    lines = [{"model": "m", "message": {"role": "assistant", **one}, "done": False} for one in said]
    end = {"done_reason": server.end or "stop", "prompt_eval_count": 11, "eval_count": 7}
    lines.append({"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, **end})
    return _streamed((json.dumps(line) + "\n").encode() for line in lines)


def _gemini(server: ProviderServer) -> Response:
    if server.status != 200:
        error = {"code": server.status, "message": "refused: sk-secret", "status": "PERMISSION_DENIED"}
        return JSONResponse({"error": error}, server.status)
    thoughts, text = {"text": server.thoughts, "thought": True}, {"text": server.text}
    candidates = [
        {"content": {"role": "model", "parts": [thoughts]}},
        {"content": {"role": "model", "parts": [text]}, "finishReason": server.end or "STOP"},
    ]
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    parts = [{"candidates": [one], "usageMetadata": usage} for one in candidates]
    return _streamed((f"data: {json.dumps(part)}\r\n\r\n").encode() for part in parts)


def _bedrock(server: ProviderServer) -> Response:
    if server.status != 200:
        headers = {"x-amzn-errortype": "AccessDeniedException"}
        return JSONResponse({"message": "refused: sk-secret"}, server.status, headers)
    events: list[tuple[str, dict[str, Any]]] = [
        ("messageStart", {"role": "assistant"}),
        (
            "contentBlockDelta",
            {"delta": {"reasoningContent": {"text": server.thoughts}}, "contentBlockIndex": 0},
        ),
        ("contentBlockStop", {"contentBlockIndex": 0}),
        ("contentBlockDelta", {"delta": {"text": server.text}, "contentBlockIndex": 1}),
        ("contentBlockStop", {"contentBlockIndex": 1}),
        ("messageStop", {"stopReason": server.end or "end_turn"}),
        (
            "metadata",
            {"usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}, "metrics": {"latencyMs": 1}},
        ),
    ]
    return _streamed((_frame(name, body) for name, body in events), "application/vnd.amazon.eventstream")


def _frame(event: str, body: dict[str, Any]) -> bytes:
    """One message of AWS's event stream: lengths, headers and payload, each with its checksum."""
    told = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack("!B", len(name))
        + name.encode()
        + b"\x07"
        + struct.pack("!H", len(value))
        + value.encode()
        for name, value in told.items()
    )
    payload = json.dumps(body).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    frame = prelude + struct.pack("!I", crc32(prelude)) + headers + payload
    return frame + struct.pack("!I", crc32(frame))


def _streamed(pieces: Any, kind: str = "text/event-stream") -> Response:
    async def content() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return StreamingResponse(content(), media_type=kind)


_ANSWERS: Mapping[str, Callable[[ProviderServer], Response]] = {
    "/api/chat": _ollama,
    "streamGenerateContent": _gemini,
    "converse-stream": _bedrock,
}


@asynccontextmanager
async def provider_server(**options: Any) -> AsyncGenerator[ProviderServer]:
    server = ProviderServer(**options)
    app = Starlette(routes=[Route("/{path:path}", server.handle, methods=["POST", "GET"])])
    async with serving_app(app) as url:
        server.url = url
        yield server
