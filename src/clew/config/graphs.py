"""Graph sources: the `graphs` of clew.yaml, and langgraph.json as LangGraph's own tools write it."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from clew.config.dependencies import read_dependencies
from clew.config.files import read_dotenv
from clew.config.project_auth import ProjectAuth, read_project_auth, studio_warnings
from clew.config.project_code import CodeSource, read_handlers
from clew.config.project_http import ProjectHttp, read_project_http
from clew.config.store_index import StoreIndexSource, read_store_index
from clew.config.tree import ConfigNode

_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_ATTRIBUTE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_EXPECTED = "module:attribute or ./file.py:attribute"
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class GraphSource:
    """`attribute` of `module`, or of the file `path` when that is set."""

    name: str
    attribute: str
    module: str | None = None
    path: Path | None = None
    stages: tuple[str, ...] | None = None
    """The nodes whose beginning and end are logged; all of them unless set."""
    written: str = ""
    """As it is written in the settings, for messages."""
    description: str | None = None
    """What it is for, as LangGraph's clients show it with its assistant."""

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"


@dataclass(frozen=True, slots=True)
class LangGraphProject:
    """What Clew reads of a langgraph.json."""

    graphs: dict[str, GraphSource] = field(default_factory=dict)
    import_paths: tuple[Path, ...] = ()
    environment: dict[str, SecretStr] = field(default_factory=dict)
    auth: ProjectAuth | None = None
    encryption: CodeSource | None = None
    priority: CodeSource | None = None
    http: ProjectHttp = field(default_factory=ProjectHttp)
    store_index: StoreIndexSource | None = None
    warnings: tuple[str, ...] = ()
    """What the file names and is not there."""

    def revealed(self) -> dict[str, str]:
        return {name: value.get_secret_value() for name, value in self.environment.items()}


def read_graphs(place: ConfigNode) -> dict[str, GraphSource]:
    """`module:attribute`, or a mapping with it as `path`."""
    for entry in place.entries().values():
        if isinstance(entry.value, dict):
            entry.known(("path", "stages", "description"))
    return _graphs(place)


def read_langgraph_json(project: ConfigNode) -> LangGraphProject:
    """The keys that Clew honours; `check_keys` names the others. Raises ConfigError."""
    entries = project.entries()
    nothing = ConfigNode(project.file, "", None)
    environment, missing = _environment(entries.get("env", nothing))
    folders, absent = read_dependencies(entries.get("dependencies", nothing))
    return LangGraphProject(
        graphs=_graphs(entries.get("graphs", nothing), is_ours=False),
        import_paths=folders,
        environment=environment,
        auth=read_project_auth(entries.get("auth", nothing)),
        encryption=read_handlers("encryption", entries.get("encryption", nothing), "an Encryption"),
        priority=read_handlers("priority", entries.get("priority", nothing), "a Priority"),
        http=read_project_http(entries.get("http", nothing)),
        store_index=read_store_index(entries.get("store"), is_ours=False),
        warnings=(
            *missing,
            *absent,
            *_own_names(project, environment),
            *studio_warnings(entries.get("auth", nothing)),
        ),
    )


def _graphs(place: ConfigNode, *, is_ours: bool = True) -> dict[str, GraphSource]:
    return {name: _graph(name, entry, is_ours=is_ours) for name, entry in place.entries().items()}


def _graph(name: str, place: ConfigNode, *, is_ours: bool) -> GraphSource:
    if not _is_name(name):
        raise place.expected(f"a name of at most {MAX_NAME} printable characters, without a slash")
    stages: tuple[str, ...] | None = None
    description: str | None = None
    if isinstance(place.value, dict):
        entries = place.entries()
        stages = _stages(entries["stages"]) if "stages" in entries else None
        description = _description(entries.get("description"))
        place = entries.get("path", place)
    written = place.text(_EXPECTED)
    module, _, attribute = written.rpartition(":")
    if not _ATTRIBUTE.fullmatch(attribute):
        raise place.expected(_EXPECTED)
    if _MODULE.fullmatch(module) and not module.endswith(".py"):
        return GraphSource(
            name, attribute, module=module, stages=stages, written=written, description=description
        )
    path = place.folder / module
    # A project of LangGraph's may have graphs in other languages. Those are reported when they are loaded.
    if path.suffix != ".py" and (is_ours or not path.suffix):
        raise place.expected(_EXPECTED)
    # Whether it is there shows when it is loaded: one graph that is not must not keep the others from starting.
    return GraphSource(name, attribute, path=path, stages=stages, written=written, description=description)


def _is_name(name: str) -> bool:
    """It is part of addresses and of log lines. LangGraph's projects have spaces in it, and any letters."""
    return name == name.strip() and 0 < len(name) <= MAX_NAME and name.isprintable() and "/" not in name


def _stages(place: ConfigNode) -> tuple[str, ...]:
    if not isinstance(place.value, list) or not all(isinstance(item, str) and item for item in place.value):
        raise place.expected("a list of nodes")
    return tuple(place.value)


def _description(place: ConfigNode | None) -> str | None:
    if place is None or place.value is None:
        return None
    if not isinstance(place.value, str):
        raise place.expected("text")
    return place.value


def _environment(place: ConfigNode) -> tuple[dict[str, SecretStr], tuple[str, ...]]:
    """The variables; and a warning if they are in a file that does not exist, as in a project just cloned."""
    if not isinstance(place.value, str):
        return {name: SecretStr(entry.text("text")) for name, entry in place.entries().items()}, ()
    file = place.folder / place.value
    if not file.exists():
        return {}, (f"{place.file}: {place.key} names {file}, which does not exist; no variables are read",)
    return {name: SecretStr(value) for name, value in read_dotenv(file).items()}, ()


def _own_names(project: ConfigNode, environment: Collection[str]) -> Iterator[str]:
    for name in environment:
        if name.startswith("CLEW_"):
            yield f"{project.file}: env sets {name}, which is for graphs only; set it in the environment or clew.yaml"
