"""Graphs by owner: copies of the registered graphs, each with the store that shows one owner's items only."""

from collections.abc import Mapping
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from clew.domain.errors import Corrupt, NotFound
from clew.domain.thread import Owner, Thread
from clew.graph.position import Graph
from clew.history.graph_store import GraphStore

# How many graphs are cached, each with the store of one owner.
MOST_COPIES = 1000


class OwnerGraphs:
    """The graph of a thread, with the store of its owner."""

    def __init__(
        self, graphs: Mapping[str, Graph], store: GraphStore, saver: BaseCheckpointSaver[Any]
    ) -> None:
        self._graphs = graphs
        self._store = store
        self._saver = saver
        self._by_owner: dict[tuple[str, Owner], Graph] = {}  # the least recently used first

    def to_run(self, thread: Thread) -> Graph:
        """Raises Corrupt: a thread that is to run names a graph that is not registered."""
        if thread.graph not in self._graphs:
            raise Corrupt(f"no graph {thread.graph!r} is registered here")
        key = (thread.graph, thread.owner)
        graph = self._by_owner.pop(key, None)
        if graph is None:
            store = self._store.for_owner(thread.owner)
            graph = self._graphs[thread.graph].copy(update={"store": store})
        self._by_owner[key] = graph
        if len(self._by_owner) > MOST_COPIES:
            del self._by_owner[next(iter(self._by_owner))]
        return graph

    def to_read(self, thread: Thread) -> Graph:
        """Raises NotFound: a caller asks for the state of a graph that is not registered."""
        if thread.graph not in self._graphs:
            raise NotFound(f"no graph {thread.graph!r} is registered here")
        return self.to_run(thread)

    def saver_of(self, graph: Graph) -> BaseCheckpointSaver[Any]:
        """The saver that reads the graph's own types back, which the one for all graphs does not know."""
        own = graph.checkpointer
        return own if isinstance(own, BaseCheckpointSaver) else self._saver
