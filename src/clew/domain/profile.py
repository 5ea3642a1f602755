"""Profile, by name: which driver asks the model, which tracker gives the issues, how failures are retried."""

import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from clew.domain.errors import Invalid
from clew.domain.retry import RetryPolicy

DRIVERS = ("api:openai", "api:anthropic", "cli:claude", "offline")
# Where the keys of the settings go, unless these say otherwise.
OFFICIAL = {"api:openai": "https://api.openai.com/v1", "api:anthropic": "https://api.anthropic.com"}
TRACKERS = ("jira", "github", "none")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MODEL = re.compile(r"[A-Za-z0-9._:/@+-]{0,200}")
_PORT = re.compile(r":[0-9]*$")
_URL = re.compile(r"https?://[^\s@]{1,500}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    name: str
    driver: str
    tracker: str = "none"
    # For drivers that ask a model over HTTP; empty is what the settings say.
    model: str = ""
    base_url: str = ""
    # For drivers that are programs: the program, and its fixed arguments.
    command: tuple[str, ...] = ("claude",)
    retry: RetryPolicy = field(default_factory=RetryPolicy)

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
        object.__setattr__(self, "command", _command(self.command))
        if self.tracker not in TRACKERS:
            raise Invalid(f"expected one of {', '.join(TRACKERS)}", field="tracker")


def is_same_server(one: str, other: str) -> bool:
    """Whether two base URLs are one place: a key may go from the one to the other."""
    return _place(one) == _place(other)


def _place(url: str) -> tuple[str, str, str, str]:
    parts = urlsplit(url)
    host, _, port = (
        parts.netloc.lower().rpartition(":") if _PORT.search(parts.netloc) else (parts.netloc.lower(), "", "")
    )
    usual = {"http": "80", "https": "443"}.get(parts.scheme, "")
    return parts.scheme, host.rstrip("."), port or usual, parts.path.rstrip("/")


def _command(value: object) -> tuple[str, ...]:
    """A program, or a list of it and its arguments. Nothing is split: there is no shell."""
    words = [value] if isinstance(value, str) else value
    if isinstance(words, list | tuple) and 0 < len(words) <= 50:
        told = tuple(word for word in words if isinstance(word, str) and word.isprintable() and word.strip())
        if len(told) == len(words) and not told[0].startswith("-"):
            return told
    raise Invalid("expected a program, or a list of it and its arguments", field="command")


def _plain(value: object) -> str | None:
    """A value of a user's YAML, if it is text."""
    return value if isinstance(value, str) else None
