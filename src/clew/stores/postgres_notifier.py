"""Notifier between processes on one Postgres: LISTEN and NOTIFY, on a connection of its own that is reopened when lost."""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from clew.domain.errors import Unavailable
from clew.ports.notifier import Message
from clew.stores.postgres import connect_options
from clew.stores.postgres_errors import Connection

logger = logging.getLogger(__name__)

CHANNEL = "clew"
# Notifications within this time go out together, so the rate of commits does not matter.
GATHER_SECONDS = 0.025
# Postgres takes 7,999 bytes at once.
MOST_BYTES = 7900
# Past this many unsent notifications they are dropped: the other processes have found the changes by polling.
MOST_THREADS = 10_000
# Past this many unsent messages, new ones are dropped.
MOST_MESSAGES = 2_000
# A silent connection is probed after so long.
PROBE_SECONDS = 15.0
SHORTEST_WAIT = 0.2
LONGEST_WAIT = 30.0
# How long a process that ends may take to send its last notifications.
ENDING_SECONDS = 1.0

Heard = Callable[[str, int | None], None]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told what other processes send."""

    heard: Heard
    called: Callable[[], None]
    received: Callable[[Message], None]


class PostgresNotifier:
    """Never blocks a caller: without a connection, or through a pooler that delivers nothing, it sends nothing."""

    def __init__(self, dsn: str, *, deadline: float) -> None:
        self._dsn = dsn
        self._deadline = deadline
        self._grown: dict[str, int | None] = {}
        self._is_called = False
        self._messages: list[str] = []
        self._sent_at = 0.0
        self._told = asyncio.Event()
        self._echoed = asyncio.Event()
        self._ending = asyncio.Event()

    def ring(self, thread_id: str, after: int | None, end: int | None = None) -> None:  # noqa: ARG002 - the port's
        if len(self._grown) >= MOST_THREADS:
            self._grown.clear()
        before = self._grown.setdefault(thread_id, after)
        self._grown[thread_id] = None if before is None or after is None else min(before, after)
        self._told.set()

    def send(self, message: Message) -> None:
        text = json.dumps({"message": message})
        if len(text) + 2 <= MOST_BYTES and len(self._messages) < MOST_MESSAGES:
            self._messages.append(text)
            self._told.set()

    def call(self) -> None:
        self._is_called = True
        self._told.set()

    @asynccontextmanager
    async def listening(
        self,
        heard: Heard,
        called: Callable[[], None],
        received: Callable[[Message], None] = lambda _: None,
    ) -> AsyncGenerator[None]:
        connected = asyncio.create_task(self._stay_connected(Listener(heard, called, received)))
        try:
            yield
        finally:
            self._ending.set()
            self._told.set()
            await asyncio.wait((connected,), timeout=ENDING_SECONDS)
            connected.cancel()
            await asyncio.gather(connected, return_exceptions=True)

    async def _stay_connected(self, to: Listener) -> None:
        wait = SHORTEST_WAIT
        while not self._ending.is_set():
            try:
                async with self._connection(to) as connection:
                    await self._probe(connection)
                    wait = SHORTEST_WAIT
                    to.called()  # perhaps another process called while this one was not connected
                    await self._tell_on(connection)
            except Exception as exc:  # noqa: BLE001 - whatever it is, processes poll meanwhile
                if wait == SHORTEST_WAIT:
                    reason = exc if isinstance(exc, Unavailable) else type(exc).__name__
                    logger.warning("no notifications between processes, they poll instead: %s", reason)
                await self._pause(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    @asynccontextmanager
    async def _connection(self, to: Listener) -> AsyncGenerator[Connection]:
        connection: Connection = await asyncpg.connect(**connect_options(self._dsn, self._deadline))

        def hear(_: object, pid: int, __: str, payload: object) -> None:
            if pid == connection.get_server_pid():
                self._echoed.set()
            else:
                _read(str(payload), to)

        try:
            # This connection stores nothing, so its commits need not wait for the disk.
            await connection.execute("SET synchronous_commit = off")
            await connection.add_listener(CHANNEL, hear)
            connection.add_termination_listener(lambda _: self._told.set())
            yield connection
            await connection.close()
        finally:
            connection.terminate()

    async def _tell_on(self, connection: Connection) -> None:
        """Send the notifications from now on, until this process ends."""
        while not self._ending.is_set() or self._told.is_set():
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._told.wait()
            except TimeoutError:
                await self._probe(connection)
                continue
            if connection.is_closed():
                raise Unavailable("the connection is lost")
            # After a pause the first one goes out at once; those right behind it are gathered.
            early = self._sent_at + GATHER_SECONDS - asyncio.get_running_loop().time()
            if early > 0 and not self._ending.is_set():
                await asyncio.sleep(early)
            self._told.clear()
            self._sent_at = asyncio.get_running_loop().time()
            for payload in self._payloads():
                await _notify(connection, payload)

    async def _probe(self, connection: Connection) -> None:
        """Raises Unavailable if our own notification does not come back to us."""
        self._echoed.clear()
        await _notify(connection, "[]")
        try:
            async with asyncio.timeout(self._deadline):
                await self._echoed.wait()
        except TimeoutError:
            raise Unavailable(
                "notifications do not arrive; behind a transaction pooler, set database.direct_url"
            ) from None

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    def _payloads(self) -> Iterator[str]:
        grown, self._grown = self._grown, {}
        is_called, self._is_called = self._is_called, False
        rings = [json.dumps(each) for each in grown.items()]
        if is_called:
            rings.append("null")
        messages, self._messages = self._messages, []
        rings += messages
        while rings:
            # At least one, and as many as fit.
            size, count = len(rings[0]) + 2, 1
            while count < len(rings) and (size := size + len(rings[count]) + 1) <= MOST_BYTES:
                count += 1
            yield f"[{','.join(rings[:count])}]"
            del rings[:count]


async def _notify(connection: Connection, payload: str) -> None:
    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)


def _read(payload: str, to: Listener) -> None:
    try:
        rings = json.loads(payload)
    except ValueError:
        return  # any client of the database may notify on our channel
    for ring in rings if isinstance(rings, list) else ():
        match ring:
            case None:
                to.called()
            case [str(thread_id), int() | None as after]:
                to.heard(thread_id, after)
            case {"message": list(message)}:
                to.received(message)
            case _:
                pass
