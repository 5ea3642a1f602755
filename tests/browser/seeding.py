"""Many threads in a database, written before its server starts: `python -m tests.browser.seeding FOLDER COUNT [EVENTS]`."""

import asyncio
import itertools
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from clew.config import load_settings
from clew.domain.events import (
    AssistantMessage,
    Body,
    Opening,
    RoundFinished,
    StageChanged,
    StageCompleted,
    ToolCall,
    ToolResult,
)
from clew.domain.lifecycle import Stamp, open_thread, record
from clew.domain.thread import Executor, Owner, Status
from clew.ports.threads import Store
from clew.server.database import open_stores

AT_ONCE = 500
USERS = ("", "ann", "bob")
LONG = "long"


def seeded(count: int, *, of: str = "agent") -> list[str]:
    """The names that `seed` gives."""
    return [f"{of} {number}: {'refund' if number % 7 == 0 else 'question'}" for number in range(count)]


async def seed(store: Store, count: int, *, now: datetime) -> None:
    """Threads that ended, one an hour, the newest last; every twelfth failed."""
    names = iter(enumerate(seeded(count)))
    while batch := [*itertools.islice(names, AT_ONCE)]:
        await asyncio.gather(*(_one(store, number, name, now) for number, name in batch))


async def _one(store: Store, number: int, name: str, now: datetime) -> None:
    stamp = Stamp(now - timedelta(hours=1, minutes=number), _new_id)
    opening = Opening(owner=Owner(user_id=USERS[number % 3]), graph="agent", name=name)
    opened = open_thread(f"seed-{number:05}", opening, name, stamp=stamp)
    await store.commit(opened)
    failed = number % 12 == 0
    end = RoundFinished(
        status=Status.FAILED if failed else Status.COMPLETED, reason="no model" if failed else ""
    )
    await store.commit(
        record(opened.thread, [AssistantMessage(content=f"about {name}", agent="model"), end], stamp=stamp)
    )


async def seed_long(store: Store, events: int, *, now: datetime) -> None:
    """One thread whose round has so many events."""
    opened = open_thread(
        LONG,
        Opening(owner=Owner(), graph="agent", name="A long run"),
        "go",
        stamp=Stamp(now - timedelta(hours=1), _new_id),
    )
    await store.commit(opened)
    thread = opened.thread
    for number in range(0, events, 4):
        stamp = Stamp(now - timedelta(hours=1) + timedelta(seconds=number), _new_id)
        call = f"call-{number}"
        bodies: list[Body] = [
            StageChanged(stage=f"stage {number}"),
            ToolCall(
                call_id=call, name="search", args={"q": number}, executor=Executor.SERVER, idempotent=True
            ),
            ToolResult(call_id=call, ok=number % 50 != 0, result={"found": number}),
            StageCompleted(stage=f"stage {number}", output={"n": number}),
        ]
        change = record(thread, bodies, stamp=stamp)
        await store.commit(change)
        thread = change.thread
    end = record(thread, [RoundFinished(status=Status.COMPLETED)], stamp=Stamp(now, _new_id))
    await store.commit(end)


_numbers = itertools.count()


def _new_id() -> str:
    return f"{next(_numbers):032x}"


async def main(folder: Path, count: int, events: int) -> None:
    settings = load_settings({"CLEW_DATABASE_URL": f"sqlite:///{folder / '.clew' / 'clew.db'}"}, cwd=folder)
    now = datetime.now(UTC)
    async with open_stores(settings) as stores:
        await seed(stores.threads, count, now=now)
        if events:
            await seed_long(stores.threads, events, now=now)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *(int(text) for text in (*sys.argv[2:], "0")[:2])))
