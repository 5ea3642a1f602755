"""Spending port: sums of the tokens that models read and wrote."""

from collections.abc import Sequence
from datetime import date
from typing import Literal, Protocol, TypeAlias

from clew.domain.profile import Spent
from clew.domain.thread import Owner

SpendingGroup: TypeAlias = Literal["graph", "user", "tenant", "day", "model"]


class Spending(Protocol):
    async def spent(
        self, owner: Owner | None, *, by: SpendingGroup, since: date, until: date
    ) -> Sequence[Spent]:
        """By name and model, of the days from `since` to `until`; without an owner of all tenants.

        Threads that were deleted count. By model the name is empty.
        """
        ...
