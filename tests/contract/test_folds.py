"""Whatever commands came in whatever order: the rows are what the log alone tells."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clew.domain.errors import InvalidState
from clew.domain.events import (
    AssistantMessage,
    Body,
    DocumentAdded,
    Event,
    Log,
    StageChanged,
    StageCompleted,
    Suspension,
    ToolCall,
    ToolResult,
    UserMessage,
    rebuild,
)
from clew.domain.lifecycle import (
    Change,
    Stamp,
    begin,
    expire,
    finish,
    next_round,
    record,
    redact,
    resolve,
    retry_round,
    stop,
)
from clew.domain.thread import Executor, Status, SuspensionKind, Thread
from clew.domain.tool_calls import Call, CallStatus, fold_calls
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.stores.sql.threads import ThreadRows
from clew.stores.sql.tool_calls import CallRows
from clew.stores.sqlite import open_sqlite
from tests.samples import NOW, new_id, opened, suspend

call_ids = st.sampled_from(["a", "b", "c"])
executors = st.sampled_from(Executor)
texts = st.sampled_from(["", "hi", "é\0", "[]"])
answers = st.sampled_from([None, True, "", {"retry": True}, [1, {"x": None}], 10**30])
tool_calls = st.builds(
    ToolCall,
    call_id=call_ids,
    name=st.just("tool"),
    args=answers,
    executor=executors,
    idempotent=st.booleans(),
)
results = st.builds(ToolResult, call_id=call_ids, ok=st.booleans(), result=answers, error=texts)
suspensions = st.builds(
    Suspension,
    call_id=call_ids,
    executor=executors,
    kind=st.sampled_from([kind for kind in SuspensionKind if kind]),
    prompt=answers,
    deadline=st.sampled_from([None, NOW]),
)
words = st.one_of(
    st.builds(UserMessage, content=texts),
    st.builds(
        AssistantMessage, content=st.just([{"type": "text", "text": "hm"}]), tokens_in=st.integers(0, 9)
    ),
    st.builds(Log, message=texts, progress=st.none() | st.integers(0, 100)),
    st.builds(StageChanged, stage=texts),
    st.builds(StageCompleted, stage=texts, output=answers),
    st.builds(DocumentAdded, document_id=texts, name=texts),
)
ends = st.sampled_from([Status.COMPLETED, Status.FAILED, Status.STOPPED])


class ThreadMachine(RuleBasedStateMachine):
    """One thread in a database in memory, and its log as the commands made it."""

    store: Store
    calls: Calls

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._now = NOW
        self.thread: Thread | None = None
        self.log: list[Event] = []
        db = self._runner.run(self._open.enter_async_context(open_sqlite(None)))
        self.store, self.calls = ThreadRows(db), CallRows(db)

    def teardown(self) -> None:
        self._runner.run(self._open.aclose())
        self._runner.close()

    def command(self, decide: Callable[[Thread, Stamp], Change]) -> None:
        """Decide and save, or be refused and save nothing."""
        assert self.thread is not None
        self._now += timedelta(seconds=13)
        try:
            change = decide(self.thread, Stamp(self._now, new_id))
        except InvalidState:
            return
        self._runner.run(self.store.commit(change))
        self.thread = change.thread
        self.log += change.events

    def known(self) -> dict[str, Call]:
        return fold_calls({}, self.log)

    @initialize(held=st.booleans(), message=st.none() | texts)
    def opens(self, held: bool, message: str | None) -> None:
        change = opened(message=message, held=held, ttl=timedelta(hours=1))
        self._runner.run(self.store.commit(change))
        self.thread = change.thread
        self.log = list(change.events)

    @rule(bodies=st.lists(words | tool_calls | results, min_size=1, max_size=4))
    def happens(self, bodies: list[Body]) -> None:
        self.command(lambda thread, stamp: record(thread, bodies, stamp=stamp))

    @rule(asked=st.lists(suspensions, min_size=1, max_size=3, unique_by=lambda one: one.call_id))
    def waits(self, asked: list[Suspension]) -> None:
        self.command(lambda thread, stamp: suspend(thread, asked, stamp=stamp))

    @precondition(lambda self: self.thread is not None and self.thread.pending)
    @rule(data=st.data(), answer=answers, approved=st.booleans())
    def is_answered(self, data: st.DataObject, answer: object, approved: bool) -> None:
        call = data.draw(self._pending())
        self.command(lambda thread, stamp: resolve(thread, call, answer, stamp=stamp, approved=approved))

    @precondition(lambda self: self.thread is not None and self.thread.pending)
    @rule(data=st.data())
    def is_not_answered(self, data: st.DataObject) -> None:
        call = data.draw(self._pending())
        self.command(lambda thread, stamp: expire(thread, call, stamp=stamp))

    @rule(call_id=call_ids)
    def is_carried_out(self, call_id: str) -> None:
        for lease in self._runner.run(self.store.claim("r1", lease=timedelta(0), limit=1)):
            self._runner.run(self.calls.start("t1", call_id, fence=lease.fence, now=self._now))

    @rule()
    def is_stopped(self) -> None:
        still_open = [call for call in self.known().values() if call.status.is_open]
        self.command(lambda thread, stamp: stop(thread, still_open, stamp=stamp))

    @rule(status=ends, notes=st.lists(words | tool_calls | results, max_size=3))
    def ends(self, status: Status, notes: list[Body]) -> None:
        self.command(lambda thread, stamp: finish(thread, status, stamp=stamp, reason="why", notes=notes))

    @rule(message=st.none() | texts)
    def goes_on(self, message: str | None) -> None:
        self.command(lambda thread, stamp: next_round(thread, message, stamp=stamp))
        self.command(lambda thread, stamp: begin(thread, stamp=stamp))

    @rule()
    def is_taken_up(self) -> None:
        self.command(lambda thread, stamp: retry_round(thread, stamp=stamp))

    @rule(data=st.data(), document_id=st.sampled_from(["", "d1"]))
    def is_redacted(self, data: st.DataObject, document_id: str) -> None:
        event_id = data.draw(st.sampled_from([event.id for event in self.log]))
        self.command(lambda thread, stamp: redact(thread, event_id, stamp=stamp, document_id=document_id))

    @invariant()
    def the_log_is_what_happened_and_tells_the_thread(self) -> None:
        if self.thread is None:
            return
        stored = self._runner.run(self.store.read("t1"))
        assert stored == self.log
        row = self._runner.run(self.store.get("t1"))
        assert rebuild(stored) == row == self.thread
        assert rebuild(stored).fsm_state == row.fsm_state

    @invariant()
    def a_thread_waits_exactly_while_somebody_is_asked(self) -> None:
        if self.thread is not None:
            assert (self.thread.status is Status.BLOCKED) == bool(self.thread.pending)

    @invariant()
    def the_calls_are_what_the_log_tells_but_for_the_mark(self) -> None:
        rows = {call.id: _unmarked(call) for call in self._runner.run(self.calls.find("t1"))}
        assert rows == self.known()

    def _pending(self) -> st.SearchStrategy[Call]:
        assert self.thread is not None
        known = self.known()
        return st.sampled_from([known[call_id] for call_id in self.thread.pending])


def _unmarked(call: Call) -> Call:
    status = CallStatus.PENDING if call.status is CallStatus.STARTED else call.status
    return replace(call, started_at=None, status=status)


TestThreadMachine = pytest.mark.fault("C9")(ThreadMachine.TestCase)
TestThreadMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
