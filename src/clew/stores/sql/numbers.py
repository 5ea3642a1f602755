"""Integers for tenants, users and files."""

from collections.abc import Collection

from clew.domain.records import NumberKind
from clew.stores.sql.work import Many, Statement, Tables, Texts, Work, among, glances


class NumberRows(Tables):
    """The Numbers port on a SQL database."""

    async def of(self, kind: NumberKind, tenant: str, names: Collection[str]) -> dict[str, int]:
        wanted = sorted(set(names))
        found = await self._db.read(lambda: _find(kind, tenant, wanted))
        if missing := [name for name in wanted if name not in found]:
            found |= await self._db.write(lambda: _number(kind, tenant, missing))
        return found

    @glances
    def name_of(self, kind: NumberKind, tenant: str | None, number: int) -> Work[str | None]:
        theirs, args = ("", ()) if tenant is None else (" AND tenant = $3", (tenant,))
        rows = yield Statement(
            f"SELECT name FROM numbers WHERE number = $1 AND kind = $2{theirs}", (number, kind, *args)
        )
        return rows[0][0] if rows else None


def _find(kind: NumberKind, tenant: str, names: Collection[str]) -> Work[dict[str, int]]:
    rows = yield Statement(
        f"SELECT name, number FROM numbers WHERE kind = $1 AND tenant = $2 AND {among('name', 3)}",
        (kind, tenant, Texts(names)),
    )
    return {name: int(number) for name, number in rows}


def _number(kind: NumberKind, tenant: str, names: Collection[str]) -> Work[dict[str, int]]:
    yield Many(
        "INSERT INTO numbers (kind, tenant, name) VALUES ($1, $2, $3) ON CONFLICT (kind, tenant, name) DO NOTHING",
        [(kind, tenant, name) for name in names],
    )
    return (yield from _find(kind, tenant, names))
