"""Fork server client: starts the fork server, and starts and stops its children."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self, cast

import clew
from clew.domain.errors import Permanent, Transient
from clew.processes.forkserver import ORDER, READY, REPORT, START, STOP

_START_SECONDS = 60.0
_END_SECONDS = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class ForkJob:
    """One child at work. `end` says how it ended as `subprocess` counts it; None if that will never be known."""

    number: int
    end: asyncio.Future[int | None]


class ForkServerProcess:
    """Starts and stops children, one a job. When it dies, its children die with it."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._numbers: Iterator[int] = count(READY)
        self._jobs: dict[int, ForkJob] = {}
        self._loaded = self._new_job()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(
        cls, module: str, *arguments: str, needs: str, environment: Mapping[str, str] | None = None
    ) -> Self:
        """Run `module`, which has a ForkServer. Raises Permanent if it does not come up, naming what it `needs`."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # never import from the working directory
                "-B",
                "-m",
                module,
                *arguments,
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                cwd="/",
                # No inherited variables: it must not get keys and database URLs.
                env={
                    "PYTHONPATH": os.pathsep.join(_import_paths()),
                    "LC_ALL": "C.UTF-8",
                    **(environment or {}),
                },
                start_new_session=True,
            )
        nursery = cls(process, ours)
        try:
            is_ready = await nursery.ended(nursery._loaded, seconds=_START_SECONDS) is not None
        except asyncio.CancelledError:
            ours.close()  # it exits by itself
            raise
        if not is_ready:
            await nursery.close()
            raise Permanent(f"the fork server did not start: {needs}")
        return nursery

    @property
    def is_alive(self) -> bool:
        return not self._listening.done()

    def begin(self, connection: socket.socket) -> ForkJob:
        """Start a child that talks through `connection`. Raises Transient if the fork server has exited."""
        job = self._new_job()
        try:
            socket.send_fds(self._control, [ORDER.pack(START, job.number)], [connection.fileno()])
        except OSError as exc:
            raise Transient("the fork server has exited") from exc
        return job

    def stop(self, job: ForkJob) -> None:
        """Kill the child if it still lives."""
        if not job.end.done():
            with suppress(OSError):
                self._control.send(ORDER.pack(STOP, job.number))

    async def ended(self, job: ForkJob, *, seconds: float = _END_SECONDS) -> int | None:
        """How the child ended; None if it has not by then, or the fork server died."""
        await asyncio.wait([job.end], timeout=seconds)
        return job.end.result() if job.end.done() else None

    async def close(self) -> None:
        self._control.close()  # the fork server exits on this, and its children with it
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_SECONDS):
                    await self._process.wait()
        finally:
            if self._process.returncode is None:
                with suppress(ProcessLookupError):  # it has just exited, and the exit is not reported yet
                    os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        await self._listening

    async def _listen(self) -> None:
        reports = cast(asyncio.StreamReader, self._process.stdout)
        with suppress(asyncio.IncompleteReadError):
            while True:
                report = await reports.readexactly(REPORT.size)
                number, status = REPORT.unpack(report)
                self._jobs.pop(number).end.set_result(status)
        for job in self._jobs.values():
            job.end.set_result(None)

    def _new_job(self) -> ForkJob:
        job = ForkJob(next(self._numbers), asyncio.get_running_loop().create_future())
        self._jobs[job.number] = job
        return job


def _import_paths() -> list[str]:
    """Where this process imports from; a child that starts elsewhere must find the same packages."""
    here = str(Path(clew.__file__).parents[1])
    return list(dict.fromkeys([here, *(path for path in sys.path if os.path.isabs(path))]))
