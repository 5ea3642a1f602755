"""Checkpointer: LangGraph's state in our database; a write costs what changed, not the size of the state."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from clew.checkpointer.ancestry import channel_histories
from clew.checkpointer.cache import CachedState, DirtyObjects, StateCache
from clew.checkpointer.deferred_inputs import DeferredInput, DeferredInputs, is_input
from clew.checkpointer.deferred_writes import DeferredWrites, WritesInWaiting
from clew.checkpointer.deltas import touched_by
from clew.checkpointer.rows import FENCE, config_of, metadata_of, to_row
from clew.checkpointer.serializer import StrictSerializer, require_strict
from clew.checkpointer.states import by_checkpoint, gather, gather_line, pack_values, to_tuple
from clew.checkpointer.values import Held, HeldList, Missing, is_ours, next_version, pack_write
from clew.domain.errors import Corrupt, Invalid
from clew.failpoints import failpoint
from clew.ports.checkpoints import (
    ChannelValue,
    Checkpoints,
    ParentGone,
    StoredCheckpoint,
    Superstep,
    TaskWrites,
    Write,
)

T = TypeVar("T")

# Of stored bytes; in memory a message takes about five times as much.
CACHE_BYTES = 32 * 1024 * 1024
PAGE = 64


class Checkpointer(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer for any graph and any thread; `create_checkpointer` opens one.

    With `clew_fence` in a run's configurable, every write checks inside its transaction that the run still holds
    the thread. Writes are finished even if their caller is cancelled. The sync methods are for threads other than
    the event loop's.
    """

    def __init__(
        self,
        store: Checkpoints,
        *,
        serde: SerializerProtocol | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Raises ConfigError if the serializer would build whatever a row names."""
        super().__init__(serde=serde or StrictSerializer())
        require_strict(self.serde)
        self._store = store
        self._cache_bytes = cache_bytes
        self._heads = StateCache(cache_bytes)
        self._touched = DirtyObjects()
        self._inputs = DeferredInputs(self._commit)
        self._writes = WritesInWaiting(self._commit_writes)
        self._loop = asyncio.get_running_loop()

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> BaseCheckpointSaver[str]:
        clone = super().with_allowlist(extra_allowlist)
        if clone is not self and isinstance(clone, Checkpointer):
            # What one serializer refused to build must not be served to the other, nor the other way round.
            clone._heads = StateCache(self._cache_bytes)
        return clone

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002 - LangGraph's signature
        return next_version(current)

    async def aclose(self) -> None:
        """Store what was deferred. Called before the database is closed."""
        await self._settle()

    async def _settle(self, thread_id: str | None = None) -> None:
        """Store what was deferred for this thread, or for all."""
        await self._writes.settle(thread_id)
        await self._inputs.settle(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread_id, ns = _line(config)
        checkpoint_id = get_checkpoint_id(config)
        await self._settle(thread_id)
        near = self._heads.get(thread_id, ns, checkpoint_id)
        while True:
            found = await self._store.get(thread_id, ns, checkpoint_id)
            if found is None:
                return None
            row = found.checkpoint
            try:
                channels = await self._read(row, near)
            except Missing:
                # What we hold is of another branch; or the thread is pruned while we read it.
                if near is None and row.id == checkpoint_id:
                    raise
                near, checkpoint_id = None, row.id
                continue
            self._keep(row, channels)
            return to_tuple(self.serde, row, channels, found.writes)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[CheckpointTuple, None]:
        configurable = config["configurable"] if config else {}
        thread_id, ns = configurable.get("thread_id"), configurable.get("checkpoint_ns")
        await self._settle(None if thread_id is None else str(thread_id))
        below: int | None = None
        left = limit
        while left is None or left > 0:
            # A filter is applied here, on what is in the rows: no key of a caller ever becomes SQL.
            page = await self._store.find(
                None if thread_id is None else str(thread_id),
                ns,
                checkpoint_id=configurable.get("checkpoint_id"),
                before=get_checkpoint_id(before) if before else None,
                below=below,
                limit=PAGE if left is None or filter else min(left, PAGE),
            )
            matching = [row for row in page if _matches(row, filter)][:left]
            # Who asks for one goes on from it, as LangGraph does when it replays a subgraph.
            for found in await self._load(matching, keep=limit == 1):
                yield found
            if not page:
                return
            below = page[-1].seq
            left = None if left is None else left - len(matching)

    async def places(
        self,
        config: RunnableConfig,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int,
    ) -> Sequence[RunnableConfig]:
        """Where the checkpoints are that `alist` would load, whether or not their values can be read."""
        thread_id, ns = _line(config)
        await self._settle(thread_id)
        found: list[RunnableConfig] = []
        below: int | None = None
        while len(found) < limit:
            page = await self._store.find(
                thread_id,
                ns,
                checkpoint_id=config["configurable"].get("checkpoint_id"),
                before=get_checkpoint_id(before) if before else None,
                below=below,
                limit=PAGE,
            )
            found += [config_of(row.thread_id, row.ns, row.id) for row in page if _may_match(row, filter)]
            if not page:
                break
            below = page[-1].seq
        return found[:limit]

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        touched = self._touched.take(*_line(config), get_checkpoint_id(config))
        return await self._put(config, checkpoint, metadata, new_versions, touched)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        thread_id, ns = _line(config)
        configurable = config["configurable"]
        checkpoint_id = configurable["checkpoint_id"]
        head = self._heads.get(thread_id, ns, checkpoint_id)
        by_index: dict[int, Write] = {}
        for position, (channel, value) in enumerate(writes):
            self._touched.add(thread_id, ns, checkpoint_id, channel, touched_by(value))
            idx = WRITES_IDX_MAP.get(channel, position)
            held = head.channels.get(channel) if head is not None else None
            by_index[idx] = Write(idx, channel, *pack_write(self.serde, value, held), task_path)
        task = TaskWrites(checkpoint_id=checkpoint_id, task_id=task_id, writes=tuple(by_index.values()))
        deferred = DeferredWrites((thread_id, ns), task, configurable.get(FENCE))
        if any(index < 0 for index in by_index):
            # A task that failed or asks: the step may never end, and its input must be there all the same.
            await self._settle(thread_id)
            await finish(self._commit_writes(deferred))
        else:
            self._writes.add(deferred)
            await finish(deferred.done)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._settle(str(thread_id))
        await finish(self._store.delete(str(thread_id)))
        self._heads.forget(str(thread_id))

    def drop(self, thread_id: str) -> None:
        """Forget what is in memory of a thread; what is stored stays."""
        self._heads.forget(thread_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._settle(str(source_thread_id))
        await finish(self._store.copy(str(source_thread_id), str(target_thread_id)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._settle()
        await finish(self._store.delete_runs([str(run_id) for run_id in run_ids]))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise Invalid(f"unknown strategy {strategy!r}: keep_latest or delete", field="strategy")
        for thread_id in thread_ids:
            await self._settle(str(thread_id))
            if strategy == "delete":
                await self.adelete_thread(thread_id)
            else:
                await finish(self._store.prune(str(thread_id)))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        thread_id, ns = _line(config)
        await self._settle(thread_id)
        return await channel_histories(
            self._store, self.serde, thread_id, ns, get_checkpoint_id(config), channels
        )

    # What a graph that is not async, in another thread, needs.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._wait(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = self.alist(config, filter=filter, before=before, limit=limit)
        try:
            while (item := self._wait(anext(found, None))) is not None:
                yield item
        finally:
            self._wait(found.aclose())

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        # The writes come from other threads, perhaps later than the step they belong to: so any object may be touched.
        return self._wait(self._put(config, checkpoint, metadata, new_versions, None))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        self._wait(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._wait(self.adelete_thread(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._wait(self.aget_delta_channel_history(config=config, channels=channels))

    def _wait(self, work: Awaitable[T]) -> T:
        try:
            here: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            if isinstance(work, Coroutine):
                work.close()
            raise asyncio.InvalidStateError(
                "the checkpointer's sync methods would block its own event loop: use the async ones here"
                " (await graph.ainvoke(...), aget_state(...)), or call them from another thread"
            )
        return asyncio.run_coroutine_threadsafe(_awaited(work), self._loop).result()

    async def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
        touched: Mapping[str, Collection[int]] | None,
    ) -> RunnableConfig:
        thread_id, ns = _line(config)
        parent_id = get_checkpoint_id(config)
        head = self._heads.get(thread_id, ns, parent_id) if parent_id else None
        # All of it before the first await: the graph goes on meanwhile and may change its lists.
        packed = pack_values(self.serde, checkpoint, new_versions, head, touched)
        row = to_row(config, checkpoint, metadata, inline=packed.inline, apart=packed.apart)
        step = Superstep(checkpoint=row, values=packed.values, builds_on_parent=head is not None)
        pending = DeferredInput(step, checkpoint, config["configurable"].get(FENCE))
        earlier = await self._inputs.take((thread_id, ns))
        if is_input(checkpoint, metadata):
            if earlier is not None:
                await self._commit([earlier])
            self._inputs.add(pending)
        else:
            written = self._writes.take((thread_id, ns), parent_id, pending.fence)
            await self._commit([pending] if earlier is None else [earlier, pending], written)
        known = {channel: held for channel, held in packed.apart.items() if held is not None}
        self._heads.put(CachedState(thread_id, ns, row.id, known), instead_of=head)
        return config_of(thread_id, ns, row.id)

    async def _commit(self, steps: Sequence[DeferredInput], written: Sequence[DeferredWrites] = ()) -> None:
        thread_id, _ = steps[0].line
        fence = steps[-1].fence
        tasks = [one.writes for one in written]
        try:
            try:
                await finish(self._store.put([pending.step for pending in steps], writes=tasks, fence=fence))
            except ParentGone:
                # A caller deleted or pruned the thread meanwhile: store whole states, from here on it starts anew.
                whole = [self._whole(pending) for pending in steps]
                await finish(self._store.put(whole, writes=tasks, fence=fence))
        except BaseException as exc:
            self._heads.forget(thread_id)
            for one in written:
                one.end(exc)
            raise
        for one in written:
            one.end()
        failpoint("checkpoint_put")

    async def _commit_writes(self, deferred: DeferredWrites) -> None:
        await self._store.put_writes(*deferred.line, deferred.writes, fence=deferred.fence)

    def _whole(self, pending: DeferredInput) -> Superstep:
        return Superstep(
            checkpoint=pending.step.checkpoint,
            values=pack_values(self.serde, pending.checkpoint, (), None).values,
        )

    async def _read(self, row: StoredCheckpoint, near: CachedState | None) -> dict[str, Held]:
        """The checkpoint's values: those we have, and from the database those we do not."""
        known = near.usable() if near is not None else {}
        wanted = {
            channel: (str(version),)
            for channel, version in row.apart.items()
            if channel not in known or known[channel].version != version
        }
        values: Sequence[ChannelValue] = ()
        if wanted:
            held = {channel: held.version for channel, held in known.items() if isinstance(held, HeldList)}
            values = await self._store.values_of(row.thread_id, row.ns, wanted, held=held)
        return gather(self.serde, row, values, known)

    def _keep(self, row: StoredCheckpoint, channels: Mapping[str, Held]) -> None:
        # A number as a version may come back with another value.
        lasting = {channel: held for channel, held in channels.items() if is_ours(held.version)}
        self._heads.put(CachedState(row.thread_id, row.ns, row.id, lasting))
        self._touched.doubt(row.thread_id, row.ns, row.id)

    async def _load(
        self, rows: Sequence[StoredCheckpoint], *, keep: bool = False
    ) -> Sequence[CheckpointTuple]:
        """The rows with their values and writes: two statements a thread and namespace, however many rows."""
        lines: defaultdict[tuple[str, str], list[StoredCheckpoint]] = defaultdict(list)
        for row in rows:
            lines[row.thread_id, row.ns].append(row)
        loaded: dict[int, CheckpointTuple] = {}
        for (thread_id, ns), line in lines.items():
            versions: defaultdict[str, set[str]] = defaultdict(set)
            for row in line:
                for channel, version in row.apart.items():
                    versions[channel].add(str(version))
            values = await self._store.values_of(thread_id, ns, versions)
            tasks = by_checkpoint(await self._store.writes_of(thread_id, ns, [row.id for row in line]))
            channels = gather_line(self.serde, line, values)
            for row in line:
                loaded[row.seq] = to_tuple(self.serde, row, channels[row.id], tasks[row.id])
                if keep:
                    self._keep(row, channels[row.id])
        return [loaded[row.seq] for row in rows]


async def finish(work: "Coroutine[Any, Any, T] | asyncio.Future[T]") -> T:
    """Await the work to its end even if the caller is cancelled meanwhile; then the caller is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()  # retrieved here: the caller is gone
        raise


def _line(config: RunnableConfig) -> tuple[str, str]:
    """Checkpoints of one thread and namespace follow each other."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns", "")


def _matches(row: StoredCheckpoint, filter: dict[str, Any] | None) -> bool:
    if not filter:
        return True
    metadata: Mapping[str, Any] = metadata_of(row)
    return all(metadata.get(key) == value for key, value in filter.items())


def _may_match(row: StoredCheckpoint, filter: dict[str, Any] | None) -> bool:
    """Where its metadata cannot be read, only if anything does."""
    try:
        return _matches(row, filter)
    except Corrupt:
        return not filter


async def _awaited(work: Awaitable[T]) -> T:
    return await work
