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
MAX_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Json
    retry_after: float | None


class Outside:
    """What the way to all providers is."""

    def __init__(self, client: httpx.AsyncClient, seconds: float = SECONDS) -> None:
        self._client = client
        self._seconds = seconds

    async def ask(
        self, method: str, url: str, *, query: Mapping[str, str] | None = None, body: Json = None
    ) -> Answer:
        """What the provider says. Raises Transient when it says nothing in time: then nobody knows what it did.

        Raises Permanent for what is no address, and for too long an answer.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await self._ask(method, url, query, body)
        except TimeoutError:
            raise Transient("the provider did not answer in time", ErrorClass.NETWORK_TIMEOUT) from None
        except httpx.InvalidURL:
            raise Permanent("the provider's address is none", ErrorClass.VALIDATION) from None
        except httpx.HTTPError as exc:
            # Its message may hold the address, and the address a token.
            raise Transient(
                f"the provider cannot be reached: {type(exc).__name__}", ErrorClass.NETWORK_TIMEOUT
            ) from None

    async def _ask(self, method: str, url: str, query: Mapping[str, str] | None, body: Json) -> Answer:
        async with self._client.stream(method, url, params=query, json=body) as response:
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MAX_BYTES:
                    raise Permanent("the provider's answer is too long", ErrorClass.VALIDATION)
        try:
            said = json.loads(content)
        except (ValueError, RecursionError):
            said = None
        return Answer(response.status_code, said, _seconds(response.headers.get("retry-after", "")))


@asynccontextmanager
async def open_outside(seconds: float = SECONDS) -> AsyncGenerator[Outside]:
    async with httpx.AsyncClient(follow_redirects=False, timeout=seconds) as client:
        yield Outside(client, seconds)


def check_status(answer: Answer) -> None:
    """Raises what a status means that is not a plain yes."""
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
