"""Graphs that stand still in the middle, with their process or with its event loop, until somebody lets them go on."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

from tests.chains import chain
from tests.odd_graphs import Notes, mark

GRAPHS = "".join(
    f"  {name}: tests.faults.standstills:{name}\n" for name in ("freezing", "standing_still", "lingering")
)


def let_go_on(marks: Path) -> None:
    _signal(marks).touch()


def _signal(marks: Path) -> Path:
    return marks.with_suffix(".go")


async def freezes(state: Notes) -> Notes:
    if mark(state, "freezes") == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    return {"log": ["thawed"]}


async def lingers(state: Notes) -> Notes:
    mark(state, "lingers")
    while not _signal(Path(state["marks"])).exists():
        await asyncio.sleep(0.02)
    return {"log": ["lingered"]}


def freezing() -> Any:
    """Freezes the first process that runs it, and then waits in the next node."""
    return chain(Notes, freezes, lingers)


async def blocks(state: Notes) -> Notes:
    mark(state, "blocks")
    while not _signal(Path(state["marks"])).exists():
        time.sleep(0.02)  # noqa: ASYNC251 - the fault being staged
    return {"log": ["blocked the loop"]}


def standing_still() -> Any:
    """Blocks the event loop."""
    return chain(Notes, blocks)


def lingering() -> Any:
    """Waits as a long call to a model does."""
    return chain(Notes, lingers)
