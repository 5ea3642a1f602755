"""Webhooks of langgraph.json: its URL policy, its headers with variables in them, and the fields that are sent."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError
from clew.domain.runs import WebhookPolicy

# As LangGraph's server.
ENV_PREFIX = "LG_WEBHOOK_"
FIELDS = frozenset(
    (
        *("run_id", "thread_id", "assistant_id", "created_at", "updated_at", "metadata", "kwargs", "status"),
        *("multitask_strategy", "run_started_at", "run_ended_at", "webhook_sent_at", "values", "error"),
    )
)

_TEMPLATE = re.compile(r"\$\{\{\s*([^}]+?)\s*\}\}")
_DOMAIN = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
# They say where and how much, which is for the HTTP client to say.
_OURS = ("host", "content-length", "content-type", "transfer-encoding", "connection")


def read_webhooks(place: ConfigNode, environ: Mapping[str, str]) -> WebhookPolicy:
    """Raises ConfigError, also for a header whose variable is not set."""
    entries = place.entries()
    nothing = ConfigNode(place.file, "", None)
    url = entries.get("url", nothing)
    given: dict[str, Any] = {"headers": _headers(entries, environ)}
    if url.value:
        given |= _url_policy(url)
    if (fields := entries.get("allowed_fields", nothing)).value:
        given["fields"] = frozenset(
            _texts(fields, f"some of {', '.join(sorted(FIELDS))}", FIELDS.__contains__)
        )
    return WebhookPolicy(**given)


def _url_policy(url: ConfigNode) -> dict[str, Any]:
    """With LangGraph's defaults where the object says nothing."""
    entries = url.entries()
    nothing = ConfigNode(url.file, "", None)
    domains = "a list of hosts like hooks.example.com or *.example.com"
    return {
        "requires_https": _flag(entries.get("require_https"), True),
        "domains": tuple(
            one.lower() for one in _texts(entries.get("allowed_domains", nothing), domains, _DOMAIN.fullmatch)
        ),
        "ports": _ports(entries.get("allowed_ports", nothing)),
        "max_length": _length(entries.get("max_url_length", nothing)),
        "allows_loopback": not _flag(entries.get("disable_loopback"), True),
        "allows_private": not _flag(entries.get("disable_private_ips"), False),
    }


def _headers(entries: Mapping[str, ConfigNode], environ: Mapping[str, str]) -> dict[str, str]:
    written = entries.get("env_prefix")
    prefix = ENV_PREFIX if written is None else written.value
    if written is not None and not isinstance(prefix, str):
        raise written.expected("text")
    found = {}
    if "headers" in entries:
        for name, place in entries["headers"].entries().items():
            if not _HEADER.fullmatch(name) or name.lower() in _OURS:
                raise place.expected("a header that is not the HTTP client's own")
            found[name] = _filled(place, str(prefix), environ)
    return found


def _filled(place: ConfigNode, prefix: str, environ: Mapping[str, str]) -> str:
    """The text with its variables. No message repeats a value, which may be a secret."""

    def value(match: re.Match[str]) -> str:
        name = match[1].removeprefix("env.")
        if name == match[1] or not name.startswith(prefix):
            raise place.expected(f"variables as ${{{{ env.{prefix}NAME }}}}")
        if name not in environ:
            raise ConfigError(f"{place.where}: the variable {name} is not set")
        return environ[name]

    if not isinstance(place.value, str):
        raise place.expected("text")
    text = _TEMPLATE.sub(value, place.value)
    if not text.isascii() or not text.isprintable():
        raise place.expected("one line of ASCII")
    return text


def _texts(place: ConfigNode, expected: str, fits: Callable[[str], object]) -> list[str]:
    given = [] if place.value is None else place.value
    if isinstance(given, list) and all(isinstance(one, str) and fits(one) for one in given):
        return given
    raise place.expected(expected)


def _ports(place: ConfigNode) -> tuple[int, ...]:
    given = [] if place.value is None else place.value
    if isinstance(given, list) and all(type(one) is int and 0 < one < 65536 for one in given):
        return tuple(given)
    raise place.expected("a list of ports")


def _length(place: ConfigNode) -> int:
    if place.value is None:
        return 2048
    if type(place.value) is int and place.value > 0:
        return place.value
    raise place.expected("a number of characters")


def _flag(place: ConfigNode | None, default: bool) -> bool:
    if place is None or place.value is None:
        return default
    if isinstance(place.value, bool):
        return place.value
    raise place.expected("true or false")
