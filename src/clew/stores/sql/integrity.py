"""Integrity of the database: rows of threads against their logs, rows that no thread leads to, and the file itself."""

from clew.domain.errors import Corrupt, NotFound
from clew.domain.events import rebuild
from clew.stores.codec import UNREADABLE
from clew.stores.sql.thread_rows import SEAL, SHOWN, thread_row, to_thread
from clew.stores.sql.threads import events
from clew.stores.sql.work import Statement, Tables, Work, reads

# Tables whose rows belong to a thread of ours. Checkpoints and histories may belong to graphs that run elsewhere.
OF_THREADS = ("events", "tool_calls", "summaries", "model_calls", "documents", "contents")


class IntegrityRows(Tables):
    @reads
    def thread_ids(self, after: str, limit: int) -> Work[list[str]]:
        """All threads in order of their ids, those in the trash included."""
        rows = yield Statement("SELECT id FROM threads WHERE id > $1 ORDER BY id LIMIT $2", (after, limit))
        return [row[0] for row in rows]

    @reads
    def problem_of(self, thread_id: str) -> Work[str | None]:
        """What is wrong with a thread; None if its row says what its log says, or it was deleted meanwhile."""
        rows = yield Statement(f"SELECT {SHOWN} FROM threads WHERE id = $1", (thread_id,))
        if not rows:
            return None
        try:
            told = rebuild((yield from events(thread_id)))
        except (Corrupt, NotFound, *UNREADABLE) as exc:
            return f"thread {thread_id}: its log cannot be read back: {exc}"
        try:
            cached = to_thread(rows[0])
        except Corrupt as exc:
            return f"{exc}; the log is whole, and the next access repairs the row"
        if thread_row(told)[:SEAL] != thread_row(cached)[:SEAL]:
            return f"thread {thread_id}: its row says something else than its log"
        return None

    @reads
    def orphans(self) -> Work[dict[str, int]]:
        """How many threads that do not exist have rows in these tables. Those that are being deleted do not count."""
        found: dict[str, int] = {}
        for table in OF_THREADS:
            rows = yield Statement(
                f"SELECT COUNT(DISTINCT thread_id) FROM {table}"
                f" WHERE NOT EXISTS (SELECT 1 FROM threads WHERE threads.id = {table}.thread_id)"
                f" AND NOT EXISTS (SELECT 1 FROM tombstones WHERE tombstones.thread_id = {table}.thread_id)"
            )
            if rows[0][0]:
                found[table] = int(rows[0][0])
        return found

    @reads
    def damage_of_file(self) -> Work[list[str]]:
        """What SQLite finds wrong with its file."""
        rows = yield Statement("PRAGMA integrity_check(20)")
        return [] if [row[0] for row in rows] == ["ok"] else [str(row[0]) for row in rows]
