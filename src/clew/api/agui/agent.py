"""AG-UI agent of one request: starts a run, answers what a thread asks, or connects to what is under way."""

import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator
from dataclasses import dataclass, replace
from uuid import uuid5

from ag_ui.core import (
    BaseEvent,
    MessagesSnapshotEvent,
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateSnapshotEvent,
    StepFinishedEvent,
    StepStartedEvent,
    TokenUsage,
)
from ag_ui.core.version import PROTOCOL_VERSION
from ag_ui.encoder import EventEncoder
from starlette.responses import Response, StreamingResponse

from clew.api.agui.interrupts import for_older_clients, outcome_of
from clew.api.agui.messages import as_shown, is_chat
from clew.api.agui.run_events import GIVEN, MODES, AguiEvents, shared_state
from clew.api.agui.run_input import answer_of, forwarded, news, parsed
from clew.api.credentials import Principal
from clew.api.events import Tell
from clew.api.followed_runs import NAMESPACE, THREAD, FollowedRun, FollowedRuns, RunCall, conversation_id
from clew.api.sdk.streaming import failure
from clew.domain.assistants import Assistant, Schemas, schema_fields
from clew.domain.errors import ClewError, InvalidState, NotFound
from clew.domain.records import StreamPart
from clew.domain.runs import Run, RunStatus
from clew.domain.thread import Json, Status, Thread

logger = logging.getLogger(__name__)

PING = b": ping\n\n"
_STEPS = (StepStartedEvent, StepFinishedEvent)
_encoder = EventEncoder()


def encoded(event: BaseEvent) -> bytes:
    return _encoder.encode(event).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class AguiAgent:
    runs: FollowedRuns
    caller: Principal
    assistant: Assistant
    schemas: Schemas
    cancels: bool = (
        False  # the run, when the client disconnects; else the run goes on, and a client connects again
    )

    async def answer(self, body: dict[str, Json]) -> Response:
        """Raises Invalid, Forbidden, NotFound, InvalidState."""
        given = parsed(body)
        props = forwarded(given)
        owner = self.caller.owner
        thread_id = conversation_id(self.caller.itself, given.thread_id)
        thread = await self.runs.thread(thread_id, owner)
        run_id = str(uuid5(NAMESPACE, f"{owner.tenant}\n{thread_id}\n{given.run_id}"))
        if thread is not None and (run := await self._find(thread, run_id)) is not None:
            return await self._connect(given, thread, run)  # the client sends its request again
        values = await self._values(thread)
        found = news(given, values, schema_fields(self.schemas.input))
        call = RunCall(
            assistant=self.assistant,
            thread_id=thread_id,
            modes=MODES,
            subgraphs=True,
            config=props.config,
            run_id=run_id,
            keeps_parts=True,
            once=True,
        )
        answer = answer_of(given, props, thread)
        if answer is not None:
            if thread is None or not thread.pending:
                raise InvalidState(f"thread {given.thread_id!r} asks nothing, so nothing can be resumed")
            update = found.values if found and not answer.is_result else None
            call = replace(
                call, resumes=True, resume=answer.resume, update=update, decides=not answer.is_result
            )
        elif found and not (thread is not None and thread.status is Status.BLOCKED):
            self._name_lost_tools(given)
            call = replace(call, input=found.values)
        else:
            # Nothing is new, or the thread waits for answers first.
            return await self._connect(given, thread, await self._under_way(thread))
        followed = await self.runs.start(self.caller, call)
        return self._stream(given, followed)

    async def _connect(self, given: RunAgentInput, thread: Thread | None, run: Run | None) -> Response:
        """The state of a thread, and its run from the first part that is kept."""
        if run is not None:
            return self._stream(given, await self.runs.follow(self.caller, run), replays=True)
        events = [*_rest(given, thread, await self._values(thread))]
        headers = {} if thread is None else {THREAD: thread.id}
        return StreamingResponse(
            (encoded(event) for event in events), media_type="text/event-stream", headers=headers
        )

    def _stream(self, given: RunAgentInput, followed: FollowedRun, *, replays: bool = False) -> Response:
        run = followed.run
        headers = {THREAD: run.thread_id, "Content-Location": f"/threads/{run.thread_id}/runs/{run.id}"}
        told = ToldRun(followed, given, self.schemas, replays=replays)
        return self.runs.stream(self.caller, followed, told.tell, headers, cancels=self.cancels)

    async def _find(self, thread: Thread, run_id: str) -> Run | None:
        try:
            return await self.runs.runs.get(thread, run_id)
        except NotFound:
            return None

    async def _under_way(self, thread: Thread | None) -> Run | None:
        if thread is None or thread.status is not Status.RUNNING:
            return None
        runs = await self.runs.runs.list(thread, newest=True)
        return next((run for run in runs if not run.status.is_over), None)

    async def _values(self, thread: Thread | None) -> Json:
        if thread is None or not thread.graph:
            return {}
        return await self.runs.runs.output(thread)

    def _name_lost_tools(self, given: RunAgentInput) -> None:
        """A graph that has no place for the client's tools never calls them."""
        names = schema_fields(self.schemas.input)
        if given.tools and names is not None and names.isdisjoint(GIVEN):
            logger.warning(
                "the graph has none of the keys tools, ag-ui and copilotkit for a client's tools",
                extra={"graph": self.assistant.graph, "count": len(given.tools)},
            )


