"""Kinds of settings: each says what it expects in words and reads it from text or from YAML.

A kind refuses with a bare ValueError. The message for a person is made from the setting's name and `expected` alone,
so a value that was typed into the wrong place, a password perhaps, is never repeated.
"""

import re
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Generic, TypeVar, get_args

from pydantic import SecretStr
from pydantic_core.core_schema import CoreSchema, no_info_plain_validator_function, nullable_schema

from clew.config.database import DatabaseUrl, parse_database_url
from clew.domain.crons import Schedule
from clew.domain.errors import Invalid

T = TypeVar("T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]{1,253}(?::[0-9]{1,5})?")
_HTTP_URL = re.compile(r"https?://[^\s@]{1,500}")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_SIGNING_SECRET = re.compile(r"whsec_((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?)")
_LANGUAGES = re.compile(r"[A-Za-z_]{3,20}(\+[A-Za-z_]{3,20}){0,9}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_VARIABLE = re.compile(r"(?!CLEW_)[A-Za-z_][A-Za-z0-9_]{0,99}")
_CLAIM = re.compile(r"[A-Za-z0-9_.:/-]{1,200}")
_PROJECT_KEY = re.compile(r"[A-Za-z_]{1,64}(?:\.[A-Za-z_]{1,64}){0,3}")
_URL_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}")

_FLAGS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """An annotation of a field: pydantic reads the field's value with `read`, and with nothing else."""

    expected: str
    read: Callable[[object], T]

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        schema = no_info_plain_validator_function(self.read)
        return nullable_schema(schema) if NoneType in get_args(source) else schema


def whole(low: int, high: int) -> SettingKind[int]:
    def read(raw: object) -> int:
        if isinstance(raw, str) and _WHOLE.fullmatch(raw):
            raw = int(raw)
        if type(raw) is int and low <= raw <= high:
            return raw
        raise ValueError

    return SettingKind(f"a whole number from {low} to {high}", read)


def seconds(low: float, high: float) -> SettingKind[float]:
    return _float(low, high, f"seconds from {low:g} to {high:g}")


def amount(low: float, high: float) -> SettingKind[float]:
    return _float(low, high, f"a number from {low:g} to {high:g}")


def _float(low: float, high: float, expected: str) -> SettingKind[float]:
    def read(raw: object) -> float:
        if isinstance(raw, str) and _NUMBER.fullmatch(raw):
            raw = float(raw)
        if isinstance(raw, int | float) and not isinstance(raw, bool) and low <= raw <= high:
            return float(raw)
        raise ValueError

    return SettingKind(expected, read)


def choice(*options: str) -> SettingKind[str]:
    def read(raw: object) -> str:
        if isinstance(raw, str) and raw.lower() in options:
            return raw.lower()
        raise ValueError

    return SettingKind(f"one of {', '.join(options)}", read)


def flag() -> SettingKind[bool]:
    def read(raw: object) -> bool:
        if isinstance(raw, str):
            raw = _FLAGS.get(raw.lower())
        if isinstance(raw, bool):
            return raw
        raise ValueError

    return SettingKind("true or false", read)


def matching(pattern: re.Pattern[str], expected: str) -> SettingKind[str]:
    return SettingKind(expected, partial(_matched, pattern))


def host_name() -> SettingKind[str]:
    return matching(_HOST, "a host name or an IP address")


def url_path() -> SettingKind[str]:
    return matching(_URL_PATH, "a path like /clew, without a slash at its end")


def http_url() -> SettingKind[str]:
    return matching(_HTTP_URL, "an address like http://127.0.0.1:8000/v1")


def address_or_path() -> SettingKind[str]:
    def read(raw: object) -> str:
        text = _text(raw)
        if _HTTP_URL.fullmatch(text) or Path(text).is_absolute():
            return text
        raise ValueError

    return SettingKind("an address like https://id.example.com/jwks, or an absolute path", read)


def claim() -> SettingKind[str]:
    return matching(_CLAIM, "the name of a claim")


