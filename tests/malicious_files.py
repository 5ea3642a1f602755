"""A reader that does what a file that took over its parser would do. It runs in the child, called like our own."""

import ctypes
import errno
import fcntl
import gc
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clew.documents.extraction.reading import Reading, SourceFile

_LIBC = ctypes.CDLL(None, use_errno=True)


def read(source: SourceFile, reading: Reading) -> None:
    """The name of the file says what to try; an item says how that went."""
    reading.text("before", part="first")
    name, _, argument = source.data.decode().partition(" ")
    reading.text(str(globals()[f"try_{name}"](argument, reading)), part="second")


def try_nothing(_: str, __: Reading) -> str:
    return "done"


def try_sleep(_: str, __: Reading) -> None:
    time.sleep(600)


def try_compute(_: str, __: Reading) -> None:
    while True:
        pass


def try_stop_ignoring_signals(_: str, __: Reading) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def try_memory(_: str, __: Reading) -> int:
    return len([bytearray(10 * 2**20) for _ in range(10_000)])


def try_segfault(_: str, __: Reading) -> None:
    ctypes.string_at(0)


def try_exit(_: str, __: Reading) -> None:
    os._exit(0)


def try_hang_up(_: str, __: Reading) -> None:
    os.close(_connection())
    time.sleep(600)


def try_output(_: str, reading: Reading) -> None:
    while True:
        reading.text("x" * 2**20)


def try_nonsense(_: str, __: Reading) -> None:
    os.write(_connection(), b"\x7f" * 64)


def try_endless(_: str, __: Reading) -> None:
    """Past every budget of ours, straight into the connection."""
    while True:
        os.write(_connection(), (2).to_bytes(4) + (2**20).to_bytes(4) + b"{}" + b"x" * 2**20)


def try_forgery(_: str, __: Reading) -> None:
    head = b'{"item": ["../../x", "exe", "application/x-msdownload", {}, "s"]}'
    os.write(_connection(), len(head).to_bytes(4) + bytes(4) + head)


def try_print(_: str, __: Reading) -> str:
    os.write(1, b"\0" * 12 * 100)
    sys.stdout.write("x" * 1000)
    sys.stdout.flush()
    return "printed"


def try_environment(_: str, __: Reading) -> str:
    return str(sorted(os.environ))  # noqa: TID251 - to see what is in it


def try_read(path: str, __: Reading) -> str:
    return _refused(lambda: Path(path).read_text())


def try_write(path: str, __: Reading) -> str:
    return _refused(lambda: Path(path).write_text("x"))


def try_delete(path: str, __: Reading) -> str:
    return _refused(lambda: Path(path).unlink())


def try_connect(port: str, __: Reading) -> str:
    return _refused(lambda: socket.create_connection(("127.0.0.1", int(port)), 1))


def try_fork(_: str, __: Reading) -> str:
    return _refused(os.fork)


def try_run(_: str, __: Reading) -> str:
    return _refused(lambda: subprocess.run(["/bin/true"], check=False))


def try_replace(_: str, __: Reading) -> str:
    return _refused(lambda: os.execv("/bin/true", ["true"]))


def try_kill(pid: str, __: Reading) -> str:
    return _refused(lambda: os.kill(int(pid), signal.SIGKILL))


def try_limits(_: str, __: Reading) -> str:
    return _refused(lambda: resource.setrlimit(resource.RLIMIT_AS, (-1, -1)))


def try_descriptors(_: str, __: Reading) -> str:
    open_ones = []
    for number in range(256):
        try:
            fcntl.fcntl(number, fcntl.F_GETFD)
        except OSError:
            continue
        open_ones.append(number)
    return str(len(open_ones))


# Written out, not read from the filter: one that lets more pass is to be noticed.
_X86_64 = (
    "0 1 3 5 7 8 9 10 11 12 13 14 15 17 19 20 23 24 25 28 35 39 44 45 46 47 48 60 63 96 98 99 "
    "100 102 104 107 108 110 131 186 201 202 204 218 219 228 229 230 231 270 271 273 309 318 324 "
    "334 449"
)
_ARM64 = (
    "57 62 63 64 65 66 67 72 73 80 93 94 96 98 99 101 113 114 115 123 124 128 132 134 135 139 "
    "153 160 165 168 169 172 173 174 175 176 177 178 179 206 207 210 211 212 214 215 216 222 226 "
    "233 278 283 293 449"
)


def try_every_call(_: str, __: Reading) -> str:
    """Every system call but those that a reader needs, with zeros, which no call with a condition takes."""
    allowed = {*map(int, (_X86_64 if platform.machine() == "x86_64" else _ARM64).split())}
    reached = []
    # uretprobe and uprobe are the kernel's own: it lets them pass every filter, and kills who calls them by hand.
    for number in sorted(set(range(1024)) - allowed - {335, 336}):
        ctypes.set_errno(0)
        result = _LIBC.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)
        if result != -1 or ctypes.get_errno() != (errno.ENOSYS if number == 435 else errno.EPERM):
            reached.append(number)
    return f"reached: {reached}"


def try_call(arguments: str, __: Reading) -> str:
    """One system call; the errno it failed with, 0 if it did not fail."""
    ctypes.set_errno(0)
    _LIBC.syscall(*[ctypes.c_long(int(one)) for one in arguments.split()])
    return str(ctypes.get_errno())


def try_progress(_: str, reading: Reading) -> str:
    for number in range(1, 4):
        time.sleep(0.25)
        reading.progress(number, 3)
    return "done"


def _refused(act: Callable[[], object]) -> str:
    try:
        return f"allowed: {act()!r}"
    except (OSError, ValueError) as exc:
        return f"refused: {type(exc).__name__}"


def _connection() -> int:
    """The one socket of this process."""
    found = [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]
    return found[0].fileno()
