"""Labels: the rows of a thread's metadata, one for each value."""

from collections.abc import Mapping

from clew.domain.thread import Json
from clew.ports.thread_metadata import leaves
from clew.stores.sql.work import Many, Work


def label(thread_id: str, metadata: Mapping[str, Json]) -> Work[None]:
    """Write metadata of which the thread has none yet."""
    if found := leaves(metadata):
        yield Many(
            "INSERT INTO labels (thread_id, path, value) VALUES ($1, $2, $3)",
            [(thread_id, path, value) for path, value in found.items()],
        )


def relabel(thread_id: str, metadata: Mapping[str, Json]) -> Work[None]:
    """Write metadata. What is named again is replaced whole, whatever was below it."""
    starts = [start for name in metadata for start in leaves({name: None})]
    if starts:
        yield Many(
            "DELETE FROM labels WHERE thread_id = $1 AND (path = $2 OR substr(path, 1, length($3)) = $3)",
            [(thread_id, start, f"{start[:-1]},") for start in starts],
        )
    yield from label(thread_id, metadata)
