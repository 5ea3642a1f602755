"""What the processes under test do: clean up, and die in the middle of it."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.retention import selection
from clew.engine.cleanup import Portions
from tests.databases import query
from tests.house import open_house

Report = Callable[[Any], None]
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


def clean_up(report: Report, *, where: str, folder: str, failpoint: str) -> None:
    """Delete everything that is due; dies where the failpoint says."""

    async def main() -> None:
        async with open_house(where, Path(folder), **LEASE) as house:
            cleanup = house.app.execution.cleanup
            # One thread a transaction, so that there is a middle.
            cleanup.portions.rows = Portions.FEWEST = Portions.MOST = 1
            failpoints.install(failpoint)
            outcome = await cleanup.run(selection(now=datetime.now(UTC), days_old=1))
            report({"deleted": outcome.job.deleted if outcome.job else None})

    asyncio.run(main())


def take_over(report: Report, *, where: str, folder: str) -> None:
    """Do nothing but be there until nothing is left to do."""

    async def main() -> None:
        async with open_house(where, Path(folder), **LEASE) as house:
            rows = house.app.execution.cleanup.rows
            async with asyncio.timeout(30):
                while await rows.has_unfinished():
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
