"""Quotas: how much of what is stored a tenant may have. Rows are counted in the transaction that adds one; bytes are summed
now and then."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from clew.domain.errors import QuotaExceeded
from clew.stores.sql.caps import take_lock
from clew.stores.sql.work import Database, Statement, Work

Counted: TypeAlias = Literal["threads", "assistants", "crons"]

# What other processes store is noticed after so long.
SURE_SECONDS = 10.0
# Where the sum is over the quota it is made again, but not for every write of a tenant that goes on.
AGAIN_SECONDS = 1.0
_BYTES = (
    "SELECT (SELECT COALESCE(SUM(size), 0) FROM files WHERE tenant = $1)"
    " + (SELECT COALESCE(SUM(octet_length(value)), 0) FROM store_items WHERE tenant = $1)"
    " + (SELECT COALESCE(SUM(octet_length(content)), 0) FROM history_messages"
    " WHERE history_id IN (SELECT id FROM histories WHERE tenant = $1))"
)


def require_number(counted: Counted, tenant: str, most: int) -> Work[None]:
    """After one was added. Raises QuotaExceeded if the tenant has more now than `most`; 0 is any number."""
    if not most:
        return
    yield take_lock(f"quota of {counted} {tenant}")
    rows = yield Statement(
        f"SELECT COUNT(*) FROM (SELECT 1 FROM {counted} WHERE tenant = $1 LIMIT $2) AS found",
        (tenant, most + 1),
    )
    if rows[0][0] > most:
        raise QuotaExceeded(f"this tenant has {most} {counted}, and may have no more: delete some first")


@dataclass(slots=True)
class _Sum:
    number: int
    at: float


class StoredBytes:
    """The quota of bytes in files, store items and chat histories.

    A sum reads all rows of a tenant, so each process makes one at most every ten seconds and adds what it writes itself.
    Several processes may exceed the quota by what they write in this time.
    """

    def __init__(
        self, databases: Sequence[Database], most: int, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._databases = databases
        self._most = most
        self._monotonic = monotonic
        self._sums: dict[str, _Sum] = {}

    async def require(self, tenant: str, more: int) -> None:
        """Before so many bytes are written. Raises QuotaExceeded."""
        known = await self._known(tenant, SURE_SECONDS)
        if known.number + more > self._most:
            known = await self._known(tenant, AGAIN_SECONDS)
        if known.number + more > self._most:
            raise QuotaExceeded(
                f"this tenant may store {self._most} bytes of files, store items and chat histories, and has"
                f" {known.number}: delete some first"
            )
        known.number += more

    async def _known(self, tenant: str, seconds: float) -> _Sum:
        known, now = self._sums.get(tenant), self._monotonic()
        if known is None or now - known.at > seconds:
            self._sums = {name: one for name, one in self._sums.items() if now - one.at <= SURE_SECONDS}
            known = self._sums[tenant] = _Sum(await self._sum(tenant), now)
        return known

    async def _sum(self, tenant: str) -> int:
        return sum([int(await database.glance(lambda: _bytes(tenant))) for database in self._databases])


def _bytes(tenant: str) -> Work[int]:
    rows = yield Statement(_BYTES, (tenant,))
    return int(rows[0][0])


def octets(text: str) -> int:
    return len(
        text.encode(errors="replace")
    )  # half of a surrogate pair is refused or replaced where it is stored
