"""Datagrams between processes on one SQLite file: a Unix socket for each of them, in a folder beside the file."""

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from clew.ports.notifier import Message

logger = logging.getLogger(__name__)

# The kernel holds this much for a process that does not read; past it, messages to that process are dropped.
BUFFER_BYTES = 2**20
MOST_BYTES = 60_000
# Other processes are looked for this often.
PEERS_SECONDS = 0.5


class Datagrams:
    """Droppable messages. Where the system has no such sockets, none arrive."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-processes")
        self._name = f"{uuid4().hex}.sock"
        self._socket: socket.socket | None = None
        self._address = self._folder
        self._peers: list[str] = []
        self._looked_at = 0.0

    def send(self, message: Message) -> None:
        """Never waits."""
        sender = self._socket
        if sender is None:
            return
        data = json.dumps(message).encode()
        if len(data) > MOST_BYTES:
            return
        for peer in self._found():
            try:
                sender.sendto(data, socket.MSG_DONTWAIT, str(self._address / peer))
            except ConnectionRefusedError:
                (self._folder / peer).unlink(missing_ok=True)  # its process was killed
            except OSError:
                continue  # it reads too slowly, or has just ended

    @contextmanager
    def receiving(self, received: Callable[[Message], None]) -> Generator[None]:
        loop = asyncio.get_running_loop()
        folder = -1
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            # The address of a socket has room for 107 bytes; through the open folder it is short.
            short = Path(f"/proc/self/fd/{folder}")
            self._address = short if short.exists() else self._folder
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            listener.bind(str(self._address / self._name))
        except (OSError, AttributeError) as exc:
            logger.warning("no messages between processes: %s", type(exc).__name__)
            yield
            return
        self._socket = listener
        loop.add_reader(listener, self._read, listener, received)
        try:
            yield
        finally:
            self._socket = None
            loop.remove_reader(listener)
            listener.close()
            with suppress(OSError):
                (self._folder / self._name).unlink(missing_ok=True)
            os.close(folder)

    @staticmethod
    def _read(listener: socket.socket, received: Callable[[Message], None]) -> None:
        with suppress(OSError, ValueError):
            message = json.loads(listener.recv(MOST_BYTES))
            if isinstance(message, list):
                received(message)

    def _found(self) -> list[str]:
        now = time.monotonic()
        if now - self._looked_at >= PEERS_SECONDS:
            self._looked_at = now
            with suppress(OSError):
                self._peers = [
                    one for one in os.listdir(self._folder) if one.endswith(".sock") and one != self._name
                ]
        return self._peers
