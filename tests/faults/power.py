"""Disks that break, for processes under test: the power goes and takes what was not synced, or system calls fail.

The library of faulty.c is compiled here and preloaded into the process by `FaultyDisk.environ`.
"""

import mmap
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import IO, Literal

import pytest

SOURCE = Path(__file__).with_name("faulty.c")
SECTOR = 512
ALWAYS = 2**60

# Calls that can fail, and what records tell. As in faulty.c.
READ, WRITE, EXTEND, SYNC, TRUNCATE = 1, 2, 4, 8, 16
WRITTEN, SYNCED, RESIZED, GONE = 1, 2, 3, 4
_FIELDS = ("logging", "kinds", "code", "after", "times", "passed", "failed", "number", "clock")
_RECORD = struct.Struct("8q")

# What is left of writes that no sync followed: nothing; each of them by chance; each sector of each by chance.
Loss = Literal["all", "some", "torn"]
LOSSES: tuple[Loss, ...] = ("all", "some", "torn")


class Switches:
    """What the library does next, in a file that every process with it has mapped."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 8 * len(_FIELDS))

    def remember(self) -> None:
        self._set(logging=1)

    def fail(self, kinds: int, code: int, *, after: int = 0, times: int = ALWAYS) -> None:
        """Let so many calls of these kinds through, and then fail so many."""
        self._set(code=0, kinds=kinds, after=after, times=times, passed=0, failed=0)
        self._set(code=code)

    def heal(self) -> None:
        self._set(code=0, logging=0)

    def set_clock(self, ahead: int) -> None:
        """The wall clock is so many seconds ahead, from now on."""
        self._set(clock=ahead)

    @property
    def failed(self) -> int:
        (value,) = struct.unpack_from("q", self._shared, 8 * _FIELDS.index("failed"))
        return int(value)

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            struct.pack_into("q", self._shared, 8 * _FIELDS.index(name), value)


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """What one call changed in a file that was `size` bytes long."""

    kind: int
    number: int
    file: tuple[int, int]
    offset: int
    size: int
    was: bytes
    written: bytes


@dataclass(frozen=True, slots=True)
class FaultyDisk:
    """All files whose path contains `under`, for processes with `environ`."""

    folder: Path
    under: str
    switches: Switches

    @property
    def environ(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self.folder / "faulty.so"),
            "FAULTY_UNDER": self.under,
            "FAULTY_CONTROL": str(self.folder / "control"),
            "FAULTY_LOG": str(self.folder / "log"),
        }

    @property
    def control(self) -> str:
        return str(self.folder / "control")

    def lose_power(self, place: Path, chance: Random, loss: Loss) -> int:
        """The processes are dead; leave in the files there what a disk may have. Returns how many writes that undoes."""
        self.switches.heal()
        lost: defaultdict[tuple[int, int], list[WriteRecord]] = defaultdict(list)
        for record in sorted(self._records(), key=lambda record: record.number):
            if record.kind in (SYNCED, GONE):
                lost.pop(record.file, None)
            else:
                lost[record.file].append(record)
        undone = 0
        for path in [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]:
            found = path.stat()
            if records := lost.get((found.st_dev, found.st_ino)):
                with path.open("r+b") as file:
                    for record in reversed(records):
                        _undo(file, record)
                    for record in records:
                        undone += not _redo(file, record, chance, loss)
        for log in (self.folder / "log").iterdir():
            log.unlink()
        return undone

    def _records(self) -> Iterator[WriteRecord]:
        for path in (self.folder / "log").iterdir():
            with path.open("rb") as log:
                while len(head := log.read(_RECORD.size)) == _RECORD.size:
                    kind, number, device, inode, offset, size, was, written = _RECORD.unpack(head)
                    before, after = log.read(was), log.read(written)
                    if (
                        len(before) + len(after) == was + written
                    ):  # or its process died over it, before the write
                        yield WriteRecord(kind, number, (device, inode), offset, size, before, after)


def _undo(file: IO[bytes], record: WriteRecord) -> None:
    file.truncate(record.size)
    file.seek(record.offset)
    file.write(record.was)
    file.flush()


def _redo(file: IO[bytes], record: WriteRecord, chance: Random, loss: Loss) -> bool:
    """Whether all of it reached the disk after all."""
    if loss == "all" or (loss == "some" and chance.random() < 0.5):
        return False
    if record.kind == RESIZED:
        file.truncate(record.offset)
        return True
    is_whole = True
    start = 0
    while start < len(record.written):
        end = min(len(record.written), start + SECTOR - (record.offset + start) % SECTOR)
        if loss == "torn" and chance.random() < 0.5:
            is_whole = False
        else:
            file.seek(record.offset + start)
            file.write(record.written[start:end])
        start = end
    file.flush()
    return is_whole


@contextmanager
def faulty_disk(under: str) -> Iterator[FaultyDisk]:
    """Skips the test where no such library can be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        pytest.skip("loses and refuses writes through a preloaded library: needs Linux and a C compiler")
    # Where the user who runs the tests' Postgres can read, and write.
    with tempfile.TemporaryDirectory(prefix="clew-faulty-", dir="/tmp") as name:
        folder = Path(name)
        made = subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", folder / "faulty.so", SOURCE, "-ldl"],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            pytest.skip(f"the C compiler cannot make a library: {made.stderr[:200]}")
        (folder / "control").write_bytes(bytes(8 * len(_FIELDS)))
        (folder / "log").mkdir()
        for path, mode in ((folder, 0o755), (folder / "control", 0o666), (folder / "log", 0o777)):
            os.chmod(path, mode)
        yield FaultyDisk(folder, under, Switches(folder / "control"))
