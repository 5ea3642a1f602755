"""The graphs that are there without anybody registering one, and how their rounds end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.graph import StateGraph

from clew.agents.language import LanguageDetector
from clew.agents.registry import AgentRegistry
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Thread
from clew.engine.documents import Documents
from clew.ports import Closing, Driver
from clew.workflows.agent import Agent
from clew.workflows.chat import Chat, ChatLimits
from clew.workflows.chat_documents import Shelf
from clew.workflows.interview import Interview


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """Graphs by name. Those in `closings` have something to say when a round ends."""

    graphs: dict[str, StateGraph[Any, Any, Any, Any]]
    closings: dict[str, Closing]


def builtin_graphs(
    *,
    documents: Documents,
    agents: AgentRegistry,
    driver: Callable[[Thread], Driver],
    policy: Callable[[Thread], RetryPolicy],
    max_bytes: int,
    model: BaseChatModel | None = None,
) -> Builtin:
    """`chat` and `interview`; and `agent`, a model without tools, where there is a model."""
    chat = Chat(
        shelf=Shelf(documents=documents),
        agents=agents,
        driver=driver,
        policy=policy,
        detect=LanguageDetector(),
        limits=ChatLimits(input_bytes=4 * max_bytes, output_bytes=2 * max_bytes),
    )
    graphs: dict[str, StateGraph[Any, Any, Any, Any]] = {
        "chat": chat.graph(),
        "interview": Interview(shelf=chat.shelf).graph(),
    }
    if model is not None:
        graphs["agent"] = Agent(model=model).graph()
    return Builtin(graphs=graphs, closings={"chat": chat.closing})
