"""Requests to providers: a deadline on each, no redirects, bounded answers, and errors in our words without a secret."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from clew.domain.errors import Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

SECONDS = 15.0
FILE_SECONDS = 60.0
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class HttpReply:
    status: int
    body: Json
    retry_after: float | None


class HttpClient:
    """HTTP settings shared by all providers."""

    def __init__(self, client: httpx.AsyncClient, seconds: float = SECONDS) -> None:
        self._client = client
        self._seconds = seconds

    async def ask(
        self,
        method: str,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json = None,
        seconds: float | None = None,
    ) -> HttpReply:
        """The provider's answer. Raises Transient on a timeout: the request may or may not have taken effect.

        Raises Permanent for an invalid URL, and for too long an answer.
        """
        async with _in_our_words(seconds or self._seconds):
            response, content = await self._send(method, url, query, body, MAX_BYTES, seconds)
        return HttpReply(
            response.status_code, _json(content), _seconds(response.headers.get("retry-after", ""))
        )

    async def download(
        self, url: str, *, query: Mapping[str, str] | None = None, most: int
    ) -> tuple[bytes, Json]:
        """The bytes of a file; or the JSON that the provider sends in place of one on an error, and then no bytes.

        Raises as `ask` does, what a status means, and ReplyTooLong for more than `most` bytes.
        """
        async with _in_our_words(FILE_SECONDS):
            response, content = await self._send("GET", url, query, None, most, FILE_SECONDS)
        check_status(HttpReply(response.status_code, None, _seconds(response.headers.get("retry-after", ""))))
        # A file that happens to be JSON comes with its name.
        is_file = "content-disposition" in response.headers
        if not is_file and response.headers.get("content-type", "").startswith("application/json"):
            return b"", _json(content)
        return content, None

    async def _send(
        self,
        method: str,
        url: str,
        query: Mapping[str, str] | None,
        body: Json,
        most: int,
        seconds: float | None,
    ) -> tuple[httpx.Response, bytes]:
        timeout = seconds or self._seconds
        async with self._client.stream(method, url, params=query, json=body, timeout=timeout) as response:
            content = bytearray()
            async for part in response.aiter_bytes():
                content += part
                if len(content) > most:
                    raise ReplyTooLong("the provider's answer is too long", ErrorClass.VALIDATION)
        return response, bytes(content)


class ReplyTooLong(Permanent):
    """The provider's answer is longer than wanted."""


@asynccontextmanager
async def _in_our_words(seconds: float) -> AsyncGenerator[None]:
    """A deadline, and errors without the URL, which may contain a token."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Transient("the provider did not answer in time", ErrorClass.NETWORK_TIMEOUT) from None
    except httpx.InvalidURL:
        raise Permanent("the provider's URL is invalid", ErrorClass.VALIDATION) from None
    except httpx.HTTPError as exc:
        raise Transient(
            f"the provider cannot be reached: {type(exc).__name__}", ErrorClass.NETWORK_TIMEOUT
        ) from None


def _json(content: bytes) -> Json:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


@asynccontextmanager
async def open_outside(
    seconds: float = SECONDS, *, transport: httpx.AsyncBaseTransport | None = None
) -> AsyncGenerator[HttpClient]:
    async with httpx.AsyncClient(follow_redirects=False, timeout=seconds, transport=transport) as client:
        yield HttpClient(client, seconds)


def check_status(answer: HttpReply) -> None:
    """Raises the error of a status other than success."""
    status = answer.status
    if 200 <= status < 300:
        return
    said = f"the provider answered {status}"
    if status == 429:
        raise Transient(said, ErrorClass.RATE_LIMIT, answer.retry_after)
    if status >= 500:
        raise Transient(said, ErrorClass.LLM_OVERLOAD, answer.retry_after)
    if status == 408:
        raise Transient(said, ErrorClass.NETWORK_TIMEOUT)
    raise Permanent(said, ErrorClass.AUTH if status in (401, 403) else ErrorClass.VALIDATION)


def _seconds(text: str) -> float | None:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
