"""How often one caller may come, so that nobody keeps the others waiting, and nobody tries keys for long."""

import time
from collections.abc import Callable

from clew.api.credentials import Principal
from clew.api.errors import TooMany

# So many names are remembered, a hundred bytes each. Whoever was not heard of for longest is forgotten first.
REMEMBERED = 50_000

# Who was quiet may come so often at once: this many seconds' worth.
BURST_SECONDS = 2.0


class Pace:
    """So many a second for each name, on average, and `burst` of them at once."""

    def __init__(self, per_second: float, burst: float, monotonic: Callable[[], float]) -> None:
        self._apart = 1 / per_second
        self._ahead = (burst - 1) / per_second
        self._monotonic = monotonic
        # When those who came would have been through, had they come evenly.
        self._through: dict[str, float] = {}

    def wait(self, name: str) -> float:
        """0 for one more that may come now, and is counted; else in how many seconds it may."""
        now = self._monotonic()
        through = max(now, self._through.pop(name, now))
        wait = through - now - self._ahead
        self._through[name] = through if wait > 0 else through + self._apart
        if len(self._through) > REMEMBERED:
            del self._through[next(iter(self._through))]
        return max(0.0, wait)


class RateLimits:
    """For each key its requests, for each address the keys it gets wrong. 0 is any number of them."""

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
        """Raises TooMany. Without a key it is somebody at this machine, who is not counted."""
        if self._requests is not None and caller.key_id and (wait := self._requests.wait(caller.key_id)):
            raise TooMany("this key asks more often than it may", retry_after=wait)

    def count_delivery(self, source: str) -> None:
        """Raises TooMany. A provider brings it again."""
        if self._requests is not None and (wait := self._requests.wait(f"channel/{source}")):
            raise TooMany("this bot is brought more than it may be", retry_after=wait)

    def count_wrong_key(self, address: str) -> None:
        """Raises TooMany. Good keys of the same address are not asked to wait: it may be that of a proxy."""
        if self._wrong_keys is not None and (wait := self._wrong_keys.wait(address)):
            raise TooMany("too many wrong keys from this address", retry_after=wait)
