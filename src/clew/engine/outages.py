"""Outages that one run met: how long to wait after each, and when a run is given up because of them."""

# Short outages are no reason to fail a run, however many there are. One that stores nothing for this long, though the
# database answers in between, likely breaks the database by what it wants to store.
PATIENCE_SECONDS = 900.0
# A node may take hours: two outages at its end, hours apart, are two outages and not one of hours.
FEW = 10
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 15.0


class Outages:
    """Counts from the last time that the run could store something."""

    def __init__(self) -> None:
        self._stored: object = None
        self._since = 0.0
        self._count = 0

    def met(self, stored: object, *, at: float) -> None:
        """An outage began at this time; `stored` differs from the last one's if something was stored in between."""
        if self._count == 0 or stored != self._stored:
            self._stored, self._since, self._count = stored, at, 0
        self._count += 1

    def are_too_long(self, *, now: float) -> bool:
        return self._count > FEW and now - self._since > PATIENCE_SECONDS

    @property
    def pause(self) -> float:
        """How long to wait before the run tries again: longer each time, until it can store something."""
        return float(min(SHORTEST_PAUSE * 2 ** min(self._count, 16), LONGEST_PAUSE))
