"""A place for servers of LangGraph's clients that come and go: one folder, one database, the same keys throughout."""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from types import MappingProxyType, ModuleType
from typing import Any

import psycopg
import pytest

from tests.acceptance import sdk_graphs
from tests.acceptance.sdk import CALLERS, SdkServer
from tests.postgres import PostgresServer
from tests.processes import ROOT, Server, clew, serving, working


@dataclass(frozen=True, slots=True)
class Stage:
    folder: Path
    environ: dict[str, str]
    keys: dict[str, str]
    graphs: ModuleType = sdk_graphs

    @contextmanager
    def serving(
        self, *arguments: str, project: Mapping[str, Any] = MappingProxyType({}), **environ: str
    ) -> Iterator[SdkServer]:
        """Several at once get folders of their own: what they share is the database. `project`: more keys of
        langgraph.json."""
        with serving(self._place(project), *arguments, port=0, **self._environ(environ)) as server:
            yield SdkServer(server, self.keys)

    @contextmanager
    def working(self, *arguments: str, **environ: str) -> Iterator[Server]:
        """A worker beside them."""
        with working(self._place({}), *arguments, **self._environ(environ)) as worker:
            yield worker

    def _place(self, project: Mapping[str, Any]) -> Path:
        folder = Path(mkdtemp(prefix="server", dir=self.folder))
        _write_project(folder, self.graphs, project)
        return folder

    def _environ(self, more: Mapping[str, str]) -> dict[str, str]:
        return {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **self.environ, **more}

    def writer(self) -> str:
        """A key of ann's that may write and not approve."""
        who = ("--tenant", "acme", "--user", "ann", "--scope", "read", "--scope", "write")
        made = clew(self.folder, "keys", "create", "--name", "writer", *who, "--json", **self.environ)
        return str(json.loads(made.stdout)["key"])

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


def stage_at(url: str, folder: Path, graphs: ModuleType = sdk_graphs, **environ: str) -> Stage:
    """On a database that is there already."""
    return _stage(folder, graphs, {**environ, "CLEW_DATABASE_URL": url})


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
