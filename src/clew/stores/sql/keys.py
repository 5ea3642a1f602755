"""API keys, by the hash of their secret."""

from datetime import datetime

from clew.domain.errors import NotFound
from clew.domain.records import ApiKey
from clew.domain.thread import Owner
from clew.stores.codec import (
    EPOCH,
    UNREADABLE,
    bounded_moment,
    dump,
    load,
    maybe_micros,
    maybe_moment,
    micros,
    moment,
)
from clew.stores.sql.ownership import owned
from clew.stores.sql.work import Row, Statement, Tables, Work, glances, placeholders, reads, writes

COLUMNS = "id, hash, prefix, name, tenant, user_id, scopes, created_at, expires_at, revoked_at"


class KeyRows(Tables):
    """The Keys port on a SQL database."""

    @writes
    def add(self, key: ApiKey) -> Work[None]:
        yield Statement(
            f"INSERT INTO api_keys ({COLUMNS}) VALUES ({placeholders(1, 10)})",
            (
                key.id,
                key.hash,
                key.prefix,
                key.name,
                key.owner.tenant,
                key.owner.user_id,
                dump(sorted(key.scopes)),
                micros(key.created_at),
                maybe_micros(key.expires_at),
                maybe_micros(key.revoked_at),
            ),
        )

    @glances
    def by_hash(self, hash: str) -> Work[ApiKey | None]:
        rows = yield Statement(f"SELECT {COLUMNS} FROM api_keys WHERE hash = $1", (hash,))
        return _key(rows[0]) if rows else None

    @reads
    def find(self, owner: Owner | None = None) -> Work[list[ApiKey]]:
        where, args = owned(owner, 1)
        rows = yield Statement(
            f"SELECT {COLUMNS} FROM api_keys WHERE 1 = 1{where} ORDER BY created_at, id", args
        )
        return [_key_or_useless(row) for row in rows]

    @writes
    def revoke(self, key_id: str, *, now: datetime, owner: Owner | None = None) -> Work[ApiKey]:
        where, args = owned(owner, 3)
        rows = yield Statement(
            "UPDATE api_keys SET revoked_at = coalesce(revoked_at, CAST($2 AS BIGINT))"
            f" WHERE id = $1{where} RETURNING {COLUMNS}",
            (key_id, micros(now), *args),
        )
        if not rows:
            raise NotFound(f"no API key {key_id!r}")
        return _key_or_useless(rows[0])


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=row[0],
        hash=row[1],
        prefix=row[2],
        name=row[3],
        owner=Owner(tenant=row[4], user_id=row[5]),
        scopes=frozenset(load(row[6])),
        created_at=moment(row[7]),
        expires_at=maybe_moment(row[8]),
        revoked_at=maybe_moment(row[9]),
    )


def _key_or_useless(row: Row) -> ApiKey:
    """A key that cannot be read back grants nothing, and still counts: without any key, a server accepts this machine."""
    try:
        return _key(row)
    except UNREADABLE:
        ends = bounded_moment(row[7]) if isinstance(row[7], int) else EPOCH
        return ApiKey(
            id=str(row[0]),
            hash="",
            prefix=str(row[2]),
            name="(cannot be read back)",
            owner=Owner(tenant=str(row[4]), user_id=str(row[5])),
            scopes=frozenset(),
            created_at=ends,
            revoked_at=ends,
        )
