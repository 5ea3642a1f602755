"""Agent registry: built-in agents, those of installed packages (entry points `clew.agents`), those of a folder."""

import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

from clew.apps.chat.agents.agent import ChatAgent
from clew.apps.chat.plan import PROJECT_MANAGER, TOOL_USER
from clew.apps.drivers.driver import Driver
from clew.apps.installed import installed
from clew.domain.errors import ConfigError, NotFound

GROUP = "clew.agents"
BUILT_IN = (
    "clew.apps.chat.agents.summarizer:Summarizer",
    "clew.apps.chat.agents.analyst:Analyst",
    "clew.apps.chat.agents.researcher:Researcher",
    "clew.apps.chat.agents.writer:Writer",
    "clew.apps.chat.agents.translator:Translator",
    "clew.apps.chat.agents.coder:Coder",
)

_TAKEN = (PROJECT_MANAGER, TOOL_USER)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class NotAnAgent(Exception):
    """The object found does not implement an agent."""


@dataclass(frozen=True, slots=True)
class Role:
    """An agent that can be made: with a driver, where its class takes one."""

    name: str
    description: str
    source: str
    make: Callable[[Driver], ChatAgent]


@dataclass(frozen=True, slots=True)
class AgentRegistry:
    """The agents that were loaded, and why others failed to load."""

    roles: dict[str, Role] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def descriptions(self) -> Mapping[str, str]:
        return {role.name: role.description for role in self.roles.values()}

    def role(self, name: str) -> Role:
        """Raises NotFound."""
        if name not in self.roles:
            raise NotFound(f"no agent {name!r}")
        return self.roles[name]

    def make(self, name: str, driver: Driver) -> ChatAgent:
        """Raises NotFound."""
        return self.role(name).make(driver)

    def add(self, found: Any, source: str) -> None:
        """Raises ConfigError if the name is taken: a plan could not say which of the two it means."""
        role = _role(found, source)
        if role.name in self.roles:
            raise ConfigError(
                f"two agents are called {role.name!r}: one in {self.roles[role.name].source}, one in {source}"
            )
        self.roles[role.name] = role


def find_agents(folder: Path | None = None) -> AgentRegistry:
    """Every agent found. A broken one is recorded and left out; two with one name are an error."""
    registry = AgentRegistry()
    for source, load in _sources(folder):
        try:
            found = load()
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - third-party code may do anything when imported
            registry.broken[source] = f"{type(exc).__name__}: {exc}"
            continue
        for one in found:
            try:
                registry.add(one, source)
            except NotAnAgent as exc:
                registry.broken[source] = str(exc)
    return registry


def role_at(source: str, name: str) -> Role:
    """One agent of a third party, loaded anew. Raises NotFound, and whatever its code raises."""
    loaded = (
        _agents_in(Path(source))
        if source.endswith(".py")
        else [EntryPoint(name=name, value=source, group=GROUP).load()]
    )
    found = next((role for role in (_role(one, source) for one in loaded) if role.name == name), None)
    if found is None:
        raise NotFound(f"no agent {name!r} in {source}")
    return found


def _sources(folder: Path | None) -> Iterator[tuple[str, Callable[[], list[Any]]]]:
    for place in BUILT_IN:
        built_in = EntryPoint(name=place, value=place, group=GROUP)
        yield place, lambda built_in=built_in: [built_in.load()]  # type: ignore[misc]
    for point in installed(GROUP):
        yield point.value, lambda point=point: [point.load()]  # type: ignore[misc]
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"agents.folder: expected a folder, but {folder} is not one")
        for path in sorted(folder.glob("*.py")):
            if not path.name.startswith("_"):
                yield str(path), lambda path=path: _agents_in(path)  # type: ignore[misc]


def _agents_in(path: Path) -> list[Any]:
    module = _module(path)
    found = [
        one
        for one in vars(module).values()
        if inspect.isclass(one) and one.__module__ == module.__name__ and hasattr(one, "process_task")
    ]
    if not found:
        raise NotAnAgent("it has no class with a process_task")
    return found


def _module(path: Path) -> ModuleType:
    # A unique module name, so that a file called json.py in that folder does not hide the json module.
    name = f"clew_agent_{path.stem}_{abs(hash(path.resolve()))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotAnAgent("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _role(found: Any, source: str) -> Role:
    name, description = getattr(found, "name", None), getattr(found, "description", None)
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or name in _TAKEN:
        raise NotAnAgent(
            f"its name must be letters, digits, - and _, at most 64, and not one of {', '.join(_TAKEN)}"
        )
    if not (isinstance(description, str) and description.strip()):
        raise NotAnAgent(f"{name} must say what it is good for, in `description`")
    if not inspect.iscoroutinefunction(getattr(found, "process_task", None)):
        raise NotAnAgent(f"{name} must have an `async def process_task(self, task)`")
    return Role(name, " ".join(description.split()), source, _maker(found))


def _maker(found: Any) -> Callable[[Driver], Any]:
    if not inspect.isclass(found):
        return lambda _: found
    takes = inspect.signature(found).parameters.values()
    if any(parameter.default is inspect.Parameter.empty and _is_positional(parameter) for parameter in takes):
        return found
    return lambda _: found()


def _is_positional(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
