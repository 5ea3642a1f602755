"""Resource limits of a process: CPU seconds and bytes of memory, set by the process itself and irreversible."""

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from math import ceil

_NICE = 5
_PR_SET_PDEATHSIG = 1


def limit_process(parent: int, *, cpu_seconds: float, memory_bytes: int) -> None:
    """Limit the CPU time and the memory of the calling process, beside what it has already.

    It also ends when `parent` does, and lowers its priority. Above its time it is killed by SIGXCPU; above its memory
    Python raises MemoryError. macOS has no address space limit: there the memory is not bounded.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # the parent died before PR_SET_PDEATHSIG was set
        os._exit(1)
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine runs out of memory, the kernel kills this process first
    seconds = max(1, ceil(cpu_seconds + cpu_used()))
    for what, amount, most in (
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_CPU, seconds, seconds + 1),  # the soft limit sends SIGXCPU
        (resource.RLIMIT_AS, _address_space() + memory_bytes, _address_space() + memory_bytes),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (amount, most))


def cpu_used() -> float:
    """Seconds this process has computed."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _address_space() -> int:
    """Of this process, in bytes: libraries and what was loaded before the fork."""
    with suppress(OSError), open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return 0
