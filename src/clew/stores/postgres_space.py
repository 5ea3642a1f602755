"""The room a Postgres database takes, by table."""

from collections.abc import Mapping

from clew.stores.sql.usage import UsageRows
from clew.stores.sql.work import Statement, Work, reads


class PostgresSpace(UsageRows):
    """The Space port on Postgres, which uses free room again by itself and needs no help to do so."""

    @reads
    def sizes(self) -> Work[Mapping[str, int]]:
        rows = yield Statement(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY relname"
        )
        return {name: int(size) for name, size in rows}

    async def give_back(self, *, seconds: float) -> int:  # noqa: ARG002 - the port's
        return 0
