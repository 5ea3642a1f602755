"""`clew doctor`: settings, versions, and checks of the database, the serializer, and what a project brings: graphs, web application, auth, index."""

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
from clew.cli.output import progress, say, say_json, say_table
from clew.config import Settings, describe, export_environment, secrets_of
from clew.domain.errors import ClewError, Corrupt
from clew.server.auth import open_custom_auth
from clew.server.database import open_database, open_stores, utc_now
from clew.server.drivers import ask_profiles
from clew.server.encryption import open_cipher
from clew.server.mcp_servers import ask_mcp_servers
from clew.server.store_index import load_index, require_vectors
from clew.stores.sql.integrity import IntegrityRows
from clew.telemetry.scrub import Scrubber

PAGE = 500
# Problems that are written out.
SHOWN = 20
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


def examine(*, config: Path | None, as_json: bool, deep: bool = False, ask: bool = False) -> None:
    settings = read_settings(config, level="error")
    checks = [
        check("database", lambda: run(_database(settings))),
        check("serializer", lambda: _serializer(settings)),
        *_graphs(settings),
        *_custom_app(settings),
        *_custom_auth(settings),
        *_custom_encryption(settings),
        *_custom_priority(settings),
        *_store_index(settings),
        *([check("integrity", lambda: run(_integrity(settings)))] if deep else []),
        *(_models(settings) if ask else []),
        *(_mcp_servers(settings) if ask else []),
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


def _models(settings: Settings) -> list[Check]:
    """What the model of each profile answered to a small question."""
    scrub = Scrubber(secrets_of(settings))
    return [Check(f"profile {one.profile}", one.ok, scrub(one.detail)) for one in run(ask_profiles(settings))]


def _mcp_servers(settings: Settings) -> list[Check]:
    """The tools of each MCP server."""
    scrub = Scrubber(secrets_of(settings))
    return [Check(f"mcp {one.server}", one.ok, scrub(one.detail)) for one in run(ask_mcp_servers(settings))]


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


async def _integrity(settings: Settings) -> str:
    """Read every log. Raises Corrupt with what is wrong."""
    url = settings.database.url
    if url.path is not None and not url.path.exists():
        return "there is no database yet"
    problems: list[str] = []
    count, last = 0, ""
    async with open_stores(settings) as stores:
        rows = IntegrityRows(stores.db)
        if url.path is not None:
            problems += await rows.damage_of_file()
        while page := await rows.thread_ids(last, PAGE):
            for last in page:
                # A server may have written between the row and the log: then the second look agrees.
                if await rows.problem_of(last) and (problem := await rows.problem_of(last)):
                    problems.append(problem)
            count += len(page)
            progress(f"{count} threads checked")
        progress("")
        problems += [
            f"{table}: rows of {lost} threads that do not exist"
            for table, lost in (await rows.orphans()).items()
        ]
    if problems:
        more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise Corrupt("; ".join(problems[:SHOWN]) + more)
    return f"{count} threads: each row agrees with its log, no row without a thread"


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


def _custom_auth(settings: Settings) -> list[Check]:
    """The Auth object of a LangGraph project, imported as `clew serve` would."""
    if settings.custom_auth is None:
        return []
    source = settings.custom_auth.source
    export_environment(settings)

    def look() -> str:
        open_custom_auth(settings)
        return source.written

    with redirect_stdout(sys.stderr):
        return [check("auth.path", look)]


def _custom_encryption(settings: Settings) -> list[Check]:
    """The Encryption object of a LangGraph project, which has to give back what it encrypts."""
    if settings.custom_encryption is None:
        return []
    with redirect_stdout(sys.stderr):
        return [check("encryption.path", lambda: run(_encryption(settings)))]


async def _encryption(settings: Settings) -> str:
    async with open_cipher(settings) as cipher:
        return f"values are encrypted by {cipher.current}"


def _custom_priority(settings: Settings) -> list[Check]:
    source = settings.custom_priority
    if source is None:
        return []
    export_environment(settings)
    from clew.server.priority import load_assign  # noqa: PLC0415 - LangGraph takes seconds

    def look() -> str:
        load_assign(source, settings)
        return source.written

    with redirect_stdout(sys.stderr):
        return [check("priority.path", look)]


def _store_index(settings: Settings) -> list[Check]:
    """The embedding of the store, and whether its database compares vectors."""
    if settings.store_index is None:
        return []
    export_environment(settings)
    with redirect_stdout(sys.stderr):
        return [check("store.index", lambda: run(_vectors(settings)))]


async def _vectors(settings: Settings) -> str:
    source, url = settings.store_index, settings.graph_store_url
    load_index(settings)
    if url.kind == "postgres":
        async with open_database(url, settings) as db:
            await require_vectors(db, url.kind)
    return "" if source is None else source.written


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
