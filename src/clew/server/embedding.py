"""Clew inside another ASGI application: opened in its lifespan, called without a network, mounted for other clients."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path

import httpx
from starlette.types import ASGIApp

from clew.api.credentials import SCOPES, TENANT, USUAL_SCOPES, Principal
from clew.config import export_environment, load_process_settings
from clew.domain.errors import ConfigError, Invalid
from clew.server.inprocess import InProcess

# A request may wait for a run.
SECONDS = 600.0


class EmbeddedServer:
    """An open server without a socket of its own."""

    def __init__(self, asgi: ASGIApp, prefix: str) -> None:
        self.asgi = asgi
        self._prefix = prefix

    def client(
        self, *, tenant: str = "default", user: str = "", scopes: Collection[str] = USUAL_SCOPES
    ) -> httpx.AsyncClient:
        """A client of the HTTP API that acts for this user. The application decides who that is: no key is asked.

        `LangGraphClient(server.client(user="ann"))` of `langgraph_sdk.client` is LangGraph's client on it.
        """
        if not TENANT.fullmatch(tenant):
            raise Invalid(f"tenant: expected letters, digits and ._:@-, at most 64, got {tenant!r}")
        if unknown := set(scopes) - set(SCOPES):
            raise Invalid(f"scopes: expected some of {', '.join(SCOPES)}, got {', '.join(sorted(unknown))}")
        caller = Principal(tenant=tenant, user_id=user, scopes=frozenset(scopes), key_id="")
        return httpx.AsyncClient(
            transport=InProcess(self.asgi, caller),
            base_url=f"http://127.0.0.1{self._prefix}",
            timeout=SECONDS,
        )


@asynccontextmanager
async def open_server(
    config: str | PathLike[str] | None = None, *, database: str | None = None
) -> AsyncGenerator[EmbeddedServer]:
    """Open Clew with its runner until the block ends, with the settings of `clew serve` in this folder.

    `config` names a clew.yaml or langgraph.json; `database` replaces the URL of the settings. Callers of the mounted
    application always need a credential: Clew cannot see which address the application listens on.
    """
    options = {} if database is None else {"database.url": database}
    settings = load_process_settings(None if config is None else Path(config), options)
    if settings.custom_auth is None and settings.server.auth == "auto":
        settings = replace(settings, server=settings.server.model_copy(update={"auth": "keys"}))
    if not settings.server.is_loopback:
        raise ConfigError("server.host: the application that embeds Clew listens; remove the setting")
    export_environment(settings)
    from clew.server.app import open_app  # noqa: PLC0415 - LangGraph reads on import what was just exported

    async with open_app(settings) as app:
        yield EmbeddedServer(app.http, settings.http.mount_prefix)
