"""Chat history against the same chunk items in LangGraph's packaged stores: append one turn, read the last twenty.

    python benchmarks/history.py [--rounds 60] [--no-postgres]

All arms run in turns, so that whatever else the machine does meets them alike. Medians; times in milliseconds.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

from langgraph.store.base import BaseStore, GetOp, Item, PutOp
from langgraph.store.postgres import AsyncPostgresStore
from langgraph.store.sqlite import AsyncSqliteStore

from clew import ChatHistory, create_graph_store
from clew.history.chunks import tail_chunks
from clew.ports.histories import NewMessage, chunk_key, chunk_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.postgres import postgres_server

SIZES = (1_000, 10_000, 100_000)
TAIL = 20
CHUNK = 200
TEXT = "x" * 200
NAMESPACE = ("agent_chat_history",)


class Arm(Protocol):
    async def fill(self, key: str, count: int) -> None: ...
    async def append(self, key: str) -> None: ...
    async def tail(self, key: str) -> int: ...


class Clew:
    """Ours: one row a message."""

    def __init__(self, store: BaseStore) -> None:
        self._history = ChatHistory(store)

    async def fill(self, key: str, count: int) -> None:
        for _ in range(0, count, 1000):
            await self._history.extend(key, [NewMessage(role="user", content=TEXT)] * 1000)

    async def append(self, key: str) -> None:
        # With ids, as AgentNode writes them: the index over them is part of the price.
        turn = [
            NewMessage(role="user", content=TEXT, id=f"{time.perf_counter_ns()}-u"),
            NewMessage(role="assistant", content=TEXT, id=f"{time.perf_counter_ns()}-a"),
        ]
        await self._history.extend(key, turn)

    async def tail(self, key: str) -> int:
        return len(await self._history.tail(key, TAIL))


class Chunks:
    """The seed's items in a packaged store, written as well as it can be: chunk and metadata in one batch."""

    def __init__(self, store: BaseStore) -> None:
        self._store = store

    async def fill(self, key: str, count: int) -> None:
        for index in range(count // CHUNK):
            start = index * CHUNK + 1
            messages = [{"seq": start + n, "role": "user", "content": TEXT} for n in range(CHUNK)]
            await self._put(key, index, messages, count)
        # Half a chunk, as on the average day: the next append rewrites it.
        half = [{"seq": count + 1 + n, "role": "user", "content": TEXT} for n in range(CHUNK // 2)]
        await self._put(key, count // CHUNK, half, count + CHUNK // 2)

    async def append(self, key: str) -> None:
        last = await self._last(key)
        chunk = await self._store.aget((*NAMESPACE, key), chunk_key(chunk_of(last, CHUNK)))
        messages = chunk.value["messages"] if chunk else []
        new = [
            {"seq": last + n, "role": role, "content": TEXT} for n, role in ((1, "user"), (2, "assistant"))
        ]
        if len(messages) + 2 > CHUNK:
            messages = []
        await self._put(key, chunk_of(last + 2, CHUNK), [*messages, *new], last + 2)

    async def tail(self, key: str) -> int:
        last = await self._last(key)
        gets = [GetOp((*NAMESPACE, key), chunk_key(index)) for index in tail_chunks(last, TAIL, CHUNK)]
        found = await self._store.abatch(gets)
        return len([m for item in found if isinstance(item, Item) for m in item.value["messages"]][-TAIL:])

    async def _last(self, key: str) -> int:
        meta = await self._store.aget((*NAMESPACE, key), "__meta__")
        return int(meta.value["last_seq"]) if meta else 0

    async def _put(self, key: str, index: int, messages: list[dict[str, Any]], last: int) -> None:
        where = (*NAMESPACE, key)
        chunk = {
            "conversation_key": key,
            "chunk_key": chunk_key(index),
            "start_seq": messages[0]["seq"],
            "end_seq": last,
            "messages": messages,
            "updated_at": "2026-02-26T20:30:00Z",
        }
        meta = {
            "conversation_key": key,
            "last_seq": last,
            "chunk_size": CHUNK,
            "latest_chunk_key": chunk_key(index),
            "updated_at": "2026-02-26T20:30:00Z",
            "version": last,
        }
        await self._store.abatch([PutOp(where, chunk_key(index), chunk), PutOp(where, "__meta__", meta)])


async def arms(stack: AsyncExitStack, folder: Path, postgres: str | None) -> dict[str, Arm]:
    ours = await stack.enter_async_context(create_graph_store(f"sqlite:///{folder}/clew.db"))
    theirs = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(f"{folder}/packaged.db"))
    await theirs.setup()
    wal = await stack.enter_async_context(AsyncSqliteStore.from_conn_string(f"{folder}/wal.db"))
    await wal.setup()
    await wal.conn.execute("PRAGMA journal_mode=WAL")
    found: dict[str, Arm] = {
        "sqlite clew": Clew(ours),
        "sqlite packaged": Chunks(theirs),
        "sqlite packaged+WAL": Chunks(wal),
    }
    if postgres:
        found["postgres clew"] = Clew(await stack.enter_async_context(create_graph_store(postgres)))
        packaged = await stack.enter_async_context(AsyncPostgresStore.from_conn_string(postgres))
        await packaged.setup()
        found["postgres packaged"] = Chunks(packaged)
    return found


async def timed(call: Callable[[], Coroutine[Any, Any, Any]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def measure(folder: Path, postgres: str | None, rounds: int) -> dict[tuple[str, str, int], float]:
    times: defaultdict[tuple[str, str, int], list[float]] = defaultdict(list)
    async with AsyncExitStack() as stack:
        found = await arms(stack, folder, postgres)
        for name, arm in found.items():
            for size in SIZES:
                await arm.fill(f"k{size}", size)
                await arm.append(f"k{size}")
                assert await arm.tail(f"k{size}") == TAIL, name
        for _ in range(rounds):
            for size in SIZES:
                for name, arm in found.items():
                    key = f"k{size}"
                    times[name, "append", size].append(await timed(lambda arm=arm, key=key: arm.append(key)))  # type: ignore[misc]
                    times[name, "tail", size].append(await timed(lambda arm=arm, key=key: arm.tail(key)))  # type: ignore[misc]
    return {what: statistics.median(values) for what, values in times.items()}


def report(medians: dict[tuple[str, str, int], float]) -> bool:
    names = list(dict.fromkeys(name for name, _, _ in medians))
    print(
        f"{'':22}"
        + "".join(f"{what + ' ' + format(size, ','):>16}" for what in ("append", "tail") for size in SIZES)
    )
    for name in names:
        print(
            f"{name:22}"
            + "".join(f"{medians[name, what, size]:16.2f}" for what in ("append", "tail") for size in SIZES)
        )
    good = True
    for name in names:
        if not name.endswith("clew"):
            continue
        database = name.split()[0]
        for what in ("append", "tail"):
            own = [medians[name, what, size] for size in SIZES]
            flat = max(own) / min(own)
            shares = [
                medians[name, what, size] / medians[f"{database} packaged", what, size] for size in SIZES
            ]
            good &= flat <= 1.5 and max(shares) <= 1 / 3
            print(
                f"{name}: {what} flat within {flat:.2f} (goal 1.5); of packaged "
                + ", ".join(f"1/{1 / share:.1f}" for share in shares)
                + " (goal 1/3)"
            )
    print("all goals met" if good else "NOT all goals met")
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--no-postgres", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.no_postgres:
            report(asyncio.run(measure(Path(folder), None, options.rounds)))
            return
        with postgres_server() as server:
            url = server.create_database("bench")
            report(asyncio.run(measure(Path(folder), url, options.rounds)))


if __name__ == "__main__":
    main()
