"""States of threads: reads, writes, copies and drops the checkpoints of their graphs. Nothing here runs a graph."""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from clew.checkpointer.rows import FENCE
from clew.checkpointer.saver import Checkpointer
from clew.domain.errors import Corrupt, InvalidState
from clew.domain.events import Event
from clew.domain.thread import Json, Status, Thread
from clew.domain.tool_calls import GATE
from clew.domain.views import GraphState, OpenQuestions, SuperstepUpdate
from clew.graph import snapshots
from clew.graph.containment import Contained
from clew.graph.factories import Purpose
from clew.graph.latest import latest_state
from clew.graph.owner_graphs import OwnerGraphs
from clew.graph.position import BY_HAND, OPEN, ROUND, Graph, any_of, left_open, read_position
from clew.graph.run_config import newest_spec, with_stops
from clew.graph.stream import as_json
from clew.graph.suspensions import at_breakpoint


class ThreadStates:
    """The state operations of the graph driver."""

    def __init__(
        self,
        graphs: OwnerGraphs,
        saver: BaseCheckpointSaver[Any],
        *,
        shows: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """`shows`, by graph: the channels whose values a question at a breakpoint shows."""
        self._graphs = graphs
        self._saver = saver
        self._shows = shows

    async def state(self, thread: Thread) -> GraphState:
        async with self._reading(thread) as graph:
            state = await snapshots.current(graph, thread.id)
        try:
            return GraphState(values=as_json(state.values), next=state.next)
        except ValueError as exc:
            raise Corrupt(f"the state of thread {thread.id!r} cannot be shown as JSON") from exc

    async def snapshot(
        self, thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Json:
        async with self._reading(thread) as graph:
            return await snapshots.snapshot(graph, thread.id, place, subgraphs=subgraphs)

    async def output(self, thread: Thread) -> Json:
        async with self._reading(thread) as graph:
            values, interrupts = await snapshots.output(graph, thread.id)
        return {**values, "__interrupt__": interrupts} if interrupts else values

    async def history(
        self,
        thread: Thread,
        *,
        limit: int,
        before: Mapping[str, str] | None = None,
        place: Mapping[str, str] | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> Sequence[Json]:
        if not thread.graph:
            return ()
        async with self._reading(thread) as graph:
            return await snapshots.history(
                graph, thread.id, limit=limit, before=before, place=place, metadata=metadata
            )

    async def change_state(
        self,
        thread: Thread,
        values: Json,
        *,
        fence: int,
        as_node: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> Json:
        async with self._reading(thread, "threads.update") as graph:
            config: RunnableConfig = {
                "configurable": {FENCE: fence},
                "metadata": {
                    ROUND: thread.round,
                    "graph_id": thread.graph,
                    **await self._by_hand(graph, thread, as_node),
                },
            }
            return await snapshots.change(
                graph, thread.id, values, as_node=as_node, place=place, config=config
            )

    async def write_supersteps(
        self, thread: Thread, supersteps: Sequence[Sequence[SuperstepUpdate]], *, fence: int
    ) -> None:
        async with self._reading(thread, "threads.update") as graph:
            config: RunnableConfig = {
                "configurable": {FENCE: fence},
                "metadata": {ROUND: thread.round, "graph_id": thread.graph},
            }
            await snapshots.write_supersteps(graph, thread.id, supersteps, config=config)

    @asynccontextmanager
    async def _reading(self, thread: Thread, purpose: Purpose = "threads.read") -> AsyncGenerator[Graph]:
        """The thread's graph, whose own code may run in this block."""
        with Contained():
            async with self._graphs.to_read(thread, purpose) as graph:
                yield graph

    async def _by_hand(self, graph: Graph, thread: Thread, as_node: str | None) -> dict[str, Any]:
        """What the metadata of a checkpoint that is written by hand says of what the thread waits for."""
        if thread.status is not Status.BLOCKED:
            nodes = [as_node] if as_node else []
            return {BY_HAND: True} if any_of(graph.interrupt_before_nodes, nodes) else {}
        found = await read_position(graph, self._saver, _config(thread))
        waits = [one for one in thread.pending if not one.startswith(GATE)]
        return {BY_HAND: True, OPEN: left_open(found.position, waits)}

    async def open_questions(self, thread: Thread, log: Sequence[Event]) -> OpenQuestions:
        async with self._reading(thread) as made:
            found = await read_position(with_stops(made, newest_spec(log)), self._saver, _config(thread))
        position = found.position
        kept = {one for each in position.reopened for one in each.ids}
        kept |= {one for each in position.interrupts for one in (*each.formerly, each.answered_as)}
        stop = position.stopped_at
        shows = self._shows.get(thread.graph, ())
        return OpenQuestions(
            kept=frozenset(kept),
            new=() if stop is None or kept else (at_breakpoint(stop, found.values, shows),),
            has_ended=position.has_ended,
        )

    async def copy(self, source: str, target: str) -> None:
        await self._saver.acopy_thread(source, target)

    async def rollback_run(self, run_id: str) -> None:
        await self._saver.adelete_for_runs([run_id])

    async def forget(self, thread_id: str) -> None:
        await self._saver.adelete_thread(thread_id)

    def drop(self, thread_id: str) -> None:
        if isinstance(self._saver, Checkpointer):
            self._saver.drop(thread_id)

    async def prune(self, thread_id: str) -> bool:
        try:
            await self._saver.aprune([thread_id])
        except InvalidState:
            return False
        return True

    async def checkpoint(self, thread_id: str) -> str | None:
        saved = await self._saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}})
        return None if saved is None else str(saved.config["configurable"]["checkpoint_id"])

    async def latest(self, thread_id: str) -> Json:
        return await latest_state(self._saver, thread_id)


def _config(thread: Thread) -> RunnableConfig:
    return {"configurable": {"thread_id": thread.id}}
