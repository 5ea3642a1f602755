"""Server composition: services, engine, channels and routes, opened in this order and closed in reverse."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from pydantic import SecretStr

from clew import __version__
from clew.api.audit import Audit, AuditWriter, audit_trail_router
from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.authorized_routes import checks_of
from clew.api.channels import channels_router
from clew.api.cleanup import Sweep, cleanup_router
from clew.api.cleanup_auth import CleanupAuth
from clew.api.cors import Cors
from clew.api.documents import documents_router
from clew.api.events import events_router
from clew.api.files import files_router
from clew.api.graphs import graphs_router
from clew.api.health import Readiness, health_router
from clew.api.histories import histories_router
from clew.api.http import HttpOptions, create_http
from clew.api.keys import keys_router
from clew.api.limits import RateLimits
from clew.api.messages import messages_router
from clew.api.model_calls import audit_router
from clew.api.numbers import Numbering
from clew.api.operation import ShownSetting, operation_router
from clew.api.page import page_router
from clew.api.queue import queue_router
from clew.api.retention import retention_router
from clew.api.search import search_router
from clew.api.spending import spending_router
from clew.api.start_policy import StartPolicy
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.api.threads import thread_events_router, threads_router
from clew.api.tool_calls import approvals_router, tool_calls_router
from clew.api.webhooks import webhooks_router
from clew.api.workflow_views import WorkflowViews
from clew.api.workflows import Workflows, command_router, read_router, start_router
from clew.api.ws import ws_router
from clew.config import Settings, describe
from clew.documents.uploads import Uploads
from clew.domain.errors import ConfigError
from clew.domain.records import ApiKey
from clew.domain.thread import Status
from clew.engine.sweeper import Chore, sweeping
from clew.history.access import ChatHistories
from clew.ports.channels import WebhookReceiver
from clew.ports.threads import Store
from clew.retention.export import Export
from clew.runners.dead_processes import WATCHED
from clew.server.auth import open_custom_auth, open_tokens
from clew.server.database import (
    Stores,
    new_id,
    open_bell,
    open_clock,
    open_database,
    open_graph_database,
    open_liveness,
    open_stores,
    open_threads,
    utc_now,
)
from clew.server.http import http_options
from clew.server.queue import queue_watch, set_order, set_quotas
from clew.server.services import EVERYTHING, ProcessRole, Services
from clew.server.store_index import open_index
from clew.stores.commit_metrics import CommitMetrics
from clew.stores.sql.run_hooks import RunHookRows
from clew.telemetry import Metrics, shared_metrics
from clew.telemetry.recent import STEP_SECONDS, RecentMetrics

if TYPE_CHECKING:
    from httpx import AsyncBaseTransport

    from clew.server.engine import Execution

# The web page: static files, no Python modules.
WEB = Path(__file__).parents[1] / "web"


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The open server. Set `stopping` to shut it down."""

    http: FastAPI
    stores: Stores
    execution: "Execution"
    access: ThreadAccess
    metrics: Metrics
    stopping: asyncio.Event


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpServices:
    """Objects that routes share beside the services of the server."""

    authenticator: Authenticator
    authorization: Authorization
    limits: RateLimits
    streams: Streams


