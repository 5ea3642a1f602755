"""Back-off after an outage of the store: what a runner does before it claims again."""

from collections.abc import Awaitable, Callable

from clew.domain.errors import ClewError, Unavailable


class OutageBackoff:
    """Waits until the store answers, releases what was claimed unknowingly, and lets live runners renew their leases.

    After an outage all runners' leases may have expired, and a heartbeat needs its turn and a new connection.
    """

    def __init__(
        self,
        *,
        probe: Callable[[], Awaitable[object]],
        release: Callable[[], Awaitable[None]],
        seconds: float,
        now: Callable[[], float],
    ) -> None:
        """`probe` raises while the store does not answer; `release` gives back leases this runner does not know of."""
        self._probe = probe
        self._release = release
        self._seconds = seconds
        self._now = now
        self._was_away = False
        self._until = 0.0
        # Whether the answer to a claim was lost, so that this runner may hold leases it does not know of.
        self.is_unsure = False

    def met(self, error: ClewError) -> None:
        """A claim failed."""
        self._was_away = self._was_away or isinstance(error, Unavailable)

    def lost_answer(self) -> None:
        """The answer to a claim was lost. Its threads would wait for the lease to expire and count as crashed."""
        self.is_unsure = True

    async def remaining(self) -> float:
        """Seconds to wait before the next claim; none or fewer if there was no outage. Raises while the store is away."""
        if self._was_away:
            await self._probe()
            if self.is_unsure:
                await self._release()
                self.is_unsure = False
            self._was_away = False
            self._until = self._now() + self._seconds
        return self._until - self._now()
