"""A run begins when it is ordered: no run waits until the runner looks for work by the clock."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.domain.errors import Unavailable
from clew.domain.events import Opening
from clew.domain.lifecycle import Change, Stamp, open_thread
from clew.domain.records import Lease
from clew.domain.thread import Owner, Status
from clew.runners import heartbeat
from clew.stores.sql.threads import ThreadRows
from tests.app import House, open_house
from tests.databases import query
from tests.http_client import client_of

pytestmark = pytest.mark.anyio

# The runner looks by the clock once a minute, which is longer than any of these tests may take.
SELDOM = {"CLEW_RUNNER_POLL_SECONDS": "60"}
RUNS = 20


@pytest.mark.timeout(180)
@pytest.mark.parametrize("path", ["runs/wait", "runs/stream"])
async def test_runs_one_after_another_all_begin_at_once(where: str, tmp_path: Path, path: str) -> None:
    async with open_house(where, tmp_path, **SELDOM) as house, client_of(house.app.http) as http:
        for _ in range(RUNS):
            thread_id = (await http.post("/threads", json={})).json()["thread_id"]
            async with asyncio.timeout(30):
                answer = await http.post(
                    f"/threads/{thread_id}/{path}",
                    json={"assistant_id": "two_steps", "input": {"log": [], "marks": ""}},
                )
            assert answer.status_code == 200, answer.text


def _unclaimed(house: House) -> Change:
    """A thread that runs, of which no runner was told."""
    commands = house.app.execution.commands
    return open_thread(
        commands.new_id(),
        Opening(owner=Owner(), graph="two_steps"),
        None,
        graph_input={"log": []},
        stamp=Stamp(commands.clock(), commands.new_id),
    )


async def test_a_thread_whose_row_is_locked_runs_as_soon_as_it_is_free(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, found = ThreadRows.claim, asyncio.Event()

    async def watched(self: ThreadRows, runner: str, **more: Any) -> list[Lease]:
        leases = await claim(self, runner, **more)
        if not leases:
            found.set()
        return leases

    monkeypatch.setattr(ThreadRows, "claim", watched)
    async with open_house(postgres_url, tmp_path, **SELDOM) as house:
        change = _unclaimed(house)
        await house.app.stores.threads.commit(change)
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("SELECT 1 FROM threads WHERE id = %s FOR UPDATE", [change.thread.id])
            house.app.execution.commands.runner.wake()
            async with asyncio.timeout(30):
                await found.wait()
        assert (await house.rest(change.thread)).status is Status.COMPLETED


@pytest.mark.fault("B3")
async def test_a_claim_whose_answer_was_lost_is_made_again_and_is_no_crash(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, lost = ThreadRows.claim, 0

    async def unanswered(self: ThreadRows, runner: str, **more: Any) -> list[Lease]:
        nonlocal lost
        leases = await claim(self, runner, **more)
        if leases and lost < 3:
            lost += 1
            raise Unavailable("the answer was lost")
        return leases

    monkeypatch.setattr(ThreadRows, "claim", unanswered)
    # After an outage the runner waits for the others' heartbeats before it claims again.
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.2)
    # No lease runs out within the time of the test.
    settings = {"CLEW_RUNNER_POLL_SECONDS": "0.05", "CLEW_RUNNER_LEASE_SECONDS": "600"}
    async with open_house(where, tmp_path, **settings) as house:
        slow = await house.start("slow", marks=str(tmp_path / "marks"))
        change = _unclaimed(house)
        await house.app.stores.threads.commit(change)
        assert (await house.rest(change.thread, seconds=60)).status is Status.COMPLETED
        assert lost == 3
        rows = await query(
            house.app.stores.db,
            "SELECT lease_owner IS NULL, fence, recoveries FROM threads WHERE id = $1",
            slow.id,
        )
        assert [tuple(row) for row in rows] == [(False, 1, 0)], "what runs here is not given back"
