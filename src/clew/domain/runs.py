"""Runs, in LangGraph's terms: as a client requests one, as a thread's log shows them, and which URLs they may call."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from clew.domain.errors import InvalidState
from clew.domain.events import (
    Event,
    Resolution,
    RoundFinished,
    RoundStarted,
    RunSpec,
    Suspension,
    ToolResult,
)
from clew.domain.records import Incoming
from clew.domain.redaction import lacks_a_message
from clew.domain.thread import Json, Status, Thread
from clew.domain.tool_calls import GATE

# How LangGraph writes the id of an interrupt.
_INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")
# The inbox source of queued runs.
SOURCE = "langgraph"
DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}
# The events that say which runs there were and how they ended.
RUN_EVENTS = frozenset(
    {RoundStarted.type, RoundFinished.type, Suspension.type, Resolution.type, ToolResult.type}
)


class RunStatus(StrEnum):
    """In LangGraph's terms. A run that ended with an interrupt counts as a success."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"  # cancelled

    @property
    def is_over(self) -> bool:
        return self not in (RunStatus.PENDING, RunStatus.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One run as a client asks for it. A run that has to wait is queued as this."""

    spec: RunSpec
    input: Json = None
    message: Json = None
    resumes: bool = False  # with `resume`, which may be any value
    resume: Json = None
    user_id: str = ""
    asked_at: datetime
    not_before: datetime | None = None
    creates_thread: bool = False
    is_chosen: bool = False  # the client chose the id of that thread
    cron_id: str = ""  # of the cron that asks for it
    priority: int | None = None  # of this and all later runs of the thread; None leaves it as it is
    once: bool = False  # the same run may be asked for again: then AlreadyDone is raised

    @property
    def delay(self) -> timedelta:
        return timedelta() if self.not_before is None else self.not_before - self.asked_at

    @property
    def says_nothing(self) -> bool:
        return not self.resumes and self.input is None and self.spec.command is None

    def admission(self, thread_id: str) -> Incoming | None:
        """The inbox row that keeps this run from being started twice; a queued run has the same one."""
        if not self.once:
            return None
        run_id = self.spec.run_id
        return Incoming(
            source=SOURCE, source_id=run_id, fingerprint=run_id, payload=None, thread_id=thread_id
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run as it is shown."""

    thread_id: str
    spec: RunSpec
    input: Json
    status: RunStatus
    created_at: datetime
    updated_at: datetime
    first_seq: int = 0  # of its first event in the log; 0 while it is queued
    reason: str = ""  # why it failed
    error: str = ""  # the same in the words of what failed
    asked: Mapping[str, Json] = field(default_factory=dict)  # what it ended with asking, by call

    @property
    def id(self) -> str:
        return self.spec.run_id


_ENDS: Mapping[Status, RunStatus] = {
    Status.COMPLETED: RunStatus.SUCCESS,
    Status.STOPPED: RunStatus.INTERRUPTED,
    Status.FAILED: RunStatus.ERROR,
}


def runs_of(log: Iterable[Event]) -> list[Run]:
    """Every run in this part of a log, in order. Which other rounds there were does not matter.

    A run whose round is answered, or resumed after a failure, without a new RunSpec is running again.
    """
    runs: list[Run] = []
    current: Run | None = None
    round_number = 0
    waits: set[str] = set()

    def begins(event: Event, spec: RunSpec, given: Json) -> None:
        nonlocal current, round_number
        current, round_number = _begun(event, spec, given), event.round
        runs.append(current)

    def goes_on(event: Event) -> None:
        nonlocal current
        if runs and event.round == round_number:
            current = replace(
                runs[-1], status=RunStatus.RUNNING, updated_at=event.at, reason="", error="", asked={}
            )
            runs[-1] = current

    def ends(event: Event, status: RunStatus, reason: str = "", error: str = "") -> None:
        nonlocal current
        if current is not None:
            runs[-1] = replace(current, status=status, updated_at=event.at, reason=reason, error=error)
            current = None

    for event in log:
        match event.body:
            case RoundStarted(spec=RunSpec() as spec, input=given):
                begins(event, spec, given)
            case RoundStarted():
                goes_on(event)
            case Resolution(spec=RunSpec() as spec, call_id=call_id):
                waits.discard(call_id)
                begins(event, spec, None)
                if waits:
                    # Some of what was asked is still open: the graph is not asked to go on.
                    ends(event, RunStatus.SUCCESS)
            case Resolution(call_id=call_id):
                waits.discard(call_id)
                if not waits:
                    goes_on(event)
            case ToolResult(call_id=call_id):
                waits.discard(call_id)
            case Suspension(call_id=call_id, prompt=prompt):
                waits.add(call_id)
                ends(event, RunStatus.SUCCESS)
                if runs and event.round == round_number and not call_id.startswith(GATE):
                    runs[-1] = replace(runs[-1], asked={**runs[-1].asked, call_id: prompt})
            case RoundFinished(status=status, reason=reason, error=error):
                waits.clear()
                timed_out = status is Status.FAILED and reason.startswith("timeout:")
                ends(event, RunStatus.TIMEOUT if timed_out else _ENDS[status], reason, error)
            case _:
                pass
    return runs


def newest_run(thread: Thread, events: Iterable[Event]) -> Run:
    """The run that these events of one commit started, and that left the thread like this."""
    run = runs_of(events)[-1]
    if thread.status is Status.BLOCKED:  # it answered some of what was asked: the others are still open
        run = replace(run, status=RunStatus.SUCCESS)
    return unquoted(run) if lacks_a_message(thread) else run


def undone(run_id: str) -> str:
    """How a thread remembers that what the run led to is not to be built on."""
    return f"undone/{run_id}"


def unquoted(run: Run) -> Run:
    """The run without what its graph was given: that may quote a redacted message."""
    return replace(run, input=None, spec=replace(run.spec, command=None), asked={})


def still_asked(thread: Thread, interrupts: Iterable[Mapping[str, Json]]) -> list[Json]:
    """The interrupts of a blocked graph that are still open, and those LangGraph does not know of: it stops at the
    first of several tools that ask, and forgets its interrupts when a state is written by hand."""
    known = {one["id"]: one for one in interrupts}
    return [
        known.get(call_id, {"id": call_id, "value": asked.prompt})
        for call_id, asked in thread.pending.items()
        if not call_id.startswith(GATE)
    ]


def names_questions(resume: Json, known: Collection[str] = ()) -> bool:
    """Whether a `resume` says by id which question each answer is for; otherwise it is one answer.

    LangGraph's rule is that all keys are ids of interrupts. `known` are further ids, of tool calls.
    """
    return (
        isinstance(resume, dict)
        and bool(resume)
        and all(_INTERRUPT_ID.fullmatch(key) or key.startswith(GATE) or key in known for key in resume)
    )


def answers_in(thread: Thread, resume: Json, known: Collection[str] = ()) -> dict[str, Json]:
    """Which question each answer is for: by its id, or without one if there is only one to answer.

    `known` are ids of tool calls of this thread. Raises InvalidState for an id that waits for no answer: taken for the
    answer itself, it would approve whatever is asked now.
    """
    if not thread.pending:
        raise InvalidState(f"thread {thread.id!r} is {thread.status} and waits for no answer")
    if isinstance(resume, dict) and (
        names_questions(resume, {*known, *thread.pending}) or not thread.pending.keys().isdisjoint(resume)
    ):
        if stale := sorted(resume.keys() - thread.pending.keys()):
            raise InvalidState(f"thread {thread.id!r} waits for no answer to {', '.join(map(repr, stale))}")
        return resume
    if len(thread.pending) > 1:
        raise InvalidState(
            f"thread {thread.id!r} waits for {len(thread.pending)} answers; give each by its id"
        )
    return dict.fromkeys(thread.pending, resume)


def answers_pending(thread: Thread, resume: Json) -> bool:
    """Whether these are answers by the ids of what the thread asks now."""
    return isinstance(resume, dict) and bool(resume) and all(key in thread.pending for key in resume)


def _begun(event: Event, spec: RunSpec, given: Json) -> Run:
    return Run(
        thread_id=event.thread_id,
        spec=spec,
        input=given,
        status=RunStatus.RUNNING,
        created_at=event.at,
        updated_at=event.at,
        first_seq=event.seq,
    )


# Under which a node finds who is calling, and which request that was. A node trusts what stands there.
AUTH: Final = ("langgraph_auth", "langgraph_request_id")
# And where in which thread it is, under which fence, and what LangGraph keeps there for itself.
RESERVED: Final = (*AUTH, "clew_", "__", "checkpoint_", "thread_id")


def is_free(name: str) -> bool:
    return not name.startswith(RESERVED)


def without_auth(given: Mapping[str, Json]) -> dict[str, Json]:
    """What a caller may say: everything but who it is."""
    return {name: value for name, value in given.items() if not name.startswith(AUTH)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPolicy:
    """What an operator says of the URLs that runs may call, and of what is sent there.

    Nothing is ruled out unless it is said. Addresses of this machine's network have rules of their own besides.
    """

    requires_https: bool = False
    domains: tuple[str, ...] = ()
    """Hosts; `*.example.com` is any host below that one. All, if none is named."""
    ports: tuple[int, ...] = ()
    max_length: int = 4096
    allows_loopback: bool = True
    allows_private: bool = True
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every call. They may be secrets."""
    fields: Collection[str] | None = None
    """Of the body, those that are sent. None is all."""

    def why_refused(self, *, scheme: str, host: str, port: int | None, length: int) -> str | None:
        if length > self.max_length:
            return f"is longer than {self.max_length} characters"
        if self.requires_https and scheme != "https":
            return "must begin with https://"
        if self.ports and (port or DEFAULT_PORTS.get(scheme)) not in self.ports:
            return "has a port that this server does not call"
        if self.domains and not any(_matches(host.lower(), domain) for domain in self.domains):
            return "has a host that this server does not call"
        return None


def _matches(host: str, domain: str) -> bool:
    return host.endswith(domain[1:]) if domain.startswith("*.") else host == domain
