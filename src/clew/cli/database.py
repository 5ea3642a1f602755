"""`clew migrate`: migrate the database to the newest version."""

from pathlib import Path

from clew.cli.opening import run, stores_of
from clew.cli.output import say, say_json


def migrate(*, config: Path | None, as_json: bool) -> None:
    async def version() -> int:
        async with stores_of(config, create=True) as stores:
            return await stores.version()

    reached = run(version())
    if as_json:
        say_json({"version": reached})
    else:
        say(f"The database is at version {reached}.")
