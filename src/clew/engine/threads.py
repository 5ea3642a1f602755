"""Threads for LangGraph's clients: created, copied, and their states updated by hand."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from clew.domain import lifecycle
from clew.domain.errors import ClewError, Invalid, InvalidState, NotFound
from clew.domain.events import ASKING, Opening, TtlChanged
from clew.domain.lifecycle import Change
from clew.domain.records import RunHook
from clew.domain.redaction import lacks_a_message
from clew.domain.thread import Json, KeptUnderMark, Owner, Status, Thread, marked
from clew.domain.views import OpenQuestions, SuperstepUpdate
from clew.engine.commands import Commands
from clew.failpoints import failpoint
from clew.ports.graphs import GraphDriver
from clew.ports.thread_metadata import ThreadMetadata, leaves
from clew.ports.threads import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    store: Store
    commands: Commands
    graph_driver: GraphDriver
    metadata: ThreadMetadata
    ttl: timedelta

    async def create(
        self,
        thread_id: str,
        owner: Owner,
        metadata: Mapping[str, Json],
        *,
        ttl: TtlChanged | None = None,
        is_chosen: bool = True,
        hook: RunHook | None = None,
        supersteps: Sequence[Sequence[SuperstepUpdate]] = (),
    ) -> Thread:
        """Open an idle thread, with a state that these supersteps lead to.

        Raises Conflict if the tenant has one of that id, Invalid."""
        if is_chosen:
            thread_id = await self.own_id(thread_id, owner.tenant)
        ttl = ttl or TtlChanged(ttl=self.ttl)
        opening = Opening(owner=owner, graph="", ttl=ttl.ttl, prune_after=ttl.prune_after)
        thread = await self._create(thread_id, opening, metadata, hook=hook)
        if supersteps:
            async with self._deleted_on_error(thread):
                await self._write_supersteps(thread, supersteps)
        return thread

    async def copy(self, thread: Thread, target: str) -> Thread:
        """A thread with the state and the time to live of this one; the copy of a blocked one is blocked too.

        Raises NotFound, InvalidState."""
        _require_whole(thread)
        metadata = (await self.metadata.of((thread.id,)))[thread.id]
        opening = Opening(
            owner=thread.owner, graph=thread.graph, ttl=thread.ttl, prune_after=thread.prune_after
        )
        copied = await self._create(target, opening, metadata, number=thread.round)
        async with self._deleted_on_error(copied):
            await self.graph_driver.copy(thread.id, target)
            # A message that was deleted meanwhile is in the copy, where no deletion would find it.
            now = await self.store.get(thread.id, thread.owner)
            _require_whole(now)
            if thread.status is Status.BLOCKED and now.last_seq == thread.last_seq:
                copied = await self._wait_as(copied, thread)
        return copied

    async def update_state(
        self,
        thread_id: str,
        owner: Owner,
        values: Json,
        *,
        as_node: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> Json:
        """Write values as if a node had returned them; returns the new checkpoint.

        A blocked thread stays blocked: by what its graph still asks, or by an approval of what was written.
        Raises NotFound, InvalidState, Invalid."""
        # Read before the thread is seen at rest: the write is refused if a worker has claimed the thread by then.
        fence = await self.store.fence(thread_id)
        thread = await self.with_graph(await self.store.get(thread_id, owner))
        if thread.status is Status.RUNNING:
            raise InvalidState(f"thread {thread_id!r} is running, its state cannot be updated now")
        if not thread.graph:
            raise InvalidState(f"thread {thread_id!r} has no graph yet, and no graph_id in its metadata")
        written = await self.graph_driver.change_state(
            thread, values, fence=fence, as_node=as_node, place=place
        )
        if thread.status is Status.BLOCKED:
            failpoint("state_written_before_asked")
            log = await self.store.read(thread.id, after=thread.round_seq - 1, before=thread.last_seq + 1)
            await self._ask_anew(thread, await self.graph_driver.open_questions(thread, log))
        return written

    async def with_graph(self, thread: Thread) -> Thread:
        """The thread with the graph that its metadata names, if no run has given it one."""
        if thread.graph:
            return thread
        named = (await self.metadata.of((thread.id,)))[thread.id].get("graph_id")
        return replace(thread, graph=named) if isinstance(named, str) else thread

    async def require_own_id(self, thread_id: str, tenant: str) -> None:
        """Raises KeptUnderMark for an id that another tenant's thread has."""
        if await self.own_id(thread_id, tenant) != thread_id:
            raise KeptUnderMark(f"no thread {thread_id!r}")

    async def own_id(self, thread_id: str, tenant: str) -> str:
        """The chosen id, marked if another tenant has it, or had it when this tenant's thread was created."""
        kept = marked(thread_id, tenant)
        if await self.store.tenant_of(kept) == tenant:
            return kept
        return thread_id if await self.store.tenant_of(thread_id) in (None, tenant) else kept

    async def _create(
        self,
        thread_id: str,
        opening: Opening,
        metadata: Mapping[str, Json],
        *,
        number: int = 1,
        hook: RunHook | None = None,
    ) -> Thread:
        leaves(metadata)  # what cannot be stored is refused before there is a thread
        thread = await self.commands.open_idle(thread_id, opening, hook, number=number)
        async with self._deleted_on_error(thread):
            if metadata:
                await self.metadata.put(thread_id, metadata)
        return thread

    async def _write_supersteps(
        self, thread: Thread, supersteps: Sequence[Sequence[SuperstepUpdate]]
    ) -> None:
        posed = await self.with_graph(thread)
        if not posed.graph:
            raise Invalid("supersteps need a graph: name it in the metadata, as graph_id", field="supersteps")
        fence = await self.store.fence(thread.id)
        try:
            await self.graph_driver.write_supersteps(posed, supersteps, fence=fence)
        except NotFound as exc:
            raise Invalid(str(exc), field="metadata.graph_id") from exc

    @asynccontextmanager
    async def _deleted_on_error(self, thread: Thread) -> AsyncGenerator[None]:
        """Delete the half-made thread when the block raises."""
        try:
            yield
        except BaseException:
            with suppress(ClewError):
                await self.commands.delete(thread.id, thread.owner)
            raise

    async def _ask_anew(self, seen: Thread, found: OpenQuestions) -> None:
        """Let a thread whose state was written by hand wait for what its graph asks now.

        A thread that was answered meanwhile continues by itself."""
        asked = found.kept | {one.call_id for one in found.new}
        new = tuple(one for one in found.new if one.call_id not in seen.pending)
        gone = [one for one in seen.pending if one not in asked]

        async def decide(thread: Thread) -> Change:
            if thread.last_seq != seen.last_seq:
                raise InvalidState(f"thread {thread.id!r} has moved on")
            calls = [await self.commands.calls.get(thread.id, one) for one in gone]
            return lifecycle.ask_anew(thread, calls, new, stamp=self.commands.stamp())

        if gone or new:
            with suppress(InvalidState):
                await self.commands.commit(seen.id, None, decide)

    async def _wait_as(self, copy: Thread, original: Thread) -> Thread:
        """Let a copy wait for the answers that the original waits for."""
        log = await self.store.read(
            original.id, after=original.round_seq - 1, before=original.last_seq + 1, types=ASKING
        )

        async def decide(thread: Thread) -> Change:
            return lifecycle.wait_as(thread, [event.body for event in log], stamp=self.commands.stamp())

        return (await self.commands.commit(copy.id, None, decide)).thread


def _require_whole(thread: Thread) -> None:
    if lacks_a_message(thread):
        raise InvalidState(f"thread {thread.id!r} cannot be copied: its log quotes a deleted message")
