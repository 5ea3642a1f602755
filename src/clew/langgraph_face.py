"""The face that LangGraph's own clients know, put together on what is open already."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version

from fastapi import APIRouter

from clew import __version__
from clew.api.auth import Authenticator
from clew.api.langgraph.assistants import assistants_router
from clew.api.langgraph.info import info_router
from clew.api.langgraph.runs import langgraph_runs_router
from clew.api.langgraph.store import store_router
from clew.api.langgraph.threads import langgraph_threads_router
from clew.api.looks import Looks
from clew.api.streams import Streams
from clew.config import Settings
from clew.engine.assistants import Roster
from clew.engine.ordering import Ordering
from clew.engine.queue import RunQueue
from clew.engine.shelf import Shelf
from clew.execution import Execution
from clew.opening import Stores, new_id, utc_now
from clew.ports import Items, Store
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.labels import LabelRows


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
    looks = Looks(store, utc_now)
    labels = LabelRows(stores.db)
    roster = Roster(
        assistants=stores.assistants,
        graphs=execution.registry,
        anatomy=execution.anatomy,
        labels=labels,
        delete_thread=execution.commands.delete,
        clock=utc_now,
        new_id=new_id,
        since=await stores.begun_at(),
    )
    queue = RunQueue(
        inbox=stores.inbox,
        conversations=ConversationRows(stores.db),
        store=store,
        commands=execution.commands,
        bus=execution.bus,
        clock=utc_now,
        new_id=new_id,
        stopping=stopping,
        poll_seconds=settings.runner.poll_seconds,
        lease=timedelta(seconds=settings.runner.lease_seconds),
    )
    ordering = Ordering(
        store=store,
        commands=execution.commands,
        queue=queue,
        bridge=execution.bridge,
        labels=labels,
        bus=execution.bus,
        clock=utc_now,
        new_id=new_id,
        ttl=timedelta(days=settings.threads.ttl_days),
    )
    async with queue.serving():
        yield [
            info_router(version=__version__, langgraph_version=version("langgraph")),
            assistants_router(roster, execution.anatomy),
            store_router(Shelf(items=items)),
            langgraph_threads_router(ordering, looks=looks),
            langgraph_runs_router(
                ordering, roster, execution.chunks, looks=looks, streams=streams, authenticator=authenticator
            ),
        ]
