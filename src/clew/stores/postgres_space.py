"""Disk space of a Postgres database, by table."""

from collections.abc import Mapping

from clew.stores.sql.usage import UsageRows
from clew.stores.sql.work import Statement, Work, reads


class PostgresSpace(UsageRows):
    """The Space port on Postgres, which reuses free space by itself."""

    @reads
    def sizes(self) -> Work[Mapping[str, int]]:
        rows = yield Statement(
            "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
            " WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace ORDER BY relname"
        )
        return {name: int(size) for name, size in rows}

    async def give_back(self, *, seconds: float) -> int:  # noqa: ARG002 - the port's
        return 0
