"""A process that appends to threads, so that several can do so at once: WHERE TASKS COUNT THREAD...

Task n works on the n-th thread, counted around. Prints what was acknowledged, as JSON; any refusal but Conflict ends it.
"""

import asyncio
import json
import sys
import time
from typing import Any

from clew.domain.errors import Conflict
from clew.ports import Store
from tests.databases import open_database, open_store
from tests.samples import asks, recorded, said


async def main(where: str, tasks: int, count: int, threads: list[str]) -> dict[str, Any]:
    seconds: list[float] = []
    async with open_database(where) as db:
        store = open_store(db)
        acked = await asyncio.gather(
            *(append(store, threads[task % len(threads)], count, seconds) for task in range(tasks))
        )
    return {"acked": [one for task in acked for one in task], "seconds": sorted(seconds)}


async def append(
    store: Store, thread_id: str, count: int, seconds: list[float]
) -> list[tuple[str, int, str]]:
    acked: list[tuple[str, int, str]] = []
    while len(acked) < 2 * count:
        # With and without tool calls: a database may have a shorter way for the plain ones.
        second = said() if len(acked) % 4 else asks(f"c{time.monotonic_ns()}")
        change = recorded(await store.get(thread_id), said(), second)
        before = time.monotonic()
        try:
            await store.commit(change)
        except Conflict:
            continue
        finally:
            seconds.append(time.monotonic() - before)
        acked += [(thread_id, event.seq, event.id) for event in change.events]
    return acked


if __name__ == "__main__":
    _, where, tasks, count, *threads = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(main(where, int(tasks), int(count), threads))))
