"""Agent workers: run the tasks of a chat so that no agent blocks the server or exhausts its memory.

The built-in agents run in processes with CPU and memory limits, which are killed when their round stops.
Third-party agents may need objects that the server has imported and opened: each runs in a thread, or where the settings
say so in such a process.
"""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clew.apps.chat.agents.registry import BUILT_IN, Role
from clew.apps.chat.agents.threads import process_in_thread
from clew.apps.chat.cpu_budget import CpuBudget
from clew.apps.chat.plan import AgentTask
from clew.apps.chat.worker import failure, told
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, ShownPicture
from clew.domain.errors import Invalid, LimitExceeded, Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json
from clew.processes.forkserver_client import ForkJob as Child
from clew.processes.forkserver_client import ForkServerProcess
from clew.processes.messages import LENGTH, packed, sizes, unpacked

_CHUNK = 256 * 1024
_MAX_HEAD = 16 * 2**20
_DYING_SECONDS = 5.0
# Of the processes that compute; those that wait for a model are not counted.
WORKERS = max(2, os.cpu_count() or 1)
# One thread each: a process is bounded whole, and what libraries start on many cores takes address space on each.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@asynccontextmanager
async def open_workers(
    *,
    memory_bytes: int,
    output_bytes: int,
    isolates_all: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncGenerator["AgentWorkers"]:
    """The first task starts the fork server. With `isolates_all`, third-party agents run in processes too, with `environment`."""
    workers = AgentWorkers(
        memory_bytes=memory_bytes,
        output_bytes=output_bytes,
        isolates_all=isolates_all,
        environment=environment,
    )
    try:
        yield workers
    finally:
        await workers.close()


class AgentWorkers:
    def __init__(
        self, *, memory_bytes: int, output_bytes: int, isolates_all: bool, environment: Mapping[str, str]
    ) -> None:
        self._isolates_all = isolates_all
        self._environment = dict(environment) if isolates_all else {}
        self._memory_bytes = memory_bytes
        self._output_bytes = output_bytes
        self._places = asyncio.Semaphore(WORKERS)
        self._starting = asyncio.Lock()
        self._server: ForkServerProcess | None = None

    async def process(self, role: Role, driver: Driver, task: AgentTask, cpu: CpuBudget) -> object:
        """What the agent returned.

        Raises what the agent raised, and LimitExceeded if it takes more computing or memory than there is.
        """
        if role.source not in BUILT_IN and not self._isolates_all:
            return await process_in_thread(role.make, driver, task, cpu)
        can = [str(purpose) for purpose in Purpose if driver.can(purpose)]
        job = {
            "agent": role.source,
            "name": role.name,
            "task": task,
            "driver": {"name": driver.name, "model": driver.model, "can": can},
        }
        return (await self._do(job, cpu, driver)).get("result")

    async def extracts(
        self, texts: Sequence[tuple[str, bool]], prompt: str, cpu: CpuBudget, *, limit: int
    ) -> list[str]:
        """What a task needs of each text, each given with whether it is a table. Raises LimitExceeded."""
        if not texts:
            return []
        answer = await self._do({"texts": texts, "prompt": prompt, "limit": limit}, cpu)
        return [str(text) for text in answer["extracts"]]

    async def close(self) -> None:
        if self._server is not None:
            await self._server.close()

    async def _do(
        self, job: Mapping[str, Any], cpu: CpuBudget, driver: Driver | None = None
    ) -> dict[str, Any]:
        try:
            return await self._attempt(job, cpu, driver)
        except _Gone:
            # The fork server was killed, which says nothing about the job.
            try:
                return await self._attempt(job, cpu, driver)
            except _Gone as exc:
                raise Transient(str(exc), ErrorClass.INTERNAL) from exc

    async def _attempt(self, job: Mapping[str, Any], cpu: CpuBudget, driver: Driver | None) -> dict[str, Any]:
        bounds = {"cpu_seconds": cpu.left, "memory_bytes": self._memory_bytes}
        place = _Place(self._places)
        await place.take()
        try:
            connection = await _Connection.open(await self._ready())
            try:
                await connection.send(bounds)
                await connection.send(job)
                while True:
                    answer = await connection.receive(self._output_bytes)
                    cpu.spend(float(answer.get("cpu", 0.0)))
                    match answer:
                        case {"ask": dict(asked)} if driver is not None:
                            # A task that waits for a model frees its slot, so that others compute meanwhile.
                            place.leave()
                            said = await _asked(driver, asked)
                            await place.take()
                            await connection.send(said)
                        case {"failed": dict(failed)}:
                            raise failure(failed)
                        case {"exceeded": "memory"}:
                            raise self._too_much_memory()
                        case _:
                            return answer
            except (asyncio.IncompleteReadError, ConnectionError):
                raise await self._death(connection, cpu) from None
            finally:
                connection.close()
        finally:
            place.leave()

    async def _death(self, connection: "_Connection", cpu: CpuBudget) -> Exception:
        """The error for a child that closed its connection before its result."""
        status = await connection.server.ended(connection.child, seconds=_DYING_SECONDS)
        match status:
            case None:
                return _Gone("the fork server has exited")
            case _ if -status == signal.SIGXCPU:
                return cpu.exceeded()
            case _ if -status == signal.SIGKILL:
                return self._too_much_memory()
            case _:
                return Permanent(f"the agent's process ended with status {status}", ErrorClass.INTERNAL)

    def _too_much_memory(self) -> LimitExceeded:
        return LimitExceeded(
            f"resource limit: a task needs more than {self._memory_bytes} bytes of memory"
            " (limits.task_memory_bytes)",
            ErrorClass.VALIDATION,
        )

    async def _ready(self) -> ForkServerProcess:
        async with self._starting:
            if self._server is None or not self._server.is_alive:
                await self.close()
                self._server = None
                self._server = await ForkServerProcess.start(
                    "clew.apps.chat.worker",
                    needs="the built-in agents need what pip install 'clew-server[documents]' brings",
                    # Where libraries keep what they found out about the machine, such as its fonts.
                    environment={**self._environment, **_ENVIRONMENT, "HOME": str(Path.home())},
                )
            return self._server


class _Gone(Exception):
    """The fork server died, and its children with it."""


class _Place:
    """One of the slots for processes that compute, or none."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._is_taken = False

    async def take(self) -> None:
        await self._places.acquire()
        self._is_taken = True

    def leave(self) -> None:
        if self._is_taken:
            self._is_taken = False
            self._places.release()


class _Connection:
    """One child and the connection to it."""

    def __init__(
        self,
        server: ForkServerProcess,
        child: Child,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server = server
        self.child = child
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, server: ForkServerProcess) -> "_Connection":
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=_CHUNK)
            try:
                return cls(server, server.begin(theirs), reader, writer)
            except Transient as exc:
                writer.transport.abort()
                raise _Gone(str(exc)) from exc

    async def send(self, message: Mapping[str, Any]) -> None:
        for piece in packed(message):
            view = memoryview(piece)
            for start in range(0, len(piece), _CHUNK):
                self._writer.write(view[start : start + _CHUNK])
                await self._writer.drain()

    async def receive(self, most: int) -> dict[str, Any]:
        """Raises Invalid for a malformed result: a document may have taken over the child that read it."""
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if length > _MAX_HEAD:
            raise Invalid("expected less text", "result")
        try:
            head = await self._reader.readexactly(length)
            found = sizes(head)
            if sum(found) > most:
                raise Invalid(f"expected documents of at most {most} bytes together", "documents")
            message = unpacked(head, [await self._reader.readexactly(size) for size in found])
        except ValueError as exc:
            raise Permanent("the agent's process sent an invalid result", ErrorClass.INTERNAL) from exc
        if not isinstance(message, dict):
            raise Permanent("the agent's process sent an invalid result", ErrorClass.INTERNAL)
        return message

    def close(self) -> None:
        """Ends the child, whatever it does."""
        self._writer.transport.abort()
        self.server.stop(self.child)


async def _asked(driver: Driver, asked: dict[str, Json]) -> dict[str, Json]:
    """The driver's reply or its error, which the agent may handle."""
    try:
        return {"reply": asdict(await driver.ask(_inquiry(asked)))}
    except LimitExceeded:
        raise  # it ends the round, whatever the agent would make of it
    except (Permanent, Transient, Invalid) as exc:
        return {"refused": told(exc)}


def _inquiry(asked: dict[str, Json]) -> Inquiry:
    material = tuple(Material(label=one["label"], text=one["text"]) for one in asked["material"])
    pictures = tuple(ShownPicture(**one) for one in asked["pictures"])
    given = {
        "purpose": Purpose(asked["purpose"]),
        "material": material,
        "pictures": pictures,
        "workplace": None,
        "tool_use": None,
    }
    return Inquiry(**{**asked, **given})
