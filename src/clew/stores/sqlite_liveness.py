"""Lock files: each process on a SQLite file locks a file beside it, and the kernel unlocks it when the process dies."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from clew.domain.errors import Unavailable

# By then every lease of a process that died has run out, and its file tells nothing.
STALE_SECONDS = 2 * 3600


class LockFiles:
    """The port Liveness for processes on one machine."""

    def __init__(self, database: Path) -> None:
        self._folder = database.with_name(f"{database.name}-processes")

    @asynccontextmanager
    async def held(self, name: str) -> AsyncGenerator[None]:
        lock = await asyncio.to_thread(self._hold, name)
        try:
            yield
        finally:
            self._path(name).unlink(missing_ok=True)
            os.close(lock)

    async def find_dead(self, names: Collection[str]) -> Collection[str]:
        return await asyncio.to_thread(lambda: [name for name in names if self._is_dead(name)])

    def _hold(self, name: str) -> int:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._remove_stale()
            while True:
                lock = os.open(self._path(name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                fcntl.flock(lock, fcntl.LOCK_EX)
                # Another process may have removed the file as a stale one before it was locked here.
                if _is_at(self._path(name), lock):
                    return lock
                os.close(lock)
        except OSError as exc:
            raise Unavailable(f"cannot lock a file in {self._folder}: {exc.strerror}") from exc

    def _remove_stale(self) -> None:
        for path in self._folder.glob("*.lock"):
            with suppress(FileNotFoundError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS and self._is_dead(path.stem):
                    path.unlink()

    def _is_dead(self, name: str) -> bool:
        """A process without a file never showed that it lives, so its death does not show either."""
        with suppress(FileNotFoundError, BlockingIOError):
            lock = os.open(self._path(name), os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            finally:
                os.close(lock)
        return False

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"


def _is_at(path: Path, lock: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(lock))
    return False
