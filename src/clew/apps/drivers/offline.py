"""Offline driver: answers inquiries without a model, by the rules that an app has for them, and refuses the rest."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeAlias

from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.domain.errors import Permanent
from clew.domain.retry import ErrorClass

# The text of a reply. It runs in a thread of its own.
OfflineRule: TypeAlias = Callable[[Inquiry], str]


class OfflineDriver:
    name = "offline"
    model = ""

    def __init__(self, rules: Mapping[Purpose, OfflineRule]) -> None:
        self._rules = rules

    def can(self, purpose: Purpose) -> bool:
        return purpose in self._rules

    async def ask(self, inquiry: Inquiry) -> Reply:
        rule = self._rules.get(inquiry.purpose)
        if rule is None:
            raise Permanent("this needs a language model, and none is configured", ErrorClass.VALIDATION)
        return Reply(text=await asyncio.to_thread(rule, inquiry))
