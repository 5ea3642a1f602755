"""The subscription between processes: what one of them commits is heard by the others, who need not find it by looking."""

import asyncio
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.domain.events import Opening
from clew.domain.lifecycle import Stamp, open_thread
from clew.domain.thread import Owner, Status
from clew.server.database import new_id, utc_now
from clew.stores import sqlite_notifier
from clew.stores.postgres_notifier import PostgresNotifier
from clew.stores.sql.threads import ThreadRows
from clew.stores.sqlite import open_sqlite
from clew.stores.sqlite_notifier import SQLiteNotifier
from tests.app import House, open_house
from tests.postgres import PostgresServer
from tests.waiting import until

pytestmark = pytest.mark.anyio

# Nobody looks for work by himself within the time of a test.
BLIND = {"CLEW_RUNNER_POLL_SECONDS": "60", "CLEW_SHUTDOWN_SECONDS": "0"}
SECONDS = 60


@asynccontextmanager
async def two(where: str, folder: Path, **first: str) -> AsyncGenerator[tuple[House, House]]:
    """As two processes have it: each with connections of its own."""
    there = where
    if not where.startswith("postgres"):
        (folder / "there").symlink_to(folder, target_is_directory=True)
        there = str(folder / "there" / Path(where).name)
    async with open_house(where, folder, **BLIND | first) as one, open_house(there, folder, **BLIND) as other:
        if where.startswith("postgres"):
            await listening(where, 2)
        yield one, other


async def test_what_one_commits_rings_with_the_other(where: str, tmp_path: Path) -> None:
    async with two(where, tmp_path) as (one, other):
        with other.app.execution.notifier.subscribe() as all_threads:
            thread = await one.start("gated", log=[])
            await heard(all_threads, thread.id)
        blocked = await one.rest(thread, [Status.BLOCKED])
        with other.app.execution.notifier.subscribe(thread.id) as subscription:
            await one.app.execution.commands.approve(blocked.id, None, approved=True)
            assert await subscription.wait(SECONDS)
        assert (await one.rest(blocked)).status is Status.COMPLETED


async def test_whoever_has_room_takes_what_the_other_has_none_for(where: str, tmp_path: Path) -> None:
    async with two(where, tmp_path, CLEW_RUNNER_CONCURRENCY="1") as (one, _):
        marks = tmp_path / "marks"
        await one.start("slow", marks=str(marks))
        await one.start("slow", marks=str(marks))
        await until(lambda: marks.exists() and marks.read_text().count("slow") >= 2, SECONDS)


async def test_a_deleted_thread_rings_too(postgres_url: str, tmp_path: Path) -> None:
    async with two(postgres_url, tmp_path) as (one, other):
        thread = await one.run("two_steps", log=[])
        with other.app.execution.notifier.subscribe(thread.id) as subscription:
            await one.app.execution.commands.delete(thread.id, None)
            assert await subscription.wait(SECONDS)


@pytest.mark.parametrize("direct", [False, True])
async def test_a_transaction_pooler_is_gone_around_or_left_alone(
    postgres_url: str, tmp_path: Path, direct: bool
) -> None:
    pooled = {"CLEW_DATABASE_TRANSACTION_POOLER": "yes"}
    if direct:
        pooled["CLEW_DATABASE_DIRECT_URL"] = postgres_url
    async with (
        open_house(postgres_url, tmp_path, **pooled) as one,
        open_house(postgres_url, tmp_path, **pooled),
    ):
        assert (await one.run("two_steps", log=[])).status is Status.COMPLETED
        await listening(postgres_url, 2 if direct else 0)


