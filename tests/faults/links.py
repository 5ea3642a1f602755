"""A link to a Unix socket that passes bytes on as well as it is told to: at once, slowly, not at all, or cut."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Link:
    """Connections to `path` are connections to `upstream`."""

    def __init__(self, path: Path, upstream: Path) -> None:
        self.path, self._upstream = path, upstream
        self.delay = 0.0  # of each piece that passes, in seconds
        self.is_silent = False  # connections are accepted, and no byte passes
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_unix_server(self._connect, str(self.path))
        await self._is_over.wait()
        server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)

    def cut(self) -> None:
        """Every connection there is."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._join(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(self._upstream))
        self._writers |= {writer, back}
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, back))
                tasks.create_task(self._pass(there, writer))
        except* OSError:
            pass
        finally:
            self._writers -= {writer, back}
            back.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            if self.delay:
                await asyncio.sleep(self.delay)
            while self.is_silent:
                await asyncio.sleep(0.05)
            writer.write(piece)
            await writer.drain()
        writer.transport.abort()


@contextmanager
def linked(path: Path, upstream: Path) -> Iterator[Link]:
    link = Link(path, upstream)
    thread = threading.Thread(target=link.run)
    thread.start()
    try:
        yield link
    finally:
        link.end()
        thread.join()
