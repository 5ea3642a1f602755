"""Round traces: sends the spans of each round that ends, in the background. The log keeps what could not be sent."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from clew.domain.errors import ClewError
from clew.domain.events import Event, RoundFinished
from clew.domain.lifecycle import Change
from clew.domain.thread import Thread
from clew.ports.model_calls import ModelCalls
from clew.ports.threads import Store
from clew.telemetry.spans import Span, round_spans

logger = logging.getLogger(__name__)

# Rounds that wait to be sent; the oldest are dropped beyond that.
MOST_WAITING = 2000
# Rounds that are sent together.
BATCH = 100
GATHER_SECONDS = 0.5
LAST_SECONDS = 5.0

SendSpans = Callable[[Sequence[Span]], bool]


class RoundTraces:
    def __init__(self, store: Store, model_calls: ModelCalls, send: SendSpans) -> None:
        self._store = store
        self._model_calls = model_calls
        self._send = send
        self._waiting: deque[Thread] = deque(maxlen=MOST_WAITING)
        self._woken = asyncio.Event()
        self._is_away = False

    def committed(self, change: Change) -> None:
        """Send the round that has ended with this change, if one has. Never waits."""
        if any(isinstance(event.body, RoundFinished) for event in change.events):
            self._waiting.append(change.thread)
            self._woken.set()

    @asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        task = asyncio.create_task(self._send_forever())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    while self._waiting:
                        await self._send_some()

    async def spans(self, thread: Thread) -> list[Span]:
        """Those of the thread's current round. Raises NotFound, Corrupt."""
        log = await self._store.read(thread.id, after=thread.round_seq - 1, before=thread.last_seq + 1)
        return round_spans(thread, log, await self._model_calls.find(thread.id))

    async def spans_of_log(self, thread: Thread, log: Sequence[Event]) -> list[Span]:
        """Those of all rounds in a whole log that have ended, if the last one has."""
        calls = await self._model_calls.find(thread.id)
        numbers = dict.fromkeys(event.round for event in log)
        if not thread.status.is_terminal:
            numbers.pop(thread.round, None)
        rounds = ([event for event in log if event.round == number] for number in numbers)
        return [span for one in rounds for span in round_spans(thread, one, calls)]

    async def _send_forever(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            await asyncio.sleep(GATHER_SECONDS)
            while self._waiting:
                await self._send_some()

    async def _send_some(self) -> None:
        spans: list[Span] = []
        for _ in range(min(BATCH, len(self._waiting))):
            # A thread that is gone, or a database that is away: its log is sent again by `clew traces export`.
            with suppress(ClewError):
                spans += await self.spans(self._waiting.popleft())
        if not spans:
            return
        try:
            is_sent = await asyncio.to_thread(self._send, spans)
        except Exception:
            logger.exception("traces cannot be sent")
            is_sent = False
        if not is_sent and not self._is_away:
            logger.warning(
                "traces cannot be sent; `clew traces export` sends them again", extra={"count": len(spans)}
            )
        if is_sent and self._is_away:
            logger.info("traces can be sent again")
        self._is_away = not is_sent
