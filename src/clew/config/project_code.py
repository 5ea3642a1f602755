"""Objects of the user's code that langgraph.json names: `./file.py:attribute` or `module:attribute`."""

import re
from dataclasses import dataclass
from pathlib import Path

from clew.config.tree import ConfigNode

_SOURCE = re.compile(r"(.+):([A-Za-z_]\w*)", re.ASCII)
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class CodeSource:
    """`attribute` of `module`, or of the file `path` when that is set. `name` is what a file is imported as."""

    name: str
    attribute: str
    module: str | None
    path: Path | None
    written: str
    where: str
    """The key that names it, for messages."""


def read_code(name: str, place: ConfigNode, what: str) -> CodeSource:
    """Raises ConfigError."""
    expected = f"./file.py:{name} or module:{name}, {what}"
    written = place.text(expected)
    match = _SOURCE.fullmatch(written)
    if match is None:
        raise place.expected(expected)
    where, attribute = match.groups()
    is_module = _MODULE.fullmatch(where) is not None and not where.endswith(".py")
    if not is_module and not where.endswith(".py"):
        raise place.expected(f"{expected}; Clew runs it in Python only")
    return CodeSource(
        name=name,
        attribute=attribute,
        module=where if is_module else None,
        path=None if is_module else place.folder / where,
        written=written,
        where=place.where,
    )


def read_handlers(name: str, section: ConfigNode, what: str) -> CodeSource | None:
    """The `path` of a section like `auth`. None for a project without the section. Raises ConfigError."""
    given = {key: entry for key, entry in section.entries().items() if entry.value is not None}
    if "path" in given:
        return read_code(name, given["path"], f"{what} object")
    if given:
        raise section.expected(f"a path: ./file.py:{name}, {what} object")
    return None
