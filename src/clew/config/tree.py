"""Node of a configuration file: its value, and its name for error messages."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from clew.domain.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """`file` is where it stands, `key` its dotted path there."""

    file: Path
    key: str
    value: object

    @property
    def where(self) -> str:
        return f"{self.file}: {self.key}" if self.key else str(self.file)

    @property
    def folder(self) -> Path:
        """What relative paths in this file are relative to."""
        return self.file.parent

    def expected(self, what: str) -> ConfigError:
        return ConfigError(f"{self.where}: expected {what}")

    def entries(self) -> dict[str, "ConfigNode"]:
        """The places in a mapping by name; an empty place has none."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.expected("a mapping")
        return {
            name: ConfigNode(self.file, dotted(self.key, name), value) for name, value in self.value.items()
        }

    def below(self, *names: str) -> "ConfigNode":
        """The place under these names, one in the other; an empty one if there is none."""
        place = self
        for name in names:
            place = place.entries().get(name, ConfigNode(place.file, dotted(place.key, name), None))
        return place

    def named(self) -> dict[str, "ConfigNode"]:
        """The same, when the user chooses the names: they end up in addresses and log lines."""
        entries = self.entries()
        for name, place in entries.items():
            if not _NAME.fullmatch(name):
                raise place.expected("a name of letters, digits, - and _, at most 64")
        return entries

    def known(self, names: Collection[str]) -> dict[str, "ConfigNode"]:
        """The same, when only these names may stand there."""
        entries = self.entries()
        for name, place in entries.items():
            if name not in names:
                hint = suggestion(name, names) or f"; there are {', '.join(sorted(names))}"
                raise ConfigError(f"{place.where}: no such key{hint}")
        return entries

    def text(self, what: str) -> str:
        if isinstance(self.value, str) and self.value and self.value.isprintable():
            return self.value
        raise self.expected(what)


def suggestion(name: str, names: Collection[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def dotted(key: str, name: str) -> str:
    """A key one level down. Any name is shown as one short line."""
    shown = name[:64] if name.isprintable() else ascii(name[:64])
    return f"{key}.{shown}" if key else shown
