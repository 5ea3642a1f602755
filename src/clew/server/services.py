"""Services: what every part of one server shares, opened once."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from clew.api.numbers import Numbering
from clew.api.thread_access import ThreadAccess
from clew.config import Settings
from clew.ports.liveness import Liveness
from clew.ports.notifier import ClusterNotifier
from clew.ports.threads import Store
from clew.server.database import Stores
from clew.stores.sql.work import Database
from clew.telemetry import Metrics

if TYPE_CHECKING:
    from clew.history.graph_store import GraphStore


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRole:
    """What one process of several does. By default everything."""

    has_runner: bool = True
    listens: bool = True
    graphs: Collection[str] = ()
    """Those it runs; all, if none is named."""

    @property
    def name(self) -> str:
        if not self.listens:
            return "worker"
        return "server" if self.has_runner else "api"


EVERYTHING = ProcessRole()


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    settings: Settings
    role: ProcessRole
    stores: Stores
    open_store: Callable[[], AbstractAsyncContextManager[Store]]
    """The same threads for another event loop: the heartbeat has a thread of its own."""
    graph_db: Database
    """Of the graph store: the database of `stores`, unless the settings name another."""
    graph_store: "GraphStore"
    cluster: ClusterNotifier
    process: str
    """The name of this process, which owns its leases."""
    liveness: Liveness | None
    """None where only leases show that a process died."""
    access: ThreadAccess
    numbering: Numbering
    metrics: Metrics
    clock: Callable[[], datetime]
    new_id: Callable[[], str]
    stopping: asyncio.Event
    """Set when the server shuts down."""

    @property
    def store(self) -> Store:
        return self.stores.threads

    @property
    def thread_ttl(self) -> timedelta:
        return self.settings.thread_ttl.delete_after

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.settings.runner.lease_seconds)
