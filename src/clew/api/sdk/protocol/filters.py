"""Subscription filters of the thread protocol: channels, namespaces, depth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from clew.domain.errors import Invalid

# A whole number is below it.
LIMIT = 2**62
CHANNELS = (
    "values",
    "updates",
    "messages",
    "tools",
    "lifecycle",
    "input",
    "checkpoints",
    "tasks",
    "custom",
)
# What one filter may list.
MOST = 200
_WHOLE_NUMBER = {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": LIMIT}
# Of a filter with the `since` that comes with it.
FILTER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "channels": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST,
            "items": {"anyOf": [{"enum": list(CHANNELS)}, {"type": "string", "pattern": "^custom:."}]},
        },
        "namespaces": {
            "type": ["array", "null"],
            "maxItems": MOST,
            "items": {"type": "array", "items": {"type": "string"}},
        },
        "depth": _WHOLE_NUMBER,
        "since": _WHOLE_NUMBER,
    },
    "required": ["channels"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    channels: frozenset[str]
    namespaces: tuple[tuple[str, ...], ...] = ()  # prefixes; none means all
    depth: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Self:
        """Raises Invalid."""
        return cls(
            channels=_channels(params.get("channels")),
            namespaces=_namespaces(params.get("namespaces")),
            depth=whole_number(params, "depth"),
        )

    def admits(self, event: Mapping[str, Any]) -> bool:
        params = event["params"]
        return self._has_channel(event["method"], params["data"]) and self._has_namespace(params["namespace"])

    def _has_channel(self, method: str, data: Any) -> bool:
        if method == "custom" and "custom" not in self.channels:
            name = data.get("name") if isinstance(data, dict) else None
            return f"custom:{name}" in self.channels
        return method.removesuffix(".requested") in self.channels

    def _has_namespace(self, namespace: Sequence[str]) -> bool:
        return not self.namespaces or any(
            is_below(namespace, prefix) and (self.depth is None or len(namespace) - len(prefix) <= self.depth)
            for prefix in self.namespaces
        )


def is_below(namespace: Sequence[str], prefix: Sequence[str]) -> bool:
    """A segment of the prefix without an id fits any id: `child` fits `child:1`."""
    return len(prefix) <= len(namespace) and all(
        segment in (there, there.partition(":")[0]) for there, segment in zip(namespace, prefix, strict=False)
    )


def whole_number(params: Mapping[str, Any], name: str) -> int | None:
    """Raises Invalid."""
    value = params.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < LIMIT:
        raise Invalid("this is not a whole number from 0 on", field=name)
    return value


def _channels(named: Any) -> frozenset[str]:
    if not isinstance(named, list) or not 0 < len(named) <= MOST:
        raise Invalid("channels is required and must be a non-empty array", field="channels")
    for name in named:
        if not isinstance(name, str) or not (
            name in CHANNELS or (name.startswith("custom:") and len(name) > len("custom:"))
        ):
            known = ", ".join(CHANNELS)
            raise Invalid(
                f"there is no channel {str(name)[:80]!r}, only {known} and custom:<name>", field="channels"
            )
    return frozenset(named)


def _namespaces(given: Any) -> tuple[tuple[str, ...], ...]:
    if given is None:
        return ()
    is_fine = isinstance(given, list) and len(given) <= MOST
    if not is_fine or not all(
        isinstance(one, list) and all(isinstance(s, str) for s in one) for one in given
    ):
        raise Invalid("namespaces is an array of arrays of text", field="namespaces")
    return tuple(tuple(one) for one in given)
