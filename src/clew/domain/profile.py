"""Profile, by name: its driver and options, its tracker, how failures are retried, what becomes of coding work; and the
budgets of a round, and of owners and graphs in a period."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from clew.domain.errors import BudgetSpent, Invalid
from clew.domain.events import AssistantMessage, Event
from clew.domain.retry import RetryPolicy

API_DRIVERS = ("api:openai", "api:anthropic", "api:azure", "api:google", "api:bedrock", "api:ollama")
# Programs, and how each is called where the profile does not say.
CLI_DRIVERS = {"cli:claude": "claude", "cli:codex": "codex", "cli:gemini": "gemini"}
DRIVERS = (*API_DRIVERS, *CLI_DRIVERS, "offline")
# Where a key goes unless the settings or the profile say otherwise. Azure and Bedrock have an address for each customer.
OFFICIAL = {
    "api:openai": "https://api.openai.com/v1",
    "api:anthropic": "https://api.anthropic.com",
    "api:google": "https://generativelanguage.googleapis.com",
    "api:ollama": "http://127.0.0.1:11434",
}
TRACKERS = ("jira", "github", "none")
VISION = ("auto", "yes", "no")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9._:/@+-]{0,200}")
_PORT = re.compile(r":[0-9]*$")
_URL = re.compile(r"https?://[^\s@]{1,500}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
_AUTHOR = re.compile(r"[^<>\x00-\x1f\x7f]{1,100} <[^<>\s\x00-\x1f\x7f]{1,200}>")
_REMOTE = re.compile(r"(https?|ssh)://[A-Za-z0-9][^\s\x00-\x1f\x7f]{1,500}|/[^\x00-\x1f\x7f:]{1,500}")
# An scp-like address is one of ssh, and a program's option is none.
_SCP = re.compile(r"[A-Za-z0-9._-]{1,64}@[A-Za-z0-9.-]{1,253}:[A-Za-z0-9~/][^\s\x00-\x1f\x7f:]{0,400}")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
# Options of one driver alone.
_ONLY = {"api_version": "api:azure", "region": "api:bedrock"}
# Options of drivers that ask a model over HTTP.
_OF_MODELS = ("temperature", "max_tokens", "timeout", "headers", "vision", "api_version", "region")

EPOCH = date(1970, 1, 1)


# The command of a profile that names none.
_USUAL: Final[tuple[str, ...]] = ("claude",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What one round may spend on models: tokens, or money by the prices of a million tokens."""

    tokens: int | None = None
    cost: float | None = None
    input_price: float = 0.0
    output_price: float = 0.0

    def __post_init__(self) -> None:
        if self.tokens is not None:
            _require(_is_whole(self.tokens, 1, 10**12), "a whole number from 1", "budget.tokens")
        for name in ("cost", "input_price", "output_price"):
            value = getattr(self, name)
            if value is not None:
                _require(_is_number(value, 0, 10**9), "a number from 0", f"budget.{name}")
        _require(self.tokens is not None or self.cost is not None, "tokens, or cost with prices", "budget")
        has_price = self.input_price or self.output_price
        _require(self.cost is None or has_price, "input_price and output_price with a cost", "budget")
        _require(self.cost is not None or not has_price, "a cost with the prices", "budget")

    def cost_of(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.input_price + tokens_out * self.output_price) / 1_000_000

    def why_spent(self, tokens_in: int, tokens_out: int) -> str | None:
        """Why no further call may be made, if none may."""
        used, cost = tokens_in + tokens_out, self.cost_of(tokens_in, tokens_out)
        if self.tokens is not None and used >= self.tokens:
            return f"this round has used {used} of {self.tokens} tokens"
        if self.cost is not None and cost >= self.cost:
            return f"this round has cost {cost:.4g} of {self.cost:g}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCommand:
    """The tests of a repository: a program and its arguments, run in the worktree without a shell."""

    command: tuple[str, ...]
    seconds: float = 600.0
    # Whether a person is asked before each run.
    approval: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "command", require_command(self.command, "tests.command"))
        value: object = self.seconds
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 1 <= self.seconds <= 86400:
            raise Invalid("expected seconds from 1 to 86400", field="tests.seconds")
        _require_flag(self.approval, "tests.approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What becomes of reviewed changes, after an approval: a commit on a branch of their own, and what is asked beside."""

    # Where the branch is pushed to; empty: nowhere. The repository's own remotes are never read.
    remote: str = ""
    # The branch that a pull request is for.
    base: str = "main"
    pull_request: bool = False
    # Whether the issue gets a comment that says what was done.
    comment: bool = False
    author: str = "Clew <clew@localhost>"

    def __post_init__(self) -> None:
        for name in ("remote", "base", "author"):
            if not isinstance(getattr(self, name), str):
                raise Invalid("expected text", field=f"publish.{name}")
        if self.remote and not (_REMOTE.fullmatch(self.remote) or _SCP.fullmatch(self.remote)):
            raise Invalid(
                "expected an address like https://github.com/acme/shop.git, git@github.com:acme/shop.git or an"
                " absolute path",
                field="publish.remote",
            )
        if self.remote.startswith("http") and "@" in self.remote.partition("://")[2].partition("/")[0]:
            raise Invalid("expected no user or password in the address", field="publish.remote")
        if not _BRANCH.fullmatch(self.base) or ".." in self.base:
            raise Invalid("expected the name of a branch", field="publish.base")
        if not _AUTHOR.fullmatch(self.author):
            raise Invalid("expected a name and an address like Ann <ann@example.com>", field="publish.author")
        _require_flag(self.pull_request, "publish.pull_request")
        _require_flag(self.comment, "publish.comment")
        if self.pull_request and not self.remote:
            raise Invalid("expected a remote with a pull request", field="publish.pull_request")

    def require_tracker(self, tracker: str) -> None:
        """Raises Invalid for what the tracker of the profile cannot do."""
        if self.pull_request and tracker != "github":
            raise Invalid("expected the tracker github with a pull request", field="publish.pull_request")
        if self.comment and tracker == "none":
            raise Invalid("expected the tracker github or jira with a comment", field="publish.comment")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    driver: str
    tracker: str = "none"
    # For drivers that ask a model over HTTP; empty is what the settings say.
    model: str = ""
    base_url: str = ""
    # For drivers that are programs: the program, and its fixed arguments.
    command: tuple[str, ...] = _USUAL
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    # For drivers that ask a model over HTTP; None is what the provider does.
    temperature: float | None = None
    max_tokens: int | None = None
    # Seconds of one answer; None is what the settings say.
    timeout: float | None = None
    # Sent with every request, to this profile's server only. They may be secrets.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    # Whether pictures are sent. `auto`: if LangChain knows that the model reads them.
    vision: str = "auto"
    api_version: str = ""  # of Azure
    region: str = ""  # of Bedrock
    budget: Budget | None = None
    # Of coding workflows.
    tests: CheckCommand | None = None
    publish: Publication | None = None

    def __post_init__(self) -> None:
        name: object = self.name  # a key of a user's YAML may be a number
        if not (isinstance(name, str) and _NAME.fullmatch(name)):
            raise Invalid("expected letters, digits, - and _, at most 64", field="name")
        if self.driver not in DRIVERS:
            raise Invalid(f"expected one of {', '.join(DRIVERS)}", field="driver")
        model, base_url = _plain(self.model), _plain(self.base_url)
        if model is None or not _MODEL.fullmatch(model):
            raise Invalid("expected the name of a model", field="model")
        if base_url is None or (base_url and not _URL.fullmatch(base_url)):
            raise Invalid("expected an address like http://127.0.0.1:8000/v1", field="base_url")
        is_usual = self.command is _USUAL
        command = (CLI_DRIVERS.get(self.driver, _USUAL[0]),) if is_usual else self.command
        object.__setattr__(self, "command", require_command(command, "command"))
        if self.tracker not in TRACKERS:
            raise Invalid(f"expected one of {', '.join(TRACKERS)}", field="tracker")
        if self.publish is not None:
            self.publish.require_tracker(self.tracker)
        self._check_options()

    def _check_options(self) -> None:
        for name in _OF_MODELS:
            if getattr(self, name) != self.__dataclass_fields__[name].default and name != "headers":
                only = _ONLY.get(name, self.driver if self.driver in API_DRIVERS else "a driver api:...")
                _require(self.driver == only, f"nothing: {name} is for {only}", name)
        if self.headers:
            _require(self.driver in API_DRIVERS, "nothing: headers are for a driver api:...", "headers")
        optional: Any
        if (optional := self.temperature) is not None:
            _require(_is_number(optional, 0, 2), "a number from 0 to 2", "temperature")
        if (optional := self.max_tokens) is not None:
            _require(_is_whole(optional, 1, 1_000_000), "a whole number from 1 to 1000000", "max_tokens")
        if (optional := self.timeout) is not None:
            _require(_is_number(optional, 1, 3600), "seconds from 1 to 3600", "timeout")
        _require(self.vision in VISION, f"one of {', '.join(VISION)}", "vision")
        for name in _ONLY:
            value: object = getattr(self, name)
            is_word = isinstance(value, str) and (not value or _WORD.fullmatch(value))
            _require(
                is_word, "a word like " + ("2024-10-21" if name == "api_version" else "eu-central-1"), name
            )
        headers: object = self.headers
        are_headers = isinstance(headers, Mapping) and all(
            _HEADER.fullmatch(str(name)) and isinstance(value, str) and value.isprintable()
            for name, value in headers.items()
        )
        _require(are_headers, "names and values of HTTP headers, as text", "headers")


def _require(is_fine: object, expected: str, field: str) -> None:
    if not is_fine:
        raise Invalid(f"expected {expected}", field=field)


def _is_number(value: object, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_whole(value: object, low: int, high: int) -> bool:
    return type(value) is int and low <= value <= high


def is_same_server(one: str, other: str) -> bool:
    """Whether two base URLs are one place: a key may go from the one to the other."""
    return _place(one) == _place(other)


def is_loopback(url: str) -> bool:
    return (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")


def _place(url: str) -> tuple[str, str, str, str]:
    parts = urlsplit(url)
    host, _, port = (
        parts.netloc.lower().rpartition(":") if _PORT.search(parts.netloc) else (parts.netloc.lower(), "", "")
    )
    usual = {"http": "80", "https": "443"}.get(parts.scheme, "")
    return parts.scheme, host.rstrip("."), port or usual, parts.path.rstrip("/")


def _plain(value: object) -> str | None:
    """A value of a user's YAML, if it is text."""
    return value if isinstance(value, str) else None


def require_command(value: object, field: str) -> tuple[str, ...]:
    """A program, or a list of it and its arguments. Nothing is split: there is no shell. Raises Invalid."""
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list | tuple) and 0 < len(words) <= 50:
        told = tuple(word for word in words if isinstance(word, str) and word.isprintable() and word.strip())
        if len(told) == len(words) and not told[0].startswith("-"):
            return told
    raise Invalid("expected a program, or a list of it and its arguments", field=field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of a million tokens of one model."""

    input: float = 0.0
    output: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens of one model. `name` says whose: a graph, a user, a day, as it was asked for."""

    name: str = ""
    model: str
    tokens_in: int
    tokens_out: int

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def cost(self, prices: Mapping[str, Price]) -> float | None:
        """None without a price of this model. A price of `gpt-5` is one of `gpt-5-2025-08-07`, too."""
        names = [name for name in prices if self.model == name or self.model.startswith(f"{name}-")]
        price = prices[max(names, key=len)] if names else None
        if price is None:
            return None
        return (self.tokens_in * price.input + self.tokens_out * price.output) / 1_000_000


class SpendingPeriod(StrEnum):
    """How long a limit counts before it begins anew, in UTC."""

    DAY = "day"
    MONTH = "month"

    def begin(self, now: datetime) -> date:
        today = now.astimezone(UTC).date()
        return today if self is SpendingPeriod.DAY else today.replace(day=1)

    def end(self, now: datetime) -> date:
        """The first day of the next one."""
        if self is SpendingPeriod.DAY:
            return self.begin(now) + timedelta(days=1)
        return (self.begin(now) + timedelta(days=31)).replace(day=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimit:
    """Tokens and money of one tenant, user or graph in a period; 0 is any amount."""

    tokens: int = 0
    cost: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.tokens or self.cost)

    def require_left(
        self, what: str, spent: Sequence[Spent], prices: Mapping[str, Price], *, until: date
    ) -> None:
        """Raises BudgetSpent. A model without a price costs nothing here."""
        tokens = sum(one.tokens for one in spent)
        cost = sum(one.cost(prices) or 0.0 for one in spent)
        if self.tokens and tokens >= self.tokens:
            used = f"{tokens} of {self.tokens} tokens"
        elif self.cost and cost >= self.cost:
            used = f"{cost:.4g} of {self.cost:g}"
        else:
            return
        raise BudgetSpent(f"the budget of {what} is spent ({used}); the next one begins on {until}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingLimits:
    period: SpendingPeriod = SpendingPeriod.MONTH
    tenant: SpendingLimit = SpendingLimit()
    user: SpendingLimit = SpendingLimit()
    graph: SpendingLimit = SpendingLimit()

    def __bool__(self) -> bool:
        return bool(self.tenant or self.user or self.graph)


def day_number(day: date) -> int:
    return (day - EPOCH).days


def spent_in(events: Iterable[Event]) -> list[Spent]:
    """By model, in the order of their names."""
    found: dict[str, Spent] = {}
    for event in events:
        body = event.body
        if isinstance(body, AssistantMessage) and body.tokens:
            known = found.get(body.model, Spent(model=body.model, tokens_in=0, tokens_out=0))
            found[body.model] = Spent(
                model=body.model,
                tokens_in=known.tokens_in + body.tokens_in,
                tokens_out=known.tokens_out + body.tokens_out,
            )
    return [found[model] for model in sorted(found)]


def _require_flag(value: object, field: str) -> None:
    if not isinstance(value, bool):
        raise Invalid("expected yes or no", field=field)
