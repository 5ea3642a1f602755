"""Graphs by owner: copies of the registered graphs, each with the store that shows one owner's items only."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeAlias

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from clew.domain.errors import Corrupt, NotFound
from clew.domain.events import Event
from clew.domain.thread import Owner, Thread
from clew.graph.factories import GraphFactory, Purpose
from clew.graph.position import Graph
from clew.graph.run_config import caller_config, newest_spec, spec_config
from clew.history.graph_store import GraphStore

# The events of a thread's current round.
ReadRound: TypeAlias = Callable[[Thread], Awaitable[Sequence[Event]]]
# How many graphs are cached, each with the store of one owner.
MOST_COPIES = 1000


class OwnerGraphs:
    """The graph of a thread, with the store of its owner: for one use, if a factory makes it."""

    def __init__(
        self,
        graphs: Mapping[str, Graph | GraphFactory],
        store: GraphStore,
        saver: BaseCheckpointSaver[Any],
        read_round: ReadRound | None = None,
    ) -> None:
        self._graphs = graphs
        self._read_round = read_round
        self._store = store
        self._saver = saver
        self._by_owner: dict[tuple[str, Owner], Graph] = {}  # the least recently used first

    def to_run(self, thread: Thread, log: Sequence[Event]) -> AbstractAsyncContextManager[Graph]:
        """Raises Corrupt: a thread that is to run names a graph that is not registered."""
        if thread.graph not in self._graphs:
            raise Corrupt(f"no graph {thread.graph!r} is registered here")
        found = self._graphs[thread.graph]
        if isinstance(found, GraphFactory):
            return self._made(found, thread, "threads.create_run", log)
        return nullcontext(self._copy(found, thread))

    @asynccontextmanager
    async def to_read(self, thread: Thread, purpose: Purpose = "threads.read") -> AsyncGenerator[Graph]:
        """Raises NotFound: a caller asks for the state of a graph that is not registered.

        A factory is given the config of the thread's newest run: it may need it to make the same graph again.
        """
        found = self._graphs.get(thread.graph)
        if found is None:
            raise NotFound(f"no graph {thread.graph!r} is registered here")
        if not isinstance(found, GraphFactory):
            yield self._copy(found, thread)
            return
        log = await self._read_round(thread) if self._read_round is not None else ()
        async with self._made(found, thread, purpose, log) as graph:
            yield graph

    def _made(
        self, factory: GraphFactory, thread: Thread, purpose: Purpose, log: Sequence[Event]
    ) -> AbstractAsyncContextManager[Graph]:
        spec = newest_spec(log)
        names = {"thread_id": thread.id, "graph_id": thread.graph}
        config: RunnableConfig = {
            "configurable": {**names, **caller_config(log)},
            "metadata": {**names},
        }
        context = None if spec is None else spec.context
        return factory.opened(
            purpose,
            config if spec is None else spec_config(config, spec, context),
            store=self._store.for_owner(thread.owner),
            context=context,
        )

    def _copy(self, graph: Graph, thread: Thread) -> Graph:
        key = (thread.graph, thread.owner)
        copy = self._by_owner.pop(key, None)
        if copy is None:
            copy = graph.copy(update={"store": self._store.for_owner(thread.owner)})
        self._by_owner[key] = copy
        if len(self._by_owner) > MOST_COPIES:
            del self._by_owner[next(iter(self._by_owner))]
        return copy

    def saver_of(self, graph: Graph) -> BaseCheckpointSaver[Any]:
        """The saver that reads the graph's own types back, which the one for all graphs does not know."""
        own = graph.checkpointer
        return own if isinstance(own, BaseCheckpointSaver) else self._saver
