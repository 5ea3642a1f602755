"""A process that appends to threads, so that several can do so at once: WHERE TASKS COUNT THREAD...

Task n works on the n-th thread, counted around. Prints what was acknowledged, as JSON; any refusal but Conflict ends it.
"""

import asyncio
import json
import sys

from clew.domain.errors import Conflict
from clew.ports.threads import Store
from tests.databases import open_database, open_store
from tests.samples import asks, new_id, recorded, said


async def main(where: str, tasks: int, count: int, threads: list[str]) -> list[tuple[str, int, str]]:
    async with open_database(where) as db:
        store = open_store(db)
        acked = await asyncio.gather(
            *(append(store, threads[task % len(threads)], count) for task in range(tasks))
        )
    return [one for task in acked for one in task]


async def append(store: Store, thread_id: str, count: int) -> list[tuple[str, int, str]]:
    acked: list[tuple[str, int, str]] = []
    while len(acked) < 2 * count:
        # With and without tool calls: a database may have a shorter way for the plain ones.
        second = said() if len(acked) % 4 else asks(f"c{new_id()}")
        change = recorded(await store.get(thread_id), said(), second)
        try:
            await store.commit(change)
        except Conflict:
            continue
        acked += [(thread_id, event.seq, event.id) for event in change.events]
    return acked


if __name__ == "__main__":
    _, where, tasks, count, *threads = sys.argv
    sys.stdout.write(json.dumps(asyncio.run(main(where, int(tasks), int(count), threads))))
