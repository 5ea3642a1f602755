"""Round driver: one attempt at one round, from the position of its graph to the decision and what LangGraph makes of it."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.schema import StreamEvent
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot, StreamMode

from clew.checkpointer.rows import FENCE
from clew.domain.errors import Corrupt
from clew.domain.events import Body, Event, StageChanged, StageCompleted, Suspension
from clew.domain.recovery import (
    Begin,
    Continue,
    Denied,
    Done,
    Position,
    Resume,
    Wait,
    decide,
    failed_attempts,
    round_input,
    unanswered,
)
from clew.domain.thread import Json
from clew.graph.approval import APPROVED, ApprovalChannel
from clew.graph.context import context_of
from clew.graph.position import NULL_TASK, ROUND, Graph, GraphPosition, clear_decision, read_position
from clew.graph.protocol_stream import protocol_stream
from clew.graph.run_config import (
    MOST_STEPS,
    caller_config,
    command_of,
    is_written,
    newest_spec,
    spec_config,
)
from clew.graph.stream import completed, message_channels, messages_in, missed, said, unknown, with_others
from clew.graph.stream_encoder import StreamEncoder
from clew.graph.suspensions import suspensions
from clew.graph.token_stream import TokenStream
from clew.history.agent_node import TENANT, USER
from clew.ports.clock import Clock
from clew.ports.run_context import RunContext

# As LangGraph's clients know it.
ATTEMPT = "run_attempt"
# A graph that takes more steps than this in one round loops; LangGraph's own limit is 10,007.
MAX_STEPS = 500
# A graph that stops to ask what was answered already is sent on at once; one that does so for ever is broken.
MAX_PASSES = 1000


class RoundDriver:
    """One attempt at one round: reads the position, carries out the decision, logs what the graph streams."""

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
        keep_parts: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._keep_parts = keep_parts
        self._stages = stages
        self._shows = shows
        self._parts = parts
        self._spec = newest_spec(log)
        self._fence = fence
        self._clock = clock
        self._speech = speech
        self._is_new = is_new
        self._graph = graph
        self._message_channels = message_channels(graph.channels)
        self._saver = saver
        self._run = run
        self._thread = thread = run.thread
        self._log = log
        self._config: RunnableConfig = {
            "configurable": {
                "thread_id": thread.id,
                FENCE: fence,
                TENANT: thread.owner.tenant,
                USER: thread.owner.user_id,
                **caller_config(log),
            },
            "metadata": {ROUND: thread.round},
            "recursion_limit": min((graph.config or {}).get("recursion_limit", MAX_STEPS), MOST_STEPS),
        }
        self._context = context_of(graph, self._spec)
        if self._spec is not None:
            self._config["metadata"][ATTEMPT] = failed_attempts(log) + 1
            self._config = spec_config(self._config, self._spec, self._context)

    async def bodies(self, control: RunControl) -> AsyncGenerator[Body, None]:
        found = await self._found()
        if found.state is not None:
            for body in await self._missed(found.state):
                yield body
        for _ in range(MAX_PASSES):
            decision = decide(self._log, found.position)
            if isinstance(decision, Done | Denied):
                return
            if isinstance(decision, Wait):
                for suspension in await self._suspensions(found, decision):
                    yield suspension
                return
            value = await self._input(found, decision)
            stopped = False
            async with aclosing(self._stream(value, control, found)) as parts:
                async for part in parts:
                    if part is None:
                        stopped = True
                    else:
                        yield part
            if not stopped:
                return
            # A tool may be at work beside one that stopped to ask; read while it works, its call would seem cut off.
            await self._run.idle()
            found = await self._stopped()
        raise Corrupt(f"graph {self._thread.graph!r} keeps asking what was answered")

    async def _found(self) -> GraphPosition:
        """The position before this attempt runs anything. A thread that never ran has no checkpoint to read."""
        if self._is_new:
            return GraphPosition(Position(has_begun=False))
        newest = await self._saver.aget_tuple(self._config)
        if newest is None or newest.metadata.get(ROUND) != self._thread.round:
            return GraphPosition(
                Position(has_begun=False, is_input_written=await self._is_input_written(newest))
            )
        return await read_position(self._graph, self._saver, self._config, newest=newest)

    async def _is_input_written(self, newest: CheckpointTuple | None) -> bool:
        """Whether an attempt before this one left the round's command beside the checkpoint it begins at."""
        spec = round_input(self._log).spec
        command = command_of(spec) if spec is not None else None
        if command is None:
            return False
        config = self._first_config()
        saved = newest if config is self._config else await self._saver.aget_tuple(config)
        return saved is not None and is_written(command, saved.pending_writes or ())

    async def _stopped(self) -> GraphPosition:
        """The position after the graph stopped in this attempt, with the tool calls that ask for something."""
        found = await read_position(self._graph, self._saver, self._config, has_stopped=True)
        calls = {one.call_id for one in found.position.interrupts if one.call_id is not None}
        asking = frozenset(call_id for call_id in calls if self._run.is_asking(call_id))
        return replace(found, position=replace(found.position, asking=asking))

    async def _suspensions(self, found: GraphPosition, wait: Wait) -> Sequence[Suspension]:
        """A graph that comes to a breakpoint again still holds the last decision: it is cleared before the next question."""
        stop = found.stop if wait.stopped_at is not None else None
        if stop is not None and await clear_decision(self._saver, stop, fence=self._fence):
            found = await read_position(self._graph, self._saver, self._config)
            wait = unanswered(self._log, found.position)
        return suspensions(wait, found.values, shows=self._shows, now=self._clock())

    async def _input(self, found: GraphPosition, decision: Begin | Resume | Continue) -> Any:
        """What LangGraph is given: an input, a command, or None to go on from the checkpoint."""
        match decision:
            case Begin():
                return await self._first_input(decision)
            case Resume(answers=answers):
                return command_of(self._spec, answers) if self._spec is not None else Command(resume=answers)
            case Continue(approved=approved):
                return None if approved is None else await self._decided(found, approved=approved)

    async def _first_input(self, begin: Begin) -> Any:
        """An approval of an earlier round must not pass this round's breakpoint."""
        command = command_of(begin.spec) if begin.spec is not None else None
        given: Json | Command[Any] = begin.input if command is None else command
        channel = ApprovalChannel.of(self._graph)
        if channel is None:
            return given
        if channel.takes_none:
            return {APPROVED: None} | given if isinstance(given, dict) else given
        if not self._is_new:
            await self._unset(channel)
        return given

    async def _unset(self, channel: ApprovalChannel) -> None:
        """Before the round begins: what the last one left to be done is not done any more, so it may be lost."""
        state = await self._graph.aget_state(self._config)
        saved = await self._saver.aget_tuple(self._config)
        if saved is not None and channel.is_decided(state.values):
            await channel.unset(self._saver, saved, fence=self._fence)

    async def _decided(self, found: GraphPosition, *, approved: bool) -> Command[Any] | None:
        """The input that writes a decision to the channel of the breakpoint."""
        told = {APPROVED: approved}
        if found.stop is None or not found.stop.is_nested:
            return Command(update=told)
        # A command goes to the whole graph, so what it would leave beside the checkpoint is left there by hand.
        place = found.stop.config["configurable"]
        await self._saver.aput_writes(
            {"configurable": {**place, FENCE: self._fence}}, [*told.items()], NULL_TASK
        )
        return None

    async def _stream(
        self, value: Any, control: RunControl, found: GraphPosition
    ) -> AsyncGenerator[Body | None, None]:
        """Bodies as their checkpoints become durable; None means that the graph stopped to ask.

        What a node returned is handed on when the next step begins: until then its checkpoint may be lost, and a
        log that knows more than the checkpoint would make a revived graph ask its model again.
        """
        given: dict[str, Any] = {}
        returned: list[Body] = []
        done = found.done
        modes: set[StreamMode] = {"tasks", "updates"}
        if self._speech is not None:
            modes.add("messages")  # only where it is read: it makes LangGraph follow every call inside a node
        if self._parts is not None:
            modes.update(self._parts.modes)
        stream = self._graph_stream(value, control, found, modes)
        try:
            async for *inside, mode, part in stream:
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
                    if self._keep_parts is not None:
                        # Before the checkpoint: after a kill the node does not run again, and does not repeat them.
                        await self._keep_parts()
                    bodies = completed(
                        part["name"], part["result"], given.pop(part["id"], None), self._message_channels
                    )
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
        finally:
            await stream.aclose()
        for body in returned:
            yield body

    def _graph_stream(
        self, value: Any, control: RunControl, found: GraphPosition, modes: Collection[StreamMode]
    ) -> AsyncGenerator[tuple[Any, ...]]:
        spec = self._spec
        config = self._config if found.position.has_begun else self._first_config()
        options: dict[str, Any] = {"context": self._context, "durability": "sync", "control": control}
        if self._parts is not None and self._parts.is_protocol:
            return protocol_stream(self._graph, value, config, options, self._parts.hear_protocol)
        options |= {"stream_mode": [*modes], "subgraphs": spec is not None and spec.subgraphs}
        if spec is None or self._parts is None or not self._parts.has_events:
            return self._graph.astream(value, config, **options)  # type: ignore[return-value]
        return self._with_events(value, {**config, "run_id": UUID(spec.run_id)}, options, self._parts)

    async def _with_events(
        self, value: Any, config: RunnableConfig, options: dict[str, Any], encoder: StreamEncoder
    ) -> AsyncGenerator[tuple[Any, ...]]:
        """The stream of the graph, picked out of its events. The other events go to the client."""
        events = cast(
            "AsyncGenerator[StreamEvent]", self._graph.astream_events(value, config, version="v2", **options)
        )
        async with aclosing(events):
            async for event in events:
                if event["event"] == "on_chain_stream" and event["run_id"] == str(config["run_id"]):
                    yield event["data"]["chunk"]
                else:
                    encoder.hear_event(event)

    def _first_config(self) -> RunnableConfig:
        """Where the round begins: where the thread stands, or where its run says."""
        spec = self._spec
        if spec is None or not spec.checkpoint_id:
            return self._config
        place = {"checkpoint_ns": "", "checkpoint_id": spec.checkpoint_id}
        return {**self._config, "configurable": {**self._config["configurable"], **place}}

    def _is_stage(self, node: str) -> bool:
        return self._stages is None or node in self._stages

    async def _missed(self, state: StateSnapshot) -> list[Body]:
        """What the checkpoint holds and the log does not: a kill came between the two."""
        # A task may have ended and its step not: then a channel that keeps a value for one step shows nothing of it.
        ended = [
            message for task in state.tasks for message in messages_in(task.result, self._message_channels)
        ]
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
