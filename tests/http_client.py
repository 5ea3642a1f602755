"""The HTTP API in this process, and the callers it has."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from fastapi import APIRouter, FastAPI

from clew.api.auth import Authenticator
from clew.api.cors import Cors
from clew.api.credentials import SCOPES, mint
from clew.api.http import HttpOptions, create_http
from clew.config import load_settings
from clew.domain.thread import Owner
from clew.ports.api_keys import Keys
from clew.ports.clock import Clock
from clew.server.app import Server, open_app
from clew.server.database import utc_now
from clew.stores.sql.keys import KeyRows
from clew.stores.sqlite import open_sqlite
from clew.telemetry import Metrics
from tests.samples import ANN, new_id

ADDRESS = "http://127.0.0.1:8124"
EVERYTHING = frozenset(SCOPES)


def client_of(app: FastAPI, key: str | None = None, **headers: str) -> httpx.AsyncClient:
    shown = headers if key is None else {"Authorization": f"Bearer {key}", **headers}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=ADDRESS, headers=shown)


async def new_key(
    keys: Keys,
    *,
    owner: Owner = ANN,
    scopes: frozenset[str] = EVERYTHING,
    now: datetime | None = None,
    lifetime: timedelta | None = None,
) -> str:
    """The text of a key that is stored now."""
    text, key = mint(name="a test", owner=owner, scopes=scopes, now=now or utc_now(), lifetime=lifetime)
    await keys.add(key)
    return text


@asynccontextmanager
async def opened_app(folder: Path, **environ: str) -> AsyncGenerator[Server]:
    """The whole product, in memory unless the environment names a database."""
    # The runner looks for work when it starts, and when a bell rings or is there at last, but not by the clock. Threads
    # that are held, or of a graph that is not here, stay as a test puts them there.
    environ = {"CLEW_DATABASE_URL": "memory://", "CLEW_RUNNER_POLL_SECONDS": "60", **environ}
    settings = load_settings(environ, cwd=folder)
    async with open_app(settings) as app:
        yield app


@dataclass(frozen=True, slots=True)
class SmallApi:
    """Any routers behind the guard, and the keys it knows."""

    http: FastAPI
    keys: Keys
    metrics: Metrics


@asynccontextmanager
async def small_api(
    *routers: APIRouter,
    open_locally: bool = True,
    clock: Clock = utc_now,
    monotonic: Callable[[], float] = lambda: 0.0,
    allowed_origins: Sequence[str] = (),
    **options: Any,
) -> AsyncGenerator[SmallApi]:
    async with AsyncExitStack() as stack:
        keys = KeyRows(await stack.enter_async_context(open_sqlite(None)))
        metrics = Metrics()
        authenticator = Authenticator(
            keys,
            clock=clock,
            open_locally=open_locally,
            allowed_origins=allowed_origins,
            monotonic=monotonic,
        )
        http = create_http(
            routers,
            authenticator=authenticator,
            metrics=metrics,
            new_id=new_id,
            options=HttpOptions(cors=Cors(origins=tuple(allowed_origins))),
            **{"max_body_bytes": 1024, **options},
        )
        yield SmallApi(http, keys, metrics)
