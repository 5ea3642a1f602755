"""Model settings of a graph: its provider, its name and the system prompt, as far as the graph shows them."""

import inspect
import logging
from collections.abc import Iterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableBinding
from langgraph.graph.state import CompiledStateGraph

from clew.domain.thread import ModelSettings

logger = logging.getLogger(__name__)


def find_model_settings(graph: Any) -> ModelSettings | None:
    """Those of the first node that shows its model: one of ours, or one of LangChain's `create_agent`."""
    if not isinstance(graph, CompiledStateGraph):
        return None
    try:
        return next(
            (found for node in graph.builder.nodes.values() if (found := _of_node(node.runnable))), None
        )
    except Exception:
        # A user's graph may raise on any attribute. It runs all the same.
        logger.warning("the model settings of a graph cannot be read", exc_info=True)
        return None


def settings_of(model: Any, system_prompt: str) -> ModelSettings | None:
    """Of a chat model, or of a name for `init_chat_model` such as `openai:gpt-5`."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    if isinstance(model, str):
        provider, _, name = model.rpartition(":")
        return ModelSettings(provider=provider, model=name, system_prompt=system_prompt)
    if not isinstance(model, BaseChatModel):
        return None
    params = model._get_ls_params()
    told = params.get("ls_model_name") or getattr(model, "model_name", "") or getattr(model, "model", "")
    return ModelSettings(
        provider=str(params.get("ls_provider", "")), model=str(told or ""), system_prompt=system_prompt
    )


def _of_node(runnable: Any) -> ModelSettings | None:
    for teller in _tellers(runnable):
        found = getattr(teller, "model_settings", None)
        if isinstance(found, ModelSettings):
            return found
    held = list(_held(runnable))
    models = [value for value in held if isinstance(value, BaseChatModel | RunnableBinding)]
    prompts = [str(value.text) for value in held if isinstance(value, SystemMessage)]
    return settings_of(models[0], prompts[0] if len(prompts) == 1 else "") if len(models) == 1 else None


def _tellers(runnable: Any) -> Iterator[Any]:
    """The node itself, and what its function is a method of."""
    yield runnable
    for function in _functions(runnable):
        yield function
        yield getattr(function, "__self__", None)


def _held(runnable: Any) -> Iterator[Any]:
    """What the functions of a node were made with, each once."""
    for function in _functions(runnable):
        if inspect.isfunction(function):
            yield from inspect.getclosurevars(function).nonlocals.values()
            return


def _functions(runnable: Any) -> Iterator[Any]:
    for name in ("afunc", "func"):
        if (function := getattr(runnable, name, None)) is not None:
            yield function
