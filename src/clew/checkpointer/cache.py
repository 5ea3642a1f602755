"""State cache of a process: what it last read or wrote, by checkpoint, bounded by stored size."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from clew.checkpointer.values import Held, HeldBytes, HeldList, Stored

# Thread, namespace, checkpoint.
Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class CachedState:
    """The channel values of one checkpoint. A checkpoint never changes, so what is here is never stale."""

    thread_id: str
    ns: str
    checkpoint_id: str
    channels: Mapping[str, Held | Stored]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        # An empty head costs its keys too.
        object.__setattr__(self, "size", 256 + sum(held.size for held in self.channels.values()))

    def usable(self) -> dict[str, Held]:
        """The values that may be given out again: unchanged since, and equal to what is read from disk."""
        return {
            channel: held
            for channel, held in self.channels.items()
            if isinstance(held, HeldBytes) or (isinstance(held, HeldList) and held.elements.intact())
        }

    @property
    def key(self) -> Key:
        return self.thread_id, self.ns, self.checkpoint_id


class StateCache:
    """The most recently used heads. Which checkpoint is the newest is asked of the database, never of this."""

    # A head of a few bytes takes some thousand in memory, and most threads are over when their run is.
    MOST = 1024

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._heads: OrderedDict[Key, CachedState] = OrderedDict()
        self._latest: dict[tuple[str, str], str] = {}
        self._of_thread: defaultdict[str, set[Key]] = defaultdict(set)

    @property
    def size(self) -> int:
        return self._size

    def get(self, thread_id: str, ns: str, checkpoint_id: str | None) -> CachedState | None:
        """The head of a checkpoint; without an id the one used last, which is as good a guess as any."""
        if checkpoint_id is None:
            checkpoint_id = self._latest.get((thread_id, ns))
        head = self._heads.get((thread_id, ns, checkpoint_id)) if checkpoint_id else None
        if head is not None:
            self._heads.move_to_end(head.key)
        return head

    def put(self, head: CachedState, *, instead_of: CachedState | None = None) -> None:
        """Cache a state. The run moved on from `instead_of`, which is dropped."""
        if instead_of is not None:
            self._drop(instead_of.key)
        self._drop(head.key)
        if head.size > self._limit:
            return
        self._heads[head.key] = head
        self._latest[head.thread_id, head.ns] = head.checkpoint_id
        self._of_thread[head.thread_id].add(head.key)
        self._size += head.size
        while self._size > self._limit or len(self._heads) > self.MOST:
            self._drop(next(iter(self._heads)))

    def forget(self, thread_id: str) -> None:
        for key in list(self._of_thread.get(thread_id, ())):
            self._drop(key)

    def _drop(self, key: Key) -> None:
        head = self._heads.pop(key, None)
        if head is None:
            return
        self._size -= head.size
        if self._latest.get(key[:2]) == key[2]:
            del self._latest[key[:2]]
        self._of_thread[key[0]].discard(key)
        if not self._of_thread[key[0]]:
            del self._of_thread[key[0]]


class DirtyObjects:
    """Which objects the tasks of a step returned for which channel, from their writes until the step is stored."""

    # Steps that failed never come back for theirs.
    LIMIT = 1024

    def __init__(self) -> None:
        self._steps: OrderedDict[Key, dict[str, set[int]] | None] = OrderedDict()

    def add(self, thread_id: str, ns: str, checkpoint_id: str, channel: str, ids: set[int]) -> None:
        step = self._steps.setdefault((thread_id, ns, checkpoint_id), {})
        if step is not None:
            step.setdefault(channel, set()).update(ids)
        self._trim()

    def doubt(self, thread_id: str, ns: str, checkpoint_id: str) -> None:
        """A caller read the checkpoint and may start another run from it, which need not report what it returns."""
        self._steps.pop((thread_id, ns, checkpoint_id), None)
        self._steps[thread_id, ns, checkpoint_id] = None
        self._trim()

    def take(self, thread_id: str, ns: str, checkpoint_id: str | None) -> dict[str, set[int]] | None:
        """What the step on top of a checkpoint returned; nothing if that is not known."""
        return self._steps.pop((thread_id, ns, checkpoint_id), None) if checkpoint_id else None

    def _trim(self) -> None:
        if len(self._steps) > self.LIMIT:
            self._steps.popitem(last=False)
