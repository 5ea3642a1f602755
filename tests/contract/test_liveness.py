"""Liveness on each database that processes share: a killed process is found, a living or a frozen one is not."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from clew.ports.liveness import Liveness
from clew.stores.postgres_liveness import AdvisoryLocks
from clew.stores.sqlite_liveness import STALE_SECONDS, LockFiles
from tests.databases import SHARED, locate, open_database
from tests.waiting import until

pytestmark = pytest.mark.anyio

# Holds the lock of its second argument until it is killed.
HOLDER = """
import asyncio, sys
from tests.contract.test_liveness import open_liveness

async def hold(where, name):
    async with open_liveness(where).held(name):
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(hold(*sys.argv[1:]))
"""


def open_liveness(where: str) -> Liveness:
    return AdvisoryLocks(where, deadline=5) if where.startswith("postgres") else LockFiles(Path(where))


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def liveness(where: str) -> AsyncIterator[Liveness]:
    async with open_database(where):
        liveness = open_liveness(where)
        async with liveness.held("me"):
            yield liveness


@pytest.fixture
def other(where: str, liveness: Liveness) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", HOLDER, where, "other"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


async def looks(liveness: Liveness, *names: str) -> list[str]:
    """What several looks find that take longer than a lock must be free."""
    found: set[str] = set()
    for _ in range(8):
        found.update(await liveness.find_dead(names))
        await asyncio.sleep(0.1)
    return sorted(found)


async def test_a_killed_process_is_found_and_a_frozen_one_is_not(
    liveness: Liveness, other: "subprocess.Popen[bytes]"
) -> None:
    assert await looks(liveness, "other") == []
    other.send_signal(signal.SIGSTOP)
    assert await looks(liveness, "other") == []
    other.kill()

    async def found() -> bool:
        return list(await liveness.find_dead(["other"])) == ["other"]

    await until(found, seconds=10)


async def test_two_that_look_at_once_do_not_take_each_other_for_the_living(
    where: str, liveness: Liveness, other: "subprocess.Popen[bytes]"
) -> None:
    other.kill()
    other.wait()
    second = open_liveness(where)
    async with second.held("second"):

        async def both_found() -> bool:
            found = await asyncio.gather(liveness.find_dead(["other"]), second.find_dead(["other"]))
            return all("other" in names for names in found)

        await until(both_found, seconds=10)


@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
async def test_a_process_without_a_lock_file_is_not_judged_and_stale_files_go(
    where: str, liveness: Liveness
) -> None:
    assert await liveness.find_dead(["stranger"]) == []
    stale = Path(f"{where}-processes") / "old.lock"
    stale.touch()
    async with LockFiles(Path(where)).held("new"):
        assert stale.exists()
    os.utime(stale, (0, stale.stat().st_mtime - STALE_SECONDS - 1))
    async with LockFiles(Path(where)).held("new"):
        assert not stale.exists()


@pytest.mark.parametrize("where", ["postgres"], indirect=True)
async def test_a_process_whose_connection_was_cut_takes_its_lock_again(
    where: str, liveness: Liveness
) -> None:
    looking = AdvisoryLocks(where, deadline=5)
    connection = await asyncpg.connect(where)
    async with looking.held("looking"):
        holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
        before = {row[0] for row in await connection.fetch(holders)}
        assert len(before) == 2
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")

        async def held_again() -> bool:
            now = {row[0] for row in await connection.fetch(holders)}
            return len(now) == 2 and not now & before

        await until(held_again, seconds=10)
        assert await looks(looking, "me") == []
    await connection.close()