async def test_what_was_committed_while_nobody_could_look_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite, where it is found by its time."""
    monkeypatch.setattr(sqlite_notifier, "LATE", timedelta(milliseconds=100))
    path = tmp_path / "clew.sqlite"
    heard: list[str] = []

    def commit_and_dawdle(store: ThreadRows) -> None:
        """From the beginning to the end of it the event loop has no turn."""
        opening = Opening(owner=Owner(), graph="gated")
        change = open_thread("t1", opening, "hello", stamp=Stamp(utc_now(), new_id))
        with ThreadPoolExecutor(1) as another:
            another.submit(asyncio.run, store.commit(change)).result()
        time.sleep(0.3)

    async with (
        open_sqlite(path) as one,
        open_sqlite(path) as other,
        SQLiteNotifier(other).listening(lambda thread_id, _: heard.append(thread_id), lambda: None),
    ):
        commit_and_dawdle(ThreadRows(one))
        await until(lambda: heard, SECONDS)
    assert heard == ["t1"]


async def test_a_bell_on_postgres_heals(own_postgres: PostgresServer) -> None:
    url = own_postgres.url()
    one, other = PostgresNotifier(url, deadline=5), PostgresNotifier(url, deadline=5)
    heard: list[tuple[str, int | None]] = []
    async with (
        one.listening(lambda *_: None, lambda: None),
        other.listening(lambda *ring: heard.append(ring), lambda: None),
    ):
        await told(one, heard)
        own_postgres.stop("immediate")
        one.ring("lost", 1)
        own_postgres.start()
        await told(one, heard, "another")


async def test_a_connection_that_is_cut_is_made_anew(postgres_url: str) -> None:
    one, other = PostgresNotifier(postgres_url, deadline=5), PostgresNotifier(postgres_url, deadline=5)
    heard: list[tuple[str, int | None]] = []
    async with (
        one.listening(lambda *_: None, lambda: None),
        other.listening(lambda *ring: heard.append(ring), lambda: None),
    ):
        await told(one, heard)
        await asyncio.to_thread(cut, postgres_url)
        await told(one, heard, "another")


async def test_more_than_fits_into_one_message_is_told_in_several(postgres_url: str) -> None:
    one, other = PostgresNotifier(postgres_url, deadline=5), PostgresNotifier(postgres_url, deadline=5)
    heard: dict[str, int | None] = {}
    async with (
        one.listening(lambda *_: None, lambda: None),
        other.listening(heard.__setitem__, lambda: None),
    ):
        async with asyncio.timeout(SECONDS):
            while "first" not in heard:
                one.ring("first", 1)
                await asyncio.sleep(0.01)
        for n in range(1000):
            one.ring(f"thread-{n:04}", n)
            one.ring(f"thread-{n:04}", n + 1)
        await until(lambda: len(heard) >= 1001, SECONDS)
    assert all(heard[f"thread-{n:04}"] == n for n in range(1000))  # the news of both begin there


async def test_what_was_rung_last_is_told_before_the_end(postgres_url: str) -> None:
    other = PostgresNotifier(postgres_url, deadline=5)
    heard: list[tuple[str, int | None]] = []
    calls: list[None] = []
    async with other.listening(lambda *ring: heard.append(ring), lambda: calls.append(None)):
        one = PostgresNotifier(postgres_url, deadline=5)
        async with one.listening(lambda *_: None, lambda: None):
            await told(one, heard)
            calls.clear()
            one.ring("last", None)
            one.call()
        await until(lambda: ("last", None) in heard and calls, SECONDS)


@pytest.mark.parametrize(
    "payload", ["", "nonsense", "{}", "[1, [2, 3], [], {}]", '[["t", "x"]]', "[[null, null]]"]
)
async def test_what_is_not_ours_is_not_heard(postgres_url: str, payload: str) -> None:
    subscription = PostgresNotifier(postgres_url, deadline=5)
    one = PostgresNotifier(postgres_url, deadline=5)
    heard: list[tuple[str, int | None]] = []
    async with (
        one.listening(lambda *_: None, lambda: None),
        subscription.listening(lambda *ring: heard.append(ring), lambda: None),
    ):
        await told(one, heard)
        await asyncio.to_thread(notify, postgres_url, payload)
        one.ring("after it", 3)
        await until(lambda: ("after it", 3) in heard, SECONDS)
        assert set(heard) == {("a thread", 7), ("after it", 3)}


async def heard(subscription: Any, thread_id: str) -> None:
    async with asyncio.timeout(SECONDS):
        while thread_id not in subscription.rung():
            await subscription.wait(SECONDS)


async def told(
    subscription: PostgresNotifier, heard: list[tuple[str, int | None]], thread_id: str = "a thread"
) -> None:
    """Until what is rung arrives: both have connected by then."""
    async with asyncio.timeout(SECONDS):
        while (thread_id, 7) not in heard:
            subscription.ring(thread_id, 7)
            await asyncio.sleep(0.01)


async def listening(url: str, count: int) -> None:
    """Until so many do: what is rung before that, they do not hear."""
    async with asyncio.timeout(SECONDS):
        while (await asyncio.to_thread(listeners, url)) != count:
            await asyncio.sleep(0.01)


def cut(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def listeners(url: str) -> int:
    """How many have rung: nothing else is said on those connections."""
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid() AND query LIKE '%pg_notify%'"
        ).fetchone()
    return int(found[0]) if found else 0


def notify(url: str, payload: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_notify('clew', %s)", (payload,))
