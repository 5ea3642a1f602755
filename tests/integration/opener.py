"""A process that opens a database on a line of input, so that several do so at the same moment: WHERE."""

import asyncio
import sys

from clew.stores.sql import migrate
from tests.databases import later_migrations, open_database, open_store, query
from tests.samples import new_id, opened


async def main(where: str) -> None:
    vars(migrate)["migrations"] = later_migrations
    async with open_database(where) as db:
        await open_store(db).commit(opened(new_id()))
        versions = await query(db, "SELECT version FROM migrations ORDER BY version")
    sys.stdout.write(f"{[version for (version,) in versions]}\n")


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    asyncio.run(main(sys.argv[1]))
