"""Graph driver: runs a thread's graph on LangGraph, one run of a thread at a time."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from clew.domain.errors import Drained
from clew.domain.events import Body, Event, RunSpec
from clew.domain.runs import undone
from clew.domain.thread import Thread
from clew.graph.containment import Contained
from clew.graph.factories import GraphFactory
from clew.graph.owner_graphs import OwnerGraphs, ReadRound
from clew.graph.position import Graph
from clew.graph.round import RoundDriver
from clew.graph.run import running
from clew.graph.run_config import newest_spec, with_stops
from clew.graph.states import ThreadStates
from clew.graph.stream_encoder import StreamEncoder
from clew.graph.token_stream import TokenStream
from clew.history.graph_store import GraphStore
from clew.ports.clock import Clock
from clew.ports.run_context import RunContext
from clew.ports.streams import StreamParts, Tokens


class LangGraphDriver(ThreadStates):
    """With `verbose`, or for a thread that is set so, model output goes to `live` token by token."""

    def __init__(
        self,
        graphs: Mapping[str, Graph | GraphFactory],
        saver: BaseCheckpointSaver[Any],
        store: GraphStore,
        *,
        clock: Clock,
        live: Tokens | None = None,
        chunks: StreamParts | None = None,
        verbose: bool = False,
        stages: Mapping[str, Collection[str]] = MappingProxyType({}),
        shows: Mapping[str, Collection[str]] = MappingProxyType({}),
        read_round: ReadRound | None = None,
    ) -> None:
        """By graph: `stages` are the nodes whose beginning and end are logged, all nodes of a graph it does not name;
        `shows` are the channels whose values a question at a breakpoint shows. `read_round` finds the config of a
        thread's newest run, for the factory of its graph."""
        super().__init__(OwnerGraphs(graphs, store, saver, read_round), saver, shows=shows)
        self._stages = stages
        self._clock = clock
        self._live = live
        self._chunks = chunks
        self._verbose = verbose
        self._controls: dict[str, RunControl] = {}

    async def run(
        self, log: Sequence[Event], run: RunContext, *, fence: int, is_new: bool = False
    ) -> AsyncGenerator[Body, None]:
        thread = run.thread
        spec = newest_spec(log)
        control = RunControl()
        self._controls[thread.id] = control
        try:
            with running(run), Contained():
                async with self._graphs.to_run(thread, log) as graph:
                    await self._finish_undoing(thread, graph)
                    driven = self._driven(graph, run, log, spec, fence=fence, is_new=is_new)
                    async with aclosing(driven.bodies(control)) as bodies:
                        async for body in bodies:
                            yield body
                await self._keep_last_parts(spec)
        except GraphDrained as exc:
            await self._keep_last_parts(spec)
            raise Drained from exc
        except Exception:
            await self._keep_last_parts(spec)
            raise
        finally:
            if self._controls.get(thread.id) is control:
                del self._controls[thread.id]
            if spec is not None and self._chunks is not None:
                self._chunks.end(spec.run_id)

    def _driven(
        self,
        graph: Graph,
        run: RunContext,
        log: Sequence[Event],
        spec: RunSpec | None,
        *,
        fence: int,
        is_new: bool,
    ) -> RoundDriver:
        thread = run.thread
        return RoundDriver(
            with_stops(graph, spec),
            self._graphs.saver_of(graph),
            run,
            log,
            fence=fence,
            is_new=is_new,
            clock=self._clock,
            speech=self._speech(thread),
            parts=self._parts(thread, spec, fence),
            stages=self._stages.get(thread.graph),
            shows=self._shows.get(thread.graph, ()),
            keep_parts=self._keep_parts(spec),
        )

    def _keep_parts(self, spec: RunSpec | None) -> Callable[[], Awaitable[None]] | None:
        chunks = self._chunks
        return None if spec is None or chunks is None else partial(chunks.flush, spec.run_id)

    async def _keep_last_parts(self, spec: RunSpec | None) -> None:
        """Before the end is in the log: a client that reads the end there reads no further parts."""
        if spec is not None and self._chunks is not None:
            await self._chunks.flush(spec.run_id, at_end=True)

    def drain(self, thread_id: str) -> None:
        if control := self._controls.get(thread_id):
            control.request_drain()

    async def _finish_undoing(self, thread: Thread, graph: Graph) -> None:
        """Nothing is built on a run that was rolled back: the process that did so may have been killed, or is not done."""
        gone = {what for what in thread.redacted if what.startswith(undone(""))}
        if not gone:
            return
        saver = self._graphs.saver_of(graph)
        saved = await saver.aget_tuple({"configurable": {"thread_id": thread.id, "checkpoint_ns": ""}})
        if saved is not None and undone(str(saved.metadata.get("run_id"))) in gone:
            await self.rollback_run(str(saved.metadata["run_id"]))
            self.drop(thread.id)

    def _speech(self, thread: Thread) -> TokenStream | None:
        if self._live is None or not (self._verbose or thread.settings.get("verbose") is True):
            return None
        return TokenStream(thread, self._live)

    def _parts(self, thread: Thread, spec: RunSpec | None, fence: int) -> StreamEncoder | None:
        chunks = self._chunks
        if spec is None or chunks is None:
            return None
        tell = chunks.begin(thread.id, spec, attempt=fence)
        return StreamEncoder(spec, tell)
