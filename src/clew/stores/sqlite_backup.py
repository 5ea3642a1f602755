"""Backup and restore of a SQLite database: an online copy, verified; put back only where no process has it open."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from clew.domain.errors import ConfigError, Corrupt, Invalid, InvalidState
from clew.failpoints import failpoint
from clew.stores.migrations import migrations
from clew.stores.sql.migrate import require_upgradable
from clew.stores.sqlite_vectors import add_vectors

# Pages copied at a time, between two reports of the progress.
PAGES = 2048
_BESIDE = ("-wal", "-shm")

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BackedUp:
    """What is in a backup."""

    version: int
    threads: int
    bytes: int


def back_up(source: Path, target: Path, progress: Progress) -> BackedUp:
    """Copy the database as it is at this moment, while others write to it, and verify the copy.

    Raises Invalid if the target exists. A killed backup leaves a file `.part` and no target.
    """
    if target.exists():
        raise Invalid(f"{target} already exists")
    part = _private_file(target.with_name(f"{target.name}.part"))
    try:
        with closing(_open(source)) as origin, closing(sqlite3.connect(part)) as copy:
            # One snapshot for all steps: without it every commit of another process would begin the copy anew.
            origin.execute("BEGIN")
            origin.execute("SELECT count(*) FROM sqlite_schema").fetchone()

            def report(_: int, remaining: int, total: int) -> None:
                failpoint("backup_mid")
                progress(total - remaining, total)

            origin.backup(copy, pages=PAGES, progress=report)
            origin.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = DELETE")
        found = verify(part)
        _sync(part)
        os.link(part, target)  # refuses a file that another process has created meanwhile
        part.unlink()
        _sync(target.parent)
    except FileExistsError as exc:
        raise Invalid(f"{target} already exists") from exc
    except sqlite3.Error as exc:
        raise Corrupt(f"{source} cannot be read completely: {exc}") from exc
    except OSError as exc:
        raise Invalid(f"cannot write {target}: {exc.strerror}") from exc
    return found


def verify(path: Path) -> BackedUp:
    """Raises ConfigError for another kind of file or a newer Clew's, Corrupt for a damaged one."""
    try:
        with closing(_open(path)) as connection:
            if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone():
                raise ConfigError(f"{path} is a database, but not one of Clew's")
            seen = connection.execute("SELECT version, name FROM migrations ORDER BY version").fetchall()
            if not seen:
                raise ConfigError(f"{path} is a database, but not one of Clew's")
            require_upgradable([(version, name) for version, name in seen], migrations("sqlite"), "sqlite")
            (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if verdict != "ok":
                raise Corrupt(f"{path} is damaged: {verdict}")
            (threads,) = connection.execute("SELECT count(*) FROM threads").fetchone()
    except sqlite3.Error as exc:
        if "not a database" in str(exc) and not _begins_as_sqlite(path):
            raise ConfigError(f"{path} is not a SQLite database") from exc
        if "no such" in str(exc) or "unable to open" in str(exc):
            raise ConfigError(f"{path} is not a database of Clew: {exc}") from exc
        raise Corrupt(f"{path} is damaged: {exc}") from exc
    return BackedUp(version=seen[-1][0], threads=threads, bytes=path.stat().st_size)


def encryption_keys(backup: Path) -> list[tuple[str, str]]:
    """The ids and check values of the keys that a verified backup is encrypted with."""
    with closing(_open(backup)) as connection:
        return connection.execute("SELECT id, check_value FROM encryption_keys ORDER BY id").fetchall()


def restore(backup: Path, target: Path, *, aside: Path) -> BackedUp:
    """Put a verified backup in the place of the database; the old one stays as `aside`.

    Raises InvalidState while a process has the database open. Killed at any moment, the old database or the new
    one is in place, and the command can be repeated.
    """
    verify(backup)
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = _private_file(target.with_name(f"{target.name}.restoring"))
    try:
        with backup.open("rb") as source, new.open("wb") as file:
            shutil.copyfileobj(source, file, 1024 * 1024)
        found = verify(new)  # what was copied, not what was read before
        _sync(new)
        if target.exists():
            _leave_wal(target)
            with suppress(FileExistsError):  # of a restore that was killed after this
                os.link(target, aside)
            for suffix in _BESIDE:
                beside = Path(f"{target}{suffix}")
                if beside.exists():  # of a damaged database: SQLite would apply it to the new one
                    beside.replace(f"{aside}{suffix}")
        failpoint("restore_before_replace")
        new.replace(target)
        _sync(target.parent)
    except OSError as exc:
        raise Invalid(f"cannot write {target}: {exc.strerror}") from exc
    return found


def _leave_wal(path: Path) -> None:
    """Make the old database one file. Raises InvalidState if another process has it open.

    Leaving WAL mode needs the database for oneself. One that is too damaged for that is moved as it is.
    """
    try:
        with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as connection:
            (mode,) = connection.execute("PRAGMA journal_mode = DELETE").fetchone()
    except sqlite3.OperationalError as exc:
        if "locked" in str(exc):
            mode = "wal"
        else:
            return
    except sqlite3.DatabaseError:
        return
    if mode == "wal":
        raise InvalidState(f"{path} is in use: stop `clew serve` and other commands on it first")


def _open(path: Path) -> sqlite3.Connection:
    """For reading; a missing file is not created."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, isolation_level=None
    )
    add_vectors(connection)
    return connection


def _begins_as_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def _private_file(path: Path) -> Path:
    """A new empty file for its owner only, in the place of one that a killed command left."""
    path.unlink(missing_ok=True)
    for suffix in ("-journal", *_BESIDE):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    return path


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
