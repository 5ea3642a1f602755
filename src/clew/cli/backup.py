"""`clew backup` and `clew restore`: the database, and that of the graph store where it is a file of its own."""

import shutil
from pathlib import Path

from clew.cli.opening import OTHERS, read_settings, run
from clew.cli.output import say, say_json
from clew.cli.progress import progress_bar
from clew.cli.terminal import confirm
from clew.config import DatabaseUrl, Settings, program_search_path
from clew.domain.errors import ConfigError, Invalid
from clew.server.database import make_folder, utc_now
from clew.server.encryption import open_cipher
from clew.stores import postgres_backup, sqlite_backup
from clew.stores.sql.encryption_keys import require_readable

# Added to the name of a backup for that of the graph store, where it is a database of its own.
GRAPH_STORE = ".graph-store"


def back_up(output: Path | None, *, config: Path | None, as_json: bool) -> None:
    settings = _settings(config)
    path = output or Path(f"clew-{utc_now():%Y%m%d-%H%M%S}.backup")
    written = []
    for url, target in _databases(settings, path):
        if url.path is not None and not url.path.exists():
            raise ConfigError(f"there is no database at {url.path}; is this the right folder?")
        written.append({"path": str(target), **_back_up(url, target)})
    if as_json:
        say_json({"backups": written})
        return
    for one in written:
        threads = f", {one['threads']} threads" if "threads" in one else ""
        say(f"{one['path']}: {one['bytes']} bytes, version {one['version']}{threads}, verified")


def restore(file: Path, *, yes: bool, config: Path | None, as_json: bool) -> None:
    settings = _settings(config)
    if not file.is_file():
        raise Invalid(f"no file {file}")
    restored = []
    for url, backup in _databases(settings, file):
        if not backup.is_file():
            raise Invalid(
                f"no file {backup}: the graph store is a database of its own, and `clew backup` writes both"
            )
        _verify(url, backup)
        if url.path is not None:
            run(_require_keys(settings, backup))
    confirm(f"Replace {settings.database.url} by {file}?", yes=yes)
    for url, backup in _databases(settings, file):
        restored.append({"database": str(url), **_restore(url, backup)})
    if as_json:
        say_json({"restored": restored})
        return
    for one in restored:
        say(f"{one['database']} is restored, version {one['version']}.")
        if one.get("aside"):
            say(f"The database from before is {one['aside']}; delete it when you no longer need it.")


def _settings(config: Path | None) -> Settings:
    settings = read_settings(config, level="warning", without=OTHERS)
    if settings.database.url.kind == "memory":
        raise ConfigError("the database is memory://, which only the running process sees")
    return settings


def _databases(settings: Settings, path: Path) -> list[tuple[DatabaseUrl, Path]]:
    found = [(settings.database.url, path)]
    if settings.graph_store_url != settings.database.url and settings.graph_store_url.kind != "memory":
        found.append((settings.graph_store_url, path.with_name(path.name + GRAPH_STORE)))
    return found


def _back_up(url: DatabaseUrl, target: Path) -> dict[str, int]:
    if url.path is None:
        version = postgres_backup.dump(url.reveal(), target, program_search_path())
        return {"version": version, "bytes": target.stat().st_size}
    with progress_bar("backing up") as report:
        done = sqlite_backup.back_up(url.path, target, report)
    return {"version": done.version, "threads": done.threads, "bytes": done.bytes}


def _verify(url: DatabaseUrl, backup: Path) -> None:
    if url.path is None:
        postgres_backup.version_of(backup, program_search_path())
    else:
        sqlite_backup.verify(backup)


async def _require_keys(settings: Settings, backup: Path) -> None:
    """Raises ConfigError: a database that cannot be read is not put in the place of one that can."""
    async with open_cipher(settings) as cipher:
        try:
            require_readable(sqlite_backup.encryption_keys(backup), cipher)
        except ConfigError as exc:
            raise ConfigError(f"{backup} cannot be restored: {exc}") from None


def _restore(url: DatabaseUrl, backup: Path) -> dict[str, object]:
    if url.path is None:
        return {"version": postgres_backup.load(url.reveal(), backup, program_search_path())}
    make_folder(url)
    existed = url.path.exists()
    if existed:
        _require_space(url.path.parent, backup)
    aside = url.path.with_name(f"{url.path.name}.before-{utc_now():%Y%m%d-%H%M%S}")
    done = sqlite_backup.restore(backup, url.path, aside=aside)
    return {"version": done.version, "threads": done.threads, "aside": str(aside) if existed else None}


def _require_space(folder: Path, backup: Path) -> None:
    needed, free = backup.stat().st_size, shutil.disk_usage(folder).free
    if free < needed:
        raise Invalid(f"{folder} has {free} bytes free, and the restore needs {needed}")
