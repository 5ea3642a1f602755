"""Settings and database of a command: loads the settings of this process and opens the database they name."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from clew.config import Settings, load_process_settings, secrets_of
from clew.domain.errors import ConfigError
from clew.failpoints import install
from clew.telemetry import configure_logs

if TYPE_CHECKING:
    from clew.server.database import Stores

T = TypeVar("T")

INTERRUPTED = 130

# Sections that no command uses which works on the database alone.
OTHERS = ("agents", "apps", "channels", "coding", "graphs", "models", "profiles", "store", "trackers")


def read_settings(
    config: Path | None,
    options: dict[str, object] | None = None,
    *,
    level: str | None = None,
    without: Collection[str] = (),
) -> Settings:
    """Load the settings and set up logging that masks their secrets, before anything else. Raises ConfigError.

    `without` are the sections that the command does not use.
    """
    settings = load_process_settings(config, options, without=without)
    configure_logs(
        sys.stderr,
        level=level or settings.logs.level,
        format=settings.logs.format,
        debug=settings.logs.debug,
        secrets=secrets_of(settings),
    )
    install(settings.testing.failpoints)
    return settings


@asynccontextmanager
async def stores_of(config: Path | None, *, create: bool = False) -> AsyncGenerator["Stores"]:
    """The database of the settings; a missing one is created only with `create`."""
    from clew.server.database import open_stores  # noqa: PLC0415 - heavy; a server opens its database later

    settings = read_settings(config, level="warning", without=OTHERS)
    url = settings.database.url
    if url.kind == "memory":
        raise ConfigError("the database is memory://, which only the running process sees")
    if not create and url.path is not None and not url.path.exists():
        raise ConfigError(f"there is no database at {url.path}; is this the right folder?")
    async with open_stores(settings) as stores:
        yield stores


def run(work: Coroutine[Any, Any, T]) -> T:
    """Exits with 130 after Ctrl-C, once the work has cleaned up."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
