"""Audit trail rows."""

from collections.abc import Sequence
from datetime import datetime

from clew.ports.audit import AuditEntry, AuditQuery
from clew.stores.codec import legible, micros, moment
from clew.stores.sql.work import Row, Statement, Tables, Work, placeholders, reads, writes

COLUMNS = "id, at, tenant, user_id, actor, action, method, path, thread_id, status, request_id"


class AuditRows(Tables):
    """The AuditTrail port on a SQL database."""

    @writes
    def add(self, entries: Sequence[AuditEntry]) -> Work[None]:
        for entry in entries:
            yield Statement(
                f"INSERT INTO audit ({COLUMNS}) VALUES ({placeholders(1, 11)}) ON CONFLICT (id) DO NOTHING",
                (
                    entry.id,
                    micros(entry.at),
                    entry.tenant,
                    entry.user_id,
                    entry.actor,
                    entry.action,
                    entry.method,
                    entry.path,
                    entry.thread_id,
                    entry.status,
                    entry.request_id,
                ),
            )

    @reads
    def find(self, wanted: AuditQuery) -> Work[list[AuditEntry]]:
        conditions: list[str] = []
        values: list[str | int] = [wanted.limit]
        for column, sign, value in (
            ("tenant", "=", wanted.tenant),
            ("user_id", "=", wanted.user_id),
            ("thread_id", "=", wanted.thread_id),
            ("action", "=", wanted.action),
            ("id", "<", wanted.before),
        ):
            if value or (column == "tenant" and value is not None):
                values.append(value)
                conditions.append(f"{column} {sign} ${len(values)}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        rows = yield Statement(f"SELECT {COLUMNS} FROM audit{where} ORDER BY id DESC LIMIT $1", tuple(values))
        return legible(rows, _entry, "audit")

    @writes
    def trim(self, *, older_than: datetime, limit: int = 1000) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < $1 ORDER BY at LIMIT $2) RETURNING 1",
            (micros(older_than), limit),
        )
        return len(rows)


def _entry(row: Row) -> AuditEntry:
    return AuditEntry(
        id=row[0],
        at=moment(row[1]),
        tenant=row[2],
        user_id=row[3],
        actor=row[4],
        action=row[5],
        method=row[6],
        path=row[7],
        thread_id=row[8],
        status=row[9],
        request_id=row[10],
    )
