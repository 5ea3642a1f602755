"""Thread follower: the runs of one thread in order, each with its beginning, its stream parts and its end."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pydantic_core import from_json, to_json

from clew.domain.records import StreamPart
from clew.domain.redaction import without
from clew.domain.runs import Run
from clew.domain.thread import Owner, Thread
from clew.engine.redaction import redacted_texts
from clew.engine.runs import Runs
from clew.engine.stream_parts import ENDS, PARTS
from clew.ports.streams import PartReader

# How often the log is read without a notification.
LOOK_SECONDS = 2.0
# The same after a part: the notification of it may have been that of the run's end too.
SETTLE_SECONDS = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunBegan:
    run: Run
    number: int | None  # None before its first part


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    run: Run
    number: int


@dataclass(frozen=True, slots=True)
class Quiet:
    """Nothing happened for a while."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """All that was kept is told. Once."""


Heard: TypeAlias = RunBegan | RunEnded | StreamPart | Quiet | CaughtUp


class ThreadFollower:
    """Reads the log and the stream parts of a thread for one client, who has seen everything up to `after`.

    Beginnings and ends come from the log. Their numbers come from the parts of the run, so that every reader gets the
    same ones. Of runs that were over before this reader came, those are told that have parts to tell.
    """

    def __init__(
        self,
        runs: Runs,
        owner: Owner,
        thread_id: str,
        reader: PartReader,
        *,
        after: int,
        seen: StreamPart | None,
    ) -> None:
        """`seen` is the newest part that the client has seen, if it is kept."""
        self._runs = runs
        self._owner = owner
        self._thread_id = thread_id
        self._reader = reader
        self._after = after
        self._seen = seen
        self._last = after
        self._known: Sequence[Run] = ()  # in the order of the log
        self._open: dict[str, int] = {}  # begun and not ended, by run: the number of its last part
        self._told: set[str] = set()  # ended
        self._redacted: frozenset[str] = frozenset()
        self._hidden: Sequence[str] = ()

    async def heard(self) -> AsyncGenerator[Heard]:
        """For ever. Raises NotFound once the thread is deleted."""
        await self._begin()
        is_quiet = is_caught_up = settles = False
        while True:
            is_ending = self._is_ending()
            wait = SETTLE_SECONDS if settles else LOOK_SECONDS
            part = await self._reader.next(wait if is_caught_up and not is_ending else 0)
            settles = is_ending or part is not None
            if part is not None:
                is_quiet = False
                for each in await self._before(part):
                    yield each
                if part.run_id:
                    self._open[part.run_id] = part.number
                self._last = max(self._last, part.number)
                yield self._shown(part)
                continue
            for each in self._ends() if is_ending else await self._look():
                is_quiet = False
                yield each
            if not is_caught_up and not is_ending and not self._is_ending():
                is_caught_up = True
                yield CaughtUp()
            elif is_quiet:
                yield Quiet()
            is_quiet = not is_ending

    async def _begin(self) -> None:
        thread = await self._read()
        self._known = await self._runs.since(thread, thread.round_seq)
        self._told = {run.id for run in self._known if run.status.is_over}
        seen = self._seen
        if seen is not None and seen.run_id and self._after < end_number(seen.number):
            if seen.run_id not in {run.id for run in self._known}:
                self._known = await self._runs.since(thread, 0)
                self._told = {run.id for run in self._known if run.status.is_over}
            self._told.discard(seen.run_id)
            self._open[seen.run_id] = seen.number

    async def _before(self, part: StreamPart) -> list[Heard]:
        """What comes before the first part of a run, and before a part of none: the ends of others, and its beginning."""
        if part.run_id in self._open:
            return []
        thread = await self._read()
        await self._reread(thread)
        if part.run_id and part.run_id not in {run.id for run in self._known}:  # it is older
            earlier = await self._runs.since(thread, 0)
            new = {run.id for run in self._known}
            self._told |= {run.id for run in earlier if run.id not in new}
            self._known = earlier
        heard: list[Heard] = []
        for run in self._known:
            if run.id == part.run_id:
                self._told.discard(run.id)
                heard.append(RunBegan(run=run, number=part.number // PARTS * PARTS))
                break
            heard += self._changes(run)
        return heard

    async def _look(self) -> list[Heard]:
        """What the log says that was not told yet. What ended is told once no part of it is left."""
        await self._reread(await self._read())
        heard: list[Heard] = []
        for run in self._known:
            if run.id not in self._open and self._is_new(run):
                self._open[run.id] = 0
                heard.append(RunBegan(run=run, number=None))
            if run.id in self._open and run.status.is_over:
                break  # its end comes before the beginning of the next
        return heard

    def _changes(self, run: Run) -> Iterator[Heard]:
        if run.id not in self._open and self._is_new(run):
            self._open[run.id] = 0
            yield RunBegan(run=run, number=None)
        if run.id in self._open and run.status.is_over:
            yield self._end(run)

    def _is_new(self, run: Run) -> bool:
        if not run.status.is_over:
            self._told.discard(run.id)  # it goes on: it was answered, or tried again
        return run.id not in self._told

    def _is_ending(self) -> bool:
        return any(run.status.is_over and run.id in self._open for run in self._known)

    def _ends(self) -> list[Heard]:
        return [self._end(run) for run in self._known if run.status.is_over and run.id in self._open]

    def _end(self, run: Run) -> RunEnded:
        last = self._open.pop(run.id)
        self._told.add(run.id)
        number = max(end_number(last) if last else 0, self._last + 1)
        self._last = number
        return RunEnded(run=run, number=number)

    async def _reread(self, thread: Thread) -> None:
        """The runs from the first that is not over, or from the newest."""
        first = next((run for run in self._known if run.id in self._open or not run.status.is_over), None)
        first = first or (self._known[-1] if self._known else None)
        self._known = await self._runs.since(thread, first.first_seq if first else 0)

    async def _read(self) -> Thread:
        thread = await self._runs.store.get(self._thread_id, self._owner)
        if thread.redacted != self._redacted:
            self._redacted = frozenset(thread.redacted)
            self._hidden = await redacted_texts(self._runs.store, thread)
        return thread

    def _shown(self, part: StreamPart) -> StreamPart:
        if not self._hidden:
            return part
        return replace(part, data=to_json(without(from_json(part.data), self._hidden)))


def end_number(number: int) -> int:
    """The number of the end of a run that has a part of this number."""
    return number // PARTS * PARTS + ENDS
