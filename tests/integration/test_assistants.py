"""Assistants of graphs that come and go between two starts of a server."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from clew.domain.assistants import AssistantPatch, Search
from clew.domain.errors import NotFound
from clew.engine.assistants import AssistantCatalog
from clew.graph.introspection import LangGraphIntrospection
from clew.graph.registry import Registry
from clew.server.database import new_id
from clew.server.library import graph_store_on
from clew.stores.sql.assistants import AssistantRows
from clew.stores.sql.thread_metadata import ThreadMetadataRows
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.work import Database
from clew.stores.sqlite import open_sqlite
from tests.acceptance.sdk_graphs import echo, nested
from tests.http_client import client_of, opened_app
from tests.samples import ANN, NOW

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    async with open_sqlite(None) as db:
        yield db


def roster(db: Database, *names: str) -> AssistantCatalog:
    """Of a server that has these graphs."""
    registry = Registry({name: {"echo": echo, "nested": nested}[name]() for name in names})
    return AssistantCatalog(
        assistants=AssistantRows(db),
        graphs=registry,
        introspection=LangGraphIntrospection(registry.graphs, graph_store_on(db, backend="sqlite")),
        labels=ThreadMetadataRows(db),
        delete_thread=lambda thread_id, owner: ThreadRows(db).tombstone(thread_id, owner, now=NOW),
        clock=lambda: NOW,
        new_id=new_id,
        since=NOW - timedelta(days=1),
    )


async def test_an_assistant_whose_graph_is_gone_is_there_again_with_it(database: Database) -> None:
    both, without = roster(database, "echo", "nested"), roster(database, "nested")
    made = await both.create(ANN, "echo", AssistantPatch(name="Parrot"))
    with pytest.raises(NotFound):
        await without.resolve(made.id, ANN)
    assert await without.find(ANN, Search(name="Parrot")) == ([], 0)
    assert await both.resolve(made.id, ANN) == made
    assert await both.find(ANN, Search(name="Parrot")) == ([made], 1)


async def test_an_assistant_whose_graph_is_gone_can_be_given_another_or_deleted(database: Database) -> None:
    both, without = roster(database, "echo", "nested"), roster(database, "nested")
    made = await both.create(ANN, "echo", AssistantPatch())
    moved = await without.revise(made.id, ANN, AssistantPatch(graph="nested"))
    assert await without.resolve(made.id, ANN) == moved
    again = await both.create(ANN, "echo", AssistantPatch())
    await without.delete(again.id, ANN)
    with pytest.raises(NotFound):
        await both.resolve(again.id, ANN)


async def test_the_systems_assistants_are_as_old_as_the_database(tmp_path: Path) -> None:
    """In every process on it and after every start, or pages would overlap."""
    seen = []
    for _ in range(2):
        async with (
            opened_app(tmp_path, CLEW_DATABASE_URL=f"sqlite:///{tmp_path}/clew.db") as app,
            client_of(app.http) as client,
        ):
            seen.append((await client.get("/assistants/chat")).json())
    assert seen[0] == seen[1]
