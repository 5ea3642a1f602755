"""Runs a thread's graph on LangGraph. The only file that starts or resumes a graph."""

from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot, StreamMode
from pydantic_core import to_jsonable_python

from clew.checkpointer.rows import FENCE
from clew.checkpointer.saver import Checkpointer
from clew.domain.errors import Corrupt, Drained, InvalidState, NotFound
from clew.domain.events import (
    Body,
    Event,
    Resolution,
    RoundStarted,
    RunSpec,
    StageChanged,
    StageCompleted,
    Suspension,
    UserMessage,
)
from clew.domain.ledger import GATE, is_yes
from clew.domain.recovery import failed_attempts
from clew.domain.runs import undone
from clew.domain.thread import Executor, Json, Owner, Status, SuspensionKind, Thread
from clew.domain.views import GraphState, OpenQuestions
from clew.graph import snapshots
from clew.graph.approval import APPROVED, ApprovalChannel
from clew.graph.containment import Contained
from clew.graph.context import context_of
from clew.graph.latest import latest_state
from clew.graph.position import (
    BY_HAND,
    NULL_TASK,
    OPEN,
    Breakpoint,
    Graph,
    GraphPosition,
    OpenInterrupt,
    any_of,
    forget,
    left_open,
    read_position,
    some_gate,
)
from clew.graph.run import running
from clew.graph.run_config import MOST_STEPS, command_of, is_written, newest_spec, spec_config, with_stops
from clew.graph.stream import as_json, completed, messages_in, missed, said, storable, unknown, with_others
from clew.graph.stream_encoder import StreamEncoder
from clew.graph.token_stream import TokenStream
from clew.graph.tools import CALL
from clew.history.agent_node import TENANT, USER
from clew.history.graph_store import GraphStore
from clew.ports.clock import Clock
from clew.ports.run_context import RunContext
from clew.ports.streams import StreamParts, Tokens

ROUND = "clew_round"
# As LangGraph's clients know it.
ATTEMPT = "run_attempt"
# A graph that takes more steps than this in one round goes in circles; LangGraph's own limit is 10,007.
MAX_STEPS = 500
# How many graphs are kept at hand, each with the store of one owner.
MOST_COPIES = 1000

# A graph that stops to ask what was answered already is sent on at once; one that does so for ever is broken.
MAX_PASSES = 1000


