"""Assistants that clients created, and their versions."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from typing import Final

from clew.domain.assistants import Assistant, Object, Search
from clew.domain.errors import NotFound
from clew.domain.items import contains
from clew.domain.thread import Owner
from clew.ports.authorization import FilteredOwner
from clew.stores.codec import dump, legible, load, micros, moment
from clew.stores.sql.ownership import owned
from clew.stores.sql.quotas import require_number
from clew.stores.sql.work import (
    FOR_UPDATE,
    Row,
    Statement,
    Tables,
    Texts,
    Work,
    among,
    placeholders,
    reads,
    writes,
)

SAID: Final = "version, graph, name, description, config, context, metadata"
CURRENT: Final = (
    f"SELECT id, {SAID}, created_at, updated_at FROM assistants"
    " JOIN assistant_versions USING (tenant, id, version)"
)
# So many are read at once.
PAGE: Final = 200


class AssistantRows(Tables):
    """The Assistants port on a SQL database."""

    quota: int = 0
    """How many a tenant may have; 0 is any number."""

    @writes
    def add(self, assistant: Assistant, owner: Owner) -> Work[bool]:
        added = yield Statement(
            "INSERT INTO assistants (tenant, id, user_id, version, created_at, updated_at)"
            f" VALUES ({placeholders(1, 6)}) ON CONFLICT (tenant, id) DO NOTHING RETURNING 1",
            (
                owner.tenant,
                assistant.id,
                owner.user_id,
                assistant.version,
                micros(assistant.created_at),
                micros(assistant.updated_at),
            ),
        )
        if added:
            yield _insert_version(assistant, owner)
            yield from require_number("assistants", owner.tenant, self.quota)
        return bool(added)

    @reads
    def get(self, assistant_id: str, owner: Owner) -> Work[Assistant]:
        return (yield from _current(assistant_id, owner))

    async def of_tenant(self, tenant: str, ids: Collection[str]) -> dict[str, Assistant]:
        run = self._db.glance if len(ids) == 1 else self._db.read
        return await run(lambda: _of_tenant(tenant, ids))

    @reads
    def find(self, owner: Owner, wanted: Search, *, graphs: Collection[str]) -> Work[list[Assistant]]:
        mine, args = owned(owner, 4)
        found: list[Assistant] = []
        last = ""
        while True:
            rows = yield Statement(
                f"{CURRENT} WHERE id > $1 AND {among('graph', 2)}{mine} ORDER BY id LIMIT $3",
                (last, Texts(graphs), PAGE, *args),
            )
            some = legible(rows, _assistant, "assistants")
            found += (one for one in some if wanted.wants(one) and _is_seen(one, owner))
            if len(rows) < PAGE:
                return found
            last = rows[-1][0]

    @writes
    def revise(
        self, assistant_id: str, owner: Owner, change: Callable[[Assistant], Assistant]
    ) -> Work[Assistant]:
        yield from _lock(assistant_id, owner)
        before = yield from _current(assistant_id, owner)
        ((newest,),) = yield Statement(
            "SELECT max(version) FROM assistant_versions WHERE tenant = $1 AND id = $2",
            (owner.tenant, assistant_id),
        )
        after = replace(change(before), version=newest + 1)
        yield _insert_version(after, owner)
        yield _point_to(assistant_id, owner, after.version, after.updated_at)
        return after

    @reads
    def versions(
        self, assistant_id: str, owner: Owner, *, metadata: Object, limit: int, offset: int
    ) -> Work[list[Assistant]]:
        yield from _current(assistant_id, owner)
        found: list[Assistant] = []
        below = 2**31 - 1
        while len(found) < offset + limit:
            rows = yield Statement(
                f"SELECT id, {SAID}, made_at, made_at FROM assistant_versions"
                " WHERE tenant = $1 AND id = $2 AND version < $3 ORDER BY version DESC LIMIT $4",
                (owner.tenant, assistant_id, below, PAGE),
            )
            some = legible(rows, _assistant, "assistant_versions")
            found += (one for one in some if contains(one.metadata, metadata) and _is_seen(one, owner))
            if len(rows) < PAGE:
                break
            below = rows[-1][1]
        return found[offset : offset + limit]

    @writes
    def set_latest(self, assistant_id: str, owner: Owner, version: int, *, now: datetime) -> Work[Assistant]:
        yield from _lock(assistant_id, owner)
        yield from _current(assistant_id, owner)
        there = yield Statement(
            "SELECT 1 FROM assistant_versions WHERE tenant = $1 AND id = $2 AND version = $3",
            (owner.tenant, assistant_id, version),
        )
        if not there:
            raise NotFound(f"assistant {assistant_id!r} has no version {version}")
        yield _point_to(assistant_id, owner, version, now)
        return (yield from _current(assistant_id, owner))

    @writes
    def delete(self, assistant_id: str, owner: Owner) -> Work[None]:
        yield from _lock(assistant_id, owner)
        yield from _current(assistant_id, owner)
        yield Statement("DELETE FROM assistants WHERE tenant = $1 AND id = $2", (owner.tenant, assistant_id))
        yield Statement(
            "DELETE FROM assistant_versions WHERE tenant = $1 AND id = $2", (owner.tenant, assistant_id)
        )


def _of_tenant(tenant: str, ids: Collection[str]) -> Work[dict[str, Assistant]]:
    rows = yield Statement(
        f"{CURRENT} WHERE tenant = $1 AND user_id = '' AND {among('id', 2)}", (tenant, Texts(ids))
    )
    return {one.id: one for one in map(_assistant, rows)}


def _lock(assistant_id: str, owner: Owner) -> Work[None]:
    """One change of an assistant at a time: each builds on the one before it."""
    mine, args = owned(owner, 2)
    rows = yield Statement(
        f"SELECT 1 FROM assistants WHERE id = $1{mine} {FOR_UPDATE}", (assistant_id, *args)
    )
    if not rows:
        raise _unknown(assistant_id)


def _current(assistant_id: str, owner: Owner) -> Work[Assistant]:
    mine, args = owned(owner, 2)
    rows = yield Statement(f"{CURRENT} WHERE id = $1{mine}", (assistant_id, *args))
    if not rows or not _is_seen(found := _assistant(rows[0]), owner):
        raise _unknown(assistant_id)
    return found


def _is_seen(assistant: Assistant, owner: Owner) -> bool:
    return not isinstance(owner, FilteredOwner) or owner.assistants.matches(assistant.metadata)


def _insert_version(assistant: Assistant, owner: Owner) -> Statement:
    return Statement(
        f"INSERT INTO assistant_versions (tenant, id, {SAID}, made_at) VALUES ({placeholders(1, 10)})",
        (
            owner.tenant,
            assistant.id,
            assistant.version,
            assistant.graph,
            assistant.name,
            assistant.description,
            dump(assistant.config),
            dump(assistant.context),
            dump(assistant.metadata),
            micros(assistant.updated_at),
        ),
    )


def _point_to(assistant_id: str, owner: Owner, version: int, now: datetime) -> Statement:
    return Statement(
        "UPDATE assistants SET version = $3, updated_at = $4 WHERE tenant = $1 AND id = $2",
        (owner.tenant, assistant_id, version, micros(now)),
    )


def _unknown(assistant_id: str) -> NotFound:
    return NotFound(f"no assistant {assistant_id!r}")


def _assistant(row: Row) -> Assistant:
    return Assistant(
        id=row[0],
        version=row[1],
        graph=row[2],
        name=row[3],
        description=row[4],
        config=load(row[5]),
        context=load(row[6]),
        metadata=load(row[7]),
        created_at=moment(row[8]),
        updated_at=moment(row[9]),
    )
