"""Queue of a server: the order, the caps and the quotas of its settings, and the watch that shows this process to others."""

from socket import gethostname
from typing import TYPE_CHECKING

from clew import __version__
from clew.config import QueueSettings, QuotaSettings, Settings
from clew.engine.queue_watch import QueueWatch
from clew.ports.guards import Caps, QueueRoom, SpendingRoom
from clew.ports.queue import Process
from clew.server.database import Stores
from clew.server.services import Services
from clew.stores.sql.quotas import StoredBytes
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database

if TYPE_CHECKING:
    from clew.server.engine import Execution


def set_order(threads: ThreadRows, queue: QueueSettings) -> None:
    threads.weights = queue.tenant_weights
    caps = Caps(tenant=queue.running_per_tenant, user=queue.running_per_user, graph=queue.running_per_graph)
    threads.caps = None if caps == Caps() else caps


def set_quotas(stores: Stores, graph_db: Database, quotas: QuotaSettings) -> StoredBytes | None:
    """Of every tenant; returns the one of bytes, which the graph store needs, too. Crons have theirs where they are opened."""
    stores.threads.quota = quotas.threads
    stores.assistants.quota = quotas.assistants
    if quotas.stored_bytes:
        databases = [stores.db] if graph_db is stores.db else [stores.db, graph_db]
        stores.files.stored = StoredBytes(databases, quotas.stored_bytes)
    return stores.files.stored


def queue_room(queue: QueueSettings) -> QueueRoom | None:
    caps = Caps(tenant=queue.waiting_per_tenant, user=queue.waiting_per_user, graph=queue.waiting_per_graph)
    return None if caps == Caps() else QueueRoom(caps)


def spending_room(settings: Settings) -> SpendingRoom | None:
    limits = settings.budgets.limits
    return SpendingRoom(limits=limits, prices=settings.prices) if limits else None


def queue_watch(services: Services, execution: "Execution") -> QueueWatch:
    role = services.role
    process = Process(
        name=execution.commands.runner.name,
        host=gethostname(),
        version=__version__,
        role=role.name,
        slots=services.settings.runner.concurrency if role.has_runner else 0,
        graphs=sorted(role.graphs or execution.registry.graphs) if role.has_runner else (),
        started_at=services.clock(),
    )
    return QueueWatch(services.stores.queue, process, services.metrics)