class LangGraphDriver:
    """With `verbose`, or for a thread that is set so, what models say goes to `live` word by word."""

    def __init__(
        self,
        graphs: Mapping[str, Graph],
        saver: BaseCheckpointSaver[Any],
        store: GraphStore,
        *,
        clock: Clock,
        live: Tokens | None = None,
        chunks: StreamParts | None = None,
        verbose: bool = False,
        stages: Mapping[str, Collection[str]] = MappingProxyType({}),
        shows: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """By graph: `stages` are the nodes whose beginning and end are told, all of them where it says nothing;
        `shows` are the channels whose values whoever is asked at a gate is shown."""
        self._graphs = graphs
        self._stages = stages
        self._shows = shows
        self._saver = saver
        self._store = store
        self._clock = clock
        self._live = live
        self._chunks = chunks
        self._verbose = verbose
        self._controls: dict[str, RunControl] = {}
        self._by_owner: dict[tuple[str, Owner], Graph] = {}  # the least recently used first

    async def run(
        self, log: Sequence[Event], run: RunContext, *, fence: int, is_new: bool = False
    ) -> AsyncGenerator[Body, None]:
        thread = run.thread
        spec = newest_spec(log)
        await self._finish_undoing(thread)
        graph = self._graph(thread)
        driven = RoundDriver(
            with_stops(graph, spec),
            self._saver_of(graph),
            run,
            log,
            fence=fence,
            is_new=is_new,
            clock=self._clock,
            speech=self._speech(thread),
            parts=self._parts(thread, spec, fence),
            stages=self._stages.get(thread.graph),
            shows=self._shows.get(thread.graph, ()),
        )
        control = RunControl()
        self._controls[thread.id] = control
        try:
            with running(run), Contained():
                async with aclosing(driven.bodies(control)) as bodies:
                    async for body in bodies:
                        yield body
                if spec is not None and self._chunks is not None:
                    # Before the end is in the log: whoever sees that looks for nothing more.
                    await self._chunks.flush(spec.run_id)
        except GraphDrained as exc:
            raise Drained from exc
        finally:
            if self._controls.get(thread.id) is control:
                del self._controls[thread.id]
            if spec is not None and self._chunks is not None:
                self._chunks.end(spec.run_id)

    def drain(self, thread_id: str) -> None:
        if control := self._controls.get(thread_id):
            control.request_drain()

    async def state(self, thread: Thread) -> GraphState:
        with Contained():
            state = await snapshots.current(self._known(thread), thread.id)
        try:
            return GraphState(values=as_json(state.values), next=state.next)
        except ValueError as exc:
            raise Corrupt(f"the state of thread {thread.id!r} cannot be shown as JSON") from exc

    async def snapshot(
        self, thread: Thread, place: Mapping[str, str] | None = None, *, subgraphs: bool = False
    ) -> Json:
        with Contained():
            return await snapshots.snapshot(self._known(thread), thread.id, place, subgraphs=subgraphs)

    async def output(self, thread: Thread) -> Json:
        graph = self._known(thread)
        with Contained():
            state = await snapshots.snapshot(graph, thread.id)
        names = graph.output_channels
        values = state["values"]
        if isinstance(values, dict) and not isinstance(names, str):
            values = {name: value for name, value in values.items() if name in names}
        return {**values, "__interrupt__": state["interrupts"]} if state["interrupts"] else values

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
        with Contained():
            return await snapshots.history(
                self._known(thread), thread.id, limit=limit, before=before, place=place, metadata=metadata
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
        graph = self._known(thread)
        config: RunnableConfig = {
            "configurable": {FENCE: fence},
            "metadata": {
                ROUND: thread.round,
                "graph_id": thread.graph,
                **await self._by_hand(graph, thread, as_node),
            },
        }
        with Contained():
            return await snapshots.change(
                graph, thread.id, values, as_node=as_node, place=place, config=config
            )

    async def _by_hand(self, graph: Graph, thread: Thread, as_node: str | None) -> dict[str, Any]:
        """What a checkpoint that is written by hand says of what the thread waits for."""
        if thread.status is not Status.BLOCKED:
            return (
                {BY_HAND: True} if any_of(graph.interrupt_before_nodes, [as_node] if as_node else []) else {}
            )
        config: RunnableConfig = {"configurable": {"thread_id": thread.id}}
        standing = await read_position(graph, self._saver, config)
        call_of = {each.id: _call_id(each) for each in standing.questions if _is_of_tool(each)}
        waits = [one for one in thread.pending if not one.startswith(GATE)]
        return {BY_HAND: True, OPEN: left_open(standing, waits, call_of)}

    async def open_questions(self, thread: Thread, log: Sequence[Event]) -> OpenQuestions:
        graph = with_stops(self._known(thread), newest_spec(log))
        config: RunnableConfig = {"configurable": {"thread_id": thread.id}}
        standing = await read_position(graph, self._saver, config)
        kept = {one for each in standing.reopened for one in each.ids}
        kept |= {one for each in standing.questions for one in (*each.formerly, _call_id(each))}
        gate = standing.gate
        shows = self._shows.get(thread.graph, ())
        return OpenQuestions(
            kept=frozenset(kept),
            new=() if gate is None or kept else (_approval(gate, standing.state, shows),),
            has_ended=standing.has_ended,
        )

    async def copy(self, source: str, target: str) -> None:
        await self._saver.acopy_thread(source, target)

    async def rollback_run(self, run_id: str) -> None:
        await self._saver.adelete_for_runs([run_id])

    async def _finish_undoing(self, thread: Thread) -> None:
        """Nothing is built on a run that was undone: whoever undid it may have been cut off, or not be done yet."""
        gone = {what for what in thread.redacted if what.startswith(undone(""))}
        if not gone:
            return
        saver = self._saver_of(self._graph(thread))
        saved = await saver.aget_tuple({"configurable": {"thread_id": thread.id, "checkpoint_ns": ""}})
        if saved is not None and undone(str(saved.metadata.get("run_id"))) in gone:
            await self.rollback_run(str(saved.metadata["run_id"]))
            self.drop(thread.id)

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

    def _saver_of(self, graph: Graph) -> BaseCheckpointSaver[Any]:
        """The one that reads the graph's own types back, which the one for all graphs does not know."""
        own = graph.checkpointer
        return own if isinstance(own, BaseCheckpointSaver) else self._saver

    def _known(self, thread: Thread) -> Graph:
        """For those who only look. Raises NotFound."""
        if thread.graph not in self._graphs:
            raise NotFound(f"no graph {thread.graph!r} is registered here")
        return self._graph(thread)

    def _graph(self, thread: Thread) -> Graph:
        if thread.graph not in self._graphs:
            raise Corrupt(f"no graph {thread.graph!r} is registered here")
        key = (thread.graph, thread.owner)
        graph = self._by_owner.pop(key, None)
        if graph is None:
            # A graph whose store shows this owner's items only.
            store = self._store.for_owner(thread.owner)
            graph = self._graphs[thread.graph].copy(update={"store": store})
        self._by_owner[key] = graph
        if len(self._by_owner) > MOST_COPIES:
            del self._by_owner[next(iter(self._by_owner))]
        return graph


class RoundDriver:
    """One attempt at one round: what to feed the graph, and what its stream means."""

    def __init__(
        self,
        graph: Graph,
        saver: BaseCheckpointSaver[Any],
        run: RunContext,
        log: Sequence[Event],
        *,
        fence: int,
        is_new: bool,
        clock: Clock,
        speech: TokenStream | None = None,
        parts: StreamEncoder | None = None,
        stages: Collection[str] | None = None,
        shows: Collection[str] = (),
    ) -> None:
        self._stages = stages
        self._shows = shows
        self._parts = parts
        self._spec = newest_spec(log)
        self._fence = fence
        self._clock = clock
        self._speech = speech
        self._is_new = is_new
        self._graph = graph
        self._saver = saver
        self._run = run
        self._thread = thread = run.thread
        self._log = log
        self._asked = {event.body.call_id: event.body for event in log if isinstance(event.body, Suspension)}
        self._answers = _answers(log)
        self._answers_by_node = _answers_by_node(log)
        self._config: RunnableConfig = {
            "configurable": {
                "thread_id": thread.id,
                FENCE: fence,
                TENANT: thread.owner.tenant,
                USER: thread.owner.user_id,
            },
            "metadata": {ROUND: thread.round},
            "recursion_limit": min((graph.config or {}).get("recursion_limit", MAX_STEPS), MOST_STEPS),
        }
        self._context = context_of(graph, self._spec)
        if self._spec is not None:
            self._config["metadata"][ATTEMPT] = failed_attempts(log) + 1
            self._config = spec_config(self._config, self._spec, self._context)

    async def bodies(self, control: RunControl) -> AsyncGenerator[Body, None]:
        standing = None if self._is_new else await self._stands()
        if standing is not None:
            for body in await self._missed(standing.state):
                yield body
        for passes in range(MAX_PASSES):
            if standing is None:
                value = await self._first_input()
            elif self._must_wait(standing, revived=passes == 0):
                standing = await self._undecided(standing)
                for suspension in self._suspensions(standing):
                    yield suspension
                return
            elif standing.has_ended or self._is_refused(standing):
                return
            else:
                value = await self._next_input(standing)
            stopped = False
            async with aclosing(self._stream(value, control, standing)) as parts:
                async for part in parts:
                    if part is None:
                        stopped = True
                    else:
                        yield part
            if not stopped:
                return
            # A tool may be at work beside one that stopped to ask; met at its work it would look as if it had been cut off.
            await self._run.idle()
            standing = await read_position(self._graph, self._saver, self._config)
            if standing.gate is None and not standing.questions:
                standing = replace(standing, gate=some_gate(standing.state))
        raise Corrupt(f"graph {self._thread.graph!r} keeps asking what was answered")

    async def _stands(self) -> GraphPosition | None:
        """Where the graph stands in this round; None if it has not taken the round's input yet."""
        saved = await self._saver.aget_tuple(self._config)
        if saved is None or saved.metadata.get(ROUND) != self._thread.round:
            return None
        return await read_position(self._graph, self._saver, self._config)

    async def _stream(
        self, value: Any, control: RunControl, standing: GraphPosition | None
    ) -> AsyncGenerator[Body | None, None]:
        """Bodies as their checkpoints become durable; None says that the graph stopped to ask.

        What a node returned is handed on when the next step begins: until then its checkpoint may be lost, and a
        log that knows more than the checkpoint would make a revived graph ask its model again.
        """
        given: dict[str, Any] = {}
        returned: list[Body] = []
        done = standing.done if standing is not None else frozenset()
        modes: set[StreamMode] = {"tasks", "updates"}
        if self._speech is not None:
            modes.add("messages")  # not for everybody: it makes LangGraph follow every call inside a node
        if self._parts is not None:
            modes.update(self._parts.modes)
        spec = self._spec
        parts: AsyncIterator[tuple[Any, ...]] = self._graph.astream(  # type: ignore[assignment]
            value,
            self._config if standing is not None else self._first_config(),
            context=self._context,
            stream_mode=[*modes],
            subgraphs=spec is not None and spec.subgraphs,
            durability="sync",
            control=control,
        )
        try:
            async for *inside, mode, part in parts:
                ns = inside[0] if inside else ()
                if self._parts is not None:
                    self._parts.hear(ns, mode, part)
                if ns or mode not in ("tasks", "updates", "messages"):
                    continue
                if mode == "messages":
                    if self._speech is not None:
                        self._speech.hear(part)
                elif mode == "updates":
                    if "__interrupt__" in part:
                        yield None
                elif "input" in part:
                    for body in returned:
                        yield body
                    returned = []
                    given[part["id"]] = part["input"]
                    if part["id"] not in done and self._is_stage(part["name"]):
                        yield StageChanged(stage=part["name"])
                elif not part["error"] and not part["interrupts"]:
                    bodies = completed(part["name"], part["result"], given.pop(part["id"], None))
                    returned += [
                        body
                        for body in bodies
                        if not isinstance(body, StageCompleted) or self._is_stage(body.stage)
                    ]
        except Exception:
            # One node failed; what ran beside it and ended is stored, and will not run again.
            for body in returned:
                yield body
            raise
        for body in returned:
            yield body

    def _first_config(self) -> RunnableConfig:
        """Where the round begins: where the thread stands, or where its RunSpec says."""
        spec = self._spec
        if spec is None or not spec.checkpoint_id:
            return self._config
        place = {"checkpoint_ns": "", "checkpoint_id": spec.checkpoint_id}
        return {**self._config, "configurable": {**self._config["configurable"], **place}}

    def _is_stage(self, node: str) -> bool:
        return self._stages is None or node in self._stages

    async def _first_input(self) -> Any:
        """An approval of an earlier round must not open this round's gate."""
        given = self._given()
        if isinstance(given, Command) and await self._is_written(given):
            # Given once more it would be written twice.
            return None
        word = ApprovalChannel.of(self._graph)
        if word is None:
            return given
        if word.takes_none:
            return {APPROVED: None} | given if isinstance(given, dict) else given
        if not self._is_new:
            await self._unset(word)
        return given

    async def _is_written(self, command: Command[Any]) -> bool:
        saved = None if self._is_new else await self._saver.aget_tuple(self._first_config())
        return saved is not None and is_written(command, saved.pending_writes or ())

    def _given(self) -> Any:
        started = [e.body for e in self._log if isinstance(e.body, RoundStarted)]
        if (spec := next((body.spec for body in started if body.spec), None)) is not None:
            # Without an input it goes on from where it stands.
            given = next((body.input for body in started if body.spec), None)
            return given if (command := command_of(spec)) is None else command
        given = next((body.input for body in started), None)
        if given is None:
            said_by_user = next((e.body.content for e in self._log if isinstance(e.body, UserMessage)), "")
            given = {"messages": [{"role": "user", "content": said_by_user}]}
        return given

    async def _unset(self, word: ApprovalChannel) -> None:
        """Before the round begins: what the last one left to be done is not done any more, so it may be lost."""
        state = await self._graph.aget_state(self._config)
        saved = await self._saver.aget_tuple(self._config)
        if saved is not None and word.is_decided(state.values):
            await word.unset(self._saver, saved, fence=self._fence)

    async def _next_input(self, standing: GraphPosition) -> Any:
        resume = {
            question.id: self._answer(question)
            for question in standing.questions
            if self._is_answered(question) and not self._is_consumed(question)
        } | self._answers_left(standing)
        if resume:
            return Command(resume=resume) if self._spec is None else command_of(self._spec, resume)
        gate = standing.gate
        # What was written and is not yet in a checkpoint is stored beside it, and is taken in by itself.
        if gate is None or gate.word is None or gate.is_commanded:
            return None
        told = {APPROVED: is_yes(self._answers[gate.id].answer)}
        if not gate.is_nested:
            return Command(update=told)
        # A command goes to the whole graph, so what it would leave beside the checkpoint is left there by hand.
        config: RunnableConfig = {"configurable": {**gate.config["configurable"], FENCE: self._fence}}
        await self._saver.aput_writes(config, [*told.items()], NULL_TASK)
        return None

    def _answers_left(self, standing: GraphPosition) -> dict[str, Json]:
        """Answers to what was asked before the state was written by hand, by the ids under which it is asked next."""
        left: dict[str, Json] = {}
        for one in standing.reopened:
            first = self._earlier_answers(one.node, one.ids).get(0)
            if one.next_id is not None and first is not None:
                left[one.next_id] = _given(first)
        return left

    def _earlier_answers(self, node: str, formerly: Sequence[str]) -> dict[int, Resolution]:
        """What this visit to the node was answered before its state was written by hand, by the number of each."""
        asked = [self._asked[one] for one in formerly if one in self._asked]
        # What a tool asks is kept in the ledger, where it finds the answer itself.
        current = {
            each.index: self._answers[each.call_id]
            for each in asked
            if each.call_id in self._answers and not each.args_hash
        }
        return {**self._answers_by_node.get(node, {}), **current} if formerly else {}

    async def _undecided(self, standing: GraphPosition) -> GraphPosition:
        """The same with nothing decided: a graph that comes to a gate again still has what was said the last time."""
        gate = standing.gate
        if gate is None or gate.id in self._answers or not (gate.is_decided or gate.is_commanded):
            return standing
        if not await forget(self._saver, gate, fence=self._fence):
            return standing
        return await read_position(self._graph, self._saver, self._config)

    def _must_wait(self, standing: GraphPosition, *, revived: bool) -> bool:
        if standing.gate is not None and standing.gate.id not in self._answers:
            return True
        if revived and (standing.is_cut_short or any(_is_of_tool(each) for each in standing.questions)):
            # Some of the step is yet to run; and what a tool asks is known only when the tool is begun.
            return False
        return any(not self._is_answered(question) for question in standing.questions)

    def _is_refused(self, standing: GraphPosition) -> bool:
        """Whether somebody said no, to a graph that has no way to be told: then it goes no further."""
        gate = standing.gate
        return gate is not None and gate.word is None and not is_yes(self._answers[gate.id].answer)

    def _is_answered(self, question: OpenInterrupt) -> bool:
        if _is_of_tool(question):
            # A tool may ask more than once under one id: approval first, then the client's result.
            return not self._run.is_asking(_call_id(question))
        return question.id in self._answers or question.index in self._earlier_answers(
            question.node, question.formerly
        )

    def _is_consumed(self, question: OpenInterrupt) -> bool:
        """The graph took the answer and was killed before it came further; giving it twice would answer the next question."""
        asked = self._asked.get(_call_id(question))
        return asked is not None and not _is_of_tool(question) and question.index > asked.index

    def _answer(self, question: OpenInterrupt) -> Json:
        answered = self._answers.get(_call_id(question))
        if answered is None:
            answered = self._earlier_answers(question.node, question.formerly).get(question.index)
        return _given(answered)

    def _suspensions(self, standing: GraphPosition) -> list[Suspension]:
        # Tools that wait are known to the ledger; here is what the graph itself asks.
        found = [
            _suspension(question, self._clock())
            for question in standing.questions
            if not _is_of_tool(question) and not self._is_answered(question)
        ]
        if (gate := standing.gate) is not None and gate.id not in self._answers:
            found.append(_approval(gate, standing.state, self._shows))
        return found

    async def _missed(self, state: StateSnapshot) -> list[Body]:
        """What the checkpoint knows and the log does not: a kill came between the two."""
        # A task may have ended and its step not: then a channel that keeps a value for one step shows nothing of it.
        ended = [message for task in state.tasks for message in messages_in(task.result)]
        found = missed(self._log, with_others(messages_in(state.values), ended))
        if found:
            # A state may hold what was said in rounds before this one.
            _, earlier = await self._run.transcript()
            found = unknown(earlier, found)
        bodies: list[Body] = [*said(self._thread.stage, found)]
        open_stages: dict[str, None] = {}
        for event in self._log:
            match event.body:
                case StageChanged(stage=stage):
                    open_stages[stage] = None
                case StageCompleted(stage=stage):
                    open_stages.pop(stage, None)
                case _:
                    pass
        unfinished = {task.name for task in state.tasks if task.result is None}
        return bodies + [StageCompleted(stage=stage) for stage in open_stages if stage not in unfinished]


def _answers(log: Sequence[Event]) -> dict[str, Resolution]:
    """What was answered in this round. A failed round that is taken up again asks again at the gate that was refused."""
    answers: dict[str, Resolution] = {}
    for event in log:
        match event.body:
            case Resolution() as body:
                answers[body.call_id] = body
            case RoundStarted():
                answers = {
                    key: body
                    for key, body in answers.items()
                    if not key.startswith(GATE) or is_yes(body.answer)
                }
            case _:
                pass
    return answers


def _answers_by_node(log: Sequence[Event]) -> dict[str, dict[int, Resolution]]:
    """What each node was answered the last time it asked, by the number of the question."""
    found: dict[str, dict[int, Resolution]] = {}
    asked: dict[str, Suspension] = {}
    for event in log:
        match event.body:
            case Suspension(node=node, index=index) as body if node:
                asked[body.call_id] = body
                found[node] = {other: one for other, one in found.get(node, {}).items() if other < index}
            case Resolution(call_id=call_id) as body if call_id in asked:
                found[asked[call_id].node][asked[call_id].index] = body
            case _:
                pass
    return found


def _given(answered: Resolution | None) -> Json:
    # LangGraph takes None for no answer at all.
    return {} if answered is None or answered.answer is None else answered.answer


def _approval(gate: Breakpoint, state: StateSnapshot, shows: Collection[str]) -> Suspension:
    shown = {name: storable(state.values[name]) for name in shows if name in state.values}
    prompt = {"before": list(gate.before), **shown}
    return Suspension(call_id=gate.id, executor=Executor.HUMAN, kind=SuspensionKind.APPROVAL, prompt=prompt)


def _suspension(question: OpenInterrupt, now: datetime) -> Suspension:
    value = _mapping(question.value)
    kind = value.get("kind")
    return Suspension(
        call_id=question.id,
        executor=Executor.HUMAN,
        kind=SuspensionKind(kind)
        if kind in (SuspensionKind.APPROVAL, SuspensionKind.ELICITATION)
        else SuspensionKind.APPROVAL,
        prompt=to_jsonable_python(question.value, fallback=str),
        deadline=_deadline(value.get("timeout"), now),
        index=question.index,
        node=question.node,
    )


def _deadline(seconds: Any, now: datetime) -> datetime | None:
    """None where nobody can wait so long, or the graph means something else by the word: then it is as if unsaid."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    try:
        return now + timedelta(seconds=seconds)
    except (OverflowError, ValueError):
        return None


def _call_id(question: OpenInterrupt) -> str:
    return str(_mapping(question.value).get(CALL, question.id))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_of_tool(question: OpenInterrupt) -> bool:
    return CALL in _mapping(question.value)
