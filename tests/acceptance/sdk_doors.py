"""For tests of runs: a door at which they wait, and what their streams tell."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any


class Door:
    """Runs of the graph that waits do so until it is opened."""

    def __init__(self, folder: Path) -> None:
        self._until = folder / "until"
        self._marks = folder / "marks"

    def input(self, word: str = "x") -> dict[str, Any]:
        return {"words": [word], "until": str(self._until), "marks": str(self._marks)}

    def open(self) -> None:
        self._until.touch()

    def marks(self) -> list[str]:
        return self._marks.read_text().splitlines() if self._marks.exists() else []

    async def entered(self, *words: str) -> None:
        async def all_began() -> bool:
            return all(f"began {word}" in self.marks() for word in words)

        await until(all_began)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


async def heard(stream: AsyncIterator[Any]) -> list[tuple[str, Any]]:
    return [(part.event, part.data) async for part in stream]
