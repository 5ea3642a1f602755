"""Who may work in a worktree: one active thread each, and not more of them at once than may be."""

from clew.domain.errors import Crowded, WorktreeTaken
from clew.domain.records import Hold
from clew.domain.thread import ACTIVE
from clew.stores.sql.work import Statement, Work

_ACTIVE = ", ".join(f"'{status}'" for status in ACTIVE)
# A thread that has ended or is deleted has let go: nothing needs to be written for that.
_HOLDERS = (
    "SELECT worktrees.path FROM worktrees JOIN threads ON threads.id = worktrees.thread_id"
    f" WHERE threads.status IN ({_ACTIVE}) AND threads.deleted_at IS NULL AND threads.id <> $1"
)

# A row that whoever takes a worktree holds meanwhile.
_LOCK = (
    "INSERT INTO duties (name, owner, lease_until) VALUES ('worktrees', '', 0)"
    " ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner"
)


def take(thread_id: str, hold: Hold) -> Work[None]:
    """Raises WorktreeTaken or Crowded. Part of the transaction that makes the thread active."""
    # Starts wait for each other here. The next statement sees what the one before has committed.
    yield Statement(_LOCK)
    taken = {path for (path,) in (yield Statement(_HOLDERS, (thread_id,)))}
    if hold.path in taken:
        raise WorktreeTaken(f"another workflow is active in {hold.path}")
    if hold.most is not None and len(taken) >= hold.most:
        raise Crowded(f"{len(taken)} coding workflows are active, and no more may be at once")
    yield Statement(
        "INSERT INTO worktrees (path, thread_id) VALUES ($1, $2)"
        " ON CONFLICT (path) DO UPDATE SET thread_id = EXCLUDED.thread_id",
        (hold.path, thread_id),
    )
