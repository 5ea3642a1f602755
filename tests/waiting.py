"""Waiting in async tests: poll a condition under a deadline. For tests without an event loop: `tests.processes.until`."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

SECONDS = 60.0


async def until(condition: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Wait for the condition, a function or a coroutine function, to return something true; return that.

    Raises TimeoutError after so many seconds.
    """
    async with asyncio.timeout(seconds):
        while True:
            found = condition()
            value = await found if isawaitable(found) else found
            if value:
                return value
            await asyncio.sleep(0.01)
