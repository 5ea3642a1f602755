"""Channels of clew.yaml: `telegram` and `wecom`, each with its bots by name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pydantic import SecretStr

from clew.config.tree import ConfigNode

_COMMON = ("graph", "profile")

_ANY = ("tenant", "approvals", "base_url")

KEYS: Mapping[str, tuple[str, ...]] = {
    "telegram": ("token", "secret_token", "update_types", "chat_types", *_ANY),
    "wecom": ("kind", "corp_id", "agent_id", "secret", "token", "encoding_aes_key", "open_kf_id", *_ANY),
}
REQUIRED: Mapping[str, tuple[str, ...]] = {"telegram": ("token",), "wecom": ("token", "encoding_aes_key")}
SECRET = frozenset({"token", "secret_token", "secret", "encoding_aes_key"})


@dataclass(frozen=True, slots=True)
class Channel:
    """One bot. `options` are the keys of its kind as they stand in the file; secrets are SecretStr."""

    kind: str
    name: str
    graph: str | None
    profile: str | None
    options: Mapping[str, object]


def read_channels(place: ConfigNode, profiles: Collection[str]) -> tuple[Channel, ...]:
    return tuple(
        _channel(kind, name, entry, profiles)
        for kind, bots in place.known(KEYS).items()
        for name, entry in bots.named().items()
    )


def _channel(kind: str, name: str, place: ConfigNode, profiles: Collection[str]) -> Channel:
    given = place.known(_COMMON + KEYS[kind])
    for key in REQUIRED[kind]:
        if key not in given:
            raise place.expected(f"a {key}")
    options = {key: _option(key, entry) for key, entry in given.items() if key not in _COMMON}
    graph, profile = (given[key].text("a name") if key in given else None for key in _COMMON)
    if profile is not None and profile not in profiles:
        raise given["profile"].expected("the name of a profile")
    return Channel(kind, name, graph, profile, MappingProxyType(options))


def _option(key: str, place: ConfigNode) -> object:
    if key in SECRET:
        return SecretStr(place.text("a secret as text"))
    if isinstance(place.value, list):
        if all(isinstance(item, str) and item.isprintable() for item in place.value):
            return tuple(place.value)
        raise place.expected("a list of text")
    if isinstance(place.value, int) and not isinstance(place.value, bool):
        return str(place.value)  # ids are often digits, and ids are text
    return place.text("text, or a list of text")