@asynccontextmanager
async def open_app(
    settings: Settings,
    *,
    transport: "AsyncBaseTransport | None" = None,
    background: bool = True,
    role: ProcessRole = EVERYTHING,
) -> AsyncGenerator[Server]:
    """`transport` stands for the network between bots and their providers, in a simulation.

    Without `background` no crons, queued runs or webhooks are started: a command opens the app for its own requests.
    """
    from clew.server.engine import open_execution  # noqa: PLC0415 - LangGraph takes seconds; keys need none of it
    from clew.server.sdk import open_langgraph, serve_nodes  # noqa: PLC0415 - the same

    async with AsyncExitStack() as stack:
        services = await _open_services(settings, role, stack)
        options = http_options(settings)
        execution = await stack.enter_async_context(open_execution(services))
        shared = _http_services(services, options.cors)
        doors = await stack.enter_async_context(_doors(services, execution, shared.limits, transport))
        langgraph = await stack.enter_async_context(
            open_langgraph(
                settings,
                services.stores,
                services.store,
                services.graph_store,
                execution,
                access=services.access,
                streams=shared.streams,
                authenticator=shared.authenticator,
                limits=shared.limits,
                authorization=shared.authorization,
                stopping=services.stopping,
                process=services.process,
                background=background,
            )
        )
        routers = [
            # Before /api/threads/{id}: of two routes that fit, the first one is taken.
            *_retention_routers(services, execution),
            search_router(execution.search, numbering=services.numbering),
            *_operation_routers(services, execution, shared),
            *_workflow_routers(services, execution, shared),
            histories_router(
                ChatHistories(histories=services.graph_store.histories), numbering=services.numbering
            ),
            channels_router(doors),
            *langgraph,
            *_app_routers(services, execution),
        ]
        recent = await stack.enter_async_context(_recent_metrics(services, execution))
        shown = [ShownSetting(one.key, one.value, one.source) for one in describe(settings)]
        routers.append(operation_router(recent, shown))
        audit = await stack.enter_async_context(_audit(services))
        http = _http(services, shared, routers, audit, options)
        stack.enter_context(serve_nodes(http))
        if background:
            await stack.enter_async_context(queue_watch(services, execution).watching())
        if options.custom is not None:
            await stack.enter_async_context(options.custom.running())
        try:
            yield Server(
                http=http,
                stores=services.stores,
                execution=execution,
                access=services.access,
                metrics=services.metrics,
                stopping=services.stopping,
            )
        finally:
            services.stopping.set()


async def _open_services(settings: Settings, role: ProcessRole, stack: AsyncExitStack) -> Services:
    """Raises ConfigError where other machines could connect and no API key exists."""
    from clew.server.library import graph_store_on, ttl_config  # noqa: PLC0415 - LangGraph takes seconds

    metrics = shared_metrics()
    stores = await stack.enter_async_context(open_stores(settings))
    if role.listens:
        require_keys(settings, await stores.keys.find())
    stores.threads.metrics = CommitMetrics(metrics, settings.database.url.kind)
    set_order(stores.threads, settings.queue)
    stores.threads.metrics.observe_batches((stores.db, stores.threads))
    graph_db = await stack.enter_async_context(open_graph_database(settings, stores.db))
    index = await open_index(settings, graph_db)
    graph_store = graph_store_on(
        graph_db,
        backend=settings.graph_store_url.kind,
        ttl=ttl_config(settings.store_ttl),
        index=index,
        stored=set_quotas(stores, graph_db, settings.quotas),
    )
    clock = await open_clock(stores.db)
    access = ThreadAccess(stores.threads, clock)
    stack.push_async_callback(access.close)
    liveness = open_liveness(stores.db, settings)
    return Services(
        settings=settings,
        process=new_id() if liveness is None else WATCHED + new_id(),
        role=role,
        stores=stores,
        open_store=lambda: _second_way(settings, stores),
        graph_db=graph_db,
        graph_store=graph_store,
        cluster=open_bell(stores.db, settings),
        liveness=liveness,
        access=access,
        numbering=Numbering(stores.numbers),
        metrics=metrics,
        clock=clock,
        new_id=new_id,
        stopping=asyncio.Event(),
    )


def _http_services(services: Services, cors: Cors) -> HttpServices:
    server, limits = services.settings.server, services.settings.limits
    custom = open_custom_auth(services.settings)
    return HttpServices(
        authorization=Authorization(custom, checks_of),
        authenticator=Authenticator(
            services.stores.keys,
            clock=utc_now,  # identity providers know nothing of the database's clock
            open_locally=server.auth == "auto" and server.is_loopback,
            allowed_origins=cors,
            tokens=open_tokens(services.settings.auth, utc_now),
            custom=None if custom is None else custom.principal,
        ),
        limits=RateLimits(
            requests_per_second=limits.requests_per_second,
            wrong_keys_per_minute=limits.wrong_keys_per_minute,
        ),
        streams=Streams(
            services.stopping, services.metrics, most=limits.streams, most_of_one=limits.streams_per_caller
        ),
    )


