"""A server as LangGraph's own client meets it: a project with a langgraph.json, and callers who have keys."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from langgraph_sdk import get_client

from tests.acceptance import sdk_graphs
from tests.postgres import PostgresServer
from tests.processes import ROOT, Server, clew, serving

# Who calls: two users of one tenant, somebody to whom the whole tenant is shown, and a stranger.
CALLERS = {
    "ann": ("--tenant", "acme", "--user", "ann"),
    "bob": ("--tenant", "acme", "--user", "bob"),
    "acme": ("--tenant", "acme"),
    "rival": ("--tenant", "rival", "--user", "ann"),
    "reader": ("--tenant", "acme", "--user", "ann", "--scope", "read"),
}


@dataclass(frozen=True, slots=True)
class SdkServer:
    server: Server
    keys: dict[str, str]


@dataclass(frozen=True, slots=True)
class Clients:
    """LangGraph's client for each caller. Its types promise more than comes, a time where there is a text."""

    ann: Any
    bob: Any
    acme: Any
    rival: Any
    reader: Any


@contextmanager
def sdk_serving(folder: Path, graphs: ModuleType = sdk_graphs, **environ: str) -> Iterator[SdkServer]:
    named = {name: f"{graphs.__file__}:{name}" for name in graphs.NAMES}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": named}))
    keys = {}
    for name, who in CALLERS.items():
        made = clew(folder, "keys", "create", "--name", name, *who, "--json", **environ)
        keys[name] = json.loads(made.stdout)["key"]
    environ = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **environ}
    with serving(folder, port=0, **environ) as server:
        yield SdkServer(server, keys)


@contextmanager
def sdk_serving_on(
    kind: str, request: pytest.FixtureRequest, folder: Path, graphs: ModuleType = sdk_graphs
) -> Iterator[SdkServer]:
    """On a SQLite file, or on a database of the tests' Postgres."""
    if kind == "sqlite":
        with sdk_serving(folder, graphs) as served:
            yield served
        return
    postgres: PostgresServer = request.getfixturevalue("shared_postgres")
    name = f"sdk_{folder.name.replace('-', '_')}"
    url = postgres.create_database(name)
    with sdk_serving(folder, graphs, CLEW_DATABASE_URL=url) as served:
        yield served
    postgres.drop_database(name)


@asynccontextmanager
async def clients_of(served: SdkServer) -> AsyncGenerator[Clients]:
    async with AsyncExitStack() as stack:
        yield Clients(
            **{
                name: await stack.enter_async_context(get_client(url=served.server.address, api_key=key))
                for name, key in served.keys.items()
            }
        )
