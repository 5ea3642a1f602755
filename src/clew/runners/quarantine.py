"""Quarantine of crash loops: of the threads that nearly were given up, a process runs one at a time."""

from collections.abc import Callable, Collection

from clew.domain.records import Lease

ANY_NUMBER = 2**31 - 1


class Quarantine:
    """A thread that crashes its process takes the other active runs down too. So that it is identified before it is
    given up, only one suspect runs in a process at a time.
    """

    def __init__(self, *, max_recoveries: int, poll_seconds: float, now: Callable[[], float]) -> None:
        self._threshold = max(1, max_recoveries - 1)
        self._poll_seconds = poll_seconds
        self._now = now
        self._next_query = 0.0
        # The recoveries, from and to, of threads that are no suspects, and of suspects.
        self.trusted = (0, self._threshold - 1)
        self.suspects = (self._threshold, ANY_NUMBER)

    def is_suspect(self, lease: Lease) -> bool:
        return lease.recoveries >= self._threshold

    def may_query(self, held: Collection[Lease]) -> bool:
        """Whether to look for a suspect now. Suspects are rare: they are queried once a poll interval, not at each wake."""
        if any(map(self.is_suspect, held)) or self._now() < self._next_query:
            return False
        self._next_query = self._now() + self._poll_seconds
        return True

    def ended(self) -> None:
        """A suspect's run has ended: the next one need not wait."""
        self._next_query = 0.0