class ToldRun:
    """A run as AG-UI's events. With `replays`, of what was streamed before: the state, and what is not in it yet."""

    def __init__(
        self, followed: FollowedRun, given: RunAgentInput, schemas: Schemas, *, replays: bool
    ) -> None:
        self._followed = followed
        self._given = given
        self._shown = schema_fields(schemas.output)
        self._replays = replays

    async def tell(self, tell: Tell) -> None:
        try:
            async for event in self._events():
                await tell(PING if event is None else encoded(event))
        except ClewError as exc:
            await tell(encoded(RunErrorEvent(message=str(exc), code=exc.code)))

    async def _events(self) -> AsyncGenerator[BaseEvent | None]:
        yield _started(self._given)
        events = AguiEvents(self._shown)
        if self._replays:
            backlog = await self._followed.backlog()
            output = await self._followed.output()
            for event in _snapshots(output):
                yield event
            events = AguiEvents(self._shown, known=_ids(output))
            for event in _unknown(events, backlog):
                yield event
        async for part in self._followed.parts():
            if part is None:
                yield None
                continue
            if events.repeats(part):
                for event in (*events.close(), *_snapshots(await self._followed.output())):
                    yield event
            for event in events.hear(part):
                yield event
        for event in events.close():
            yield event
        for event in await self._end(events.usage):
            yield event

    async def _end(self, usage: list[TokenUsage] | None) -> list[BaseEvent]:
        run = self._followed.run
        output = await self._followed.output()
        if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            told = failure(run)
            error = RunErrorEvent(message=told["message"], code=told["error"], usage=usage)
            return [*_snapshots(output), error]
        is_cancelled = run.status is RunStatus.INTERRUPTED
        thread = await self._followed.thread()
        return [
            *_snapshots(output),
            *_finished(self._given, thread, output, is_cancelled=is_cancelled, usage=usage),
        ]


def _unknown(events: AguiEvents, backlog: Iterable[StreamPart]) -> Iterator[BaseEvent]:
    """Of the newest attempt, what snapshots do not show: active steps, and messages that are being said."""
    told: list[BaseEvent] = []
    for part in backlog:
        if events.repeats(part):
            told = []
            deque(events.close(), maxlen=0)
        if part.name != "values":
            told += [event for event in events.hear(part) if not isinstance(event, _STEPS)]
    yield from events.steps()
    yield from told


def _started(given: RunAgentInput) -> RunStartedEvent:
    return RunStartedEvent(
        thread_id=given.thread_id,
        run_id=given.run_id,
        parent_run_id=given.parent_run_id,
        protocol_version=PROTOCOL_VERSION if given.protocol_version else None,
    )


def _rest(given: RunAgentInput, thread: Thread | None, output: Json) -> Iterator[BaseEvent]:
    """A thread on which nothing runs."""
    yield _started(given)
    yield from _snapshots(output)
    if thread is None:
        yield RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id)
    else:
        yield from _finished(given, thread, output)


def _snapshots(output: Json) -> Iterator[BaseEvent]:
    yield StateSnapshotEvent(snapshot=shared_state(output))
    if is_chat(output):
        yield MessagesSnapshotEvent(messages=as_shown(output["messages"]))


def _finished(
    given: RunAgentInput,
    thread: Thread,
    output: Json,
    *,
    is_cancelled: bool = False,
    usage: list[TokenUsage] | None = None,
) -> Iterator[BaseEvent]:
    outcome = outcome_of(thread, output, is_cancelled=is_cancelled)
    yield from for_older_clients(outcome)
    # Clients from before 1.0 that see an outcome do not answer the event above.
    told = outcome if given.protocol_version else None
    yield RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id, outcome=told, usage=usage)


def _ids(output: Json) -> set[str]:
    return {str(one.get("id")) for one in output["messages"]} if is_chat(output) else set()
