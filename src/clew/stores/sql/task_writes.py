"""Rows of task writes: all that a task wrote as one row, and a row as what it wrote."""

from collections.abc import Sequence

from clew.domain.errors import Corrupt
from clew.ports.checkpoints import TaskWrites, Write
from clew.stores.codec import dump, load
from clew.stores.sql.work import Value


def writes_row(thread_id: str, ns: str, task: TaskWrites) -> tuple[Value, ...]:
    path = task.writes[0].path if task.writes else ""
    return (thread_id, ns, task.checkpoint_id, task.task_id, path, *pack_writes(task.writes, path))


def pack_writes(task_writes: Sequence[Write], path: str) -> tuple[str, bytes]:
    """All writes of a task as one row: what they are, and their bytes one after the other."""
    entries = [
        [w.idx, w.channel, w.kind, len(w.data), *(() if w.path == path else (w.path,))] for w in task_writes
    ]
    return dump(entries), b"".join(w.data for w in task_writes)


def unpack_writes(path: str, entries: str, data: bytes) -> list[Write]:
    found: list[Write] = []
    start = 0
    try:
        for idx, channel, kind, length, *own_path in load(entries):
            found.append(
                Write(idx, channel, kind, data[start : start + length], own_path[0] if own_path else path)
            )
            start += length
    except (TypeError, ValueError) as exc:
        raise Corrupt("stored writes of a task cannot be read back") from exc
    if start != len(data):
        raise Corrupt("stored writes of a task cannot be read back")
    return found
