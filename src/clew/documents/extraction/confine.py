"""Confinement of a child before it reads the first byte: time, memory, files, the network, other processes.

A file that takes over its parser gets a process that can only compute for a few seconds and write to its parent.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from clew.documents.extraction.limits import ExtractionLimits

_NICE = 5
_OPEN_FILES = 16

# The system calls a reader may make, by their numbers on x86-64 and on ARM64; None where there is no such call.
# Every other call fails: no path, no socket, no process can be named, because everything a reader needs is open
# and loaded before. The most frequent calls come first, since the kernel compares in this order.
ALLOWED: Mapping[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "recvfrom": (45, 207),
    "sendto": (44, 206),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "futex": (202, 98),
    "mprotect": (10, 226),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "getrandom": (318, 278),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "lseek": (8, 62),
    "fstat": (5, 80),
    "close": (3, 57),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "recvmsg": (47, 212),
    "sendmsg": (46, 211),
    "shutdown": (48, 210),
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "set_tid_address": (218, 96),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "membarrier": (324, 283),
    "futex_waitv": (449, 449),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
# Calls that are allowed for one value of one argument; see `_conditions`.
_CLONE = (56, 220)
_TGKILL = (234, 131)
_FCNTL = (72, 25)
_IOCTL = (16, 29)
_CLONE3 = 435  # hides its flags from a filter; without it libc takes clone
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}

_CLONE_THREAD = 0x00010000
_F_GETFD, _F_SETFD, _F_GETFL = 1, 2, 3
_FIONBIO = 0x5421
_EPERM, _ENOSYS = 1, 38
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2
_LOAD, _EQUAL, _BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def confine(limits: ExtractionLimits, *, parent: int) -> bool:
    """Confine the calling process irreversibly. True if the kernel also filters its calls: Linux, x86-64 or ARM64."""
    _die_with(parent)
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine runs out of memory, the kernel kills this process first
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)  # the soft limit sends SIGXCPU
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    return _filter_calls()


def _limit(what: int, amount: int, hard: int | None = None) -> None:
    # macOS takes no limit of the address space; the deadline and the other limits still hold there.
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (amount, hard or amount))


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before PR_SET_PDEATHSIG was set
        os._exit(1)


def _filter_calls() -> bool:
    machine = _MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        return False
    program = b"".join(_program(*machine))
    code = ctypes.create_string_buffer(program)
    head = ctypes.create_string_buffer(struct.pack("HL", len(program) // 8, ctypes.addressof(code)))
    return _prctl(_PR_SET_NO_NEW_PRIVS, 1) and _prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(head)
    )


def _prctl(*arguments: int) -> bool:
    numbers = [*arguments, 0, 0, 0][:5]
    return ctypes.CDLL(None).prctl(*map(ctypes.c_ulong, numbers)) == 0  # type: ignore[no-any-return]  # a C function


def _program(column: int, architecture: int) -> Iterator[bytes]:
    """A filter for seccomp: each test jumps over the verdict behind it unless it applies. What no test names fails."""
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_EQUAL, architecture, 1, 0)
    yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_LOAD, _NUMBER)
    for numbers in ALLOWED.values():
        number = numbers[column]
        if number is not None:
            yield _step(_EQUAL, number, 0, 1)
            yield _step(_RETURN, _ALLOW)
    yield _step(_EQUAL, _CLONE3, 0, 1)
    yield _step(_RETURN, _ERROR | _ENOSYS)
    for call, argument, test, values in _conditions(column):
        yield _step(_EQUAL, call, 0, 2 * len(values) + 2)
        yield _step(_LOAD, argument)
        for value in values:
            yield _step(test, value, 0, 1)
            yield _step(_RETURN, _ALLOW)
        yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_RETURN, _ERROR | _EPERM)


def _conditions(column: int) -> Iterator[tuple[int, int, int, Sequence[int]]]:
    """A call, the argument that is checked, how it is compared, and the values it may have."""
    yield _CLONE[column], _FIRST_ARGUMENT, _BITS, (_CLONE_THREAD,)  # a thread, never a process
    yield _TGKILL[column], _FIRST_ARGUMENT, _EQUAL, (os.getpid(),)  # abort() signals its own process
    yield _FCNTL[column], _SECOND_ARGUMENT, _EQUAL, (_F_GETFD, _F_SETFD, _F_GETFL)  # F_SETOWN sends signals
    yield _IOCTL[column], _SECOND_ARGUMENT, _EQUAL, (_FIONBIO,)  # sockets are made blocking by it


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
