"""Graph factories: functions of a project that make a graph for one run, read, update or schema."""

import inspect
import typing
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args, get_origin

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.store.base import BaseStore

# Private, but the classes that ServerRuntime is an alias of: LangGraph's own server builds them as well.
from langgraph_sdk.runtime import ServerRuntime, _ExecutionRuntime, _ReadRuntime

from clew.domain.errors import ClewError, SchemaMismatch
from clew.graph.containment import Contained
from clew.graph.position import Graph

Purpose: TypeAlias = Literal["threads.create_run", "threads.update", "threads.read", "assistants.read"]

# Where a factory, like a node, finds the user that the server has authenticated.
USER = "langgraph_auth_user"
# As LangGraph's server tells a factory that takes a config only.
FOR_EXECUTION = "__is_for_execution__"


class NotAGraph(Exception):
    """What was found is nothing a graph can be made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFactory:
    """A factory that takes a config, a ServerRuntime, or both."""

    name: str
    call: Callable[..., Any]
    takes_config: str | None
    """The name of the parameter."""
    takes_runtime: str | None
    finish: Callable[[Any], Graph] = field(repr=False)
    """Compiles what it made."""

    @asynccontextmanager
    async def opened(
        self,
        purpose: Purpose,
        config: RunnableConfig,
        *,
        store: BaseStore,
        context: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Graph]:
        """A new graph. A factory that is a context manager is left at the end of the block.

        What the factory raises for a run is the run's error. For anything else it is SchemaMismatch, as of a state that its graph cannot read.
        """
        async with AsyncExitStack() as stack:
            try:
                graph = self.finish(await self._made(stack, purpose, config, store, context))
            except ClewError:
                raise
            except Exception as exc:
                if purpose == "threads.create_run":
                    raise
                raise SchemaMismatch(
                    f"graph {self.name!r} was not made: {type(exc).__name__}: {exc}"
                ) from exc
            yield graph.copy(update={"store": store})

    async def _made(
        self,
        stack: AsyncExitStack,
        purpose: Purpose,
        config: RunnableConfig,
        store: BaseStore,
        context: Mapping[str, Any] | None,
    ) -> Any:
        runs = purpose == "threads.create_run"
        given = ensure_config(config)
        given["configurable"] = {**given["configurable"], FOR_EXECUTION: runs}
        user = given["configurable"].get(USER)
        arguments: dict[str, Any] = {}
        if self.takes_config is not None:
            arguments[self.takes_config] = given
        if self.takes_runtime is not None:
            shared: dict[str, Any] = {"access_context": purpose, "user": user, "store": store}
            arguments[self.takes_runtime] = (
                _ExecutionRuntime(**shared, context=None if context is None else dict(context))
                if runs
                else _ReadRuntime(**shared)
            )
        # For `get_config()`. Reset before the block is entered, which may be left in another task.
        token = var_child_runnable_config.set(given)
        try:
            with Contained():
                return await entered(self.call(**arguments), stack)
        finally:
            var_child_runnable_config.reset(token)


def factory(found: Any, name: str, *, finish: Callable[[Any], Graph]) -> GraphFactory | None:
    """None for a graph, and for a factory that takes nothing. Raises NotAGraph for one that needs something else."""
    if isinstance(found, StateGraph | Pregel) or not callable(found):
        return None
    parameters = [
        one
        for one in inspect.signature(found).parameters.values()
        if one.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    hints = _hints(found)
    runtime = next((one.name for one in parameters if _is_runtime(one.name, hints.get(one.name))), None)
    others = [one for one in parameters if one.name != runtime]
    config = next((one.name for one in others if _is_config(one, others)), None)
    if wanted := [one.name for one in others if one.name != config and one.default is one.empty]:
        raise NotAGraph(
            f"a factory is given a config and a ServerRuntime; it also requires {', '.join(wanted)}"
        )
    if runtime is None and config is None:
        return None
    return GraphFactory(name=name, call=found, takes_config=config, takes_runtime=runtime, finish=finish)


async def entered(made: Any, stack: AsyncExitStack) -> Any:
    """What a factory gave out: a graph, an awaitable, a generator or a context manager, which the stack will leave."""
    if inspect.isawaitable(made):
        made = await made
    if inspect.isasyncgen(made):
        made = asynccontextmanager(lambda: made)()
    elif inspect.isgenerator(made):
        made = contextmanager(lambda: made)()
    if hasattr(made, "__aenter__"):
        return await stack.enter_async_context(made)
    if hasattr(made, "__enter__"):
        return stack.enter_context(made)
    return made


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Its annotations, with ServerRuntime known also where it is imported for type checkers only."""
    try:
        return typing.get_type_hints(
            function, localns={"ServerRuntime": ServerRuntime, "RunnableConfig": RunnableConfig}
        )
    except Exception:  # noqa: BLE001 - an annotation may name anything
        return {}


def _is_runtime(name: str, hint: Any) -> bool:
    if hint is None:
        return name == "runtime"
    if hint is ServerRuntime or get_origin(hint) is ServerRuntime:
        return True
    if isinstance(hint, type):
        return issubclass(hint, _ExecutionRuntime | _ReadRuntime)
    return get_origin(hint) is not None and any(_is_runtime("", one) for one in get_args(hint)[:1])


def _is_config(parameter: inspect.Parameter, others: Collection[inspect.Parameter]) -> bool:
    """The first parameter that has to be given; or an optional one that is the only one, or named so."""
    return parameter.default is parameter.empty or parameter.name == "config" or len(others) == 1
