"""Run context: a run as the nodes of its graph see it."""

from collections.abc import (
    Collection,
    Mapping,
    Sequence,
)
from typing import Protocol

from clew.domain.events import Body, Event, ToolCall
from clew.domain.lifecycle import Stamp
from clew.domain.records import (
    ModelCall,
    RunScope,
    Summary,
)
from clew.domain.thread import Json, Thread
from clew.domain.tool_calls import Settled, Terms, Verdict


class Ledger(Protocol):
    """What a running graph records in the log: what it did, and which tools it wants to run."""

    @property
    def thread(self) -> Thread:
        """The thread as this run knows it."""
        ...

    @property
    def scope(self) -> RunScope:
        """On whose behalf the run goes on. Handed in with the command that woke the thread, never stored."""
        ...

    async def record(self, *bodies: Body) -> None:
        """Durable on return. Raises LostLease, NotFound or InvalidState once the thread is no longer this run's."""
        ...

    def note(self, *bodies: Body) -> None:
        """Recorded soon, and before anything recorded later; for what nothing waits for."""
        ...

    async def begin(self, call: ToolCall, terms: Terms) -> Verdict:
        """Log the call unless it is known, and say what to do with it; Go means it is marked as started."""
        ...

    async def finish(self, call_id: str, *, ok: bool, result: Json = None, error: str = "") -> None:
        """Log the result of a call that was carried out."""
        ...

    async def pause(self, call_id: str) -> None:
        """A tool that was begun stopped to ask something itself; it will be begun again."""
        ...

    def abandon(self, call_id: str) -> None:
        """A tool that was begun was cut off: the run does not wait for it any more."""
        ...

    async def fates(self, call_ids: Collection[str]) -> Mapping[str, Settled]:
        """What a model is sent of calls that an earlier round left: their results, or how far they came."""
        ...

    def asked_before(self, call_id: str) -> int:
        """How often this round stopped for this call."""
        ...

    def is_asking(self, call_id: str) -> bool:
        """Whether this run needs an answer about the call from a person or a client."""
        ...


class RunContext(Ledger, Protocol):
    """A run as the graph inside it sees it: the ledger, and what the thread remembers."""

    async def transcript(self) -> tuple[Summary | None, Sequence[Event]]:
        """The summary that reaches furthest and the events after it, this run's own included."""
        ...

    async def sum_up(self, from_seq: int, to_seq: int, content: Json, *, version: str) -> None:
        """Keep a summary of these events."""
        ...

    def saying(self, text: str) -> None:
        """What the model has generated of its answer so far; a stop in the middle keeps it, marked as cancelled."""
        ...

    async def audit(self, call: ModelCall) -> None:
        """Keep what was sent to a model, where that is switched on."""
        ...

    async def idle(self) -> None:
        """Wait until no tool is under way."""
        ...

    def stamp(self) -> Stamp:
        """The time, and where ids come from."""
        ...
