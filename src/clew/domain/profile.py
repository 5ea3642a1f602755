"""A named way to work: which driver asks the model, which tracker gives the issues, how failures are retried."""

import re
from dataclasses import dataclass, field

from clew.domain.errors import Invalid
from clew.domain.retry import RetryPolicy

DRIVERS = ("api:openai", "api:anthropic", "cli:claude", "offline")
TRACKERS = ("jira", "github", "none")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    driver: str
    tracker: str = "none"
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        name: object = self.name  # a key of somebody's YAML may be a number
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise Invalid("expected letters, digits, - and _, at most 64", field="name")
        if self.driver not in DRIVERS:
            raise Invalid(f"expected one of {', '.join(DRIVERS)}", field="driver")
        if self.tracker not in TRACKERS:
            raise Invalid(f"expected one of {', '.join(TRACKERS)}", field="tracker")
