"""Thread existence: locks and checks before something is written under a thread's id."""

from clew.domain.errors import NotFound
from clew.stores.sql.work import FOR_KEY_SHARE, FOR_SHARE, FOR_UPDATE, Statement, Work


def hold(thread_id: str) -> Work[None]:
    """Keep the thread from being deleted before this transaction ends. Raises NotFound if there is none."""
    if not (yield from _is_held(thread_id)):
        raise NotFound(f"no thread {thread_id!r}")


def hold_still(thread_id: str) -> Work[None]:
    """The same, and keep its log from growing meanwhile."""
    if not (yield from _is_held(thread_id, FOR_SHARE)):
        raise NotFound(f"no thread {thread_id!r}")


def hold_alone(thread_id: str) -> Work[None]:
    """The same, and keep other transactions from holding it meanwhile."""
    if not (yield from _is_held(thread_id, FOR_UPDATE)):
        raise NotFound(f"no thread {thread_id!r}")


def hold_unless_new(thread_id: str) -> Work[None]:
    """The same for a thread that may not be there yet. Raises NotFound if it was deleted."""
    if not (yield from _is_held(thread_id)):
        yield from refuse_buried(thread_id)


def refuse_buried(thread_id: str) -> Work[None]:
    # Always a statement of its own: it sees a tombstone whose transaction the one before had to wait for.
    rows = yield Statement("SELECT 1 FROM tombstones WHERE thread_id = $1", (thread_id,))
    if rows:
        raise NotFound(f"no thread {thread_id!r}")


def _is_held(thread_id: str, lock: str = FOR_KEY_SHARE) -> Work[bool]:
    rows = yield Statement(f"SELECT 1 FROM threads WHERE id = $1 {lock}", (thread_id,))
    return bool(rows)
