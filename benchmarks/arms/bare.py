"""Bare references of `benchmarks/peers.py`: the same graphs without a server, in memory and with the packaged SQLite saver.

A child process: each line of its input is a JSON command, each line of its output the answer.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from graphs import chat_builder, one_builder  # type: ignore[import-not-found]


def config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}


class Bare:
    def __init__(self, saver: Any, folder: str | None) -> None:
        self._one = one_builder().compile(checkpointer=saver)
        self._chat = chat_builder().compile(checkpointer=saver)
        self._folder = folder

    async def load(self, seconds: float, callers: int) -> dict[str, Any]:
        latencies: list[float] = []
        cpu, begun = time.process_time(), time.perf_counter()

        async def caller() -> None:
            while time.perf_counter() - begun < seconds:
                start = time.perf_counter()
                found = await self._one.ainvoke({"said": ["go"]}, config(str(uuid.uuid4())))
                assert found["said"] == ["go", "one"]
                latencies.append(time.perf_counter() - start)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return {
            "seconds": time.perf_counter() - begun,
            "cpu": time.process_time() - cpu,
            "latencies": latencies,
        }

    async def turns(self, thread_id: str, count: int) -> dict[str, Any]:
        took = []
        for _ in range(count):
            start = time.perf_counter()
            await self._chat.ainvoke(
                {"messages": [{"role": "user", "content": "x" * 200}]}, config(thread_id)
            )
            took.append(time.perf_counter() - start)
        return {"took": took}

    async def reads(self, thread_id: str, count: int) -> dict[str, Any]:
        took = []
        for _ in range(count):
            start = time.perf_counter()
            await self._chat.aget_state(config(thread_id))
            took.append(time.perf_counter() - start)
        return {"took": took}

    async def bytes(self) -> dict[str, Any]:
        if self._folder is None:
            return {"bytes": None}
        return {"bytes": sum(each.stat().st_size for each in os.scandir(self._folder))}


async def main(kind: str) -> None:
    async with AsyncExitStack() as stack:
        folder = None
        if kind == "memory":
            from langgraph.checkpoint.memory import InMemorySaver  # noqa: PLC0415

            saver: Any = InMemorySaver()
        else:
            from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver  # noqa: PLC0415

            folder = stack.enter_context(tempfile.TemporaryDirectory())
            saver = await stack.enter_async_context(AsyncSqliteSaver.from_conn_string(f"{folder}/bare.db"))
        bare = Bare(saver, folder)
        while line := await asyncio.to_thread(sys.stdin.readline):
            command = json.loads(line)
            print(json.dumps(await getattr(bare, command.pop("do"))(**command)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
