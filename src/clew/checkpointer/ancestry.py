"""Ancestry of LangGraph's DeltaChannel: the nearest stored value and the writes since, to rebuild it from."""

from collections.abc import Collection, Sequence
from typing import Any

from langgraph.checkpoint.base import DeltaChannelHistory
from langgraph.checkpoint.serde.base import SerializerProtocol

from clew.checkpointer.rows import from_row
from clew.checkpointer.states import by_checkpoint, pending_writes
from clew.checkpointer.values import assemble, unpack
from clew.ports.checkpoints import Checkpoints, StoredCheckpoint

PAGE = 64


async def channel_histories(
    store: Checkpoints,
    serde: SerializerProtocol,
    thread_id: str,
    ns: str,
    checkpoint_id: str | None,
    channels: Collection[str],
) -> dict[str, DeltaChannelHistory]:
    """For each channel the value at the nearest ancestor that stores one, and what was written from there on."""
    line = await _ancestors(store, thread_id, ns, checkpoint_id, set(channels))
    tasks = by_checkpoint(await store.writes_of(thread_id, ns, [row.id for row in line]))
    histories: dict[str, DeltaChannelHistory] = {}
    for channel in channels:
        depth = next((at for at, row in enumerate(line) if stores(row, channel)), None)
        since = line if depth is None else line[: depth + 1]
        history = histories[channel] = {"writes": []}
        if depth is not None:
            history["seed"] = await _value_at(store, serde, line[depth], channel)
        for row in reversed(since):
            values = {channel: history["seed"]} if depth is not None and row is line[depth] else {}
            history["writes"] += pending_writes(serde, tasks.get(row.id, ()), values, channel)
    return histories


def stores(row: StoredCheckpoint, channel: str) -> bool:
    return channel in row.apart or channel in from_row(row)[0]["channel_values"]


async def _ancestors(
    store: Checkpoints, thread_id: str, ns: str, checkpoint_id: str | None, channels: set[str]
) -> Sequence[StoredCheckpoint]:
    """The parents of a checkpoint, nearest first, back to where every channel was stored."""
    found = await store.find(thread_id, ns, checkpoint_id=checkpoint_id, limit=1)
    line: list[StoredCheckpoint] = []
    wanted = found[0].parent_id if found else None
    missing = set(channels)
    while found and wanted is not None and missing:
        # A parent is older than its child, so one walk down the order meets them all; forks are passed over.
        found = await store.find(thread_id, ns, below=found[-1].seq, limit=PAGE)
        for row in found:
            if row.id == wanted and missing:
                line.append(row)
                wanted = row.parent_id
                missing = {channel for channel in missing if not stores(row, channel)}
    return line


async def _value_at(
    store: Checkpoints, serde: SerializerProtocol, row: StoredCheckpoint, channel: str
) -> Any:
    if channel not in row.apart:
        return from_row(row)[0]["channel_values"][channel]
    version = str(row.apart[channel])
    values = await store.values_of(row.thread_id, row.ns, {channel: (version,)})
    return unpack(serde, assemble(serde, {value.version: value for value in values}, version))
