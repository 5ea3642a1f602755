"""What is taken from a child before it sees the first byte: time, memory, files, the network, other processes.

A file that takes over its parser gains a process that can compute for a few seconds and talk to its parent.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress

from clew.extraction.limits import Limits

_NICE = 5
_OPEN_FILES = 16

# System calls by their numbers on x86-64 and on ARM64; None where there is no such call.
# Opening is denied whole: everything a reader needs was loaded before.
_DENIED: Mapping[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "creat": (85, None),
    "openat": (257, 56),
    "openat2": (437, 437),
    "open_by_handle_at": (304, 265),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utimensat": (280, 88),
    "mount": (165, 40),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "setrlimit": (160, 164),
    "prlimit64": (302, 261),
    "unshare": (272, 97),
    "setns": (308, 268),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
}
_CLONE = (56, 220)  # allowed for threads
_CLONE3 = 435  # hides its flags from a filter; without it libc takes clone
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7), "arm64": (1, 0xC00000B7)}
_FOREIGN_CALLS = 0x40000000  # x86-64 with 32-bit pointers: the same calls under other numbers

_CLONE_THREAD = 0x00010000
_EPERM, _ENOSYS = 1, 38
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 1, 38, 22, 2
_LOAD, _EQUAL, _AT_LEAST, _BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


def confine(limits: Limits, *, parent: int) -> bool:
    """For the calling process and for good. True if the kernel also filters its calls: Linux, x86-64 or ARM64."""
    _die_with(parent)
    os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine runs out of memory, this process is the one to go
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)  # the first one says why
    _limit(resource.RLIMIT_AS, limits.memory_bytes)
    return _filter_calls()


def _limit(what: int, amount: int, hard: int | None = None) -> None:
    # macOS takes no limit of the address space; the deadline and the other limits still hold there.
    with suppress(ValueError, OSError):
        resource.setrlimit(what, (amount, hard or amount))


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we could say so
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
    """A filter for seccomp: each test jumps over the verdict behind it unless it applies."""
    yield _step(_LOAD, _ARCHITECTURE)
    yield _step(_EQUAL, architecture, 1, 0)
    yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_LOAD, _NUMBER)
    if column == 0:
        yield _step(_AT_LEAST, _FOREIGN_CALLS, 0, 1)
        yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_EQUAL, _CLONE3, 0, 1)
    yield _step(_RETURN, _ERROR | _ENOSYS)
    for numbers in _DENIED.values():
        number = numbers[column]
        if number is not None:
            yield _step(_EQUAL, number, 0, 1)
            yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_EQUAL, _CLONE[column], 0, 3)
    yield _step(_LOAD, _FIRST_ARGUMENT)
    yield _step(_BITS, _CLONE_THREAD, 1, 0)
    yield _step(_RETURN, _ERROR | _EPERM)
    yield _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
