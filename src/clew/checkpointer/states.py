"""Whole states: a checkpoint with all its values into rows, and rows into checkpoint tuples of LangGraph."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.base import Checkpoint, CheckpointTuple, PendingWrite, writes_sort_key
from langgraph.checkpoint.serde.base import SerializerProtocol

from clew.checkpointer.cache import CachedState
from clew.checkpointer.rows import config_of, from_row, is_small
from clew.checkpointer.serializer import StrictSerializer
from clew.checkpointer.values import Held, Stored, assemble, is_ours, pack, unpack, unpack_write
from clew.ports.checkpoints import ChannelValue, StoredCheckpoint, TaskWrites


@dataclass(frozen=True, slots=True)
class Packed:
    """A checkpoint's values: those that go into its own row, those to store apart, and all that are apart."""

    inline: dict[str, Any] = field(default_factory=dict)
    values: list[ChannelValue] = field(default_factory=list)
    apart: dict[str, Held | Stored | None] = field(default_factory=dict)


def pack_values(
    serde: SerializerProtocol,
    checkpoint: Checkpoint,
    new_versions: Collection[str],
    parent: CachedState | None,
    touched: Mapping[str, Collection[int]] | None = None,
) -> Packed:
    """What a checkpoint adds to its parent, as far as the parent is cached; without it, everything.

    `new_versions` are the channels that changed since; `touched` are the objects that were returned for each, if
    that is known.
    """
    packed = Packed()
    known = parent.channels if parent is not None else {}
    # An encrypting serializer must see everything.
    may_inline = isinstance(serde, StrictSerializer)
    for channel, value in checkpoint["channel_values"].items():
        version = checkpoint["channel_versions"].get(channel)
        if version is None:
            continue
        held = known.get(channel)
        if may_inline and is_small(value):
            packed.inline[channel] = value
        elif held is not None and held.version == version:
            packed.apart[channel] = held
        else:
            base = None if isinstance(held, Stored) else held
            seen = None if touched is None else touched.get(channel, ())
            stored, packed.apart[channel] = pack(serde, channel, version, value, base, seen)
            packed.values.append(stored)
            if channel not in new_versions and is_ours(version):
                # The graph says it is stored, and as a rule it is: then it stays as it is, perhaps as a change.
                packed.apart[channel] = Stored(str(version))
    return packed


def gather(
    serde: SerializerProtocol,
    row: StoredCheckpoint,
    values: Iterable[ChannelValue],
    known: Mapping[str, Held],
) -> dict[str, Held]:
    """The checkpoint's values that are kept apart, from what was read and what is cached.

    Raises Missing if a part is in neither.
    """
    stored: defaultdict[str, dict[str, ChannelValue]] = defaultdict(dict)
    for value in values:
        stored[value.channel][value.version] = value
    channels: dict[str, Held] = {}
    for channel, version in row.apart.items():
        held = known.get(channel)
        if held is None or held.version != version:
            held = assemble(serde, stored[channel], str(version), held)
        channels[channel] = held
    return channels


def gather_line(
    serde: SerializerProtocol, rows: Sequence[StoredCheckpoint], values: Sequence[ChannelValue]
) -> dict[str, dict[str, Held]]:
    """The same for many checkpoints of a line, newest first, by id: each list on top of the one before."""
    gathered: dict[str, dict[str, Held]] = {}
    last: dict[str, Held] = {}
    for row in reversed(rows):
        last = gathered[row.id] = gather(serde, row, values, last)
    return gathered


def to_tuple(
    serde: SerializerProtocol,
    row: StoredCheckpoint,
    channels: Mapping[str, Held],
    tasks: Iterable[TaskWrites],
) -> CheckpointTuple:
    checkpoint, metadata = from_row(row)
    for channel, held in channels.items():
        checkpoint["channel_values"][channel] = unpack(serde, held)
    return CheckpointTuple(
        config=config_of(row.thread_id, row.ns, row.id),
        checkpoint=checkpoint,
        metadata=metadata,
        parent_config=config_of(row.thread_id, row.ns, row.parent_id) if row.parent_id else None,
        pending_writes=pending_writes(serde, tasks, checkpoint["channel_values"]),
    )


def pending_writes(
    serde: SerializerProtocol,
    tasks: Iterable[TaskWrites],
    values: Mapping[str, Any],
    channel: str | None = None,
) -> list[PendingWrite]:
    """The tasks' writes in the order the graph applies them; to one channel, if it is named.

    `values` are those of the checkpoint they were written on.
    """
    ordered = sorted(
        (
            (writes_sort_key(write.path, task.task_id, write.idx), write)
            for task in tasks
            for write in task.writes
            if channel is None or write.channel == channel
        ),
        key=lambda pair: pair[0],
    )
    return [
        (key[1], write.channel, unpack_write(serde, write.kind, write.data, values.get(write.channel)))
        for key, write in ordered
    ]


def by_checkpoint(tasks: Iterable[TaskWrites]) -> defaultdict[str, list[TaskWrites]]:
    grouped: defaultdict[str, list[TaskWrites]] = defaultdict(list)
    for task in tasks:
        grouped[task.checkpoint_id].append(task)
    return grouped
