"""Full-text search on SQLite (FTS5) and Postgres (tsvector)."""

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from clew.domain.thread import Owner, Status
from clew.ports.search import IndexedText, SearchHit, Terms
from clew.stores.sql.ownership import owned_threads
from clew.stores.sql.work import (
    FOR_KEY_SHARE,
    Many,
    Statement,
    Tables,
    Texts,
    Value,
    Work,
    among,
    glances,
    reads,
    writes,
)

# A thread that was deleted meanwhile is not there to be locked.
_POSITION = (
    "INSERT INTO search_positions (thread_id, seq)"
    f" SELECT id, CAST($2 AS BIGINT) FROM (SELECT id FROM threads WHERE id = $1 {FOR_KEY_SHARE}) AS held"
    " WHERE TRUE ON CONFLICT (thread_id) DO UPDATE SET seq = excluded.seq WHERE excluded.seq > search_positions.seq"
)


class SearchRows(Tables):
    """The MessageSearch port on SQLite."""

    INSERTED: ClassVar[str] = "$4"
    MATCHES: ClassVar[str] = (
        "message_words.word_row IN (SELECT rowid FROM message_index WHERE message_index MATCH $2)"
    )

    # A row that is deleted from it alone keeps its words there.
    CLEARED: ClassVar[Sequence[str]] = ("INSERT INTO message_index (message_index) VALUES ('delete-all')",)

    @glances
    def position(self, thread_id: str) -> Work[int]:
        rows = yield Statement("SELECT seq FROM search_positions WHERE thread_id = $1", (thread_id,))
        return int(rows[0][0]) if rows else 0

    @writes
    def index(
        self, thread_id: str, texts: Sequence[IndexedText], *, upto: int, without: Collection[str] = ()
    ) -> Work[None]:
        there = yield Statement(f"SELECT 1 FROM threads WHERE id = $1 {FOR_KEY_SHARE}", (thread_id,))
        if not there:
            return
        # A text that is there already is replaced: the name may be another one.
        gone = Texts([*without, *(text.event_id for text in texts)])
        yield Statement(
            f"DELETE FROM message_words WHERE thread_id = $1 AND {among('event_id', 2)}", (thread_id, gone)
        )
        yield Many(
            f"INSERT INTO message_words (thread_id, event_id, seq, words) VALUES ($1, $2, $3, {self.INSERTED})"
            " ON CONFLICT (thread_id, event_id) DO NOTHING",
            [(thread_id, text.event_id, text.seq, self.document(text.words)) for text in texts if text.words],
        )
        yield Many(_POSITION, [(thread_id, upto)])

    @writes
    def pass_over(self, ends: Mapping[str, int]) -> Work[None]:
        # In one order, so that two processes never wait for each other.
        yield Many(_POSITION, sorted(ends.items()))

    @writes
    def clear(self) -> Work[None]:
        """Delete the index: its words are plain text, whatever else is encrypted."""
        yield Statement("DELETE FROM message_words")
        yield Statement("DELETE FROM search_positions")
        for sql in self.CLEARED:
            yield Statement(sql)

    @reads
    def behind(self, *, after: str = "", limit: int) -> Work[list[str]]:
        rows = yield Statement(
            "SELECT id FROM threads LEFT JOIN search_positions ON search_positions.thread_id = threads.id"
            " WHERE threads.last_seq > COALESCE(search_positions.seq, 0) AND threads.status <> $2"
            " AND threads.deleted_at IS NULL AND threads.id > $3 ORDER BY threads.id LIMIT $1",
            (limit, str(Status.RUNNING), after),
        )
        return [row[0] for row in rows]

    @reads
    def find(self, owner: Owner | None, terms: Terms, *, limit: int) -> Work[list[SearchHit]]:
        mine, args = owned_threads(owner, 3)
        # CROSS JOIN has SQLite begin with what the index found, and not with all threads of the tenant.
        rows = yield Statement(
            "SELECT message_words.thread_id, message_words.event_id, message_words.seq FROM message_words"
            " CROSS JOIN threads"
            f" WHERE threads.id = message_words.thread_id AND {self.MATCHES} AND threads.deleted_at IS NULL{mine}"
            " ORDER BY threads.last_active_at DESC, threads.id, message_words.seq DESC LIMIT $1",
            (limit, self.query(terms), *args),
        )
        return [SearchHit(thread_id=row[0], event_id=row[1], seq=row[2]) for row in rows]

    def document(self, words: Sequence[str]) -> Value:
        return " ".join(words)

    def query(self, terms: Terms) -> str:
        return " AND ".join(f'"{" ".join(term)}" *' for term in terms)


class PostgresSearchRows(SearchRows):
    """The MessageSearch port on Postgres. Words are what we say they are: no parser or dictionary changes them."""

    INSERTED = "CAST(CAST($4 AS TEXT) AS TSVECTOR)"
    MATCHES = "message_words.words @@ CAST(CAST($2 AS TEXT) AS TSQUERY)"
    CLEARED = ()

    # A position beyond that counts as this one.
    LAST_POSITION: ClassVar[int] = 16383

    def document(self, words: Sequence[str]) -> Value:
        return " ".join(f"'{word}':{min(at, self.LAST_POSITION)}" for at, word in enumerate(words, 1))

    def query(self, terms: Terms) -> str:
        return " & ".join("(" + " <-> ".join(f"'{word}'" for word in term) + ":*)" for term in terms)
