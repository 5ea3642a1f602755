"""The face that LangGraph's own clients know, put together on what is open already."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from importlib.metadata import version

from fastapi import APIRouter
from starlette.types import ASGIApp

from clew import __version__
from clew.api.auth import Authenticator
from clew.api.sdk.assistants import assistants_router
from clew.api.sdk.crons import crons_router
from clew.api.sdk.info import info_router
from clew.api.sdk.loopback import Loopback, loopback
from clew.api.sdk.reports import report
from clew.api.sdk.runs import langgraph_runs_router
from clew.api.sdk.store import store_router
from clew.api.sdk.threads import langgraph_threads_router
from clew.api.start_policy import said
from clew.api.streams import Streams
from clew.api.thread_access import ThreadAccess
from clew.channels.webhooks import HttpWebhooks
from clew.config import Settings
from clew.domain.thread import Owner
from clew.engine.assistants import AssistantCatalog
from clew.engine.crons import Scheduler
from clew.engine.run_hooks import RunHooks
from clew.engine.run_queue import RunQueue
from clew.engine.runs import Runs
from clew.engine.sweeper import Chore, sweeping
from clew.graph.run import current_run
from clew.history.store_items import StoreItems
from clew.ports.items import Items
from clew.ports.threads import Store
from clew.server.database import Stores, new_id, utc_now
from clew.server.engine import Execution
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.crons import CronRows
from clew.stores.sql.run_hooks import RunHookRows
from clew.stores.sql.stream_parts import StreamPartRows
from clew.stores.sql.thread_metadata import ThreadMetadataRows

# What runs streamed is kept so long for those who come back to it.
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


@contextmanager
def serve_nodes(http: ASGIApp) -> Generator[None]:
    """Inside the block a node reaches this server with the SDK's `get_client()`, for the owner of its thread."""

    def owner() -> Owner | None:
        run = current_run()
        return None if run is None else run.thread.owner

    with loopback(Loopback(http, owner)):
        yield


@asynccontextmanager
async def open_langgraph(
    settings: Settings,
    stores: Stores,
    store: Store,
    items: Items,
    execution: Execution,
    *,
    streams: Streams,
    authenticator: Authenticator,
    stopping: asyncio.Event,
) -> AsyncGenerator[list[APIRouter]]:
    """Inside the block runs that wait get their turn."""
    access = ThreadAccess(store, utc_now)
    labels = ThreadMetadataRows(stores.db)
    built_in = execution.registry.graphs.keys() - settings.graphs.keys()
    roster = AssistantCatalog(
        assistants=stores.assistants,
        graphs=execution.registry,
        introspection=execution.introspection,
        labels=labels,
        delete_thread=execution.commands.delete,
        clock=utc_now,
        new_id=new_id,
        since=await stores.begun_at(),
        hidden=() if settings.langgraph.built_in_graphs else built_in,
        descriptions={name: source.description for name, source in settings.graphs.items()},
    )
    queue = RunQueue(
        inbox=stores.inbox,
        conversations=ConversationRows(stores.db),
        store=store,
        commands=execution.commands,
        notifier=execution.notifier,
        clock=utc_now,
        new_id=new_id,
        stopping=stopping,
        poll_seconds=settings.runner.poll_seconds,
        lease=timedelta(seconds=settings.runner.lease_seconds),
    )
    ordering = Runs(
        store=store,
        commands=execution.commands,
        queue=queue,
        graph_driver=execution.graph_driver,
        labels=labels,
        notifier=execution.notifier,
        clock=utc_now,
        new_id=new_id,
        ttl=timedelta(days=settings.threads.ttl_days),
    )
    webhooks = HttpWebhooks(
        agent=f"clew/{__version__}",
        is_open=settings.langgraph.webhooks != "off",
        private=_private(settings, authenticator),
    )
    run_hooks = RunHooks(
        errands=RunHookRows(stores.db),
        ordering=ordering,
        webhooks=webhooks,
        report=report(utc_now),
        clock=utc_now,
        grace=timedelta(seconds=settings.langgraph.temporary_seconds),
    )
    scheduler = Scheduler(
        crons=CronRows(stores.db),
        ordering=ordering,
        run_hooks=run_hooks,
        roster=roster,
        webhooks=webhooks,
        clock=utc_now,
        said=said,
        most=settings.langgraph.crons,
    )
    chunk_rows = StreamPartRows(stores.db)

    async def forget_chunks() -> bool:
        return await chunk_rows.forget(older_than=utc_now() - REMEMBERED) > 0

    chores = [
        Chore(name="begin_crons", seconds=1, do=scheduler.begin_due),
        Chore(name="run_errands", seconds=settings.runner.poll_seconds, do=run_hooks.look),
        Chore(name="forget_chunks", seconds=60, do=forget_chunks),
    ]
    async with queue.serving(), run_hooks.open(), sweeping(chores):
        yield [
            info_router(version=__version__, langgraph_version=version("langgraph")),
            assistants_router(roster, execution.introspection),
            store_router(StoreItems(items=items)),
            langgraph_threads_router(ordering, access=access),
            crons_router(scheduler, roster, access=access),
            langgraph_runs_router(
                ordering,
                roster,
                execution.chunks,
                run_hooks,
                access=access,
                streams=streams,
                authenticator=authenticator,
            ),
        ]
