"""Admission to the inbox, once per message: an admitted message is answered, in its chat's order, despite crashes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from clew.channels.message import ChannelMessage
from clew.domain.errors import Duplicate
from clew.domain.records import Incoming
from clew.failpoints import failpoint
from clew.ports.channels import Became
from clew.ports.clock import Clock
from clew.ports.inbox import Inbox
from clew.telemetry import Metrics

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    inbox: Inbox
    clock: Clock
    new_id: Callable[[], str]
    # Called after an admission, so that the dispatcher need not wait for its next poll.
    wake: Callable[[], None]
    metrics: Metrics

    async def admit(self, source: str, message: ChannelMessage | None, *, led: bool = True) -> Became:
        """What became of it: admitted, duplicate, or ignored. Raises Duplicate if its id came with another content.

        What is not `led` has no thread: it only says that there is something to fetch.
        """
        outcome: Became = "ignored" if message is None else await self._admit(source, message, led)
        self._count(source, outcome)
        return outcome

    async def _admit(self, source: str, message: ChannelMessage, led: bool) -> Became:
        incoming = Incoming(
            source=source,
            source_id=message.id,
            fingerprint=message.fingerprint,
            payload=message.said.as_json(),
            conversation=message.conversation,
            thread_id=self.new_id() if led else None,
        )
        try:
            is_new = await self.inbox.admit(incoming, now=self.clock())
        except Duplicate as exc:
            logger.warning(
                "a message came again with another content",
                extra={"source": source, "source_id": message.id, "code": exc.code},
            )
            self._count(source, "refused")
            raise
        failpoint("delivery_admitted")
        self.wake()
        return "admitted" if is_new else "duplicate"

    def _count(self, source: str, outcome: str) -> None:
        self.metrics.deliveries.labels(source.partition(":")[0], outcome).inc()
