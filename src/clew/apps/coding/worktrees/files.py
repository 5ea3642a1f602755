"""Worktree files, opened part by part from the top: no link leads out, even one created meanwhile."""

import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from clew.apps.coding.plan import require_inside
from clew.documents.passages import cut
from clew.domain.errors import Invalid

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LONGEST = 1_048_576
_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class ShownFile:
    text: str
    digest: str


def read(top: Path, path: str) -> str | None:
    """The whole text of a file; None if it is none, too long, or cannot be reached without a link."""
    try:
        data, size = _bytes(top, path)
        return None if b"\0" in data or size > _LONGEST else data.decode()
    except (OSError, Invalid, UnicodeDecodeError):
        return None


def shown(top: Path, path: str) -> ShownFile:
    """A new file as the reviewer gets it."""
    try:
        data, size = _bytes(top, path)
    except (OSError, Invalid) as exc:
        return ShownFile("(not a plain file)", type(exc).__name__)
    digest = f"{size} {sha256(data).hexdigest()}"
    if b"\0" in data:
        return ShownFile(f"(binary, {size} bytes)", digest)
    return ShownFile(cut(data.decode(errors="replace"), _CHARACTERS), digest)


def check(top: Path, path: str, over: str | None) -> None:
    """Raises Invalid unless the file is unchanged: `over` is its expected text, None if it must not exist."""
    *folders, name = require_inside(path)
    try:
        with _opened(top, folders) as folder:
            _require(folder, name, path, over)
    except FileNotFoundError:  # one of its folders
        if over is not None:
            raise Invalid(f"{path} is gone since it was shown", "files.path") from None


def write(top: Path, path: str, text: str, over: str | None) -> None:
    """Replace the file atomically: a kill leaves the old one or the new one. Raises Invalid, OSError.

    The current text must be `over`: a file that its writer never saw is not replaced.
    """
    *folders, name = require_inside(path)
    with _opened(top, folders, make=True) as folder:
        mode = _require(folder, name, path, over)
        draft = f".{secrets.token_hex(8)}.clew"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        made = os.open(draft, flags, 0o666, dir_fd=folder)
        try:
            with open(made, "w", encoding="utf-8", newline="", errors="replace") as file:
                if mode is not None:
                    os.fchmod(made, mode)
                file.write(text)
                file.flush()
                os.fsync(made)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(draft, dir_fd=folder)
            raise


def remove(top: Path, path: str, text: str) -> None:
    """Remove the file, which must have this text. Raises Invalid, OSError."""
    *folders, name = require_inside(path)
    with _opened(top, folders) as folder:
        _require(folder, name, path, text)
        os.unlink(name, dir_fd=folder)


def move(top: Path, path: str, new: str, text: str) -> None:
    """Give the file, which must have this text, a name that no file has. Raises Invalid, OSError."""
    *folders, name = require_inside(path)
    *others, new_name = require_inside(new)
    with _opened(top, folders) as folder, _opened(top, others, make=True) as other:
        _require(folder, name, path, text)
        _require(other, new_name, new, None)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=other)


def _require(folder: int, name: str, path: str, over: str | None) -> int | None:
    """The mode of the file that stands there as `over` says. Raises Invalid."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        if over is not None:
            raise Invalid(f"{path} is gone since it was shown", "files.path") from None
        return None
    if not stat.S_ISREG(found.st_mode):
        raise Invalid(f"{path} is not a plain file", "files.path")
    if over is None:
        raise Invalid(f"{path} exists and was not shown whole, so it is not replaced", "files.path")
    if _plain(folder, name, path)[0] != over.encode():
        raise Invalid(f"{path} changed since it was shown", "files.path")
    return stat.S_IMODE(found.st_mode)


def _bytes(top: Path, path: str) -> tuple[bytes, int]:
    *folders, name = require_inside(path)
    with _opened(top, folders) as folder:
        return _plain(folder, name, path)


def _plain(folder: int, name: str, path: str) -> tuple[bytes, int]:
    """The beginning of a plain file, and how long all of it is."""
    with open(os.open(name, _FILE, dir_fd=folder), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise Invalid(f"{path} is not a plain file", "files.path")
        return file.read(_LONGEST), found.st_size


@contextmanager
def _opened(top: Path, parts: list[str], *, make: bool = False) -> Generator[int]:
    """The folder at the end of the parts, each opened from the one before."""
    folder = os.open(top, _FOLDER)
    try:
        for part in parts:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)
