"""Chat histories: one row a message, numbered inside the transaction that writes it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from clew.domain.errors import Conflict
from clew.domain.items import below, from_path, to_path, user_label
from clew.domain.thread import Owner
from clew.ports.histories import HistoryId, HistoryMessage, HistorySummary, NewMessage, Shape, chunk_range
from clew.stores.codec import moment
from clew.stores.sql.existence import hold_unless_new
from clew.stores.sql.quotas import StoredBytes, octets
from clew.stores.sql.work import (
    FOR_UPDATE,
    Many,
    Row,
    Statement,
    Tables,
    Work,
    glances,
    placeholders,
    reads,
    writes,
)

SUMMARY: Final = "id, path, chunk_size, value_field, meta_key, last_seq, version, created_at, updated_at"
MESSAGE: Final = "seq, role, content, message_id, origin"
# Takes the next seqs. The row of the history is the lock between two writers.
NEXT_SEQS: Final = (
    "INSERT INTO histories"
    " (tenant, path, chunk_size, value_field, meta_key, last_seq, user_id, version, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, 1, clew_now(), clew_now())"
    " ON CONFLICT (tenant, path) DO UPDATE SET last_seq = histories.last_seq + excluded.last_seq,"
    " version = histories.version + 1, updated_at = excluded.updated_at"
    " RETURNING id, last_seq, updated_at"
)
# How far after a message its answers are searched when it is answered again.
ANSWERS_WITHIN: Final = 16
IDS_AT_ONCE: Final = 500


class HistoryRows(Tables):
    """The Histories port on a SQL database."""

    stored: StoredBytes | None = None
    """The quota of bytes; None where there is none."""

    async def append(
        self,
        place: HistoryId,
        messages: Sequence[NewMessage],
        *,
        shape: Shape,
        origin: str | None = None,
        thread_id: str | None = None,
        user_id: str = "",
    ) -> int:
        messages = _each_once(messages)
        if self.stored is not None:
            await self.stored.require(place.tenant, sum(octets(one.content) for one in messages))
        try:
            if thread_id is not None:
                return await self._append_of_thread(place, messages, shape, origin, user_id, thread_id)
            return await self._append(place, messages, shape, origin, user_id)
        except Conflict:
            # Some of them are stored: a message was delivered again, or a run repeated after a crash. Rare enough
            # that the index finds it for us, instead of a question before every append.
            return await self._append_again(place, messages, shape, origin, user_id, thread_id)

    @writes
    def _append(
        self, place: HistoryId, messages: Sequence[NewMessage], shape: Shape, origin: str | None, user_id: str
    ) -> Work[int]:
        return (yield from _add(place, messages, shape, origin, user_id))

    @writes
    def _append_of_thread(
        self,
        place: HistoryId,
        messages: Sequence[NewMessage],
        shape: Shape,
        origin: str | None,
        user_id: str,
        thread_id: str,
    ) -> Work[int]:
        # A run that writes on after its thread was deleted must not create its history again.
        yield from hold_unless_new(thread_id)
        return (yield from _add(place, messages, shape, origin, user_id, thread_id))

    @writes
    def _append_again(
        self,
        place: HistoryId,
        messages: Sequence[NewMessage],
        shape: Shape,
        origin: str | None,
        user_id: str,
        thread_id: str | None,
    ) -> Work[int]:
        if thread_id is not None:
            yield from hold_unless_new(thread_id)
        rows = yield Statement(
            f"SELECT id, last_seq FROM histories WHERE tenant = $1 AND path = $2 {FOR_UPDATE}", _named(place)
        )
        if not rows:
            return (yield from _add(place, messages, shape, origin, user_id, thread_id))
        history_id, last_seq = rows[0]
        known = yield from _known(history_id, messages)
        fresh: list[NewMessage] = []
        replaced = False
        after = 0
        for message in messages:
            if message.id in known:
                after = known[message.id]
            elif after and origin is not None and message.role == "assistant":
                answered = yield from _answer_again(history_id, message, after, origin)
                if answered:
                    after, replaced = answered, True
                else:
                    fresh.append(message)
            else:
                fresh.append(message)
        if fresh:
            return (yield from _add(place, fresh, shape, origin, user_id))
        if replaced:
            yield Statement(
                "UPDATE histories SET version = version + 1, updated_at = clew_now() WHERE id = $1",
                (history_id,),
            )
        return int(last_seq)

    @glances
    def tail(self, place: HistoryId, *, limit: int) -> Work[list[HistoryMessage]]:
        rows = yield Statement(
            f"SELECT {MESSAGE} FROM history_messages"
            " WHERE history_id = (SELECT id FROM histories WHERE tenant = $1 AND path = $2)"
            " ORDER BY seq DESC LIMIT $3",
            (*_named(place), limit),
        )
        return [_message(row) for row in reversed(rows)]

    @reads
    def read(self, place: HistoryId, *, after: int = 0, limit: int = 1000) -> Work[list[HistoryMessage]]:
        rows = yield Statement(
            f"SELECT {MESSAGE} FROM history_messages"
            " WHERE history_id = (SELECT id FROM histories WHERE tenant = $1 AND path = $2) AND seq > $3"
            " ORDER BY seq LIMIT $4",
            (*_named(place), after, limit),
        )
        return [_message(row) for row in rows]

    @glances
    def summary(self, place: HistoryId) -> Work[HistorySummary | None]:
        rows = yield Statement(
            f"SELECT {SUMMARY} FROM histories WHERE tenant = $1 AND path = $2", _named(place)
        )
        return to_summary(rows[0]) if rows else None

    @writes
    def delete(self, place: HistoryId) -> Work[bool]:
        rows = yield Statement(
            "DELETE FROM histories WHERE tenant = $1 AND path = $2 RETURNING id", _named(place)
        )
        for (history_id,) in rows:
            yield Statement("DELETE FROM history_messages WHERE history_id = $1", (history_id,))
        return bool(rows)

    @writes
    def delete_all(self, owner: Owner, *, limit: int = 100) -> Work[int]:
        return (yield from delete_histories(owner, limit=limit))


def delete_histories(owner: Owner, *, limit: int) -> Work[int]:
    """Delete some of a tenant's histories, or of one user's in it; how many. A user without a name is no user."""
    first, end = below(user_label(owner.user_id))
    of_user, args = (
        ("", ())
        if end is None
        else (" AND (user_id = $3 OR (path >= $4 AND path < $5))", (owner.user_id, first, end))
    )
    rows = yield Statement(
        "DELETE FROM histories WHERE id IN"
        f" (SELECT id FROM histories WHERE tenant = $1{of_user} LIMIT $2) RETURNING id",
        (owner.tenant, limit, *args),
    )
    for (history_id,) in rows:
        yield Statement("DELETE FROM history_messages WHERE history_id = $1", (history_id,))
    return len(rows)


def to_summary(row: Row) -> HistorySummary:
    _, path, chunk_size, value_field, meta_key, last_seq, version, created_at, updated_at = row
    return HistorySummary(
        key=from_path(path)[-1],
        shape=Shape(chunk_size=chunk_size, value_field=value_field, meta_key=meta_key),
        last_seq=last_seq,
        version=version,
        created_at=moment(created_at),
        updated_at=moment(updated_at),
    )


def chunk(
    history_id: int, summary: HistorySummary, index: int
) -> Work[tuple[list[HistoryMessage], datetime, datetime]]:
    """The messages of one chunk, and when its first and its last came."""
    rows = yield Statement(
        f"SELECT {MESSAGE}, at FROM history_messages WHERE history_id = $1 AND seq BETWEEN $2 AND $3 ORDER BY seq",
        (history_id, *chunk_range(index, summary.shape.chunk_size, summary.last_seq)),
    )
    return [_message(row[:5]) for row in rows], moment(rows[0][5]), moment(rows[-1][5])


def _add(
    place: HistoryId,
    messages: Sequence[NewMessage],
    shape: Shape,
    origin: str | None,
    user_id: str,
    thread_id: str | None = None,
) -> Work[int]:
    """Take the next seqs and write the rows. A history that begins here is the thread's and the user's."""
    rows = yield Statement(
        NEXT_SEQS,
        (*_named(place), shape.chunk_size, shape.value_field, shape.meta_key, len(messages), user_id),
    )
    history_id, last_seq, at = rows[0]
    first = last_seq - len(messages) + 1
    yield Many(
        "INSERT INTO history_messages (history_id, seq, role, content, at, message_id, origin)"
        f" VALUES ({placeholders(1, 7)})",
        [
            (history_id, seq, message.role, message.content, at, message.id, origin)
            for seq, message in enumerate(messages, first)
        ],
    )
    if first == 1 and thread_id is not None:
        yield Statement("UPDATE histories SET thread_id = $2 WHERE id = $1", (history_id, thread_id))
    return int(last_seq)


def _known(history_id: int, messages: Sequence[NewMessage]) -> Work[dict[str | None, int]]:
    """The seqs of those messages that are stored, by id."""
    ids = [message.id for message in messages if message.id is not None]
    known: dict[str | None, int] = {}
    for start in range(0, len(ids), IDS_AT_ONCE):
        some = ids[start : start + IDS_AT_ONCE]
        rows = yield Statement(
            "SELECT message_id, seq FROM history_messages"
            f" WHERE history_id = $1 AND message_id IN ({placeholders(2, len(some))})",
            (history_id, *some),
        )
        known.update((message_id, seq) for message_id, seq in rows)
    return known


def _answer_again(history_id: int, message: NewMessage, after: int, origin: str) -> Work[int]:
    """Put the answer where the same work's first answer stands; its seq, or 0 if there was none."""
    rows = yield Statement(
        "UPDATE history_messages SET content = $1, message_id = $2, at = clew_now()"
        " WHERE history_id = $3 AND seq = (SELECT min(seq) FROM history_messages WHERE history_id = $3"
        " AND seq > $4 AND seq <= $5 AND role = 'assistant' AND origin = $6) RETURNING seq",
        (message.content, message.id, history_id, after, after + ANSWERS_WITHIN, origin),
    )
    return int(rows[0][0]) if rows else 0


def _each_once(messages: Sequence[NewMessage]) -> list[NewMessage]:
    seen: set[str] = set()
    once: list[NewMessage] = []
    for message in messages:
        if message.id is None or message.id not in seen:
            once.append(message)
        if message.id is not None:
            seen.add(message.id)
    return once


def _named(place: HistoryId) -> tuple[str, str]:
    return place.tenant, to_path(place.path)


def _message(row: Row) -> HistoryMessage:
    seq, role, content, message_id, origin = row
    return HistoryMessage(seq=seq, role=role, content=content, id=message_id, origin=origin)