@asynccontextmanager
async def _recent_metrics(services: Services, execution: "Execution") -> AsyncGenerator[RecentMetrics]:
    """Inside the block a reading is kept every minute."""
    recent = RecentMetrics(services.metrics, utc_now)

    async def sample() -> bool:
        counts = await execution.cleanup.space.by_status()
        recent.sample(counts.get(Status.BLOCKED, 0))
        return False

    async with sweeping([Chore(name="recent_metrics", seconds=STEP_SECONDS, do=sample)]):
        yield recent


@asynccontextmanager
async def _audit(services: Services) -> AsyncGenerator[Audit | None]:
    """Records requests; the trail is written and trimmed inside the block. None if it is off."""
    audit, trail = services.settings.audit, services.stores.audit_trail
    if audit.record == "never":
        yield None
        return

    async def trim() -> bool:
        return await trail.trim(older_than=services.clock() - timedelta(days=audit.ttl_days)) > 0

    writer = AuditWriter(trail)
    async with writer.writing(), sweeping([Chore(name="trim_audit_trail", seconds=3600, do=trim)]):
        yield Audit(
            writer=writer,
            clock=services.clock,
            new_id=services.new_id,
            records_local=audit.record == "always",
        )


def _http(
    services: Services,
    shared: HttpServices,
    routers: Iterable[APIRouter],
    audit: Audit | None,
    options: HttpOptions,
) -> FastAPI:
    settings = services.settings
    return create_http(
        routers,
        authenticator=shared.authenticator,
        metrics=services.metrics,
        new_id=services.new_id,
        max_body_bytes=settings.limits.body_bytes,
        options=options,
        limits=shared.limits,
        tenant_of=services.store.tenant_of,
        audit=audit,
        authorization=shared.authorization,
    )


def require_keys(settings: Settings, keys: Iterable[ApiKey]) -> None:
    """Raises ConfigError where other machines could connect and no API key exists."""
    if settings.server.is_loopback or settings.auth.issuer is not None or settings.custom_auth is not None:
        return
    if not any(key.is_valid(now=utc_now()) for key in keys):
        raise ConfigError(
            f"{settings.server.host} can be reached from other machines, so callers need API keys, and there are none:"
            " make one with `clew keys create`, or listen on 127.0.0.1"
        )


@asynccontextmanager
async def _doors(
    services: Services,
    execution: "Execution",
    limits: RateLimits,
    transport: "AsyncBaseTransport | None",
) -> AsyncGenerator[Mapping[str, WebhookReceiver]]:
    """The webhook receivers, if any channels are configured."""
    if not services.settings.channels:
        yield {}
        return
    from clew.server.channels import open_doors  # noqa: PLC0415 - only for settings with channels

    opened = open_doors(
        settings=services.settings,
        stores=services.stores,
        store=services.store,
        process=services.process,
        commands=execution.commands,
        notifier=execution.notifier,
        graphs=execution.registry,
        metrics=services.metrics,
        pace=limits.count_delivery,
        stopping=services.stopping,
        transport=transport,
    )
    async with opened as doors:
        yield doors


