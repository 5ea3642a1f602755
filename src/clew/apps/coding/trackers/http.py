"""HTTP client of trackers: with a deadline, no redirects, a bounded answer, and errors without a secret."""

import asyncio
import json
from collections.abc import Mapping

import httpx

from clew.apps.coding.plan import MAX_BODY, MAX_TITLE
from clew.documents.passages import cut
from clew.domain.documents import clean_text
from clew.domain.errors import NotFound, Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

_MOST = 4 * 2**20


class TrackerClient:
    """The client of one tracker. `name` is its display name."""

    def __init__(self, name: str, headers: Mapping[str, str], *, seconds: float) -> None:
        self.name = name
        self._headers = {"User-Agent": "clew", **headers}
        self._seconds = seconds
        self._client: httpx.AsyncClient | None = None

    async def get(self, url: str, issue_id: str) -> Mapping[str, Json]:
        """The object at this address. Raises NotFound, Transient, Permanent."""
        found = await self._ask("GET", url, issue_id)
        if not isinstance(found, dict):
            raise Permanent(f"{self.name} did not answer with an issue", ErrorClass.VALIDATION)
        return found

    async def get_list(self, url: str, issue_id: str, params: Mapping[str, str]) -> list[Mapping[str, Json]]:
        """The objects in the list at this address. Raises NotFound, Transient, Permanent."""
        found = await self._ask("GET", str(httpx.URL(url, params=dict(params))), issue_id)
        if not isinstance(found, list):
            raise Permanent(f"{self.name} did not answer with a list", ErrorClass.VALIDATION)
        return [one for one in found if isinstance(one, dict)]

    async def post(self, url: str, issue_id: str, body: Mapping[str, Json]) -> Mapping[str, Json]:
        """What was made there. Raises NotFound, Transient, Permanent."""
        made = await self._ask("POST", url, issue_id, body)
        return made if isinstance(made, dict) else {}

    async def _ask(
        self, method: str, url: str, issue_id: str, body: Mapping[str, Json] | None = None
    ) -> Json:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._answer(method, url, issue_id, body)
        except TimeoutError:
            raise Transient(f"{self.name} did not answer in time", ErrorClass.NETWORK_TIMEOUT) from None
        except httpx.InvalidURL:
            raise Permanent(f"the URL of {self.name} is invalid", ErrorClass.VALIDATION) from None
        except httpx.HTTPError as exc:
            # Its message may contain the URL.
            raise Transient(
                f"{self.name} cannot be reached: {type(exc).__name__}", ErrorClass.NETWORK_TIMEOUT
            ) from None

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _answer(self, method: str, url: str, issue_id: str, body: Mapping[str, Json] | None) -> Json:
        if self._client is None:
            # Reading the certificates is slow, so a thread does it.
            self._client = await asyncio.to_thread(
                lambda: httpx.AsyncClient(follow_redirects=False, timeout=self._seconds)
            )
        async with self._client.stream(
            method, url, headers=self._headers, json=None if body is None else dict(body)
        ) as response:
            self._check(response, issue_id)
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > _MOST:
                    raise Permanent(f"the answer of {self.name} is too long", ErrorClass.VALIDATION)
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return None

    def _check(self, response: httpx.Response, issue_id: str) -> None:
        status = response.status_code
        is_limited = status == 429 or (status == 403 and response.headers.get("x-ratelimit-remaining") == "0")
        if status in (200, 201):
            return
        if status in (404, 410):
            raise NotFound(f"{self.name} has no issue {issue_id!r}, or does not show it to us")
        if is_limited:
            raise Transient(f"{self.name} limits the request rate", ErrorClass.RATE_LIMIT, _wait(response))
        if status in (401, 403):
            raise Permanent(f"{self.name} does not accept our credentials ({status})", ErrorClass.AUTH)
        if status >= 500 or status == 408:
            raise Transient(f"{self.name} answered {status}", ErrorClass.NETWORK_TIMEOUT, _wait(response))
        raise Permanent(f"{self.name} answered {status}", ErrorClass.VALIDATION)


def text_in(value: Json, limit: int) -> str:
    return cut(clean_text(value).strip(), limit) if isinstance(value, str) else ""


def title_in(value: Json) -> str:
    return " ".join(text_in(value, MAX_TITLE).split())


def body_in(value: Json) -> str:
    return text_in(value, MAX_BODY)


def _wait(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else None
