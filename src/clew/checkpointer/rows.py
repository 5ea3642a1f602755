"""Checkpoint rows: a LangGraph checkpoint as one row and back, without the values that are kept apart."""

from collections.abc import Collection
from math import isfinite
from typing import Any

import orjson
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from clew.domain.errors import Corrupt, Invalid
from clew.ports.checkpoints import StoredCheckpoint, Version

FENCE = "clew_fence"
# Longer text is worth a row of its own, which is written once and not with every step.
SHORT = 64


def is_small(value: Any) -> bool:
    """Whether the value goes into the checkpoint's own row: JSON gives back exactly what it was given."""
    kind = type(value)
    if kind is str:
        return len(value) <= SHORT and value.isascii()
    if kind is int:
        return bool(-(2**53) < value < 2**53)
    return value is None or kind is bool or (kind is float and isfinite(value))


def to_row(
    config: RunnableConfig,
    checkpoint: Checkpoint,
    metadata: CheckpointMetadata,
    *,
    inline: dict[str, Any],
    apart: Collection[str],
) -> StoredCheckpoint:
    """Raises Invalid if the metadata is not JSON."""
    configurable = config["configurable"]
    versions = checkpoint["channel_versions"]
    body = {
        "v": checkpoint["v"],
        "ts": checkpoint["ts"],
        "versions": {channel: version for channel, version in versions.items() if channel not in apart},
        "seen": checkpoint["versions_seen"],
        "updated": checkpoint.get("updated_channels"),
        "inline": inline,
    }
    described = dict(get_checkpoint_metadata(config, metadata))
    # The fence is the run's business for as long as it runs, not the checkpoint's.
    described.pop(FENCE, None)
    run_id = described.get("run_id")
    return StoredCheckpoint(
        thread_id=str(configurable["thread_id"]),
        ns=configurable.get("checkpoint_ns", ""),
        id=checkpoint["id"],
        parent_id=configurable.get("checkpoint_id"),
        body=_dump(body, "checkpoint"),
        metadata=_dump(described, "metadata"),
        apart={channel: versions[channel] for channel in apart},
        run_id=run_id if isinstance(run_id, str) else None,
    )


def from_row(row: StoredCheckpoint) -> tuple[Checkpoint, CheckpointMetadata]:
    """The checkpoint with its small values, and its metadata. Raises Corrupt."""
    try:
        body = orjson.loads(row.body)
        versions: dict[str, Version] = {**body["versions"], **row.apart}
        checkpoint = Checkpoint(
            v=body["v"],
            ts=body["ts"],
            id=row.id,
            channel_values=body["inline"],
            channel_versions=versions,
            versions_seen=body["seen"],
            updated_channels=body["updated"],
        )
    except (ValueError, KeyError, TypeError) as exc:
        raise Corrupt(f"thread {row.thread_id!r}: checkpoint {row.id!r} cannot be read back") from exc
    return checkpoint, metadata_of(row)


def metadata_of(row: StoredCheckpoint) -> CheckpointMetadata:
    try:
        metadata = orjson.loads(row.metadata)
    except ValueError:
        metadata = None
    if not isinstance(metadata, dict):
        raise Corrupt(f"thread {row.thread_id!r}: checkpoint {row.id!r} cannot be read back")
    return metadata  # type: ignore[return-value]  # LangGraph names some of its keys, anything may be there


def config_of(thread_id: str, ns: str, checkpoint_id: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def _dump(value: dict[str, Any], what: str) -> str:
    try:
        return orjson.dumps(value, default=_plain).decode()
    except (TypeError, ValueError) as exc:
        raise Invalid(f"a checkpoint's {what} must be JSON: {exc}", field=what) from exc


def _plain(value: Any) -> float:
    # A numpy number is a float to Python and to LangGraph, but not to orjson.
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
