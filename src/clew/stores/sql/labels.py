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
