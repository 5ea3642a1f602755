"""Subprocess runner: no shell, no inherited environment, bounded time and output, no process left running."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from clew.processes.holders import sign

# How long a program may take to exit after SIGTERM, and its output to arrive after its exit.
GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_PART = 65_536


class NotStarted(Exception):
    """The program does not exist, or may not be run."""


class TimedOut(Exception):
    """The program was still running at its deadline."""


class TooMuch(Exception):
    """The program wrote more output than allowed."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: bytes
    err: bytes


async def run(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    most: int,
    given: bytes = b"",
    lock: int | None = None,
    heard: Callable[[bytes], None] | None = None,
) -> Ended:
    """Raises NotStarted, TimedOut or TooMuch. However it ends, the program and its process group have ended too.

    The program keeps `lock` open as long as it lives, and is named in it. `heard` gets its output as it comes.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
        )
    except (OSError, ValueError) as exc:
        raise NotStarted(type(exc).__name__) from exc
    try:
        if lock is not None:
            sign(lock, process.pid)
        async with asyncio.timeout(seconds):
            return await _talk(process, given, most, heard)
    except TimeoutError:
        raise TimedOut from None
    finally:
        await _end(process)


async def _talk(
    process: asyncio.subprocess.Process, given: bytes, most: int, heard: Callable[[bytes], None] | None
) -> Ended:
    out = asyncio.create_task(_read(process.stdout, most, heard))
    err = asyncio.create_task(_read(process.stderr, most))
    telling = asyncio.create_task(_tell(process, given))
    leaving = asyncio.create_task(_left(process))
    tasks = (out, err, telling, leaving)
    try:
        # A reader above its limit fails at once; otherwise this waits for the program's exit.
        while not leaving.done():
            done, _ = await asyncio.wait(
                [task for task in tasks if not task.done()], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        # A child of the program may hold a pipe open: it is ended before the rest is read.
        _signal(process, signal.SIGKILL)
        await asyncio.wait([out, err], timeout=GRACE_SECONDS)
        return Ended(leaving.result(), _so_far(out), _so_far(err))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _left(process: asyncio.subprocess.Process) -> int:
    """Its exit code. `wait` alone would also wait for other processes that hold its pipes, such as its children."""
    waiting = asyncio.create_task(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait([waiting], timeout=_LOOK_SECONDS)
        return process.returncode
    finally:
        waiting.cancel()


async def _read(
    stream: asyncio.StreamReader | None, most: int, heard: Callable[[bytes], None] | None = None
) -> bytes:
    reader = cast(asyncio.StreamReader, stream)
    taken = bytearray()
    while part := await reader.read(_PART):
        taken += part
        if heard is not None:
            heard(part)
        if len(taken) > most:
            raise TooMuch
    return bytes(taken)


async def _tell(process: asyncio.subprocess.Process, given: bytes) -> None:
    stdin = cast(asyncio.StreamWriter, process.stdin)
    # The program need not read all of its input. uvloop raises RuntimeError if it has exited.
    with suppress(OSError, RuntimeError):
        if given:
            stdin.write(given)
            await stdin.drain()
        stdin.close()


def _so_far(task: "asyncio.Task[bytes]") -> bytes:
    return task.result() if task.done() else b""


async def _end(process: asyncio.subprocess.Process) -> None:
    """Terminate the program's process group, and kill what remains of it."""
    try:
        if process.returncode is None:
            _signal(process, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await _left(process)
    finally:
        _signal(process, signal.SIGKILL)
        # There is no other way to close a pipe that was not read to its end.
        process._transport.close()  # type: ignore[attr-defined]
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_SECONDS):
            await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
