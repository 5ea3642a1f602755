"""Program locks: a lock lasts as long as its program runs, even without the server, and names the program.

A killed server leaves the programs running that it had started. The lock is on an open file which they
inherit, so it ends with the last of them and not with the server. The next process reads which program has it.
"""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_SIZE = 64
_LOOK_SECONDS = 0.1


class StillHeld(Exception):
    """Another program holds the lock, and could not be ended."""


@asynccontextmanager
async def alone(path: Path, *, seconds: float) -> AsyncGenerator[int]:
    """Hold the lock; a program that was left behind with it is ended first. Raises StillHeld, OSError."""
    # Never through a symbolic link.
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        await _take(lock, seconds)
        os.ftruncate(lock, 0)
        yield lock
    finally:
        # Not unlocked: a program that could not be ended keeps it.
        os.close(lock)


def sign(lock: int, pid: int) -> None:
    """Record which program has the lock now."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{pid} {_started(pid)}".encode(), 0)


async def _take(lock: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not _is_taken(lock):
        _end_holder(lock)
        if loop.time() > deadline:
            raise StillHeld
        await asyncio.sleep(_LOOK_SECONDS)


def _is_taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_holder(lock: int) -> None:
    """Kill the program named in the lock, with its group, if it is the very one and not another with its number."""
    pid, _, started = os.pread(lock, _SIZE, 0).decode("ascii", "replace").partition(" ")
    if not pid.isdigit() or int(pid) < 2 or not started or started != _started(int(pid)):
        return
    with suppress(ProcessLookupError, PermissionError):
        # Clew starts programs as group leaders; a process that leads no group is another program.
        if os.getpgid(int(pid)) == int(pid):
            os.killpg(int(pid), signal.SIGKILL)


def _started(pid: int) -> str:
    """When the process began, in the kernel's own count; empty where that cannot be known."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
