"""For tests of runs: a door at which they wait, and what their streams tell."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.waiting import until


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

    def has(self, mark: str) -> bool:
        return mark in self.marks()

    async def entered(self, *words: str) -> None:
        async def all_began() -> bool:
            return all(f"began {word}" in self.marks() for word in words)

        await until(all_began)


async def heard(stream: AsyncIterator[Any]) -> list[tuple[str, Any]]:
    return [(part.event, part.data) async for part in stream]
