"""SDK API composition: the routes that LangGraph's own clients call, on services that are already open."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from importlib.metadata import version

from fastapi import APIRouter
from starlette.types import ASGIApp

from clew import __version__
from clew.api.agui.routes import AguiRoutes
from clew.api.auth import Authenticator
from clew.api.authorization import Authorization
from clew.api.custom_app import custom_route_owner
from clew.api.followed_runs import FollowedRuns
from clew.api.limits import RateLimits
from clew.api.mcp.routes import McpRoutes
from clew.api.openai.routes import OpenAIRoutes
from clew.api.sdk.assistants import assistants_router
from clew.api.sdk.crons import crons_router
from clew.api.sdk.info import info_router
from clew.api.sdk.loopback import Loopback, loopback
from clew.api.sdk.protocol.commands import ProtocolCommands
from clew.api.sdk.protocol.routes import ProtocolRoutes
from clew.api.sdk.protocol.socket import ProtocolSocketRoutes
from clew.api.sdk.reports import report
from clew.api.sdk.runs import RunRoutes, langgraph_runs_router
from clew.api.sdk.store import store_router
from clew.api.sdk.thread_states import ShownStates
from clew.api.sdk.thread_stream import ThreadStreamRoutes
from clew.api.sdk.threads import sdk_threads_router
from clew.api.start_policy import said
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.api.ws import AUTH_SECONDS, SocketAuthenticator
from clew.channels.webhooks import HttpWebhooks, signatures
from clew.config import Settings
from clew.domain.thread import Owner
from clew.engine.assistants import AssistantCatalog
from clew.engine.crons import Scheduler
from clew.engine.run_hooks import RunHooks
from clew.engine.run_queue import RunQueue
from clew.engine.runs import Runs
from clew.engine.sweeper import Chore, sweeping
from clew.engine.threads import Threads
from clew.graph.run import current_run
from clew.history.graph_store import GraphStore
from clew.history.store_items import StoreItems
from clew.ports.priorities import NoPriorities, Priorities
from clew.ports.run_hooks import Webhooks
from clew.ports.threads import Store
from clew.server.database import Stores, new_id, utc_now
from clew.server.engine import Execution
from clew.server.priority import ProjectPriorities, load_assign
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.crons import CronRows
from clew.stores.sql.run_hooks import RunHookRows
from clew.stores.sql.stream_parts import StreamPartRows
from clew.stores.sql.thread_metadata import ThreadMetadataRows

# How long stream parts are kept for clients that reconnect.
REMEMBERED = timedelta(hours=1)


def _private(settings: Settings, authenticator: Authenticator) -> Callable[[], Awaitable[bool]]:
    """Whether webhooks may lead to this machine and its net.

    Where Clew listens does not decide that: a proxy on this machine shows a loopback address to others. Callers who need
    a key may be anywhere; those who need none are here.
    """

    async def private() -> bool:
        match settings.langgraph.webhooks:
            case "auto":
                return await authenticator.is_open()
            case chosen:
                return chosen == "private"

    return private


def _webhook_secrets(settings: Settings) -> list[str]:
    """The newest first."""
    both = (settings.langgraph.webhook_secret, settings.langgraph.webhook_old_secret)
    return [secret.get_secret_value() for secret in both if secret is not None]


@contextmanager
def serve_nodes(http: ASGIApp) -> Generator[None]:
    """Inside the block a node reaches this server with the SDK's `get_client()`, for the owner of its thread.

    Code of a custom app does so for the caller of its route."""

    def owner() -> Owner | None:
        run = current_run()
        return custom_route_owner() if run is None else run.thread.owner

    with loopback(Loopback(http, owner)):
        yield


@asynccontextmanager
async def open_langgraph(
    settings: Settings,
    stores: Stores,
    store: Store,
    graph_store: GraphStore,
    execution: Execution,
    *,
    access: ThreadAccess,
    streams: Streams,
    authenticator: Authenticator,
    limits: RateLimits,
    authorization: Authorization,
    stopping: asyncio.Event,
    process: str,
    background: bool,
) -> AsyncGenerator[list[APIRouter]]:
    """Inside the block queued and scheduled runs are started, and run hooks are worked on, if `background` says so."""
    assistants = await _assistants(settings, stores, execution)
    webhooks = HttpWebhooks(
        agent=f"clew/{__version__}",
        is_open=settings.langgraph.webhooks != "off" and "webhooks" not in settings.http.disabled,
        private=_private(settings, authenticator),
        sign=signatures(_webhook_secrets(settings), utc_now),
        policy=settings.webhook_policy,
    )
    priorities = _priorities(settings, assistants)
    # By which events are dated: queued and started runs are sorted together.
    clock = execution.commands.clock
    runs = _runs(settings, stores, store, execution, webhooks, stopping, priorities, process)
    run_hooks = RunHooks(
        hooks=RunHookRows(stores.db, process),
        runs=runs,
        webhooks=webhooks,
        report=report(clock, fields=settings.webhook_policy.fields),
        clock=clock,
        poll_seconds=settings.runner.poll_seconds,
    )
    scheduler = Scheduler(
        crons=CronRows(stores.db, process, quota=settings.quotas.crons),
        runs=runs,
        assistants=assistants,
        webhooks=webhooks,
        clock=clock,
        said=said,
        most=settings.langgraph.crons,
    )
    async with AsyncExitStack() as stack:
        if background:
            for work in (runs.queue.running(), run_hooks.running(), scheduler.running()):
                await stack.enter_async_context(work)
            await stack.enter_async_context(sweeping([_forget_stream_parts(stores)]))
        yield _routers(
            settings,
            stores,
            graph_store,
            execution,
            runs,
            assistants,
            scheduler,
            SocketAuthenticator(authenticator, limits, AUTH_SECONDS, authorization),
            access=access,
            streams=streams,
            authenticator=authenticator,
        )


def _routers(
    settings: Settings,
    stores: Stores,
    graph_store: GraphStore,
    execution: Execution,
    runs: Runs,
    assistants: AssistantCatalog,
    scheduler: Scheduler,
    socket: SocketAuthenticator,
    *,
    access: ThreadAccess,
    streams: Streams,
    authenticator: Authenticator,
) -> list[APIRouter]:
    run_routes = RunRoutes(
        runs,
        assistants,
        execution.chunks,
        access=access,
        streams=streams,
        authenticator=authenticator,
    )
    followed = FollowedRuns(
        runs=runs,
        assistants=assistants,
        parts=execution.chunks,
        access=access,
        streams=streams,
        authenticator=authenticator,
    )
    thread_stream = ThreadStreamRoutes(
        runs=runs,
        parts=execution.chunks,
        access=access,
        streams=streams,
        authenticator=authenticator,
        read_state=ShownStates(threads=runs.threads).read,
    )
    protocol = ProtocolRoutes(
        runs=runs,
        parts=execution.chunks,
        commands=ProtocolCommands(runs, run_routes, execution.chunks, access),
        access=access,
        streams=streams,
        authenticator=authenticator,
    )
    return [
        info_router(
            version=__version__,
            langgraph_version=version("langgraph"),
            disabled=settings.http.disabled,
        ),
        assistants_router(assistants, execution.introspection),
        store_router(
            StoreItems(
                items=graph_store.items,
                index=graph_store.index,
                ttl=settings.store_ttl.default,
                refreshes=settings.store_ttl.refreshes,
            )
        ),
        sdk_threads_router(runs, CheckpointRows(stores.db), execution.chunks, access=access),
        thread_stream.router(),
        protocol.router(),
        ProtocolSocketRoutes(routes=protocol, door=socket).router(),
        crons_router(scheduler, assistants, access=access),
        langgraph_runs_router(run_routes),
        OpenAIRoutes(runs=followed, introspection=execution.introspection).router(),
        McpRoutes(followed, execution.introspection).router(),
        AguiRoutes(followed, execution.introspection).router(),
    ]


async def _assistants(settings: Settings, stores: Stores, execution: Execution) -> AssistantCatalog:
    built_in = execution.registry.graphs.keys() - settings.graphs.keys()
    return AssistantCatalog(
        assistants=stores.assistants,
        graphs=execution.registry,
        introspection=execution.introspection,
        labels=ThreadMetadataRows(stores.db),
        delete_thread=execution.commands.delete,
        clock=utc_now,
        new_id=new_id,
        since=await stores.begun_at(),
        hidden=() if settings.langgraph.built_in_graphs else built_in,
        descriptions={name: source.description for name, source in settings.graphs.items()},
    )


def _priorities(settings: Settings, assistants: AssistantCatalog) -> Priorities:
    source = settings.custom_priority
    if source is None:
        return NoPriorities()
    return ProjectPriorities(load_assign(source, settings), assistants.resolve)


def _runs(
    settings: Settings,
    stores: Stores,
    store: Store,
    execution: Execution,
    webhooks: Webhooks,
    stopping: asyncio.Event,
    priorities: Priorities,
    process: str,
) -> Runs:
    metadata = ThreadMetadataRows(stores.db)
    queue = RunQueue(
        inbox=stores.inbox,
        conversations=ConversationRows(stores.db, process),
        store=store,
        commands=execution.commands,
        notifier=execution.notifier,
        clock=execution.commands.clock,
        new_id=new_id,
        stopping=stopping,
        poll_seconds=settings.runner.poll_seconds,
        lease=timedelta(seconds=settings.runner.lease_seconds),
        room=execution.commands.room,
    )
    threads = Threads(
        store=store,
        commands=execution.commands,
        graph_driver=execution.graph_driver,
        metadata=metadata,
        ttl=settings.thread_ttl.delete_after,
    )
    return Runs(
        store=store,
        threads=threads,
        commands=execution.commands,
        queue=queue,
        graph_driver=execution.graph_driver,
        metadata=metadata,
        webhooks=webhooks,
        notifier=execution.notifier,
        clock=execution.commands.clock,
        priorities=priorities,
        temporary_grace=timedelta(seconds=settings.langgraph.temporary_seconds),
    )


def _forget_stream_parts(stores: Stores) -> Chore:
    rows = StreamPartRows(stores.db)

    async def forget() -> bool:
        return await rows.forget(older_than=utc_now() - REMEMBERED) > 0

    return Chore(name="forget_stream_parts", seconds=60, do=forget)
