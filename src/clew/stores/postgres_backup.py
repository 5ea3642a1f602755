"""Backup and restore of a Postgres database by its own tools, pg_dump and pg_restore."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from clew.domain.errors import ConfigError, Corrupt, Invalid, Permanent
from clew.stores.migrations import migrations
from clew.stores.sql.migrate import require_upgradable

_ARCHIVE = b"PGDMP"


def dump(dsn: str, target: Path, environ: dict[str, str]) -> int:
    """Write a dump in pg_dump's own format and verify that it can be read; returns its version.

    Raises ConfigError without pg_dump, Permanent with what it says if it fails.
    """
    if target.exists():
        raise Invalid(f"{target} already exists")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as exc:
        raise Invalid(f"cannot write {target}: {exc.strerror}") from exc
    _call(["pg_dump", "--format=custom", "--no-owner", f"--file={part}"], dsn, environ)
    version = version_of(part, environ)
    part.replace(target)
    return version


def load(dsn: str, backup: Path, environ: dict[str, str]) -> int:
    """Replace the database's tables by those of the dump, in one transaction; returns its version."""
    version = version_of(backup, environ)
    options = ["--clean", "--if-exists", "--no-owner", "--single-transaction", "--exit-on-error"]
    _call(["pg_restore", *options, f"--dbname={_database(dsn)}", str(backup)], dsn, environ)
    return version


def version_of(backup: Path, environ: dict[str, str]) -> int:
    """Raises ConfigError for a file of another kind or a newer Clew's, Corrupt for a damaged one."""
    try:
        with backup.open("rb") as file:
            if file.read(5) != _ARCHIVE:
                raise ConfigError(f"{backup} is no dump that pg_dump wrote in its custom format")
    except OSError as exc:
        raise Invalid(f"cannot read {backup}: {exc.strerror}") from exc
    try:
        # The whole file is read: a dump that ends early, or is damaged in its middle, fails here.
        _call(["pg_restore", f"--file={os.devnull}", str(backup)], None, environ)
        text = _call(
            ["pg_restore", "--data-only", "--table=migrations", "--file=-", str(backup)], None, environ
        )
    except Permanent as exc:
        raise Corrupt(f"{backup} is damaged: {exc}") from exc
    rows = [line.split("\t") for line in text.partition("COPY ")[2].splitlines()[1:] if "\t" in line]
    seen = sorted((int(row[0]), row[1]) for row in rows if row[0].isdigit())
    if not seen:
        raise ConfigError(f"{backup} is a dump of a database, but not of one of Clew's")
    require_upgradable(seen, migrations("postgres"), "postgres")
    return seen[-1][0]


def _call(command: list[str], dsn: str | None, environ: dict[str, str]) -> str:
    """The password is passed in the environment: other users of the machine see arguments."""
    program = shutil.which(command[0], path=environ.get("PATH"))
    if program is None:
        raise ConfigError(
            f"Postgres needs {command[0]}, which is not on the PATH: install the client programs of Postgres,"
            " or run it where they are; see docs/howto/backup.md"
        )
    environ = environ if dsn is None else {**environ, **_variables(dsn)}
    done = subprocess.run(  # noqa: S603 - a fixed program, no shell
        [program, *command[1:]], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = " ".join(done.stderr.split())[-400:]
        raise Permanent(f"{command[0]} failed: {told}")
    return done.stdout


_HOST = re.compile(r"\[?(?P<name>.*?)\]?(?::(?P<port>\d+))?")


def _database(dsn: str) -> str:
    return unquote(urlsplit(dsn).path.lstrip("/")) or "postgres"


def _variables(dsn: str) -> dict[str, str]:
    """The connection as libpq's variables."""
    parts = urlsplit(dsn)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    hosts = [
        _HOST.fullmatch(one) for one in parts.netloc.rpartition("@")[2].split(",")
    ]  # a DSN may name several
    found = {
        "PGHOST": query.get("host") or ",".join(unquote(host["name"]) for host in hosts if host),
        "PGPORT": query.get("port") or ",".join(host["port"] or "" for host in hosts if host),
        "PGTARGETSESSIONATTRS": query.get("target_session_attrs", ""),
        "PGUSER": query.get("user") or unquote(parts.username or ""),
        "PGPASSWORD": query.get("password") or unquote(parts.password or ""),
        "PGDATABASE": _database(dsn),
        "PGSSLMODE": query.get("sslmode", ""),
        "PGSSLROOTCERT": query.get("sslrootcert", ""),
    }
    return {name: value for name, value in found.items() if value}
