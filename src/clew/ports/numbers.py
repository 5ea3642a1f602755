"""Numbers: integers for tenants, users and files."""

from collections.abc import (
    Collection,
    Mapping,
)
from typing import Protocol

from clew.domain.records import (
    NumberKind,
)


class Numbers(Protocol):
    """Integers for tenants, users and files of a tenant. One that was given stays, and no other is given it."""

    async def of(self, kind: NumberKind, tenant: str, names: Collection[str]) -> Mapping[str, int]:
        """The numbers of all these, given now to those that have none."""
        ...

    async def name_of(self, kind: NumberKind, tenant: str | None, number: int) -> str | None:
        """The name with this number; None if the tenant has none. Without a tenant: of any."""
        ...
