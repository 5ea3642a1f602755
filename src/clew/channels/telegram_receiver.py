"""Telegram webhook receiver: checks the secret, parses the update and admits it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from clew.channels import telegram
from clew.channels.admission import Admission
from clew.domain.errors import Invalid
from clew.domain.records import Delivery
from clew.ports.channels import Became


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramReceiver:
    """The WebhookReceiver of one Telegram bot."""

    source: str
    secret: str
    update_types: Collection[str]
    chat_types: Collection[str]
    # Raises above the rate limit. Called after the provider is authenticated.
    pace: Callable[[str], None]
    admission: Admission

    @property
    def thanks(self) -> str:
        return ""

    def greet(self, delivery: Delivery) -> str:  # noqa: ARG002 - a promise of the port
        raise Invalid("Telegram does not ask this")

    async def receive(self, delivery: Delivery) -> Became:
        telegram.verify(delivery.headers.get(telegram.SECRET), self.secret)
        self.pace(self.source)
        message = telegram.read(delivery.json, update_types=self.update_types, chat_types=self.chat_types)
        return await self.admission.admit(self.source, message)
