"""Worker process: runs each job of agents in its own child, under CPU and memory limits.

A job is an agent's task, or the selection of the document parts that a task needs.
"""

import asyncio
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any, cast

import clew.apps.chat.agents.analyst
import clew.apps.chat.agents.coder
import clew.apps.chat.agents.researcher
import clew.apps.chat.agents.summarizer
import clew.apps.chat.agents.translator
import clew.apps.chat.agents.writer  # noqa: F401 - loaded once, for every child
from clew.apps.chat.agents.agent import ChatAgent
from clew.apps.chat.agents.registry import BUILT_IN, role_at
from clew.apps.chat.offline.rules import RULES
from clew.apps.chat.plan import AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.apps.drivers.offline import OfflineDriver
from clew.documents.passages import relevant, relevant_rows
from clew.domain.errors import ClewError, Invalid, Permanent, RetriesExhausted, Transient
from clew.domain.thread import Json
from clew.processes.forkserver import ForkServer
from clew.processes.limits import cpu_used, limit_process
from clew.processes.messages import LENGTH, packed, sizes, unpacked

# What the driver of the built-in rules is called; a child has one of its own.
OFFLINE = OfflineDriver.name
# Modules that few tasks need and that are slow to import.
_HEAVY = (
    "clew.documents.tables.database",
    "clew.apps.chat.agents.rendering.docx",
    "clew.apps.chat.agents.sheets",
    "clew.apps.chat.agents.charts",
    "clew.apps.chat.agents.rendering.pdf",
)


class ParentConnection:
    """A child's connection to its parent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def send(self, message: Mapping[str, Json]) -> None:
        for piece in packed(message):
            self._connection.sendall(piece)

    def receive(self) -> Any:
        (length,) = LENGTH.unpack(self._exactly(LENGTH.size))
        head = bytes(self._exactly(length))
        return unpacked(head, [bytes(self._exactly(size)) for size in sizes(head)])

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            got = self._connection.recv_into(view)
            if not got:
                raise SystemExit  # the parent exited or closed the connection
            view = view[got:]
        return data


class ParentDriver:
    """The parent's driver, called over the connection."""

    def __init__(self, wire: ParentConnection, *, name: str, model: str, can: Collection[str]) -> None:
        self.name = name
        self.model = model
        self._can = frozenset(can)
        self._wire = wire

    def can(self, purpose: Purpose) -> bool:
        return purpose in self._can

    async def ask(self, inquiry: Inquiry) -> Reply:
        self._wire.send({"ask": asdict(inquiry)})
        match self._wire.receive():
            case {"reply": dict(reply)}:
                return Reply(**reply)
            case {"refused": dict(refused)}:
                raise failure(refused)
            case other:
                raise Permanent(f"the server sent an unexpected answer: {sorted(other)}")


def told(exc: BaseException) -> dict[str, Json]:
    """An error as JSON. `failure` turns it back into an error."""
    if not isinstance(exc, ClewError):
        first_line = str(exc).partition("\n")[0][:300]
        name = type(exc).__name__
        return {"kind": "Permanent", "message": f"{name}: {first_line}" if first_line else name}
    return {
        "kind": next(kind for kind in _KINDS if isinstance(exc, _KINDS[kind])),
        "message": str(exc),
        "error_class": getattr(exc, "error_class", None),
        "field": getattr(exc, "field", None),
    }


def failure(told: Mapping[str, Json]) -> ClewError:
    kind, message = str(told.get("kind")), str(told.get("message"))
    error_class, field = told.get("error_class"), told.get("field")
    match kind:
        case "Invalid":
            return Invalid(message, field)
        case "GivenUp":
            return RetriesExhausted(message, error_class)
        case "Transient":
            return Transient(message, error_class)
        case _:
            return Permanent(message, error_class)


# The last one is the base class of all others.
_KINDS: Mapping[str, type[ClewError]] = {
    "Invalid": Invalid,
    "GivenUp": RetriesExhausted,
    "Transient": Transient,
    "Permanent": ClewError,
}


def attend(parent: int, descriptor: int) -> None:
    """One job, in the child."""
    with socket.socket(fileno=descriptor) as connection:
        wire = ParentConnection(connection)
        limit_process(parent, **wire.receive())
        begun = cpu_used()
        try:
            said = _done(wire.receive(), wire)
        except MemoryError:
            said = {"exceeded": "memory"}
        except (Exception, SystemExit, KeyboardInterrupt) as exc:  # noqa: BLE001 - it is raised again in the parent
            said = {"failed": told(exc)}
        wire.send({**said, "cpu": cpu_used() - begun})


def _done(job: Mapping[str, Any], wire: ParentConnection) -> dict[str, Json]:
    match job:
        case {"agent": str(place), "name": str(name), "task": dict(task), "driver": dict(driver)}:
            asked: Driver = (
                OfflineDriver(RULES) if driver["name"] == OFFLINE else ParentDriver(wire, **driver)
            )
            result = asyncio.run(_agent(place, name, asked).process_task(cast(AgentTask, task)))
            for _ in packed(
                {"result": result}
            ):  # raises TypeError for what is no JSON, while that can still be told
                pass
            return {"result": result}
        case {"texts": list(texts), "prompt": str(prompt), "limit": int(limit)}:
            found = [
                (relevant_rows if is_table else relevant)(text, prompt, limit=limit)
                for text, is_table in texts
            ]
            return {"extracts": found}
        case _:
            raise Permanent(f"no such job: {sorted(job)}")


def _agent(place: str, name: str, driver: Driver) -> ChatAgent:
    if place not in BUILT_IN:
        return role_at(place, name).make(driver)
    module, _, attribute = place.partition(":")
    agent: ChatAgent = getattr(import_module(module), attribute)(driver)
    return agent


def _loading(module: str) -> Callable[[], object]:
    def load() -> None:
        try:
            import_module(module)
        except ImportError:
            return  # an extra that is not installed; a task that needs it fails with a message

    return load


def main() -> None:
    ForkServer.serve(attend, later=[_loading(module) for module in _HEAVY])


if __name__ == "__main__":
    main()
