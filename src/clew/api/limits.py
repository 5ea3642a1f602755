"""Rate limits: requests per key, so that one caller cannot block the others, and wrong keys per address."""

import time
from collections.abc import Callable

from clew.api.credentials import Principal
from clew.api.errors import TooMany

# So many names are remembered, a hundred bytes each. The least recently used is evicted first.
REMEMBERED = 50_000

# A caller that was idle may send this many seconds' worth at once.
BURST_SECONDS = 2.0


class Pace:
    """A rate per second for each name, on average, with up to `burst` at once."""

    def __init__(self, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._apart = 1 / per_second
        self._ahead = (burst - 1) / per_second
        self._monotonic = monotonic
        # When each name's requests would be done, had they come evenly.
        self._through: dict[str, float] = {}

    def wait(self, name: str) -> float:
        """0 if one more is allowed now, which is then counted; else the seconds until it is."""
        now = self._monotonic()
        through = max(now, self._through.pop(name, now))
        wait = through - now - self._ahead
        self._through[name] = through if wait > 0 else through + self._apart
        if len(self._through) > REMEMBERED:
            del self._through[next(iter(self._through))]
        return max(0.0, wait)


class RateLimits:
    """Requests per key, and wrong keys per address. 0 means no limit."""

    def __init__(
        self,
        *,
        requests_per_second: float = 0,
        wrong_keys_per_minute: float = 0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = self._wrong_keys = None
        if requests_per_second:
            burst = max(1.0, requests_per_second * BURST_SECONDS)
            self._requests = Pace(requests_per_second, burst, monotonic)
        if wrong_keys_per_minute:
            self._wrong_keys = Pace(wrong_keys_per_minute / 60, wrong_keys_per_minute, monotonic)

    def count_request(self, caller: Principal) -> None:
        """Raises TooMany. A caller without a key is on this machine and is not counted."""
        if self._requests is not None and caller.key_id and (wait := self._requests.wait(caller.key_id)):
            raise TooMany("this key sends more requests than its rate limit allows", retry_after=wait)

    def count_delivery(self, source: str) -> None:
        """Raises TooMany. The provider delivers it again."""
        if self._requests is not None and (wait := self._requests.wait(f"channel/{source}")):
            raise TooMany("this bot gets more deliveries than its rate limit allows", retry_after=wait)

    def count_wrong_key(self, address: str) -> None:
        """Raises TooMany. Valid keys from the same address are not limited: it may be that of a proxy."""
        if self._wrong_keys is not None and (wait := self._wrong_keys.wait(address)):
            raise TooMany("too many wrong keys from this address", retry_after=wait)
