"""Client of the native HTTP API: of a server, or of the app opened in this process on a local database."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from clew.cli.opening import read_settings
from clew.config import (
    ClientSettings,
    Settings,
    client_settings,
    export_environment,
    load_client_settings,
)
from clew.domain.errors import ClewError, ConfigError, Invalid, NotFound, Unavailable

# Of a request that is no stream. A start may wait for a database that is busy.
SECONDS = 60.0
LOCAL_SECONDS = 600.0  # the app has its own limits
PAGE = 200
# How many threads are looked through for one whose id begins as given.
PREFIX_PAGES = 50
SHORTEST_PREFIX = 4


class ServerRefusal(ClewError):
    """The server answered with an error."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.answer_code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a command talks to: the options of it that say so."""

    url: str | None = None
    key: str | None = None
    config: Path | None = None
    tenant: str = "default"
    user: str = ""

    def server(self) -> ClientSettings | None:
        """The server to call; None for the local database. Raises Invalid or ConfigError."""
        if self.url is not None:
            given = client_settings(self.url, self.key)
            if given.key is None:
                given = given.model_copy(update={"key": load_client_settings(self.config).key})
            return given
        found = load_client_settings(self.config)
        if self.key is not None:
            found = found.model_copy(update={"key": client_settings(None, self.key).key})
        if found.url is not None:
            return found
        if found.key is not None:
            raise Invalid("an API key is for a server: name it with --url or CLEW_URL")
        return None


class Api:
    """Requests, with errors as exceptions: ServerRefusal for an answer, Unavailable where there is none."""

    def __init__(self, client: httpx.AsyncClient, where: str, *, is_local: bool) -> None:
        self._client = client
        self._where = where
        self.is_local = is_local

    async def get(self, path: str, **query: Any) -> Any:
        return await self.request("GET", path, params=_given(query))

    async def post(self, path: str, body: Any = None, **query: Any) -> Any:
        return await self.request("POST", path, json=body if body is not None else {}, params=_given(query))

    async def delete(self, path: str, body: Any = None, **query: Any) -> Any:
        more = {} if body is None else {"json": body}
        return await self.request("DELETE", path, params=_given(query), **more)

    async def request(self, method: str, path: str, **more: Any) -> Any:
        with _reaching(self._where):
            answer = await self._client.request(method, path, **more)
        _require_done(answer)
        return answer.json() if answer.content else None

    async def upload(self, path: Path) -> Any:
        try:
            content = await asyncio.to_thread(path.read_bytes)
        except OSError as exc:
            raise Invalid(f"cannot read {path}: {exc.strerror}") from exc
        return await self.request("POST", "/api/files", files={"file": (path.name, content)})

    @asynccontextmanager
    async def stream(self, path: str, **query: Any) -> AsyncGenerator[httpx.Response]:
        """An answer that is read piece by piece."""
        with _reaching(self._where):
            timeout = httpx.Timeout(SECONDS, read=None)
            async with self._client.stream("GET", path, params=_given(query), timeout=timeout) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                _require_done(answer)
                yield answer

    async def events(self, thread_id: str, *, since: int) -> AsyncIterator[dict[str, Any]]:
        """The events of a thread after this sequence, as long as the server sends them."""
        async with self.stream(f"/api/workflows/{part(thread_id)}/events", since=since) as answer:
            data = ""
            async for line in answer.aiter_lines():
                if line.startswith("data:"):
                    data += line[5:].removeprefix(" ")
                elif not line and data:
                    yield json.loads(data)
                    data = ""

    async def pages(self, path: str, field: str, *, limit: int, **query: Any) -> list[Any]:
        """Up to `limit` entries of a list that has pages."""
        found: list[Any] = []
        cursor = None
        while len(found) < limit:
            page = await self.get(path, limit=min(PAGE, limit - len(found)), cursor=cursor, **query)
            found += page[field]
            cursor = page["next"]
            if cursor is None:
                break
        return found

    async def thread(self, given: str) -> dict[str, Any]:
        """The thread with this id, or with the one id that begins so. Raises NotFound or Invalid."""
        try:
            found: dict[str, Any] = await self.get(f"/api/threads/{part(given)}")
        except ServerRefusal as exc:
            if exc.status != 404 or len(given) < SHORTEST_PREFIX:
                raise
        else:
            return found
        threads = await self.pages("/api/threads", "threads", limit=PAGE * PREFIX_PAGES)
        thread_id = only_match(given, [thread["id"] for thread in threads])
        whole: dict[str, Any] = await self.get(f"/api/threads/{part(thread_id)}")
        return whole


