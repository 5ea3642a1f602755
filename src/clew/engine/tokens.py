"""Tokens: model output as it is generated; gathered for each listener and for other processes, dropped for slow ones."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from clew.domain.thread import Owner
from clew.domain.views import Token
from clew.ports.notifier import Message

# So many frames a second are smooth to the eye, whatever the model's speed.
FRAMES_PER_SECOND = 20
# What one listener may be behind. Past it something is dropped: the whole message will be in the log.
BEHIND_CHARS = 65_536
# So much text of a message goes into one notification: JSON writes a character in up to 12 bytes, of at most 7,999.
PIECE_CHARS = 500


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
        await self._ready()
        # The one that has waited longest: a fast model does not delay the others.
        return self._drop(next(iter(self._gathered)))

    async def next_of_all(self) -> list[Token]:
        """The next piece of every message."""
        await self._ready()
        return [self._drop(message) for message in [*self._gathered]]

    async def _ready(self) -> None:
        while True:
            await self._told.wait()
            if (early := self._next_at - self._monotonic()) > 0:
                await asyncio.sleep(early)
            if self._gathered:
                break
            self._told.clear()
        self._next_at = self._monotonic() + 1 / FRAMES_PER_SECOND

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
    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        beyond: Callable[[Message], None] | None = None,
    ) -> None:
        """`beyond` sends a message to other processes."""
        self._monotonic = monotonic
        self._beyond = beyond
        self._leaving = LocalTokenListener(lambda _: True, monotonic)
        self._listeners: set[LocalTokenListener] = set()

    def say(self, token: Token) -> None:
        self.hear(token)
        if self._beyond is not None:
            self._leaving.hear(token)

    @asynccontextmanager
    async def sharing(self) -> AsyncGenerator[None]:
        """Inside the block, tokens go to other processes, gathered as for a listener here."""
        sending = asyncio.create_task(self._send_forever())
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def _send_forever(self) -> None:
        while self._beyond is not None:
            for token in await self._leaving.next_of_all():
                for message in _messages(token):
                    self._beyond(message)

    def receive(self, message: Message) -> None:
        """Another process sent it."""
        match message:
            case ["token", str(thread), str(tenant), str(user), str(ref), str(agent), int(offset), str(text)]:
                owner = Owner(tenant=tenant, user_id=user)
                self.hear(
                    Token(thread_id=thread, owner=owner, message=ref, agent=agent, offset=offset, text=text)
                )
            case _:
                pass  # of a later version

    def hear(self, token: Token) -> None:
        """Hand it to the listeners of this process."""
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


def _messages(token: Token) -> Iterator[Message]:
    owner = token.owner
    for start in range(0, len(token.text), PIECE_CHARS):
        piece, offset = token.text[start : start + PIECE_CHARS], token.offset + start
        yield [
            "token",
            token.thread_id,
            owner.tenant,
            owner.user_id,
            token.message,
            token.agent,
            offset,
            piece,
        ]