def _operation_routers(services: Services, execution: "Execution", shared: HttpServices) -> list[APIRouter]:
    stores, settings = services.stores, services.settings
    uploads = Uploads(
        files=stores.files,
        clock=services.clock,
        new_id=services.new_id,
        max_bytes=settings.limits.upload_bytes,
    )
    return [
        page_router(WEB, authenticator=shared.authenticator, version=__version__),
        health_router(Readiness(stores.version, services.stopping), services.metrics),
        threads_router(services.store, access=services.access, numbering=services.numbering),
        thread_events_router(services.store, access=services.access),
        queue_router(stores.queue, services.store, execution.commands),
        webhooks_router(RunHookRows(stores.db)),
        spending_router(services.store, stores.spending, settings.prices, services.access, services.clock),
        audit_trail_router(stores.audit_trail, numbering=services.numbering),
        audit_router(stores.audit, access=services.access),
        files_router(stores.files, uploads, numbering=services.numbering),
        keys_router(stores.keys, clock=utc_now),
    ]


def _workflow_routers(services: Services, execution: "Execution", shared: HttpServices) -> list[APIRouter]:
    commands, notifier, live = execution.commands, execution.notifier, execution.live
    store, stores, access, numbering = services.store, services.stores, services.access, services.numbering
    authenticator, streams = shared.authenticator, shared.streams
    apps = execution.apps.workflow_apps()
    policy = StartPolicy(
        numbering=numbering,
        graphs=execution.registry,
        profiles=services.settings.profiles,
        ttl=services.thread_ttl,
        files=stores.files,
        apps=apps,
    )
    workflows = Workflows(
        commands=commands,
        store=store,
        inbox=stores.inbox,
        notifier=notifier,
        access=access,
        policy=policy,
        views=WorkflowViews(
            store=store,
            files=stores.files,
            graph_driver=execution.graph_driver,
            numbering=numbering,
            apps=apps,
        ),
        streams=streams,
        metrics=services.metrics,
    )
    return [
        start_router(workflows),
        read_router(workflows),
        command_router(workflows),
        messages_router(commands, store, stores.files, access=access, numbering=numbering, apps=apps),
        documents_router(stores.files, access=access, numbering=numbering),
        graphs_router(
            execution.registry,
            policy.fields,
            default=apps.default,
            profiles=sorted(services.settings.profiles),
            uses_profiles=execution.apps.uses_profiles,
        ),
        tool_calls_router(commands, store, stores.calls, access=access),
        approvals_router(commands, store, "/api", access=access),
        approvals_router(commands, store, "", access=access),
        events_router(store, notifier, live, authenticator=authenticator, access=access, streams=streams),
        ws_router(
            store,
            notifier,
            live,
            authenticator=authenticator,
            access=access,
            streams=streams,
            limits=shared.limits,
            authorization=shared.authorization,
        ),
    ]


def _retention_routers(services: Services, execution: "Execution") -> list[APIRouter]:
    commands, cleanup, settings = execution.commands, execution.cleanup, services.settings
    gate = CleanupAuth(
        cleanup.cluster_state,
        clock=services.clock,
        api_key=_revealed(settings.cleanup.api_key),
        cron_secret=_revealed(settings.cleanup.cron_secret),
    )
    is_memory = settings.database.url.kind == "memory"
    export = Export(store=services.store, files=services.stores.files, latest=execution.graph_driver.latest)
    return [
        retention_router(
            commands,
            commands.trash,
            cleanup,
            export,
            access=services.access,
            numbering=services.numbering,
            clock=services.clock,
            metrics=services.metrics,
        ),
        cleanup_router(
            Sweep(
                cleanup=cleanup,
                access=services.access,
                gate=gate,
                numbering=services.numbering,
                clock=services.clock,
                is_memory=is_memory,
            )
        ),
    ]


def _app_routers(services: Services, execution: "Execution") -> list[APIRouter]:
    from clew.apps.app import AppServices, RouteServices  # noqa: PLC0415 - imported with the engine

    def route_services(app: AppServices) -> RouteServices:
        return RouteServices(
            app=app,
            commands=execution.commands,
            access=services.access,
            numbering=services.numbering,
            notifier=execution.notifier,
            graphs=execution.registry,
            ttl=services.thread_ttl,
        )

    return execution.apps.routers(route_services)


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
