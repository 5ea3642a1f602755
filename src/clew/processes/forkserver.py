"""Fork server: a process that has everything loaded and forks a child for each job, which costs milliseconds.

Standard input is a socket that receives commands, each with the socket of one job; on standard output it reports how
children ended. It never reads a job's data, and it ends when its parent does.
"""

import gc
import os
import select
import signal
import socket
import struct
from collections.abc import Callable, Iterable

ORDER = struct.Struct("!cQ")  # what to do, and with which job
START, STOP = b"+", b"-"  # to start comes with the socket of the job
REPORT = struct.Struct("!Qi")  # which job, and how its process ended as `subprocess` counts it
READY = 0  # the job of the first report: everything is loaded

# How long it must be idle before it loads the next deferred module.
_IDLE_SECONDS = 1.0


class ForkServer:
    """`work` is called in the child, with the process id of its parent and the socket of the job.

    `later` are called one by one when there is nothing to do: to load what few jobs need, before they need it.
    """

    def __init__(
        self,
        work: Callable[[int, int], None],
        control: socket.socket,
        reports: int,
        *,
        later: Iterable[Callable[[], object]] = (),
    ) -> None:
        self._work = work
        self._control = control
        self._reports = reports
        self._later = list(later)
        self._jobs: dict[int, int] = {}  # by the process id of the child
        self._bell, self._ringer = os.pipe()

    @classmethod
    def serve(cls, work: Callable[[int, int], None], *, later: Iterable[Callable[[], object]] = ()) -> None:
        """Serve until the parent closes the socket."""
        control = socket.socket(fileno=os.dup(0))
        reports = os.dup(1)
        # A library's output on stdout must not be read as a report.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        gc.freeze()  # so that children share this memory instead of copying it at their first collection
        cls(work, control, reports, later=later).run()

    def run(self) -> None:
        """Serve until the parent closes the socket."""
        os.set_blocking(self._bell, False)
        os.set_blocking(self._ringer, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # A signal to the process group reaches this process too; the server may still need its running jobs.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._ringer, warn_on_full_buffer=False)
        self._report(READY, 0)
        try:
            while True:
                patience = _IDLE_SECONDS if self._later else None
                ready, _, _ = select.select([self._control.fileno(), self._bell], [], [], patience)
                if not ready:
                    self._later.pop(0)()
                    gc.freeze()
                if self._bell in ready:
                    os.read(self._bell, 4096)
                    self._reap()
                if self._control.fileno() in ready and not self._obey():
                    return
        finally:
            for pid in self._jobs:
                os.kill(pid, signal.SIGKILL)

    def _obey(self) -> bool:
        order, sockets, _, _ = socket.recv_fds(self._control, ORDER.size, 1)
        if not order:
            return False
        verb, job = ORDER.unpack(order)
        if verb == START:
            self._start(job, sockets[0])
        else:
            for pid, running in self._jobs.items():
                if running == job:
                    os.kill(pid, signal.SIGKILL)
        return True

    def _start(self, job: int, connection: int) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._forget_parent()
                self._work(parent, connection)
                code = 0
            finally:
                os._exit(code)
        os.close(connection)
        self._jobs[pid] = job

    def _forget_parent(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for descriptor in (self._reports, self._bell, self._ringer):
            os.close(descriptor)

    def _reap(self) -> None:
        while self._jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._report(self._jobs.pop(pid), os.waitstatus_to_exitcode(status))

    def _report(self, job: int, status: int) -> None:
        os.write(self._reports, REPORT.pack(job, status))
