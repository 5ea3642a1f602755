"""Run context: one run as the nodes of its graph see it, with the ledger of its tools and the thread's memory.

A tool runs only after its call is in the log, and its result is in the log before the graph goes on from it.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from clew.domain.errors import Corrupt, NotFound, Unavailable
from clew.domain.events import (
    AssistantMessage,
    Body,
    DocumentAdded,
    Event,
    Log,
    Suspension,
    ToolCall,
    ToolResult,
)
from clew.domain.lifecycle import Stamp
from clew.domain.records import ModelCall, RunScope, Summary
from clew.domain.thread import Json, SuspensionKind, Thread
from clew.domain.tool_calls import (
    Ask,
    Call,
    CallStatus,
    Go,
    Settled,
    Terms,
    Verdict,
    approved,
    args_hash,
    fate,
    judge,
)
from clew.engine.recorder import LONGEST_WAIT, SHORTEST_WAIT, Recorder
from clew.failpoints import failpoint
from clew.ports.model_calls import ModelCalls, Summaries
from clew.ports.tool_calls import Calls

NO_USER = "this tool acts for a user, and no user is here"
CHANGED = "the arguments are not the ones that were asked for"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStores:
    """The stores a run reads and writes beside the log."""

    calls: Calls
    summaries: Summaries
    audit: ModelCalls | None = None
    # Whether what models are sent is kept. If not, then only what they answered when they failed.
    keeps_context: bool = False
    # Whether each call is kept without that: its model, its time and its tokens, for traces.
    keeps_usage: bool = False
    # Takes credentials out of what a provider answered.
    scrub: Callable[[str], str] = lambda text: text
    audit_rows: int | None = None
    # Output that models of this process are generating now, by thread; lost with the process.
    drafts: dict[str, str] = field(default_factory=dict)


class LocalRunContext:
    """Keeps which questions the run asked and which tools are under way."""

    def __init__(
        self,
        log: Iterable[Event],
        recorder: Recorder,
        memory: RunStores,
        *,
        fence: int,
        stamp: Callable[[], Stamp],
        scope: RunScope,
    ) -> None:
        bodies = [event.body for event in log]
        self._called = {body.call_id: None for body in bodies if isinstance(body, ToolCall)}  # in order
        self._answered = {body.call_id for body in bodies if isinstance(body, ToolResult)}
        self._said = {(body.ref, str(body.content)) for body in bodies if isinstance(body, AssistantMessage)}
        self._lines = {body.ref for body in bodies if isinstance(body, Log)}
        self._documents = {body.document_id for body in bodies if isinstance(body, DocumentAdded)}
        self._asked_before = Counter(body.call_id for body in bodies if isinstance(body, Suspension))
        self.asked: dict[str, Suspension] = {}
        self._recorder = recorder
        self._memory = memory
        self._drafts = memory.drafts
        self._calls = memory.calls
        self._fence = fence
        self._scope = scope
        self.stamp = stamp
        self._running: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def thread(self) -> Thread:
        return self._recorder.thread

    @property
    def scope(self) -> RunScope:
        return self._scope

    async def record(self, *bodies: Body) -> None:
        if any(isinstance(body, AssistantMessage) for body in bodies):
            self._drafts.pop(self.thread.id, None)
        if new := self._new(bodies):
            await self._recorder.record(*new)

    def note(self, *bodies: Body) -> None:
        if new := self._new(bodies):
            self._recorder.note(*new)

    async def begin(self, call: ToolCall, terms: Terms) -> Verdict:
        # It counts as under way from here on: a graph that stops meanwhile must not meet it half begun.
        self._running.add(call.call_id)
        self._idle.clear()
        verdict: Verdict | None = None
        try:
            verdict = await self._judged(call, terms)
        finally:
            if not isinstance(verdict, Go):
                self._stopped(call.call_id)
        return verdict

    async def _judged(self, call: ToolCall, terms: Terms) -> Verdict:
        known: Call | None = None
        if call.call_id in self._called:
            # The graph's own message may have brought it, and be on its way to the log: no effect comes before that.
            await self._recorder.flush()
            known = await self._known(call.call_id)
        if known is None:
            await self.record(call)
        elif known.name and args_hash(known.name, known.args) != args_hash(call.name, call.args):
            # The log decides: what was requested there, and perhaps approved, is what runs.
            return Settled(ok=False, result=None, error=CHANGED)
        failpoint("toolcall_logged")
        verdict = judge(call, known, terms, now=self.stamp().now)
        if isinstance(verdict, Go) and terms.needs_user and self._scope.is_system:
            await self.finish(call.call_id, ok=False, error=NO_USER)
            return Settled(ok=False, result=None, error=NO_USER)
        if isinstance(verdict, Settled) and known is not None and known.status.is_open:
            await self.finish(call.call_id, ok=verdict.ok, result=verdict.result, error=verdict.error)
        if isinstance(verdict, Ask):
            self.asked[call.call_id] = verdict.suspension
        elif isinstance(verdict, Go):
            await self._start(call, known)
        return verdict

    async def finish(self, call_id: str, *, ok: bool, result: Json = None, error: str = "") -> None:
        try:
            await self.record(ToolResult(call_id=call_id, ok=ok, result=result, error=error))
            failpoint("tool_result_logged")
        finally:
            self._stopped(call_id)

    async def pause(self, call_id: str) -> None:
        await self._calls.pause(self.thread.id, call_id, fence=self._fence)
        self._stopped(call_id)

    def abandon(self, call_id: str) -> None:
        self._stopped(call_id)

    async def fates(self, call_ids: Collection[str]) -> dict[str, Settled]:
        left = {call_id: await self._known(call_id) for call_id in call_ids}
        may_run: set[str] = set()
        if any(call is not None and call.kind is SuspensionKind.APPROVAL for call in left.values()):
            _, events = await self.transcript()
            may_run = approved(events)
        return {call_id: fate(call, is_approved=call_id in may_run) for call_id, call in left.items()}

    def asked_before(self, call_id: str) -> int:
        return self._asked_before[call_id]

    def is_asking(self, call_id: str) -> bool:
        return call_id in self.asked

    def wanted(self) -> dict[str, Suspension]:
        """The open questions of tools in the order the calls were made: tools that run side by side ask in any."""
        return {call_id: self.asked[call_id] for call_id in self._called if call_id in self.asked}

    async def transcript(self) -> tuple[Summary | None, Sequence[Event]]:
        await self._recorder.flush()
        summary, events = await self._memory.summaries.load_since(self.thread.id)
        # No model is sent what was redacted.
        return summary, [event for event in events if event.id not in self.thread.redacted]

    async def sum_up(self, from_seq: int, to_seq: int, content: Json, *, version: str) -> None:
        summary = Summary(
            from_seq=from_seq, to_seq=to_seq, content=content, version=version, created_at=self.stamp().now
        )
        await self._memory.summaries.add(self.thread.id, summary)
        failpoint("summary_written")

    def saying(self, text: str) -> None:
        self._drafts[self.thread.id] = text

    async def audit(self, call: ModelCall) -> None:
        memory = self._memory
        if memory.audit is None or not (memory.keeps_context or memory.keeps_usage or call.error):
            return
        if call.error:
            call = replace(call, error=memory.scrub(call.error))
        if not memory.keeps_context:
            call = replace(call, rendered_context={}, evictions=[])
        await memory.audit.add(call, keep=memory.audit_rows)

    async def idle(self) -> None:
        """Wait until no tool is under way: a graph may stop to ask while another of its tools still works."""
        await self._idle.wait()

    def _stopped(self, call_id: str) -> None:
        self._running.discard(call_id)
        if not self._running:
            self._idle.set()

    def _new(self, bodies: Iterable[Body]) -> list[Body]:
        """Without what is in the log already: a node that runs again after a crash returns it again."""
        new: list[Body] = []
        for body in bodies:
            match body:
                case ToolCall(call_id=call_id):
                    if call_id in self._called:
                        continue
                    self._called[call_id] = None
                case ToolResult(call_id=call_id):
                    if call_id in self._answered:
                        continue
                    self._answered.add(call_id)
                case AssistantMessage(ref=ref, content=content) if ref:
                    if (ref, str(content)) in self._said:
                        continue
                    self._said.add((ref, str(content)))
                case Log(ref=ref) if ref:
                    if ref in self._lines:
                        continue
                    self._lines.add(ref)
                case DocumentAdded(document_id=document_id):
                    if document_id in self._documents:
                        continue
                    self._documents.add(document_id)
                case _:
                    pass
            new.append(body)
        return new

    async def _known(self, call_id: str) -> Call | None:
        try:
            return await self._calls.get(self.thread.id, call_id)
        except NotFound:
            return None

    async def _seen(self, call_id: str, before: Call | None) -> Call | None:
        """The call as it is now, or as it was before while the store is away."""
        try:
            return await self._known(call_id)
        except Unavailable:
            return before

    async def _start(self, call: ToolCall, known: Call | None) -> None:
        wait = SHORTEST_WAIT
        marked: bool | None = None
        while marked is None:
            try:
                marked = await self._calls.start(
                    self.thread.id,
                    call.call_id,
                    idempotent=call.idempotent,
                    fence=self._fence,
                    now=self.stamp().now,
                )
            except Unavailable:
                # Perhaps it was marked and only the answer was lost. The run knows that the tool has not run, which
                # another attempt could not find out: a person would be asked whether it did.
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
                known = await self._seen(call.call_id, known)
        if not marked and (known is None or known.status is not CallStatus.STARTED):
            raise Corrupt(f"call {call.call_id!r} of thread {self.thread.id!r} cannot be marked as started")
        failpoint("tool_before_effect")
