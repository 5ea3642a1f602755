"""Every port on every database: a SQLite file, SQLite in memory, and a real Postgres."""

from collections.abc import AsyncIterator

import pytest

from clew.ports.api_keys import Keys
from clew.ports.cipher import PLAIN
from clew.ports.files import Files
from clew.ports.inbox import Inbox
from clew.ports.model_calls import ModelCalls, Summaries
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.aes_cipher import AesCipher
from clew.stores.sql.files import FileRows
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.keys import KeyRows
from clew.stores.sql.model_calls import ModelCallRows
from clew.stores.sql.summaries import SummaryRows
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sql.work import Database
from tests.databases import DATABASES, locate, open_database, open_store, plain_values


@pytest.fixture(params=DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    """A fresh database; `@pytest.mark.parametrize("where", SHARED, indirect=True)` for those processes can share."""
    return locate(request.param, request)


@pytest.fixture
async def database(where: str, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """In memory it is encrypted: what all databases promise holds with a key too, and nothing is left plain."""
    is_encrypted = where == "memory" and request.node.get_closest_marker("raw_sql") is None
    async with open_database(where, AesCipher([b"k" * 32]) if is_encrypted else PLAIN) as db:
        yield db
        if is_encrypted:
            assert await plain_values(db) == []


@pytest.fixture
def store(database: Database) -> Store:
    return open_store(database)


@pytest.fixture
def calls(database: Database) -> Calls:
    return CallRows(database)


@pytest.fixture
def summaries(database: Database) -> Summaries:
    return SummaryRows(database)


@pytest.fixture
def audit(database: Database) -> ModelCalls:
    return ModelCallRows(database)


@pytest.fixture
def files(database: Database) -> Files:
    return FileRows(database)


@pytest.fixture
def inbox(database: Database) -> Inbox:
    return InboxRows(database)


@pytest.fixture
def keys(database: Database) -> Keys:
    return KeyRows(database)
