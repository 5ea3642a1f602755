"""A DSN with several hosts: the one that answers is used, and after a failover the next one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psycopg
import pytest

from clew.domain.errors import Unavailable
from clew.stores.postgres import connect_options, open_postgres
from clew.stores.postgres_backup import _variables
from tests.databases import open_store
from tests.samples import opened
from tests.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def host_of(url: str) -> AsyncGenerator[str]:
    """The server behind another address; at the end of the block every connection to it is cut."""
    folder = parse_qs(urlsplit(url).query)["host"][0]
    pipes: set[asyncio.Task[None]] = set()

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(str(Path(folder, ".s.PGSQL.5432")))
        for one in (pipe(reader, back), pipe(there, writer)):
            pipes.add(asyncio.create_task(one))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for one in pipes:
            one.cancel()
        await asyncio.gather(*pipes, return_exceptions=True)


async def closed_host(url: str) -> str:
    async with host_of(url) as host:
        return host


async def test_the_host_that_answers_is_used(postgres_url: str) -> None:
    name = urlsplit(postgres_url).path
    dead = await closed_host(postgres_url)
    async with host_of(postgres_url) as host:
        url = f"postgresql://postgres@{dead},{host}{name}?target_session_attrs=primary"
        async with open_postgres(url, pool_max=2) as db:
            await open_store(db).commit(opened("t1"))
        # As the connections beside the pool are opened: for notifications, and for the lock of this process.
        connection = await asyncpg.connect(**connect_options(url, 5))
        assert await connection.fetchval("SELECT count(*) FROM threads") == 1
        await connection.close()


async def test_after_a_failover_the_next_host_is_used(postgres_url: str) -> None:
    name = urlsplit(postgres_url).path
    async with host_of(postgres_url) as second:
        async with host_of(postgres_url) as first:
            opening = open_postgres(f"postgresql://postgres@{first},{second}{name}", pool_max=2)
            db = await opening.__aenter__()
            store = open_store(db)
            await store.commit(opened("t1"))

        async def answers() -> bool:
            try:
                return (await store.get("t1")).id == "t1"
            except Unavailable:
                return False

        await until(answers)
        await opening.__aexit__(None, None, None)


async def test_pg_dump_gets_the_same_hosts(postgres_url: str) -> None:
    name = urlsplit(postgres_url).path
    dead = await closed_host(postgres_url)
    async with host_of(postgres_url) as host:
        found = _variables(f"postgresql://postgres@{dead},{host}{name}")
        hosts, ports = found["PGHOST"], found["PGPORT"]

        def ask() -> object:
            with psycopg.connect(
                f"host={hosts} port={ports} user=postgres dbname={found['PGDATABASE']}"
            ) as there:
                return there.execute("SELECT 1").fetchone()

        assert await asyncio.to_thread(ask) == (1,)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://u:p@db/clew", "db", None),
        ("postgresql://u@db:5433/clew", "db", "5433"),
        ("postgresql://u@[::1]:5433/clew", "::1", "5433"),
        ("postgresql://u@a,b:5433/clew", "a,b", ",5433"),
        ("postgresql://u@/clew?host=/run/pg", "/run/pg", None),
    ],
)
async def test_hosts_are_told_to_libpq(url: str, host: str, port: str | None) -> None:
    found = _variables(url)
    assert (found["PGHOST"], found.get("PGPORT")) == (host, port)
