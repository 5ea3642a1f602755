"""`clew doctor`: settings, versions, and checks of the database, the serializer, the graphs and the web application."""

import platform
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, redirect_stdout
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from clew import __version__
from clew.cli.opening import read_settings, run
from clew.cli.output import say, say_json, say_table
from clew.config import Settings, describe, export_environment, secrets_of
from clew.domain.errors import ClewError
from clew.server.database import open_stores, utc_now
from clew.telemetry.scrub import Scrubber

PACKAGES = (
    "langgraph",
    "langgraph-checkpoint",
    "langchain-core",
    "fastapi",
    "uvicorn",
    "pydantic",
    "asyncpg",
    "mcp",
    "ag-ui-protocol",
    "sqlite-vec",
    "standardwebhooks",
)


@dataclass(frozen=True, slots=True)
class Check:
    """`detail` is what was found, or what is wrong."""

    name: str
    ok: bool
    detail: str


def examine(*, config: Path | None, as_json: bool) -> None:
    settings = read_settings(config, level="error")
    checks = [
        check("database", lambda: run(_database(settings))),
        check("serializer", lambda: _serializer(settings)),
        *_graphs(settings),
        *_custom_app(settings),
    ]
    if as_json:
        say_json(
            {
                "ok": all(one.ok for one in checks),
                "checks": [asdict(one) for one in checks],
                "warnings": list(settings.warnings),
                "versions": versions(),
                "settings": [asdict(one) for one in describe(settings)],
            }
        )
    else:
        _show(settings, checks)
    if not all(one.ok for one in checks):
        raise typer.Exit(1)


def check(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, True, look())
    except ClewError as exc:
        return Check(name, False, str(exc))


def versions() -> dict[str, str]:
    found = {"clew": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


async def _database(settings: Settings) -> str:
    url = settings.database.url
    if url.path is not None and not url.path.exists():
        return f"{url} will be created by the first start"
    async with open_stores(settings) as stores:
        reached, keys = await stores.version(), await stores.keys.find()
    valid = sum(key.is_valid(now=utc_now()) for key in keys)
    return f"{url} answers, version {reached}, {valid} of {len(keys)} API keys valid"


def _serializer(settings: Settings) -> str:
    export_environment(settings)
    from clew.checkpointer.serializer import StrictSerializer, require_strict  # noqa: PLC0415 - reads what was just exported

    require_strict(StrictSerializer())
    return "strict: decodes plain data and types on an allow-list only"


def _graphs(settings: Settings) -> list[Check]:
    """One check for each registered graph, loaded as `clew serve` would."""
    if not settings.graphs:
        return []
    # The exception message of a graph's own code may quote anything.
    scrub = Scrubber(secrets_of(settings))
    with redirect_stdout(sys.stderr):  # a program reads the JSON on stdout: graph code must not print there
        broken = run(_broken_graphs(settings))
    return [
        Check(f"graph {name}", name not in broken, scrub(broken.get(name, source.written)))
        for name, source in settings.graphs.items()
    ]


def _custom_app(settings: Settings) -> list[Check]:
    """The web application of a LangGraph project, imported as `clew serve` would. Its lifespan is not run."""
    source = settings.http.app
    if source is None:
        return []
    export_environment(settings)
    from clew.server.http import load_custom_app  # noqa: PLC0415 - reads what was just exported

    def look() -> str:
        load_custom_app(source, settings)
        return source.written

    with redirect_stdout(sys.stderr):
        return [check("http.app", look)]


async def _broken_graphs(settings: Settings) -> dict[str, str]:
    export_environment(settings)
    from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415 - reads what was just exported

    from clew.graph.registry import import_from, open_registry  # noqa: PLC0415 - the same

    import_from(settings.import_paths)
    async with AsyncExitStack() as stack:
        registry = await open_registry(settings.graphs.values(), stack, saver=InMemorySaver(), store=None)
    return registry.broken


def _show(settings: Settings, checks: list[Check]) -> None:
    say_table(
        ["check", "", "found"], [(one.name, "ok" if one.ok else "FAILED", one.detail) for one in checks]
    )
    for warning in settings.warnings:
        say(f"warning      {warning}")
    say()
    say_table(["version", "of"], [(number, package) for package, number in versions().items()])
    say()
    say_table(["setting", "value", "from"], [(one.key, one.value, one.source) for one in describe(settings)])
