"""TTLs of langgraph.json: `store.ttl` for items of the store, `checkpointer.ttl` for threads and their checkpoints."""

from dataclasses import dataclass, replace
from datetime import timedelta

from clew.config.tree import ConfigNode
from clew.domain.errors import Invalid
from clew.domain.retention import minutes

# As LangGraph's server.
SWEEP = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTtl:
    """How long items live that say nothing of their own."""

    default: timedelta | None = None
    refreshes: bool = True
    """Whether reading an item starts its time anew."""
    sweep: timedelta = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTtl:
    """How long threads live that say nothing of their own. After `prune_after` only their last checkpoint stays."""

    delete_after: timedelta
    prune_after: timedelta | None = None
    prune_every: timedelta = SWEEP


def read_store_ttl(place: ConfigNode) -> StoreTtl:
    entries = place.entries()
    found = StoreTtl(default=read_minutes(entries.get("default_ttl")))
    if (sweep := read_minutes(entries.get("sweep_interval_minutes"))) is not None:
        found = replace(found, sweep=sweep)
    refreshes = entries.get("refresh_on_read")
    if refreshes is None or refreshes.value is None:
        return found
    if not isinstance(refreshes.value, bool):
        raise refreshes.expected("true or false")
    return replace(found, refreshes=refreshes.value)


def keeps_latest(place: ConfigNode | None) -> bool:
    value = "delete" if place is None or place.value is None else place.value
    if place is not None and value not in ("delete", "keep_latest"):
        raise place.expected("delete or keep_latest")
    return value == "keep_latest"


def read_minutes(place: ConfigNode | None) -> timedelta | None:
    if place is None or place.value is None:
        return None
    if isinstance(place.value, int | float) and not isinstance(place.value, bool):
        try:
            return minutes(place.value, field=place.key)
        except Invalid:
            pass
    raise place.expected("minutes, more than 0")
