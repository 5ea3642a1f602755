"""Where graphs come from: the `graphs` of clew.yaml, and langgraph.json as LangGraph's own tools write it."""

import re
from dataclasses import dataclass
from pathlib import Path

from dotenv import dotenv_values
from pydantic import SecretStr

from clew.config.files import read_json, read_text
from clew.config.tree import Place

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_EXPECTED = "module:attribute or ./file.py:attribute"


@dataclass(frozen=True, slots=True)
class GraphSource:
    """`attribute` of `module`, or of the file `path` when that is set."""

    name: str
    attribute: str
    module: str | None = None
    path: Path | None = None
    stages: tuple[str, ...] | None = None
    """The nodes whose beginning and end are told; all of them unless set."""
    written: str = ""
    """As it is in the settings, for those who wrote it."""

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class LangGraphProject:
    """What Clew reads of a langgraph.json."""

    graphs: dict[str, GraphSource]
    import_paths: tuple[Path, ...]
    environment: dict[str, SecretStr]


def read_graphs(place: Place) -> dict[str, GraphSource]:
    """`module:attribute`, or a mapping with it as `path`."""
    for entry in place.named().values():
        if isinstance(entry.value, dict):
            entry.known(("path", "stages"))
    return _graphs(place)


def read_langgraph_json(path: Path) -> LangGraphProject:
    """Keys that Clew has no use for are left alone: the file is not ours."""
    entries = Place(path, "", read_json(path)).entries()
    nothing = Place(path, "", None)
    return LangGraphProject(
        graphs=_graphs(entries.get("graphs", nothing), is_ours=False),
        import_paths=_import_paths(entries.get("dependencies", nothing)),
        environment=_environment(entries.get("env", nothing)),
    )


def _graphs(place: Place, *, is_ours: bool = True) -> dict[str, GraphSource]:
    return {name: _graph(name, entry, is_ours=is_ours) for name, entry in place.named().items()}


def _graph(name: str, place: Place, *, is_ours: bool) -> GraphSource:
    stages: tuple[str, ...] | None = None
    if isinstance(place.value, dict):  # langgraph.json: {"path": "./agent.py:graph", "description": ...}
        entries = place.entries()
        stages = _stages(entries["stages"]) if "stages" in entries else None
        place = entries.get("path", place)
    written = place.text(_EXPECTED)
    module, _, attribute = written.rpartition(":")
    if not _ATTRIBUTE.fullmatch(attribute):
        raise place.expected(_EXPECTED)
    if _MODULE.fullmatch(module) and not module.endswith(".py"):
        return GraphSource(name, attribute, module=module, stages=stages, written=written)
    path = place.folder / module
    # A project of LangGraph's may have graphs in other languages. Those are reported when they are loaded.
    if path.suffix != ".py" and (is_ours or not path.suffix):
        raise place.expected(_EXPECTED)
    # Whether it is there shows when it is loaded: one graph that is not must not keep the others from starting.
    return GraphSource(name, attribute, path=path, stages=stages, written=written)


def _stages(place: Place) -> tuple[str, ...]:
    if not isinstance(place.value, list) or not all(isinstance(item, str) and item for item in place.value):
        raise place.expected("a list of nodes")
    return tuple(place.value)


def _import_paths(place: Place) -> tuple[Path, ...]:
    # "." and "./lib" are folders to import from; anything else is a package somebody has installed.
    given = place.value if place.value is not None else []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise place.expected("a list of packages and folders")
    return tuple(place.folder / item for item in given if item.startswith("."))


def _environment(place: Place) -> dict[str, SecretStr]:
    if isinstance(place.value, str):
        file = place.folder / place.value
        read_text(file)  # the same refusals as for every file of ours, before dotenv looks at it
        values = dotenv_values(file, interpolate=False)
        return {name: SecretStr(value) for name, value in values.items() if value is not None}
    return {name: SecretStr(entry.text("text")) for name, entry in place.entries().items()}
