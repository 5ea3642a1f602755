"""`clew encrypt`: brings all values of the database, and of the graph store's own one, under the current key.

The search index goes: its words cannot be encrypted."""

import asyncio
from pathlib import Path

import typer

from clew.cli.opening import OTHERS, read_settings, run
from clew.cli.output import say, say_json
from clew.cli.progress import progress_bar
from clew.config import DatabaseUrl, Settings
from clew.domain.errors import ConfigError
from clew.server.database import open_database, open_search
from clew.stores.sql.reencryption import ReencryptionRows
from clew.stores.sqlite_space import wipe_free_pages


def encrypt(*, config: Path | None, as_json: bool) -> None:
    # Not its warning that there are plain values: that is what the command is for.
    settings = read_settings(config, level="error", without=OTHERS)
    urls = dict.fromkeys((settings.database.url, settings.graph_store_url))
    done = [run(_encrypt(url, settings)) for url in urls if url.kind != "memory"]
    if as_json:
        say_json({"key": done[0]["key"] if done else None, "databases": [_without_key(one) for one in done]})
    else:
        for one in done:
            _show(one)
    if any(one["unreadable"] for one in done):
        raise typer.Exit(1)


async def _encrypt(url: DatabaseUrl, settings: Settings) -> dict[str, object]:
    if url.path is not None and not url.path.exists():
        raise ConfigError(f"there is no database at {url.path}; is this the right folder?")
    async with open_database(url, settings) as db:
        if not db.cipher.is_active:
            raise ConfigError("no key was given: set CLEW_ENCRYPTION_KEY or CLEW_ENCRYPTION_KEY_COMMAND")
        with progress_bar("encrypting") as report:
            done = await ReencryptionRows(db).run(report)
        await open_search(db).clear()
        key = db.cipher.current
    wiped = await asyncio.to_thread(wipe_free_pages, url.path) if url.path is not None else False
    return {
        "key": key,
        "database": str(url),
        "rows": done.rows,
        "unreadable": done.unreadable,
        "wiped": wiped,
    }


def _show(one: dict[str, object]) -> None:
    say(f"{one['database']}: {one['rows']} rows encrypted with key {one['key']}.")
    if one["unreadable"]:
        say(f"{one['unreadable']} rows do not open with any of the keys, and stay as they are.")
    if not one["wiped"]:
        say(
            "Older versions of the rows may still be in the files: run VACUUM FULL on Postgres; on SQLite stop Clew and"
            " run this again."
        )


def _without_key(one: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in one.items() if name != "key"}
