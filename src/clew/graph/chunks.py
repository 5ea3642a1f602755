"""Chat history as chunk items in any store of LangGraph: as good as it gets where nothing can be compared and set.

Inside one process a lock a conversation makes every append whole. A second process can still overwrite what was just
written, because the interface has no conditional write: an append that finds itself overwritten tries again, a few
times, and then says that it failed. GraphStore has neither problem.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from langgraph.store.base import BaseStore, GetOp, Item, PutOp

from clew.domain.errors import Conflict, Corrupt
from clew.domain.history import (
    Message,
    NewMessage,
    Place,
    Shape,
    Summary,
    chunk_key,
    chunk_of,
    chunk_range,
    retry_delay,
    tail_chunks,
)
from clew.ports import Clock

# Which id each of the newest messages had, and which work wrote it. The documented items have no place for it.
IDS_KEY: Final = "__ids__"
IDS_KEPT: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkItems:
    """The Histories port on a foreign store.

    `append` raises Conflict when others kept overwriting it. Anything else the store itself may raise.
    """

    store: BaseStore
    shape: Shape
    now: Clock
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]

    async def append(
        self,
        place: Place,
        messages: Sequence[NewMessage],
        *,
        shape: Shape,
        origin: str | None = None,
        thread_id: str | None = None,
    ) -> int:
        """As the port says; but a second answer replaces the first only while that one is still the last message."""
        del shape  # settled when this was made
        del thread_id  # whoever deletes threads does not know this store
        async with _lock(self.store, place.path):
            attempt = 1
            written: _Written | None = None
            while True:
                try:
                    # A write whose answer got lost may have arrived: look before writing again.
                    if written is None or not await self._holds(place, written):
                        written = await self._write(place, messages, origin)
                    if await self._holds(place, written):
                        return written.last_seq
                    failure: Exception = Conflict("another writer kept overwriting the turn")
                except Corrupt:
                    raise
                except Exception as exc:  # noqa: BLE001 - a foreign store may raise anything; the last one is raised
                    failure = exc
                delay = retry_delay(attempt, self.jitter())
                if delay is None:
                    raise failure
                await self.sleep(delay)
                attempt += 1

    async def tail(self, place: Place, *, limit: int) -> list[Message]:
        summary, ids = await self._head(place)
        if summary is None:
            return []
        chunks = tail_chunks(summary.last_seq, limit, summary.shape.chunk_size)
        messages = await self._messages(place, chunks)
        return [_identified(message, ids) for message in messages[-limit:]]

    async def read(self, place: Place, *, after: int = 0, limit: int = 1000) -> list[Message]:
        summary, ids = await self._head(place)
        if summary is None or after >= summary.last_seq:
            return []
        size = summary.shape.chunk_size
        chunks = range(chunk_of(after + 1, size), chunk_of(min(after + limit, summary.last_seq), size) + 1)
        wanted = [m for m in await self._messages(place, chunks) if after < m.seq <= after + limit]
        return [_identified(message, ids) for message in wanted]

    async def summary(self, place: Place) -> Summary | None:
        return (await self._head(place))[0]

    async def delete(self, place: Place) -> bool:
        async with _lock(self.store, place.path):
            summary = await self.summary(place)
            if summary is None:
                return False
            last = chunk_of(summary.last_seq, summary.shape.chunk_size)
            names = [self.shape.meta_key, IDS_KEY, *(chunk_key(index) for index in range(last + 1))]
            await self.store.abatch([PutOp(place.path, name, None) for name in names])
            return True

    async def _write(self, place: Place, messages: Sequence[NewMessage], origin: str | None) -> "_Written":
        """Chunk and metadata in one batch: a kill between two would leave them telling different stories."""
        before, ids = await self._head(place)
        at = self.now()
        if before is None:
            before = Summary(
                key=place.key, shape=self.shape, last_seq=0, version=0, created_at=at, updated_at=at
            )
        while origin is not None and ids.get(before.last_seq, (None, None))[1] == origin:
            del ids[before.last_seq]
            before = replace(before, last_seq=before.last_seq - 1)
        known = {name for name, _ in ids.values() if name is not None}
        fresh = [message for message in messages if message.id not in known]
        if not fresh:
            return _Written(before.last_seq, ())
        first = before.last_seq + 1
        added = [Message(seq=seq, role=new.role, content=new.content) for seq, new in enumerate(fresh, first)]
        after = replace(before, last_seq=added[-1].seq, version=before.version + 1, updated_at=at)
        chunks = await self._chunks(place, before, after, added)
        ids |= {seq: (new.id, origin) for seq, new in enumerate(fresh, first)}
        kept = {str(seq): ids[seq] for seq in sorted(ids)[-IDS_KEPT:]}
        items = {**chunks, IDS_KEY: {"ids": kept}, self.shape.meta_key: after.metadata()}
        await self.store.abatch([PutOp(place.path, key, value) for key, value in items.items()])
        return _Written(after.last_seq, tuple(added))

    async def _chunks(
        self, place: Place, before: Summary, after: Summary, added: Sequence[Message]
    ) -> dict[str, dict[str, Any]]:
        """The chunks that change: the last one if there is room in it, and what comes after it."""
        size = after.shape.chunk_size
        first = chunk_of(before.last_seq + 1, size)
        begun = await self._messages(place, [first]) if before.last_seq % size else []
        messages = [*(message for message in begun if message.seq <= before.last_seq), *added]
        chunks: dict[str, dict[str, Any]] = {}
        for index in range(first, chunk_of(after.last_seq, size) + 1):
            start, end = chunk_range(index, size, after.last_seq)
            within = [message for message in messages if start <= message.seq <= end]
            chunks[chunk_key(index)] = after.chunk(index, within, after.updated_at)
        return chunks

    async def _holds(self, place: Place, written: "_Written") -> bool:
        if not written.messages:
            return True
        summary, _ = await self._head(place)
        if summary is None or summary.last_seq < written.last_seq:
            return False
        size = summary.shape.chunk_size
        chunks = range(chunk_of(written.messages[0].seq, size), chunk_of(written.last_seq, size) + 1)
        stored = {message.seq: message for message in await self._messages(place, chunks)}
        return all(stored.get(message.seq) == message for message in written.messages)

    async def _head(self, place: Place) -> tuple[Summary | None, "_Ids"]:
        meta, side = await self._get(place, [self.shape.meta_key, IDS_KEY])
        if meta is None:
            return None, {}
        try:
            ids = {int(seq): (name, origin) for seq, (name, origin) in (side or {"ids": {}})["ids"].items()}
            at = datetime.strptime(meta["updated_at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
            shape = replace(self.shape, chunk_size=int(meta["chunk_size"]))
            return Summary(
                key=place.key,
                shape=shape,
                last_seq=int(meta["last_seq"]),
                version=int(meta["version"]),
                created_at=at,
                updated_at=at,
            ), ids
        except (KeyError, TypeError, ValueError) as exc:
            raise Corrupt("the metadata of a chat history cannot be read back") from exc

    async def _messages(self, place: Place, chunks: Sequence[int]) -> list[Message]:
        found: list[Message] = []
        for chunk in await self._get(place, [chunk_key(index) for index in chunks]):
            try:
                found.extend(
                    Message(
                        seq=int(item["seq"]), role=item["role"], content=str(item[self.shape.value_field])
                    )
                    for item in (chunk or {})["messages"]
                )
            except (KeyError, TypeError, ValueError) as exc:
                raise Corrupt("a chunk of a chat history cannot be read back") from exc
        return found

    async def _get(self, place: Place, names: Sequence[str]) -> list[Mapping[str, Any] | None]:
        found = await self.store.abatch([GetOp(place.path, name) for name in names])
        return [item.value if isinstance(item, Item) else None for item in found]


_Ids = dict[int, tuple[str | None, str | None]]


def _identified(message: Message, ids: _Ids) -> Message:
    name, origin = ids.get(message.seq, (None, None))
    return replace(message, id=name, origin=origin)


@dataclass(frozen=True, slots=True)
class _Written:
    """What an append put where; to be seen there afterwards."""

    last_seq: int
    messages: tuple[Message, ...]


_Locks = WeakValueDictionary[tuple[int, tuple[str, ...]], asyncio.Lock]
_locks: WeakKeyDictionary[BaseStore, _Locks] = WeakKeyDictionary()


def _lock(store: BaseStore, path: tuple[str, ...]) -> asyncio.Lock:
    """One lock a conversation and store, however many nodes write to it. A lock belongs to one event loop."""
    locks = _locks.setdefault(store, WeakValueDictionary())
    return locks.setdefault((id(asyncio.get_running_loop()), path), asyncio.Lock())
