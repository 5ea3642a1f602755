"""What the processes under test do: clean up, and die in the middle of it, or with a clock that is wrong."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.errors import InvalidState
from clew.domain.retention import Candidate, selection
from clew.retention.cleanup import Portions
from clew.server import database
from tests.app import open_house
from tests.databases import query
from tests.http_client import client_of

Report = Callable[[Any], None]
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


@dataclass
class OneByOne(Portions):
    """One thread a transaction, so that there is a middle. After the second one the failpoint is armed."""

    failpoint: str = ""
    gone: int = 0

    def cut(self, candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
        return ([one] for one in candidates)

    def took(self, seconds: float) -> None:
        self.gone += 1
        if self.gone == 2:
            failpoints.install(self.failpoint)


def clean_up(report: Report, *, where: str, folder: str, failpoint: str) -> None:
    """Delete everything that is due; dies where the failpoint says."""

    async def main() -> None:
        # Its lease is long: a process that had no turn for a moment would take its own work from itself.
        async with open_house(where, Path(folder)) as house:
            cleanup = replace(house.app.execution.cleanup, portions=OneByOne(failpoint=failpoint))
            outcome = await cleanup.run(selection(now=datetime.now(UTC), days_old=1))
            report({"deleted": outcome.job.deleted if outcome.job else None})

    asyncio.run(main())


def take_over(report: Report, *, where: str, folder: str) -> None:
    """Do nothing but be there until nothing is left to do."""

    async def main() -> None:
        async with open_house(where, Path(folder), **LEASE) as house:
            rows = house.app.execution.cleanup.rows
            await query(house.app.stores.db, "UPDATE duties SET lease_until = 0 WHERE name = 'cleanup'")
            async with asyncio.timeout(30):
                while await rows.are_due():
                    await asyncio.sleep(0.02)
            job = await rows.last()
            left = await query(house.app.stores.db, "SELECT id FROM threads ORDER BY id")
            events = await query(house.app.stores.db, "SELECT DISTINCT thread_id FROM events ORDER BY 1")
            report(
                {
                    "deleted": job.deleted if job else None,
                    "left": [row[0] for row in left],
                    "logs": [row[0] for row in events],
                }
            )

    asyncio.run(main())


def live_at(report: Report, *, where: str, folder: str, ahead: float, thread_id: str | None) -> None:
    """Start with the clock so many seconds ahead, take a turn of the thread, and clean up in every way there is."""
    right = time.time_ns
    time.time_ns = lambda: right() + int(ahead * 1e9)  # of SQLite's leases, and of the ids of checkpoints
    database.utc_now = lambda: datetime.now(UTC) + timedelta(seconds=ahead)

    async def main() -> None:
        environ = {**LEASE, "CLEANUP_API_KEY": "key", "CLEW_CLEANUP_SCHEDULE": "* * * * *"}
        async with open_house(where, Path(folder), **environ) as house, client_of(house.app.http) as http:

            async def turn(thread_id: str | None) -> str:
                new = {"graph": "two_steps", "ttlDays": 1} if thread_id is None else {}
                asked = {"wait": 20} | ({} if thread_id is None else {"id": thread_id})
                answer = await http.post("/api/workflows/start", params=asked, json={"prompt": "go", **new})
                assert answer.json()["status"] == "completed", answer.text
                return str(answer.json()["id"])

            if thread_id is None:
                await turn(None)  # and nobody ever looks at it again
            mine = await turn(thread_id)
            state = (await http.get(f"/api/workflows/{mine}/state")).json()["values"]
            cleanup = house.app.execution.cleanup
            for chore in (cleanup.tick, cleanup.empty_trash, cleanup.continue_unfinished):
                with suppress(InvalidState):
                    await chore()
            answer = await http.post("/api/optimize/cleanup", headers={"X-API-Key": "key"})
            left = await query(house.app.stores.db, "SELECT count(*) FROM threads")
            report(
                {"id": mine, "steps": len(state["log"]), "cleanup": answer.status_code, "threads": left[0][0]}
            )

    asyncio.run(main())
