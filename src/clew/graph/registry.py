"""Graph registry: user graphs found by name, imported, and compiled with our checkpointer and store."""

import importlib
import importlib.util
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore
from langgraph.types import All

from clew.domain.runs import is_free
from clew.graph.factories import GraphFactory, NotAGraph, entered, factory
from clew.graph.position import Graph

# Of a compiled graph, what is not said when it is compiled.
_SET_LATER = ("step_timeout", "retry_policy", "cache_policy", "stream_transformers")


class CodeSpec(Protocol):
    """Where an object of the user's code is: `attribute` of a module, or of a file."""

    @property
    def name(self) -> str: ...
    @property
    def attribute(self) -> str: ...
    @property
    def module(self) -> str | None: ...
    @property
    def path(self) -> Path | None: ...
    @property
    def written(self) -> str: ...


class GraphSpec(CodeSpec, Protocol):
    @property
    def stages(self) -> Collection[str] | None: ...


@dataclass(frozen=True, slots=True)
class Registry:
    """The graphs that can run here, and why the others cannot: for the log, since it may quote anything."""

    graphs: dict[str, Graph | GraphFactory] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    # The nodes whose beginning and end are logged, of graphs whose settings name them.
    stages: dict[str, frozenset[str]] = field(default_factory=dict)


def import_from(folders: Iterable[Path]) -> None:
    """Graphs and what they import are searched in these folders first."""
    sys.path[:0] = [str(folder) for folder in folders if str(folder) not in sys.path]


async def open_registry(
    sources: Iterable[GraphSpec],
    stack: AsyncExitStack,
    *,
    saver: BaseCheckpointSaver[Any],
    store: BaseStore | None,
) -> Registry:
    """Load every graph. A broken one is reported by name and does not stop the others."""
    registry = Registry()
    for source in sources:
        try:
            finish = partial(_finished, stages=source.stages, saver=saver, store=store)
            found = find_object(source)
            registry.graphs[source.name] = factory(found, source.name, finish=finish) or finish(
                await make_graph(found, stack)
            )
            if source.stages is not None:
                registry.stages[source.name] = frozenset(source.stages)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - user code may do anything when imported
            registry.broken[source.name] = reason(source, exc)
    return registry


def _finished(
    found: Any,
    *,
    stages: Collection[str] | None,
    saver: BaseCheckpointSaver[Any],
    store: BaseStore | None,
) -> Graph:
    graph = compiled(found, saver=saver, store=store)
    if unknown := sorted(set(stages or ()) - set(graph.nodes)):
        raise NotAGraph(f"its stages name nodes it does not have: {', '.join(unknown)}")
    return graph


def compiled(found: Any, *, saver: BaseCheckpointSaver[Any], store: BaseStore | None) -> Graph:
    """The graph with our checkpointer and store, whatever it was compiled with before."""
    match found:
        case StateGraph():
            return found.compile(checkpointer=saver, store=store)
        case CompiledStateGraph(builder=StateGraph() as builder):
            # Compiled anew rather than copied: compiling is when LangGraph tells the checkpointer which types of the
            # graph's own may be read back.
            anew = builder.compile(
                checkpointer=saver,
                store=store or found.store,
                cache=found.cache,
                interrupt_before=_nodes(found.interrupt_before_nodes),
                interrupt_after=_nodes(found.interrupt_after_nodes),
                debug=found.debug,
                name=found.name,
            )
            kept = {name: getattr(found, name) for name in _SET_LATER if hasattr(found, name)}
            return anew.copy(update={**kept, "config": _bound(found.config)})
        case Pregel():
            kept = {"config": _bound(found.config), "store": store or found.store}
            return found.copy(update={**kept, "checkpointer": saver})  # type: ignore[return-value]
        case _:
            raise NotAGraph(
                f"expected a StateGraph, a compiled graph or a function that makes one, got {type(found).__name__}"
            )


def _bound(config: RunnableConfig | None) -> RunnableConfig | None:
    """What `.with_config()` bound the graph to. In whose thread it runs, and where, is not its to say."""
    if not config or "configurable" not in config:
        return config
    free = {name: value for name, value in config["configurable"].items() if is_free(name)}
    return {**config, "configurable": free}


def _nodes(nodes: All | Sequence[str]) -> All | list[str]:
    return nodes if nodes == "*" else list(nodes)


async def make_graph(found: Any, stack: AsyncExitStack) -> Any:
    """Call a factory that takes nothing: sync or async, or a context manager that is left when the app closes."""
    if isinstance(found, StateGraph | Pregel) or not callable(found):
        return found
    return await entered(found(), stack)


def find_object(source: CodeSpec) -> Any:
    """Raises NotAGraph where there is no such attribute, and whatever the module raises when it is imported."""
    module = _module(source)
    try:
        return getattr(module, source.attribute)
    except AttributeError as exc:
        if exc.obj is not module:  # raised by the module's own `__getattr__`
            raise
        raise NotAGraph(f"it has no {source.attribute!r}") from exc


def reason(source: CodeSpec, exc: BaseException) -> str:
    """The error in the words of the settings; the name under which a file is imported is internal."""
    what = str(exc) if isinstance(exc, NotAGraph) else f"{type(exc).__name__}: {exc}"
    if source.path is not None:
        what = what.replace(_own_name(source.name), source.path.stem)
    return f"{source.written}: {what}"


def _own_name(name: str) -> str:
    """The module a graph's file is imported as. Checkpoints hold it as the place of the graph's own types, so it is the
    same in every process, on every machine, and after the project was moved."""
    return f"clew_graph_{name}"


def _module(source: CodeSpec) -> ModuleType:
    if source.path is None:
        return importlib.import_module(source.module or "")
    path = source.path.resolve()
    name = _own_name(source.name)
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise NotAGraph("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