@asynccontextmanager
async def open_api(target: Target, *, runs: bool = False, creates: bool = False) -> AsyncGenerator[Api]:
    """The API of the server, or of the local database. With `runs` this process runs the threads of a local one.

    A local database is created with `runs` or `creates` only.
    """
    server = target.server()
    if server is not None and server.url is not None:
        headers = {} if server.key is None else {"Authorization": f"Bearer {server.key.get_secret_value()}"}
        async with httpx.AsyncClient(
            base_url=server.url.rstrip("/"), headers=headers, timeout=SECONDS
        ) as client:
            yield Api(client, server.url, is_local=False)
        return
    settings = read_settings(target.config, level="error", without=("channels",))
    if settings.database.url.kind == "memory" and not runs:
        raise ConfigError("the database is memory://, which only the running process sees")
    path = settings.database.url.path
    if path is not None and not (runs or creates or path.exists()):
        raise ConfigError(f"there is no database at {path}; is this the right folder? --url names a server")
    async with open_local_api(settings, runs=runs, tenant=target.tenant, user=target.user) as api:
        yield api


@asynccontextmanager
async def open_local_api(
    settings: Settings, *, runs: bool, tenant: str = "default", user: str = ""
) -> AsyncGenerator[Api]:
    """The API in this process, on the database of these settings."""
    settings = _for_command(settings, runs=runs)
    export_environment(settings)
    from clew.api.credentials import SCOPES, Principal  # noqa: PLC0415 - reads what was just exported
    from clew.server.app import open_app  # noqa: PLC0415 - the same
    from clew.server.inprocess import InProcess  # noqa: PLC0415 - the same

    caller = Principal(tenant=tenant, user_id=user, scopes=frozenset(SCOPES), key_id="")
    async with open_app(settings, background=False) as app:
        transport = InProcess(app.http, caller)
        base = f"http://127.0.0.1{settings.http.mount_prefix}"
        async with httpx.AsyncClient(transport=transport, base_url=base, timeout=LOCAL_SECONDS) as client:
            yield Api(client, str(settings.database.url), is_local=True)


def _for_command(settings: Settings, *, runs: bool) -> Settings:
    """Without bots and scheduled cleanups, which are for a server; without a runner unless it is wanted."""
    changed = {} if runs else {"concurrency": 0}
    return replace(
        settings,
        channels=(),
        server=settings.server.model_copy(update={"host": "127.0.0.1"}),
        cleanup=settings.cleanup.model_copy(update={"schedule": None, "every_seconds": 0.0}),
        runner=settings.runner.model_copy(update=changed),
    )


def only_match(given: str, ids: Sequence[str]) -> str:
    """The one id that begins so. Raises NotFound, or Invalid if there are several."""
    if given in ids:
        return given
    found = [known for known in ids if known.startswith(given)]
    if not found or len(given) < SHORTEST_PREFIX:
        raise NotFound(f"no id {given!r}, and none that begins with it")
    if len(found) > 1:
        shown = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise Invalid(f"{len(found)} ids begin with {given!r}: {shown}")
    return found[0]


def part(text: str) -> str:
    """A value as a part of a path."""
    return quote(text, safe="")


def _given(query: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in query.items() if value is not None}


def _require_done(answer: httpx.Response) -> None:
    if answer.status_code < 400:
        return
    code, message = "", f"the server answered with status {answer.status_code}"
    try:
        error = answer.json()
        told = error.get("error", error)
        code = str(told.get("code", ""))
        message = str(told.get("message") or told.get("detail") or message)
        if told.get("field"):
            message = f"{told['field']}: {message}"
    except (ValueError, AttributeError):
        pass
    if answer.status_code == 503:
        raise Unavailable(message)
    raise ServerRefusal(message, status=answer.status_code, code=code)


class _reaching:  # noqa: N801 - used as a function
    """Turns errors of the connection into Unavailable, naming the server."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, httpx.TimeoutException):
            raise Unavailable(f"{self._where} did not answer in time") from None
        if isinstance(exc, httpx.TransportError | httpx.InvalidURL):
            raise Unavailable(f"{self._where} cannot be reached: {exc}") from None
