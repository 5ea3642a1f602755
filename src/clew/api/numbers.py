"""Numeric ids: the integers by which chat clients know tenants, users and files."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from clew.domain.errors import Invalid, NotFound
from clew.domain.records import Document, NumberKind
from clew.domain.thread import Owner
from clew.ports.numbers import Numbers

# How many are cached. An assigned number never changes.
REMEMBERED = 10_000
# JSON numbers are exact up to here in every client.
LARGEST = 2**53 - 1

MandateId = Annotated[
    int | None, Query(alias="mandateId", ge=1, le=LARGEST, description="The tenant by its number.")
]
UserNumber = Annotated[
    int | None, Query(alias="userId", ge=1, le=LARGEST, description="The user by its number.")
]


@dataclass(frozen=True, slots=True)
class OwnerNumbers:
    tenant: int
    user: int  # 0 where there is no user in particular


class Numbering:
    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: dict[tuple[NumberKind, str, str], int] = {}  # the oldest first

    async def owner(self, owner: Owner) -> OwnerNumbers:
        tenants = await self._of("tenant", owner.tenant, [owner.tenant])
        users = await self._of("user", owner.tenant, [owner.user_id]) if owner.user_id else {}
        return OwnerNumbers(tenants[owner.tenant], users.get(owner.user_id, 0))

    async def owners(self, owners: Iterable[Owner]) -> Mapping[Owner, OwnerNumbers]:
        return {owner: await self.owner(owner) for owner in set(owners)}

    async def files(self, tenant: str, file_ids: Collection[str]) -> Mapping[str, int]:
        return await self._of("file", tenant, file_ids)

    async def files_of(self, owner: Owner, documents: Iterable[Document]) -> Mapping[str, int]:
        return await self._of("file", owner.tenant, {document.file_id for document in documents})

    async def file_id(self, tenant: str, text: str) -> str:
        """The id of the file with this number. Anything else is returned as an id."""
        if not (text.isascii() and text.isdigit() and int(text) <= LARGEST):
            return text
        return await self._numbers.name_of("file", tenant, int(text)) or text

    async def named(
        self, kind: NumberKind, tenant: str | None, number: int | None, name: str | None
    ) -> str | None:
        """The name that a request means by a name, by a number, or by both; None without either.

        Raises NotFound for a number that is not of this tenant (None: of any), Invalid if the name has another.
        """
        if number is None:
            return name
        found = await self._numbers.name_of(kind, tenant, number)
        if found is None:
            raise NotFound(f"no {kind} has the number {number}")
        if name not in (None, found):
            raise Invalid(f"{name!r} is not the {kind} with the number {number}", field=f"{kind}")
        return found

    async def _of(self, kind: NumberKind, tenant: str, names: Collection[str]) -> Mapping[str, int]:
        unknown = [name for name in names if (kind, tenant, name) not in self._known]
        found = await self._numbers.of(kind, tenant, unknown) if unknown else {}
        known = {name: self._known[kind, tenant, name] for name in names if name not in found}
        for name, number in found.items():
            self._known[kind, tenant, name] = number
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return {**known, **found}
