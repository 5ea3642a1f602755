"""Long polling: updates of a Telegram bot are fetched, for a server that Telegram cannot reach."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from clew.channels import telegram
from clew.channels.admission import Admission
from clew.channels.telegram import TelegramClient
from clew.domain.errors import Duplicate, Transient, Unavailable
from clew.domain.thread import Json
from clew.failpoints import failpoint
from clew.ports.channels import Conversations
from clew.ports.clock import Clock

logger = logging.getLogger(__name__)

# Telegram holds a request so long when nothing waits.
LONG_SECONDS = 50
# After a week without one, the number of the next update is a new one at random, and may be smaller.
NUMBERS_LAST = timedelta(days=6)
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Poller:
    """Admits what Telegram has, then remembers how far that was, then lets Telegram forget it.

    Killed between any two of these, it is given the same updates again, and each is admitted once.
    """

    source: str
    wire: TelegramClient
    update_types: Collection[str]
    chat_types: Collection[str]
    admission: Admission
    conversations: Conversations
    clock: Clock
    # Called after each request with how many updates it brought.
    report: Callable[[int], None]

    async def poll(self, *, seconds: int) -> int:
        """One request; returns how many updates it brought. Raises Transient, Permanent, Unavailable."""
        offset = self._offset(await self.conversations.position(self.source))
        updates = await self.wire.updates(offset, types=self.update_types, seconds=seconds)
        numbers = [update["update_id"] for update in updates if _has_number(update)]
        for update in updates:
            if _has_number(update):
                message = telegram.read(update, update_types=self.update_types, chat_types=self.chat_types)
                with suppress(Duplicate):  # it was counted and logged; the others are worth reading
                    await self.admission.admit(self.source, message)
        if numbers:
            failpoint("updates_admitted")
            position = {"offset": max(numbers) + 1, "at": self.clock().isoformat()}
            await self.conversations.set_position(self.source, position)
        self.report(len(numbers))
        return len(numbers)

    async def run(self, stopping: asyncio.Event) -> None:
        """Poll until stopped. Transient errors are retried; raises Permanent for others."""
        wait = FIRST_WAIT
        while not stopping.is_set():
            try:
                await self.poll(seconds=LONG_SECONDS)
                wait = FIRST_WAIT
            except (Transient, Unavailable) as exc:
                asked = exc.retry_after if isinstance(exc, Transient) else None
                pause = max(wait, asked or 0.0)
                logger.warning(
                    "updates could not be fetched",
                    extra={"source": self.source, "code": exc.code, "retry_seconds": round(pause, 3)},
                )
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause)
                wait = min(wait * 2, LONGEST_WAIT)

    def _offset(self, position: Json) -> int:
        """The first update we have not seen; 0 is the first one that Telegram still has."""
        if not isinstance(position, dict):
            return 0
        is_old = self.clock() - datetime.fromisoformat(position["at"]) > NUMBERS_LAST
        return 0 if is_old else int(position["offset"])


def _has_number(update: Json) -> bool:
    return isinstance(update, dict) and type(update.get("update_id")) is int
