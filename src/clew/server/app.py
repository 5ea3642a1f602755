"""Puts the product together: the only file that names concrete adapters. Opens everything, and closes it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from pydantic import SecretStr

from clew import __version__
from clew.api.auth import Authenticator
from clew.api.channels import channels_router
from clew.api.cleanup_auth import CleanupAuth
from clew.api.documents import documents_router
from clew.api.events import events_router
from clew.api.files import files_router
from clew.api.graphs import graphs_router
from clew.api.health import Readiness, health_router
from clew.api.histories import histories_router
from clew.api.http import create_http
from clew.api.limits import RateLimits
from clew.api.messages import messages_router
from clew.api.model_calls import audit_router
from clew.api.numbers import Numbering
from clew.api.optimize import Sweep, optimize_router
from clew.api.page import page_router
from clew.api.retention import retention_router
from clew.api.start_policy import StartPolicy
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.api.threads import threads_router
from clew.api.tool_calls import approvals_router, tool_calls_router
from clew.api.workflows import workflows_router
from clew.api.ws import ws_router
from clew.config import Settings
from clew.documents.uploads import Uploads
from clew.domain.errors import ConfigError
from clew.domain.records import ApiKey
from clew.history.access import ChatHistories
from clew.ports.channels import WebhookReceiver
from clew.ports.threads import Store
from clew.retention.export import Export
from clew.server.database import (
    Stores,
    new_id,
    open_bell,
    open_database,
    open_graph_database,
    open_stores,
    open_threads,
    utc_now,
)
from clew.stores.measured import measured, observe_batches
from clew.telemetry import Metrics, shared_metrics

if TYPE_CHECKING:
    from httpx import AsyncBaseTransport

    from clew.server.engine import Execution

# The page: files, and nothing that is imported.
WEB = Path(__file__).parents[1] / "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """The product, open. Whoever runs it sets `stopping` when it shall come to an end."""

    http: FastAPI
    stores: Stores
    execution: "Execution"
    metrics: Metrics
    stopping: asyncio.Event


@asynccontextmanager
async def open_app(
    settings: Settings, *, transport: "AsyncBaseTransport | None" = None
) -> AsyncGenerator[App]:
    """`transport` stands for the network between bots and their providers, in a simulation."""
    from clew.server.engine import EngineParts, open_execution  # noqa: PLC0415 - LangGraph takes seconds; keys need none of it
    from clew.server.library import graph_store_on  # noqa: PLC0415 - the same
    from clew.server.sdk import open_langgraph, serve_nodes  # noqa: PLC0415 - the same

    metrics = shared_metrics()
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        stores = await stack.enter_async_context(open_stores(settings))
        require_keys(settings, await stores.keys.find())
        url = settings.database.url
        store = measured(stores.threads, metrics, url.kind)
        observe_batches((stores.db, stores.threads), metrics, url.kind)
        graph_db = await stack.enter_async_context(open_graph_database(settings, stores.db))
        graph_store = graph_store_on(graph_db, backend=settings.graph_store_url.kind)
        parts = EngineParts(
            db=stores.db,
            graph_db=graph_db,
            store=store,
            open_store=lambda: _second_way(settings, stores),
            calls=stores.calls,
            summaries=stores.summaries,
            audit=stores.audit,
            files=stores.files,
            inbox=stores.inbox,
            cluster=open_bell(stores.db, settings),
            clock=utc_now,
            new_id=new_id,
            graph_store=graph_store,
        )
        execution = await stack.enter_async_context(open_execution(settings, parts, stopping))
        authenticator = Authenticator(
            stores.keys,
            clock=utc_now,
            open_locally=settings.server.auth == "auto" and settings.server.is_loopback,
            allowed_origins=settings.server.allowed_origins,
        )
        limits = RateLimits(
            requests_per_second=settings.limits.requests_per_second,
            wrong_keys_per_minute=settings.limits.wrong_keys_per_minute,
        )
        doors = await stack.enter_async_context(
            _doors(settings, stores, store, execution, metrics, limits.count_delivery, stopping, transport)
        )
        streams = Streams(
            stopping, metrics, most=settings.limits.streams, most_of_one=settings.limits.streams_per_caller
        )
        langgraph = await stack.enter_async_context(
            open_langgraph(
                settings,
                stores,
                store,
                graph_store.items,
                execution,
                streams=streams,
                authenticator=authenticator,
                stopping=stopping,
            )
        )
        http = create_http(
            [
                page_router(WEB, authenticator=authenticator, version=__version__),
                health_router(Readiness(stores.version, stopping), metrics),
                *_retention_routers(settings, stores, store, execution, metrics),
                threads_router(store, utc_now),
                audit_router(stores.audit, access=ThreadAccess(store, utc_now)),
                files_router(stores.files, _uploads(settings, stores), numbering=Numbering(stores.numbers)),
                *_workflow_routers(
                    settings, stores, store, execution, authenticator, metrics, streams, limits
                ),
                histories_router(ChatHistories(histories=graph_store.histories)),
                channels_router(doors),
                *langgraph,
            ],
            authenticator=authenticator,
            metrics=metrics,
            new_id=new_id,
            max_body_bytes=settings.limits.body_bytes,
            allowed_origins=settings.server.allowed_origins,
            limits=limits,
            tenant_of=store.tenant_of,
        )
        stack.enter_context(serve_nodes(http))
        try:
            yield App(http=http, stores=stores, execution=execution, metrics=metrics, stopping=stopping)
        finally:
            stopping.set()


def require_keys(settings: Settings, keys: Iterable[ApiKey]) -> None:
    """Raises ConfigError where strangers could knock and nobody could be let in."""
    if not settings.server.is_loopback and not any(key.is_valid(now=utc_now()) for key in keys):
        raise ConfigError(
            f"{settings.server.host} can be reached from other machines, so callers need API keys, and there are none:"
            " make one with `clew keys create`, or listen on 127.0.0.1"
        )


@asynccontextmanager
async def _doors(
    settings: Settings,
    stores: Stores,
    store: Store,
    execution: "Execution",
    metrics: Metrics,
    pace: Callable[[str], None],
    stopping: asyncio.Event,
    transport: "AsyncBaseTransport | None",
) -> AsyncGenerator[Mapping[str, WebhookReceiver]]:
    """Where chats come in, if any are configured."""
    if not settings.channels:
        yield {}
        return
    from clew.server.channels import open_doors  # noqa: PLC0415 - not everybody has one

    opened = open_doors(
        settings,
        stores,
        store,
        execution.commands,
        execution.notifier,
        execution.registry,
        metrics,
        pace,
        stopping,
        transport,
    )
    async with opened as doors:
        yield doors


def _uploads(settings: Settings, stores: Stores) -> Uploads:
    return Uploads(files=stores.files, clock=utc_now, new_id=new_id, max_bytes=settings.limits.upload_bytes)


def _workflow_routers(
    settings: Settings,
    stores: Stores,
    store: Store,
    execution: "Execution",
    authenticator: Authenticator,
    metrics: Metrics,
    streams: Streams,
    limits: RateLimits,
) -> list[APIRouter]:
    commands, notifier, live = execution.commands, execution.notifier, execution.live
    access = ThreadAccess(store, utc_now)
    numbering = Numbering(stores.numbers)
    offer = StartPolicy(
        numbering=numbering,
        graphs=execution.registry,
        profiles=settings.profiles,
        ttl=timedelta(days=settings.threads.ttl_days),
        files=stores.files,
        assignments=execution.assignments,
    )
    return [
        workflows_router(
            commands,
            store,
            stores.inbox,
            stores.files,
            execution.graph_driver,
            notifier,
            access=access,
            numbering=numbering,
            offer=offer,
            streams=streams,
            metrics=metrics,
        ),
        messages_router(commands, store, stores.files, access=access, numbering=numbering),
        documents_router(stores.files, access=access, numbering=numbering),
        graphs_router(execution.registry, offer.fields),
        tool_calls_router(commands, store, stores.calls, access=access),
        approvals_router(commands, store, "/api", access=access),
        approvals_router(commands, store, "", access=access),
        events_router(store, notifier, live, authenticator=authenticator, access=access, streams=streams),
        ws_router(
            store, notifier, live, authenticator=authenticator, access=access, streams=streams, limits=limits
        ),
    ]


def _retention_routers(
    settings: Settings, stores: Stores, store: Store, execution: "Execution", metrics: Metrics
) -> list[APIRouter]:
    commands, cleanup = execution.commands, execution.cleanup
    access = ThreadAccess(store, utc_now)
    gate = CleanupAuth(
        cleanup.cluster_state,
        clock=utc_now,
        api_key=_revealed(settings.cleanup.api_key),
        cron_secret=_revealed(settings.cleanup.cron_secret),
    )
    is_memory = settings.database.url.kind == "memory"
    numbering = Numbering(stores.numbers)
    return [
        retention_router(
            commands,
            commands.trash,
            cleanup,
            Export(store=store, files=stores.files, latest=execution.graph_driver.latest),
            access=access,
            numbering=numbering,
            clock=utc_now,
            metrics=metrics,
        ),
        optimize_router(
            commands,
            store,
            stores.files,
            execution.registry,
            execution.notifier,
            access=access,
            numbering=numbering,
            clock=utc_now,
            ttl=timedelta(days=settings.threads.ttl_days),
            sweep=Sweep(cleanup=cleanup, gate=gate, clock=utc_now, is_memory=is_memory),
            metrics=metrics,
        ),
    ]


def _revealed(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()


@asynccontextmanager
async def _second_way(settings: Settings, stores: Stores) -> AsyncGenerator[Store]:
    """The store for another event loop. SQLite serves any; a Postgres pool belongs to the loop that opened it."""
    if settings.database.url.dsn is None:
        yield stores.threads
    else:
        async with open_database(settings.database.url, settings) as db:
            yield open_threads(db)
