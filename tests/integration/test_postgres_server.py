"""The Postgres the tests run on: fresh copies, and a server that can be killed without losing a commit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil
import psycopg
import pytest

from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio


async def test_asyncpg_reaches_a_fresh_database(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    try:
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        return {name for (name,) in rows}


def test_a_database_comes_with_the_migrations_or_empty(postgres_url: str, empty_postgres_url: str) -> None:
    assert {"threads", "events"} <= tables(postgres_url)
    assert tables(empty_postgres_url) == set()


@pytest.mark.parametrize("turn", ["first", "second"])
def test_every_test_has_its_own_database(postgres_url: str, turn: str) -> None:
    assert "left_behind" not in tables(postgres_url)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE left_behind (id bigint)")


ENDS: dict[str, Callable[[PostgresServer], None]] = {
    "fast": lambda server: server.stop("fast"),
    "immediate": lambda server: server.stop("immediate"),
    "kill": lambda server: server.kill(),
}


@pytest.mark.parametrize("end", ENDS)
def test_committed_rows_survive_the_end_of_the_server(own_postgres: PostgresServer, end: str) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        assert connection.execute("SHOW fsync").fetchone() == ("on",)
        connection.execute("CREATE TABLE numbers AS SELECT 42 AS n")
        ENDS[end](own_postgres)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    own_postgres.start()
    with psycopg.connect(own_postgres.url()) as connection:
        assert connection.execute("SELECT n FROM numbers").fetchone() == (42,)


OWNER = """
import sys
from tests.postgres import postgres_server
with postgres_server() as server:
    print(server.pid, server.url(), flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_run_leaves_no_server_behind() -> None:
    root = Path(__file__).parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        pid, url = owner.stdout.readline().split()
        folder = Path(url.partition("?host=")[2])
        assert folder.exists()
        os.kill(owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while is_running(int(pid)) or folder.exists():
        assert time.monotonic() < deadline, "the server or its folder outlived the tests"
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        # A container without an init process keeps the dead around as zombies.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
