"""Items of the graph store, and chat histories shown as items."""

import logging
from collections.abc import Sequence
from math import isnan
from typing import Final

from clew.domain.documents import clean_json
from clew.domain.errors import Corrupt, Invalid, InvalidState
from clew.domain.items import (
    Answer,
    DeleteItem,
    FindItems,
    GetItem,
    Item,
    ItemChange,
    ListNamespaces,
    Namespace,
    PutItem,
    Question,
    Vector,
    below,
    common_prefix,
    from_path,
    matches,
    to_path,
    user_label,
)
from clew.domain.thread import Json, Owner
from clew.ports.histories import HistorySummary, chunk_index, chunk_key
from clew.stores.codec import MICROSECOND, UNREADABLE, dump, legible, load, moment
from clew.stores.sql.histories import SUMMARY, chunk, to_summary
from clew.stores.sql.quotas import StoredBytes, octets
from clew.stores.sql.work import Floats, Many, Row, Rows, Statement, Tables, Value, Work, writes

logger = logging.getLogger(__name__)

COLUMNS: Final = "path, key, value, created_at, updated_at, ttl, expires_at - (SELECT clew_now())"
ALIVE: Final = "(expires_at IS NULL OR expires_at > (SELECT clew_now()))"
# Which argument of an insert holds the value.
VALUE: Final = 3
# How many items are read at once when a filter decides which are wanted.
PAGE: Final = 500


class ItemRows(Tables):
    """The Items port on a SQL database."""

    stored: StoredBytes | None = None
    """The quota of bytes; None where there is none."""

    async def ask(self, tenant: str, questions: Sequence[Question], *, expired: bool = False) -> list[Answer]:
        if len(questions) == 1 and isinstance(questions[0], GetItem):
            return await self._db.glance(lambda: _answers(tenant, questions, expired))
        return await self._db.read(lambda: _answers(tenant, questions, expired))

    async def change(
        self,
        tenant: str,
        questions: Sequence[Question],
        changes: Sequence[ItemChange],
        *,
        expired: bool = False,
    ) -> list[Answer]:
        # Values are encoded before the transaction waits for other writers.
        statements = [_statement(tenant, change) for change in changes]
        puts = [one for change, one in zip(changes, statements, strict=True) if isinstance(change, PutItem)]
        if puts and self.stored is not None:
            await self.stored.require(tenant, sum(octets(str(put.args[VALUE])) for put in puts))
        return await self._db.write(lambda: _change(tenant, questions, changes, statements, expired))

    @writes
    def refresh(self, tenant: str, names: Sequence[tuple[Namespace, str]]) -> Work[None]:
        yield Many(
            "UPDATE store_items SET expires_at = clew_now() + ttl"
            f" WHERE tenant = $1 AND path = $2 AND key = $3 AND ttl IS NOT NULL AND {ALIVE}",
            [(tenant, to_path(namespace), key) for namespace, key in names],
        )

    @writes
    def sweep(self, *, limit: int = 1000) -> Work[int]:
        rows = yield Statement(
            "DELETE FROM store_items WHERE (tenant, path, key) IN (SELECT tenant, path, key FROM store_items"
            " WHERE expires_at <= (SELECT clew_now()) ORDER BY expires_at LIMIT $1) RETURNING 1",
            (limit,),
        )
        return len(rows)


def delete_items(owner: Owner, *, limit: int) -> Work[int]:
    """Delete some of a tenant's items, or of one user's in it; how many."""
    first, end = below(user_label(owner.user_id))
    of_user, args = ("", ()) if end is None else (" AND path >= $3 AND path < $4", (first, end))
    rows = yield Statement(
        "DELETE FROM store_items WHERE (tenant, path, key) IN"
        f" (SELECT tenant, path, key FROM store_items WHERE tenant = $1{of_user} LIMIT $2) RETURNING 1",
        (owner.tenant, limit, *args),
    )
    return len(rows)


def _answers(tenant: str, questions: Sequence[Question], expired: bool) -> Work[list[Answer]]:
    answers: list[Answer] = []
    for question in questions:
        match question:
            case GetItem():
                answers.append((yield from _get(tenant, question, expired)))
            case FindItems():
                answers.append((yield from _find(tenant, question, expired)))
            case ListNamespaces():
                answers.append((yield from _list(tenant, question, expired)))
    return answers


def _change(
    tenant: str,
    questions: Sequence[Question],
    changes: Sequence[ItemChange],
    statements: Sequence[Statement],
    expired: bool,
) -> Work[list[Answer]]:
    answers = yield from _answers(tenant, questions, expired)
    for change, statement in zip(changes, statements, strict=True):
        rows = yield statement
        if isinstance(change, PutItem) and change.vectors and rows:
            yield _vectors(tenant, change)
        if not rows and (
            isinstance(change, PutItem)
            or (yield from _view(tenant, change.namespace, change.key)) is not None
        ):
            raise InvalidState(f"{change.key!r} is a view of a chat history; ChatHistory writes it")
    return answers


