"""Tokens: model output as it is generated, inside one process; gathered for each listener, dropped for slow ones."""

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from clew.domain.views import Token

# So many frames a second are smooth to the eye, whatever the model's speed.
FRAMES_PER_SECOND = 20
# What one listener may be behind. Past it something is dropped: the whole message will be in the log.
BEHIND_CHARS = 65_536


class LocalTokenListener:
    """Gathers tokens by message and returns one message at a time, the longest waiting first."""

    def __init__(self, wants: Callable[[Token], bool], monotonic: Callable[[], float]) -> None:
        self.wants = wants
        self._monotonic = monotonic
        self._gathered: dict[str, Token] = {}
        self._chars = 0
        self._told = asyncio.Event()
        self._next_at = 0.0

    def hear(self, token: Token) -> None:
        before = self._gathered.get(token.message)
        if before is not None and before.offset + len(before.text) != token.offset:
            self.forget(token.message)  # something is missing between the two: go on with the newer
            before = None
        if self._chars + len(token.text) > BEHIND_CHARS:
            return
        self._chars += len(token.text)
        self._gathered[token.message] = (
            token if before is None else replace(before, text=before.text + token.text)
        )
        self._told.set()

    async def next(self) -> Token:
        while True:
            await self._told.wait()
            if (early := self._next_at - self._monotonic()) > 0:
                await asyncio.sleep(early)
            if self._gathered:
                break
            self._told.clear()
        self._next_at = self._monotonic() + 1 / FRAMES_PER_SECOND
        # The one that has waited longest: a fast model does not delay the others.
        return self._drop(next(iter(self._gathered)))

    def forget(self, message: str) -> None:
        if message in self._gathered:
            self._drop(message)

    def _drop(self, message: str) -> Token:
        token = self._gathered.pop(message)
        self._chars -= len(token.text)
        if not self._gathered:
            self._told.clear()
        return token


class LocalTokens:
    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._listeners: set[LocalTokenListener] = set()

    def say(self, token: Token) -> None:
        for listener in self._listeners:
            if listener.wants(token):
                listener.hear(token)

    @contextmanager
    def listen(self, wants: Callable[[Token], bool]) -> Generator[LocalTokenListener]:
        listener = LocalTokenListener(wants, self._monotonic)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
