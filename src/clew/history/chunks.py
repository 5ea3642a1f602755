"""Chat history as chunk items in any store of LangGraph, which can neither compare and set nor lock.

Every turn is first put under a name of its own, where no other process writes; then it is merged into the documented
items. A process that read them before may still write over that merge, with a state that lacks the turn. The turn's own
item is kept for a minute longer than any such write can take, so the next read or append finds the turn missing, shows it
and merges it again: what was reported as written is not lost. Inside one process a lock a conversation spares the effort.
GraphStore needs none of this.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

from langgraph.store.base import BaseStore, GetOp, Item, PutOp, SearchOp

from clew.domain.errors import Conflict, Corrupt, InvalidState
from clew.domain.thread import Owner
from clew.ports.clock import Clock
from clew.ports.histories import (
    HistoryId,
    HistoryMessage,
    HistorySummary,
    NewMessage,
    Shape,
    chunk_key,
    chunk_of,
    chunk_range,
)

# Which id each of the newest messages had, which work wrote it, and which turns are merged. The documented items have no
# place for it.
IDS_KEY: Final = "__ids__"
IDS_KEPT: Final = 200
# The label under a conversation's where each turn has an item of its own.
TURNS: Final = "__turns__"
TURNS_AT_ONCE: Final = 1000
# What was read longer ago is not written back, and a turn that was merged so long ago cannot be overwritten any more.
STALE: Final = timedelta(seconds=5)
SETTLED: Final = timedelta(seconds=60)
# A chat history is read so often until no other writer came between its parts.
READS: Final = 20


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
        place: HistoryId,
        messages: Sequence[NewMessage],
        *,
        shape: Shape,
        origin: str | None = None,
        thread_id: str | None = None,
        user_id: str = "",
    ) -> int:
        """As the port says; but a second answer replaces the first only while that one is still the last message."""
        del shape  # settled when this was made
        del thread_id, user_id  # a deletion of threads or users does not reach this store
        turn = _Turn(token=uuid4().hex, at=self.now(), origin=origin, messages=tuple(messages))
        async with _lock(self.store, place.path):
            attempt = 1
            while True:
                try:
                    written = await self._merge(place, turn)
                    if await self._holds(place, written):
                        return written.last_seq
                    failure: Exception = Conflict("another writer kept overwriting the turn")
                except Corrupt:
                    raise
                except Exception as exc:  # noqa: BLE001 - a foreign store may raise anything; the last one is raised
                    failure = exc
                delay = retry_delay(attempt, self.jitter())
                if delay is None:
                    await self._withdraw(place, turn)
                    raise failure
                await self.sleep(delay)
                attempt += 1

    async def tail(self, place: HistoryId, *, limit: int) -> list[HistoryMessage]:
        head, found = await self._read(
            place, lambda summary: tail_chunks(summary.last_seq, limit, summary.shape.chunk_size)
        )
        return [*(head.identified(message) for message in found), *head.unmerged()][-limit:]

    async def read(self, place: HistoryId, *, after: int = 0, limit: int = 1000) -> list[HistoryMessage]:
        head, found = await self._read(place, lambda summary: _between(summary, after + 1, after + limit))
        messages = (*(head.identified(message) for message in found), *head.unmerged())
        return [message for message in messages if after < message.seq <= after + limit]

    async def summary(self, place: HistoryId) -> HistorySummary | None:
        head = await self._head(place)
        unmerged = head.unmerged()
        if not unmerged:
            return head.summary
        return replace(head.summary or self._beginning(place), last_seq=unmerged[-1].seq)

    async def delete(self, place: HistoryId) -> bool:
        async with _lock(self.store, place.path):
            head = await self._head(place)
            there = head.summary is not None or bool(head.turns)
            while head.turns:
                await self._delete_turns(place, [turn.token for turn in head.turns])
                head = replace(head, turns=(await self._head(place)).turns)
            if head.summary is not None:
                last = chunk_of(head.summary.last_seq, head.summary.shape.chunk_size)
                names = [self.shape.meta_key, IDS_KEY, *(chunk_key(index) for index in range(last + 1))]
                await self.store.abatch([PutOp(place.path, name, None) for name in names])
            return there

    async def delete_all(self, owner: Owner, *, limit: int = 100) -> int:  # noqa: ARG002 - a method of the port
        raise InvalidState(
            "a store of LangGraph's does not say which conversations are whose; delete them by their keys"
        )

    async def _merge(self, place: HistoryId, turn: "_Turn") -> "_Written":
        """Put the turn under its own name, then into the documented items with every other turn that they lack.

        Chunk and metadata go in one batch: a kill between two would leave them inconsistent.
        """
        # The last chunk goes on, and holds the turn if another process, or an attempt whose answer got lost, put it there.
        head, begun = await self._read(place, lambda summary: [_last_chunk(summary)], new=turn)
        if turn.token in head.merged:
            own = head.merged[turn.token]
            stored = await self._read_more(place, head, _between(head.known, own.first, own.last))
            found = [message for message in stored if own.first <= message.seq <= own.last]
            if _says(found, turn):
                return _Written(own.last, tuple(found))
            head = replace(head, merged={t: e for t, e in head.merged.items() if t != turn.token})
        plan = _plan(head, turn, before=head.summary or self._beginning(place), now=self.now())
        if not plan.added:
            await self._delete_turns(place, [turn.token])
            return _Written(plan.before.last_seq, ())
        after = replace(
            plan.before,
            last_seq=plan.added[-1].seq,
            version=plan.before.version + 1,
            updated_at=self.now(),
        )
        if _last_chunk(plan.before) != _last_chunk(head.summary or plan.before):
            # The answer that is replaced began in the chunk before.
            begun = await self._read_more(place, head, [_last_chunk(plan.before)])
        chunks = _chunks(plan.before, after, [*begun, *plan.added])
        if self.now() - head.read_at > STALE:
            raise Conflict("the store took too long to read a chat history; others may have written since")
        items = {**chunks, IDS_KEY: plan.side(), self.shape.meta_key: after.metadata()}
        deletions = [PutOp((*place.path, TURNS), token, None) for token in plan.settled]
        puts = [PutOp(place.path, key, value) for key, value in items.items()]
        await self.store.abatch([*puts, *deletions])
        merged = plan.merged.get(turn.token)
        if merged is None:  # all of it was stored before
            return _Written(after.last_seq, ())
        return _Written(after.last_seq, tuple(m for m in plan.added if merged.first <= m.seq <= merged.last))

    async def _holds(self, place: HistoryId, written: "_Written") -> bool:
        if not written.messages:
            return True
        first, last = written.messages[0].seq, written.messages[-1].seq
        _, found = await self._read(place, lambda summary: _between(summary, first, last))
        return [message for message in found if first <= message.seq <= last] == list(written.messages)

    async def _withdraw(self, place: HistoryId, turn: "_Turn") -> None:
        """Delete the item of a turn that is reported as not written, so that no later read shows it."""
        with suppress(Exception):  # the store fails anyway; its first error is the one that is raised
            await self._delete_turns(place, [turn.token])

    async def _delete_turns(self, place: HistoryId, tokens: Sequence[str]) -> None:
        await self.store.abatch([PutOp((*place.path, TURNS), token, None) for token in tokens])

    async def _head(self, place: HistoryId, new: "_Turn | None" = None) -> "_Head":
        """What the conversation has come to, read in one batch; the new turn's own item is put with it."""
        at = self.now()
        path = (*place.path, TURNS)
        puts = [] if new is None else [PutOp(path, new.token, new.value())]
        meta, side, turns, *_ = await self.store.abatch(
            [
                GetOp(place.path, self.shape.meta_key),
                GetOp(place.path, IDS_KEY),
                SearchOp(path, limit=TURNS_AT_ONCE),
                *puts,
            ]
        )
        found = cast("Sequence[Item]", turns or ())
        try:
            value = _value(side) or {}
            return _Head(
                read_at=at,
                summary=self._summary(place, _value(meta)),
                ids={int(seq): (mark[0], mark[1]) for seq, mark in value.get("ids", {}).items()},
                merged={token: _merged(one) for token, one in value.get("turns", {}).items()},
                side=_value(side),
                turns=tuple(_turn(item) for item in found if item.namespace == path),
                is_cut=len(found) >= TURNS_AT_ONCE,
            )
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as exc:
            raise Corrupt("the metadata of a chat history cannot be read back") from exc

    def _summary(self, place: HistoryId, meta: Mapping[str, Any] | None) -> HistorySummary | None:
        if meta is None:
            return None
        at = datetime.strptime(meta["updated_at"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        return HistorySummary(
            key=place.key,
            shape=replace(self.shape, chunk_size=int(meta["chunk_size"])),
            last_seq=int(meta["last_seq"]),
            version=int(meta["version"]),
            created_at=at,
            updated_at=at,
        )

    def _beginning(self, place: HistoryId) -> HistorySummary:
        at = self.now()
        return HistorySummary(
            key=place.key, shape=self.shape, last_seq=0, version=0, created_at=at, updated_at=at
        )

    async def _read(
        self, place: HistoryId, wanted: Callable[[HistorySummary], Sequence[int]], new: "_Turn | None" = None
    ) -> tuple["_Head", list[HistoryMessage]]:
        """The head and some chunks as one writer left them. Raises Conflict if others wrote each time in between."""
        for _ in range(READS):
            head = await self._head(place, new)
            chunks = wanted(head.summary) if head.summary is not None else ()
            if not chunks:
                return head, []
            names = [*(chunk_key(index) for index in chunks), IDS_KEY]
            *found, side = await self.store.abatch([GetOp(place.path, name) for name in names])
            if _value(side) == head.side:
                return head, self._messages(found)
        raise Conflict("other writers were at work each time a chat history was read")

    async def _read_more(
        self, place: HistoryId, head: "_Head", chunks: Sequence[int]
    ) -> list[HistoryMessage]:
        """Other chunks of the same state. Raises Conflict if that has changed."""
        again, found = await self._read(place, lambda _: chunks)
        if again.side != head.side:
            raise Conflict("another writer was at work while a chat history was read")
        return found

    def _messages(self, chunks: Sequence[object]) -> list[HistoryMessage]:
        found: list[HistoryMessage] = []
        for chunk in chunks:
            try:
                found.extend(
                    HistoryMessage(
                        seq=int(item["seq"]), role=item["role"], content=str(item[self.shape.value_field])
                    )
                    for item in (_value(chunk) or {})["messages"]
                )
            except (KeyError, TypeError, ValueError) as exc:
                raise Corrupt("a chunk of a chat history cannot be read back") from exc
        return found


def _between(summary: HistorySummary, first: int, last: int) -> Sequence[int]:
    """The chunks that hold these seqs, as far as there are any."""
    size, last = summary.shape.chunk_size, min(last, summary.last_seq)
    return range(chunk_of(first, size), chunk_of(last, size) + 1) if first <= last else ()


def _last_chunk(summary: HistorySummary) -> int:
    return chunk_of(max(1, summary.last_seq), summary.shape.chunk_size)


def _chunks(
    before: HistorySummary, after: HistorySummary, messages: Sequence[HistoryMessage]
) -> dict[str, dict[str, Any]]:
    """The chunks that change: the last one if it is not full, and those after it."""
    size = after.shape.chunk_size
    kept = {message.seq: message for message in messages}
    chunks: dict[str, dict[str, Any]] = {}
    for index in range(chunk_of(before.last_seq + 1, size), chunk_of(after.last_seq, size) + 1):
        start, end = chunk_range(index, size, after.last_seq)
        within = [kept[seq] for seq in range(start, end + 1) if seq in kept]
        chunks[chunk_key(index)] = after.chunk(index, within, after.updated_at)
    return chunks


_Ids = dict[int, tuple[str | None, str | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Messages of one append, as they are kept under a name of their own."""

    token: str
    at: datetime
    origin: str | None
    messages: tuple[NewMessage, ...]

    def value(self) -> dict[str, Any]:
        return {
            "at": self.at.isoformat(),
            "origin": self.origin,
            "messages": [{"role": m.role, "content": m.content, "id": m.id} for m in self.messages],
        }


@dataclass(frozen=True, slots=True)
class _Merged:
    """The seqs of a turn that chunks hold, and since when they do."""

    first: int
    last: int
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A conversation without its messages: what is known of the newest, and the turns that have items of their own."""

    read_at: datetime
    summary: HistorySummary | None
    ids: _Ids
    merged: Mapping[str, "_Merged"]
    side: Mapping[str, Any] | None  # as it was read: no two writes leave the same
    turns: tuple[_Turn, ...]
    is_cut: bool  # there are more turns than were read

    @property
    def known(self) -> HistorySummary:
        if self.summary is None:
            raise Corrupt("turns of a chat history are merged that has no metadata")
        return self.summary

    def missing(self) -> list[_Turn]:
        """The turns that no chunk holds, oldest first."""
        return sorted(
            (turn for turn in self.turns if turn.token not in self.merged),
            key=lambda turn: (turn.at, turn.token),
        )

    def unmerged(self) -> list[HistoryMessage]:
        """Their messages as they will be numbered when they are merged, unless others come first."""
        seq = self.summary.last_seq if self.summary else 0
        known = {name for name, _ in self.ids.values() if name is not None}
        fresh = [(turn, new) for turn in self.missing() for new in turn.messages if new.id not in known]
        return [
            HistoryMessage(seq=seq + n, role=new.role, content=new.content, id=new.id, origin=turn.origin)
            for n, (turn, new) in enumerate(fresh, 1)
        ]

    def identified(self, message: HistoryMessage) -> HistoryMessage:
        name, origin = self.ids.get(message.seq, (None, None))
        return replace(message, id=name, origin=origin)


@dataclass(slots=True, kw_only=True)
class _MergePlan:
    """What one merge adds after `before`, and which turns need no item of their own any more."""

    before: HistorySummary
    ids: _Ids
    merged: dict[str, "_Merged"]
    added: list[HistoryMessage] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)

    def side(self) -> dict[str, Any]:
        kept = {str(seq): list(self.ids[seq]) for seq in sorted(self.ids)[-IDS_KEPT:]}
        turns = {token: [one.first, one.last, one.at.isoformat()] for token, one in self.merged.items()}
        return {"ids": kept, "turns": turns}


def _plan(head: _Head, turn: _Turn, *, before: HistorySummary, now: datetime) -> _MergePlan:
    plan = _MergePlan(before=before, ids=dict(head.ids), merged=dict(head.merged))
    replaced = _drop_first_answer(plan, turn.origin)
    others = [one for one in head.missing() if one.token != turn.token]
    if turn.origin is not None:
        replaced += [one.token for one in others if one.origin == turn.origin]
    known = {name for name, _ in plan.ids.values() if name is not None}
    for one in (*(one for one in others if one.token not in replaced), turn):
        fresh = [message for message in one.messages if message.id is None or message.id not in known]
        known.update(message.id for message in fresh if message.id is not None)
        first = (plan.added[-1].seq if plan.added else plan.before.last_seq) + 1
        for seq, new in enumerate(fresh, first):
            plan.added.append(HistoryMessage(seq=seq, role=new.role, content=new.content))
            plan.ids[seq] = (new.id, one.origin)
        if fresh:
            plan.merged[one.token] = _Merged(first, first + len(fresh) - 1, now)
        else:
            plan.settled.append(one.token)
    old = [token for token, one in head.merged.items() if now - one.at > SETTLED]
    plan.settled += [token for token in (*old, *replaced) if token not in plan.settled]
    there = {one.token for one in head.turns} | {turn.token}
    plan.merged = {
        token: ends
        for token, ends in plan.merged.items()
        if token not in plan.settled and (head.is_cut or token in there)
    }
    return plan


def _drop_first_answer(plan: _MergePlan, origin: str | None) -> list[str]:
    """Take off the end what the same work wrote before, as far as it is the end; returns the turns it was."""
    dropped: list[str] = []
    while origin is not None and plan.ids.get(plan.before.last_seq, (None, None))[1] == origin:
        del plan.ids[plan.before.last_seq]
        dropped += [token for token, one in plan.merged.items() if one.last == plan.before.last_seq]
        plan.before = replace(plan.before, last_seq=plan.before.last_seq - 1)
    return dropped


def _says(stored: Sequence[HistoryMessage], turn: _Turn) -> bool:
    """Whether these are the turn's messages, but for those that were stored before it."""
    said = iter([(new.role, new.content) for new in turn.messages])
    return bool(stored) and all((message.role, message.content) in said for message in stored)


def _merged(value: Sequence[Any]) -> "_Merged":
    first, last, at = value
    return _Merged(int(first), int(last), datetime.fromisoformat(at))


def _turn(item: Item) -> _Turn:
    value = item.value
    return _Turn(
        token=item.key,
        at=datetime.fromisoformat(value["at"]),
        origin=value["origin"],
        messages=tuple(
            NewMessage(role=one["role"], content=str(one["content"]), id=one["id"])
            for one in value["messages"]
        ),
    )


def _value(item: object) -> Mapping[str, Any] | None:
    return item.value if isinstance(item, Item) else None


@dataclass(frozen=True, slots=True)
class _Written:
    """What an append put where; to be seen there afterwards."""

    last_seq: int
    messages: tuple[HistoryMessage, ...]


_Locks = WeakValueDictionary[tuple[int, tuple[str, ...]], asyncio.Lock]
_locks: WeakKeyDictionary[BaseStore, _Locks] = WeakKeyDictionary()


def _lock(store: BaseStore, path: tuple[str, ...]) -> asyncio.Lock:
    """One lock a conversation and store, however many nodes write to it. A lock belongs to one event loop."""
    locks = _locks.setdefault(store, WeakValueDictionary())
    return locks.setdefault((id(asyncio.get_running_loop()), path), asyncio.Lock())


# Waits before the second, third and fourth try of a write that another writer overtook, in seconds; jitter comes on top.
RETRY_DELAYS: Final = (0.025, 0.05, 0.1)


def tail_chunks(last_seq: int, limit: int, size: int) -> range:
    """The chunks that hold the newest `limit` messages: at most ceil(limit / size) + 1 of them, in order."""
    if last_seq < 1 or limit < 1:
        return range(0)
    return range(chunk_of(max(last_seq - limit + 1, 1), size), chunk_of(last_seq, size) + 1)


def retry_delay(attempt: int, jitter: float) -> float | None:
    """How long to wait after the attempt (1, 2, ...) failed; None when that was the last one.

    `jitter` is between 0 and 1 and adds up to a half.
    """
    if attempt > len(RETRY_DELAYS):
        return None
    return RETRY_DELAYS[attempt - 1] * (1 + jitter / 2)
