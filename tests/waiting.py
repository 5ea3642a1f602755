"""Waiting in async tests: poll a condition under a deadline. For tests without an event loop: `tests.processes.until`."""

import asyncio
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 60.0


async def until(condition: Callable[[], T | Awaitable[T]], seconds: float = SECONDS) -> T:
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
