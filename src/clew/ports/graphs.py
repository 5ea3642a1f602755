"""Graphs: the driver that runs them, and what can be read about them."""

from collections.abc import (
    AsyncGenerator,
    Mapping,
    Sequence,
)
from typing import Protocol

from clew.domain.assistants import Assistant, Schemas
from clew.domain.events import Body, Event
from clew.domain.thread import Json, Owner, Status, Thread
from clew.domain.views import GraphState, OpenQuestions, SuperstepUpdate
from clew.ports.run_context import RunContext


class GraphDriver(Protocol):
    """Runs a thread's graph from where it stands until it ends or must wait."""

    def run(
        self, log: Sequence[Event], run: RunContext, *, fence: int, is_new: bool = False
    ) -> AsyncGenerator[Body, None]:
        """Drive the current round, whose events are `log`. What happened comes out as bodies to record, in order.

        `is_new` says that the thread never ran before, so the position of its graph is not read.
        Suspensions come last, once everything they rest on is durable. A graph that ended yields none.
        """
        ...

    def drain(self, thread_id: str) -> None:
        """Ask a run to end at its next safe point; it can be continued from there."""
        ...

    async def state(self, thread: Thread) -> GraphState:
        """The graph's own state as JSON. Raises NotFound when its graph is not registered here, SchemaMismatch."""
        ...

    async def snapshot(
        self, thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Json:
        """The graph's state, newest or at that place, as LangGraph's clients know it.

        Raises NotFound, SchemaMismatch.
        """
        ...

    async def output(self, thread: Thread) -> Json:
        """What the graph gives out at its end, as JSON, and what it asks, if it does. Raises SchemaMismatch."""
        ...

    async def history(
        self,
        thread: Thread,
        *,
        limit: int,
        before: Mapping[str, str] | None = None,
        place: Mapping[str, str] | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> Sequence[Json]:
        """Its states, newest first. One that cannot be read says why, under `error`."""
        ...

    async def change_state(
        self,
        thread: Thread,
        values: Json,
        *,
        fence: int,
        as_node: str | None = None,
        place: Mapping[str, str] | None = None,
    ) -> Json:
        """Write values by hand, as if a node had returned them; the place that leads to. Raises Invalid, LostLease.

        What the graph of a thread that waits has asked stays asked, unless it is written past it.
        """
        ...

    async def write_supersteps(
        self, thread: Thread, supersteps: Sequence[Sequence[SuperstepUpdate]], *, fence: int
    ) -> None:
        """Write supersteps by hand, each as if its nodes had returned these updates. Raises Invalid, LostLease."""
        ...

    async def open_questions(self, thread: Thread, log: Sequence[Event]) -> OpenQuestions:
        """What the graph of a thread that waits asks now. `log` are the events of its round."""
        ...

    async def copy(self, source: str, target: str) -> None:
        """Give one thread the states of another."""
        ...

    async def rollback_run(self, run_id: str) -> None:
        """Drop the states that a run led to."""
        ...

    async def forget(self, thread_id: str) -> None:
        """Drop the graph's own state (checkpoints). Unknown ids are skipped."""
        ...

    def drop(self, thread_id: str) -> None:
        """Drop what this process holds of the graph's state in memory."""
        ...

    async def prune(self, thread_id: str) -> bool:
        """Drop all of the graph's own state but the newest; False if the thread is running, which keeps all."""
        ...

    async def checkpoint(self, thread_id: str) -> str | None:
        """The id of the graph's newest checkpoint: another one after every step. None if there is none."""
        ...

    async def latest(self, thread_id: str) -> Json:
        """The values of the graph's newest state as JSON, whether or not its graph is registered; None if there is none."""
        ...


class Closing(Protocol):
    """The events that a graph adds when its round ends, recorded in the same commit as the end itself."""

    def __call__(self, thread: Thread, log: Sequence[Event], status: Status, reason: str) -> Sequence[Body]:
        """`log` is the round so far. Must not fail: no caller is left to handle it."""
        ...


class Graphs(Protocol):
    """Which graphs can be started here, and why the others cannot."""

    @property
    def graphs(self) -> Mapping[str, object]: ...

    @property
    def broken(self) -> Mapping[str, str]: ...


class GraphIntrospection(Protocol):
    """Structure of the registered graphs. Raises NotFound for a graph that is not registered.

    A graph that a factory makes is made for the assistant and its owner. Raises SchemaMismatch if the factory raises.
    """

    def title(self, graph: str) -> str:
        """The name its author gave it; else the one it is registered under."""
        ...

    async def drawing(self, assistant: Assistant, owner: Owner, *, xray: bool | int = False) -> Json:
        """Its nodes and edges; with `xray` those of subgraphs too, so many levels deep.

        Raises Invalid if it cannot be drawn.
        """
        ...

    async def schemas(self, assistant: Assistant, owner: Owner) -> Schemas: ...

    async def subgraphs(
        self, assistant: Assistant, owner: Owner, *, namespace: str | None = None, recurse: bool = False
    ) -> Mapping[str, Schemas]:
        """The schemas of its subgraphs, or of the one in this namespace."""
        ...