def _statement(tenant: str, change: ItemChange) -> Statement:
    name = (tenant, to_path(change.namespace), change.key)
    if isinstance(change, DeleteItem):
        return Statement(
            "DELETE FROM store_items WHERE tenant = $1 AND path = $2 AND key = $3 RETURNING 1", name
        )
    ttl = None if change.ttl is None else change.ttl // MICROSECOND
    return Statement(
        "INSERT INTO store_items (tenant, path, key, value, created_at, updated_at, ttl, expires_at)"
        " SELECT $1, $2, $3, $4, clew_now(), clew_now(), CAST($5 AS BIGINT), clew_now() + CAST($5 AS BIGINT)"
        " WHERE NOT EXISTS (SELECT 1 FROM histories WHERE tenant = $1 AND path = $2"
        " AND (meta_key = $3 OR CAST($6 AS BIGINT) = 1))"
        " ON CONFLICT (tenant, path, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at,"
        " ttl = excluded.ttl, expires_at = excluded.expires_at RETURNING 1",
        (*name, _dumped(change.value), ttl, int(chunk_index(change.key) is not None)),
    )


def _vectors(tenant: str, change: PutItem) -> Many:
    """Those of the value before are gone: a trigger deletes them with it."""
    name = (tenant, to_path(change.namespace), change.key)
    return Many(
        "INSERT INTO store_vectors (tenant, path, key, number, dims, vector) VALUES ($1, $2, $3, $4, $5, $6)",
        [(*name, number, len(one), Floats(one)) for number, one in enumerate(change.vectors)],
    )


def _dumped(value: Json) -> str:
    """Model output may hold half of a surrogate pair: that is replaced, the rest is kept. Raises Invalid."""
    try:
        return dump(value)
    except Invalid as exc:
        try:
            return dump(clean_json(value))
        except RecursionError:
            raise exc from None


def _get(tenant: str, question: GetItem, expired: bool) -> Work[Item | None]:
    rows = yield Statement(
        f"SELECT {COLUMNS} FROM store_items WHERE tenant = $1 AND path = $2 AND key = $3"
        + ("" if expired else f" AND {ALIVE}"),
        (tenant, to_path(question.namespace), question.key),
    )
    if rows:
        return _item(rows[0])
    return (yield from _view(tenant, question.namespace, question.key))


def _view(tenant: str, namespace: Namespace, key: str) -> Work[Item | None]:
    """The metadata or the chunk of a history that stands under this name, if one does."""
    rows = yield Statement(
        f"SELECT {SUMMARY} FROM histories WHERE tenant = $1 AND path = $2", (tenant, to_path(namespace))
    )
    if not rows:
        return None
    summary = to_summary(rows[0])
    if key == summary.shape.meta_key:
        return _metadata(namespace, summary)
    index = chunk_index(key)
    if index is None or index * summary.shape.chunk_size >= summary.last_seq:
        return None
    return (yield from _chunk(namespace, rows[0][0], summary, index))


def _metadata(namespace: Namespace, summary: HistorySummary) -> Item:
    return Item(
        namespace=namespace,
        key=summary.shape.meta_key,
        value=summary.metadata(),
        created_at=summary.created_at,
        updated_at=summary.updated_at,
    )


def _chunk(namespace: Namespace, history_id: int, summary: HistorySummary, index: int) -> Work[Item]:
    messages, created_at, updated_at = yield from chunk(history_id, summary, index)
    return Item(
        namespace=namespace,
        key=chunk_key(index),
        value=summary.chunk(index, messages, updated_at),
        created_at=created_at,
        updated_at=updated_at,
    )


def _find(tenant: str, question: FindItems, expired: bool) -> Work[list[Item]]:
    """One page if nothing is filtered; else page after page until enough match."""
    if question.filter is None:
        return (yield from _items((yield _page(tenant, question, expired, question.limit, question.offset))))
    found: list[Item] = []
    offset = 0
    while len(found) < question.offset + question.limit:
        rows = yield _page(tenant, question, expired, PAGE, offset)
        items = yield from _items(rows)
        found.extend(item for item in items if matches(item.value, question.filter))
        if len(rows) < PAGE:
            break
        offset += PAGE
    return found[question.offset : question.offset + question.limit]


def _page(tenant: str, question: FindItems, expired: bool, limit: int, offset: int) -> Statement:
    if question.near is None:
        return _newest(tenant, question.prefix, expired, limit, offset)
    return _nearest(tenant, question.prefix, question.near, expired, limit, offset)


def _nearest(
    tenant: str, prefix: Namespace, near: Vector, expired: bool, limit: int, offset: int
) -> Statement:
    """Items below a prefix by the most similar of their vectors. Those of another embedding have other dimensions."""
    first, end = below(prefix)
    within = "tenant = $1 AND path >= $2" + ("" if end is None else " AND path < $7")
    args: tuple[Value, ...] = (tenant, first, limit, offset, Floats(near), len(near))
    return Statement(
        "WITH near AS (SELECT path, key, coalesce(min(vec_distance_cosine(vector, $5)), 1) AS distance FROM store_vectors"
        f" WHERE {within} AND dims = $6 GROUP BY path, key)"
        f" SELECT {COLUMNS}, CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), distance FROM near"
        " JOIN store_items USING (path, key) WHERE tenant = $1"
        + ("" if expired else f" AND {ALIVE}")
        + " ORDER BY distance, path, key LIMIT $3 OFFSET $4",
        args if end is None else (*args, end),
    )


