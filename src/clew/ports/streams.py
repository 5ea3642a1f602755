"""Streams: tokens and stream parts of runs."""

from collections.abc import (
    Callable,
    Sequence,
)
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Protocol

from clew.domain.events import RunSpec
from clew.domain.records import (
    StreamPart,
)
from clew.domain.views import Token


class TokenListener(Protocol):
    async def next(self) -> Token:
        """The next piece, made of all tokens of its message since. At most so many a second."""
        ...

    def forget(self, message: str) -> None:
        """Drop what is not handed out yet of a message: all of it can be read now."""
        ...


class StreamPartStore(Protocol):
    """Parts of streams that are kept for a while."""

    async def add(self, thread_id: str, run_id: str, some: Sequence[StreamPart], *, now: datetime) -> None:
        """Raises NotFound if the thread was deleted."""
        ...

    async def after(self, thread_id: str, run_id: str, number: int) -> Sequence[StreamPart]:
        """Some of those with a greater number, in order; none when there are none."""
        ...

    async def of_thread(self, thread_id: str, number: int) -> Sequence[StreamPart]:
        """The same over all runs of the thread."""
        ...

    async def newest(self, thread_id: str, up_to: int) -> StreamPart | None:
        """The part of the thread with the greatest number up to this one, if one is kept."""
        ...

    async def first(self, thread_id: str, run_id: str | None = None) -> int | None:
        """The least number of a kept part of the thread, or of one of its runs."""
        ...

    async def announce(self, process: str, threads: Sequence[str], *, until: timedelta) -> None:
        """For so long from now, by the database's clock, this process reads the parts of these threads."""
        ...

    async def read_elsewhere(self, process: str) -> Sequence[str]:
        """The threads whose parts are read in other processes."""
        ...

    async def forget(self, *, older_than: datetime, limit: int = 1000) -> int: ...


class PartReader(Protocol):
    async def next(self, seconds: float) -> StreamPart | None:
        """The next part; None if none came for so long."""
        ...


class StreamParts(Protocol):
    """What runs stream, part by part: live for its readers, kept for a while where the RunSpec says so."""

    def begin(self, thread_id: str, spec: RunSpec, *, attempt: int) -> Callable[[str, bytes], None]:
        """An attempt at the run begins: returns the function that publishes a part by name, as JSON. It never waits."""
        ...

    async def flush(self, run_id: str, *, at_end: bool = False) -> None:
        """Wait until what is to be kept of the run is kept; `at_end`, also for readers elsewhere who just came."""
        ...

    def end(self, run_id: str) -> None:
        """The attempt is over, however it went."""
        ...

    def follow(
        self, thread_id: str, run_id: str, *, after: int | None = None
    ) -> AbstractContextManager[PartReader]:
        """The parts from now on; with `after`, also those before that have a greater number, as far as they are kept."""
        ...

    def follow_thread(self, thread_id: str, *, after: int) -> AbstractContextManager[PartReader]:
        """The parts of all runs of a thread with a greater number, with their runs: of earlier ones those that are
        kept, and from now on all, wherever they run."""
        ...

    async def newest(self, thread_id: str, up_to: int) -> StreamPart | None:
        """The kept part of the thread with the greatest number up to this one."""
        ...

    async def first(self, thread_id: str, run_id: str | None = None) -> int | None:
        """The least number of a kept part of the thread, or of one of its runs."""
        ...

    async def tell_update(self, thread_id: str, *, fence: int) -> None:
        """Tell the thread's readers, under the name `STATE_UPDATE`, that its state was written by hand."""
        ...


class Tokens(Protocol):
    """Model output as it is generated. Stored nowhere; slow listeners miss tokens."""

    def say(self, token: Token) -> None:
        """Never waits."""
        ...

    def listen(self, wants: Callable[[Token], bool]) -> AbstractContextManager[TokenListener]: ...
