"""A place for servers of LangGraph's clients that come and go: one folder, one database, the same keys throughout."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import psycopg
import pytest

from tests.acceptance import sdk_graphs
from tests.acceptance.sdk import CALLERS, SdkServer
from tests.postgres import PostgresServer
from tests.processes import ROOT, clew, serving


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    environ: dict[str, str]
    keys: dict[str, str]
    graphs: ModuleType = sdk_graphs

    @contextmanager
    def serving(
        self, *, project: Mapping[str, Any] = MappingProxyType({}), **environ: str
    ) -> Iterator[SdkServer]:
        """Several at once get folders of their own: what they share is the database. `project`: more keys of
        langgraph.json."""
        folder = self.folder / f"server{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        _write_project(folder, self.graphs, project)
        more = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **self.environ, **environ}
        with serving(folder, port=0, **more) as server:
            yield SdkServer(server, self.keys)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """For what no client can do: look into tables, and turn a clock."""
        url = self.environ["CLEW_DATABASE_URL"]
        if url.startswith("sqlite"):
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=30)) as db, db:
                return db.execute(statement).fetchall()
        with psycopg.connect(url) as connection:
            found = connection.execute(statement.encode())
            return found.fetchall() if found.description else []


@contextmanager
def stage_on(
    kind: str,
    request: pytest.FixtureRequest,
    folder: Path,
    graphs: ModuleType = sdk_graphs,
    **environ: str,
) -> Iterator[Stage]:
    """On a SQLite file, or on a database of the tests' Postgres."""
    if kind == "sqlite":
        yield _stage(folder, graphs, {**environ, "CLEW_DATABASE_URL": f"sqlite:///{folder}/clew.db"})
        return
    postgres: PostgresServer = request.getfixturevalue("shared_postgres")
    name = f"stage_{folder.name.replace('-', '_')}"
    yield _stage(folder, graphs, {**environ, "CLEW_DATABASE_URL": postgres.create_database(name)})
    postgres.drop_database(name)


def _stage(folder: Path, graphs: ModuleType, environ: dict[str, str]) -> Stage:
    keys = {}
    for name, who in CALLERS.items():
        made = clew(folder, "keys", "create", "--name", name, *who, "--json", **environ)
        assert made.returncode == 0, made.stderr
        keys[name] = json.loads(made.stdout)["key"]
    return Stage(folder, environ, keys, graphs)


def _write_project(folder: Path, graphs: ModuleType, more: Mapping[str, Any]) -> None:
    named = {name: f"{graphs.__file__}:{name}" for name in graphs.NAMES}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": named, **more}))