def _newest(tenant: str, prefix: Namespace, expired: bool, limit: int, offset: int) -> Statement:
    """Items, histories and their chunks below a prefix; a chunk is as new as its last message.

    The last two columns mark a view: the history it belongs to and, for a chunk, its number.
    """
    first, end = below(prefix)
    within = "tenant = $1 AND path >= $2" + ("" if end is None else " AND path < $5")
    args: tuple[Value, ...] = (tenant, first, limit, offset)
    return Statement(
        "WITH RECURSIVE chunks (id, path, size, last_seq, n) AS ("
        f" SELECT id, path, chunk_size, last_seq, CAST(0 AS BIGINT) FROM histories WHERE {within}"
        " UNION ALL SELECT id, path, size, last_seq, n + 1 FROM chunks WHERE (n + 1) * size < last_seq)"
        " SELECT * FROM ("
        f"SELECT {COLUMNS}, CAST(NULL AS BIGINT) AS history_id, CAST(NULL AS BIGINT) AS n"
        f" FROM store_items WHERE {within}" + ("" if expired else f" AND {ALIVE}") + ""
        " UNION ALL SELECT path, meta_key, NULL, created_at, updated_at, NULL, NULL, id, NULL"
        f" FROM histories WHERE {within}"
        " UNION ALL SELECT path, '', NULL, 0, (SELECT at FROM history_messages WHERE history_id = chunks.id AND seq ="
        " CASE WHEN (n + 1) * size < last_seq THEN (n + 1) * size ELSE last_seq END), NULL, NULL, id, n FROM chunks"
        ") AS everything ORDER BY updated_at DESC, path, coalesce(n, -1), key LIMIT $3 OFFSET $4",
        args if end is None else (*args, end),
    )


def _items(rows: Rows) -> Work[list[Item]]:
    items: list[Item] = []
    for row in rows:
        history_id, index = row[7], row[8]
        if history_id is None:
            items += legible((row,), _item, "store_items")
            continue
        try:
            items.append((yield from _history_item(row[0], history_id, index)))
        except (*UNREADABLE, Invalid) as exc:
            # One damaged chat must not hide the items of its tenant.
            logger.warning(
                "a row of histories cannot be read back and is left out: %s",
                type(exc).__name__,
                extra={"code": Corrupt.code},
            )
    return items


def _history_item(path: str, history_id: int, index: int | None) -> Work[Item]:
    """A chat history as an item: what is known of it, or one of its chunks. Raises what a damaged row raises."""
    namespace = from_path(path)
    found = yield Statement(f"SELECT {SUMMARY} FROM histories WHERE id = $1", (history_id,))
    summary = to_summary(found[0])
    if index is None:
        return _metadata(namespace, summary)
    return (yield from _chunk(namespace, history_id, summary, index))


def _list(tenant: str, question: ListNamespaces, expired: bool) -> Work[list[Namespace]]:
    """Jump from one path to the next through the index, however many items share it."""
    first, end = below(common_prefix(question.patterns))
    within = "tenant = $1" + ("" if end is None else " AND path < $3")
    args: tuple[Value, ...] = (tenant, first)
    namespaces: set[Namespace] = set()
    tables = {"store_items": "" if expired else f" AND {ALIVE}", "histories": ""}
    for table, alive in tables.items():
        rows = yield Statement(
            "WITH RECURSIVE paths (path) AS ("
            f" SELECT min(path) FROM {table} WHERE {within} AND path >= $2{alive}"
            f" UNION ALL SELECT (SELECT min(path) FROM {table} WHERE {within} AND path > paths.path{alive})"
            " FROM paths WHERE path IS NOT NULL) SELECT path FROM paths WHERE path IS NOT NULL",
            args if end is None else (*args, end),
        )
        namespaces.update(from_path(path) for (path,) in rows)
    matching = (ns for ns in namespaces if all(pattern.matches(ns) for pattern in question.patterns))
    cut = sorted({ns[: question.max_depth] for ns in matching})
    return cut[question.offset : question.offset + question.limit]


def _item(row: Row) -> Item:
    path, key, value, created_at, updated_at, ttl, left = row[:7]
    return Item(
        namespace=from_path(path),
        key=key,
        value=load(value),
        created_at=moment(created_at),
        updated_at=moment(updated_at),
        ttl=None if ttl is None else ttl * MICROSECOND,
        left=None if left is None else left * MICROSECOND,
        score=_score(row[9]) if len(row) > 9 else None,
    )


def _score(distance: float | None) -> float:
    """From 1 for the same direction to -1 for the opposite one. A vector of zeros has none."""
    return 0.0 if distance is None or isnan(distance) else 1 - distance
