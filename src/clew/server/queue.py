"""Queue of a server: the order and the caps of its settings, and the watch that shows this process to others."""

from socket import gethostname
from typing import TYPE_CHECKING

from clew import __version__
from clew.config import QueueSettings
from clew.engine.queue_watch import QueueWatch
from clew.ports.guards import Caps, QueueRoom
from clew.ports.queue import Process
from clew.server.services import Services
from clew.stores.sql.threads import ThreadRows

if TYPE_CHECKING:
    from clew.server.engine import Execution


def set_order(threads: ThreadRows, queue: QueueSettings) -> None:
    threads.weights = queue.tenant_weights
    caps = Caps(tenant=queue.running_per_tenant, user=queue.running_per_user, graph=queue.running_per_graph)
    threads.caps = None if caps == Caps() else caps


def queue_room(queue: QueueSettings) -> QueueRoom | None:
    caps = Caps(tenant=queue.waiting_per_tenant, user=queue.waiting_per_user, graph=queue.waiting_per_graph)
    return None if caps == Caps() else QueueRoom(caps)


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
