"""Conversation keys: which conversation a run belongs to, found from what the run carries. Pure, and never raises.

A candidate is a text with `{{dotted.names}}` in it. Names are looked up in plain dicts and lists only: no attribute
is ever read, no function called, and what was put in is not expanded again. A name that is the whole candidate gives
the key itself (`{{inputs.history_key}}`); a name inside a text gives one part of it (`telegram:{{...chat_id}}`) and is
escaped, so that two different identities never make one key.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from clew.domain.items import encode_part

MAX_LENGTH: Final = 256

DEFAULT_TEMPLATE: Final = "{{conversation_key}}"
DEFAULT_CANDIDATES: Final = (
    "{{results.resolve_history_key.session_key}}",
    "{{configurable.history_key}}",
    "{{inputs.history_key}}",
    "telegram:{{results.telegram_events_parser.chat_id}}",
    "wecom_cs:{{results.wecom_cs_sync.open_kf_id}}:{{results.wecom_cs_sync.external_userid}}",
    "wecom_aibot:{{results.wecom_ai_bot_events_parser.chat_type}}:{{results.wecom_ai_bot_events_parser.user}}",
    "wecom_dm:{{results.wecom_events_parser.user}}",
    "{{thread_id}}",
)

_KEY = re.compile(r"[A-Za-z0-9:_-]+")
_NAME = re.compile(r"\{\{[ \t]*([^{}\s.]+(?:\.[^{}\s.]+)*)[ \t]*\}\}")
_INDEX = re.compile(r"[0-9]{1,9}")
# A longer number is no user's id, and Python refuses to print the longest ones.
_MAX_BITS = 1024


Names: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyScope:
    """What a template may name. A webhook's thread lives for one delivery, so its id is no conversation's."""

    inputs: Any = None
    results: Any = None
    configurable: Any = None
    thread_id: Any = None
    webhook: bool = False

    def names(self) -> dict[str, Any]:
        names = {"inputs": self.inputs, "results": self.results, "configurable": self.configurable}
        return names if self.webhook else names | {"thread_id": self.thread_id}


def resolve(
    scope: KeyScope,
    candidates: Sequence[str] = DEFAULT_CANDIDATES,
    template: str = DEFAULT_TEMPLATE,
) -> str | None:
    """The key of the first candidate that renders to a valid one, put into the template; None if there is none."""
    names = scope.names()
    for candidate in candidates:
        conversation_key = render(candidate, names)
        if conversation_key is not None:
            return render(
                template, names | {"conversation_key": conversation_key}, whole={"conversation_key"}
            )
    return None


def render(template: str, names: Names, *, whole: frozenset[str] | set[str] = frozenset()) -> str | None:
    """The template with its names put in, if that is a valid key.

    Names in `whole` hold keys already and are not escaped again.
    """
    if is_ambiguous(template):
        return None
    texts = _NAME.split(template)  # literal, name, literal, name, ..., literal
    is_one_name = len(texts) == 3 and not texts[0] and not texts[2]
    for n in range(1, len(texts), 2):
        text = _text(_look_up(texts[n], names))
        if text is None or not text.strip() or "{{" in text or "}}" in text or len(text) > MAX_LENGTH:
            return None
        if texts[n] in whole:
            texts[n] = text
        elif not is_one_name:
            texts[n] = encode_part(text)
        elif all(text.split(":")):
            texts[n] = text
        else:  # `telegram:` is what a parser makes of a missing id; it would merge strangers into one conversation
            return None
    return valid("".join(texts))


def valid(key: str) -> str | None:
    """The key, if it is one: 1 to 256 of letters, digits, ":", "_" and "-"."""
    return key if len(key) <= MAX_LENGTH and _KEY.fullmatch(key) else None


def is_ambiguous(template: str) -> bool:
    """Whether two names stand so close that a key would not show where one ends: a part holds everything but ":"."""
    return any(":" not in gap for gap in _NAME.split(template)[2:-2:2])


def _look_up(name: str, names: Any) -> Any:
    # Asked of the types, not of the values: a value must not get to run code of its own (`isinstance` would read its
    # `__class__`), and a defaultdict must not grow.
    found = names
    for segment in name.split("."):
        if issubclass(type(found), dict):
            found = dict.get(found, segment)
        elif (
            issubclass(type(found), list) and _INDEX.fullmatch(segment) and int(segment) < list.__len__(found)
        ):
            found = list.__getitem__(found, int(segment))
        else:
            return None
    return found


def _text(value: Any) -> str | None:
    """Texts and whole numbers are identities; anything else is not."""
    kind = type(value)
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int) and kind is not bool and int.bit_length(value) <= _MAX_BITS:
        return int.__repr__(value)
    return None