def model_name() -> SettingKind[str]:
    return matching(_MODEL, "the name of a model")


def line() -> SettingKind[str]:
    def read(raw: object) -> str:
        if isinstance(raw, str) and raw.isprintable():
            return raw
        raise ValueError

    return SettingKind("one line of text", read)


def listed(
    read_one: Callable[[str], T], expected: str, *, separator: str = ","
) -> SettingKind[tuple[T, ...]]:
    """A list in YAML; in a variable one text with separators."""

    def read(raw: object) -> tuple[T, ...]:
        given = raw.split(separator) if isinstance(raw, str) else raw
        if isinstance(given, list):
            return tuple(read_one(_text(one).strip()) for one in given)
        raise ValueError

    return SettingKind(expected, read)


def origins() -> SettingKind[tuple[str, ...]]:
    return listed(
        lambda origin: _matched(_ORIGIN, origin.lower()),
        "a list of origins like https://chat.example.com; * is not one",
    )


def folders() -> SettingKind[tuple[Path, ...]]:
    return listed(_absolute, "a list of absolute paths, in a variable with : between them", separator=":")


def variables() -> SettingKind[tuple[str, ...]]:
    return listed(partial(_matched, _VARIABLE), "a list of names of variables, none of them Clew's own")


def project_keys() -> SettingKind[tuple[str, ...]]:
    return listed(partial(_matched, _PROJECT_KEY), "a list of names like LANGGRAPH_HTTP")


def tesseract_languages() -> SettingKind[str]:
    return matching(_LANGUAGES, "languages of Tesseract, like eng+deu")


def repository() -> SettingKind[str]:
    return matching(_REPOSITORY, "a repository like owner/name")


def secret() -> SettingKind[SecretStr]:
    def read(raw: object) -> SecretStr:
        text = _text(raw)
        if text.isascii() and " " not in text:  # it must fit into an HTTP header as it is
            return SecretStr(text)
        raise ValueError

    return SettingKind("a secret in printable ASCII without spaces", read)


def signing_secret() -> SettingKind[SecretStr]:
    def read(raw: object) -> SecretStr:
        text = _text(raw)
        # As Standard Webhooks writes it: 24 to 64 bytes.
        found = _SIGNING_SECRET.fullmatch(text)
        if found and 24 <= len(b64decode(found[1], validate=True)) <= 64:
            return SecretStr(text)
        raise ValueError

    return SettingKind("whsec_ and 24 to 64 bytes in Base64", read)


def cron() -> SettingKind[Schedule]:
    def read(raw: object) -> Schedule:
        try:
            return Schedule.parse(_text(raw))
        except Invalid:
            raise ValueError from None

    return SettingKind("a cron expression like `0 3 * * *`", read)


def absolute_path() -> SettingKind[Path]:
    def read(raw: object) -> Path:
        path = Path(_text(raw))
        if path.is_absolute() and not _text(raw).endswith("/"):
            return path
        raise ValueError

    return SettingKind("an absolute path (no ~, nothing relative)", read)


def database_url() -> SettingKind[DatabaseUrl]:
    def read(raw: object) -> DatabaseUrl:
        return parse_database_url(_text(raw))

    return SettingKind(
        "sqlite:///relative, sqlite:////absolute, memory:// or postgresql://user:password@host/name", read
    )


def postgres_url() -> SettingKind[DatabaseUrl]:
    def read(raw: object) -> DatabaseUrl:
        url = parse_database_url(_text(raw))
        if url.kind == "postgres":
            return url
        raise ValueError

    return SettingKind("postgresql://user:password@host/name", read)


def _text(raw: object) -> str:
    if isinstance(raw, str) and raw and raw.isprintable():
        return raw
    raise ValueError


def _matched(pattern: re.Pattern[str], raw: object) -> str:
    if isinstance(raw, str) and pattern.fullmatch(raw):
        return raw
    raise ValueError


def _absolute(text: str) -> Path:
    if Path(text).is_absolute():
        return Path(text)
    raise ValueError
