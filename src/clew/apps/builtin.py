"""The graphs that are there without anybody registering one, and how their rounds end."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph

from clew.apps.chat.agents.language import LanguageDetector
from clew.apps.chat.agents.registry import AgentRegistry
from clew.apps.chat.documents import ChatDocuments
from clew.apps.chat.graph import Chat, ChatLimits
from clew.apps.chat.workers import AgentWorkers
from clew.apps.coding.graph import SHOWN, Coding
from clew.apps.coding.plan import CODING
from clew.apps.coding.ports import Worktrees
from clew.apps.drivers.driver import Driver
from clew.apps.interview.graph import Interview
from clew.documents.documents import Documents
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Thread
from clew.graph.agent import Agent
from clew.ports.graphs import Closing

# What a round may make, in files of the largest size.
OUTPUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """Graphs by name. Those in `closings` have something to say when a round ends.

    `shows` are the parts of a graph's state that whoever is asked at its gate is shown.
    """

    graphs: dict[str, StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]]
    closings: dict[str, Closing]
    shows: dict[str, tuple[str, ...]]
    # Graphs that ask the driver of the thread's profile.
    asks_drivers: frozenset[str] = frozenset({"chat", CODING})


def builtin_graphs(
    *,
    documents: Documents,
    agents: AgentRegistry,
    driver: Callable[[Thread], Driver],
    policy: Callable[[Thread], RetryPolicy],
    max_bytes: int,
    cpu_seconds: float,
    workers: AgentWorkers,
    worktrees: Worktrees,
    review_rounds: int,
    model: BaseChatModel | None = None,
) -> Builtin:
    """`chat`, `coding` and `interview`; and `agent`, a model without tools, where there is a model."""
    chat = Chat(
        shelf=ChatDocuments(documents=documents),
        agents=agents,
        driver=driver,
        policy=policy,
        detect=LanguageDetector(),
        workers=workers,
        limits=ChatLimits(
            input_bytes=4 * max_bytes, output_bytes=OUTPUT * max_bytes, cpu_seconds=cpu_seconds
        ),
    )
    coding = Coding(worktrees=worktrees, driver=driver, policy=policy, review_rounds=review_rounds)
    graphs: dict[str, StateGraph[Any, Any, Any, Any] | CompiledStateGraph[Any, Any, Any, Any]] = {
        "chat": chat.graph(),
        CODING: coding.graph(),
        "interview": Interview(shelf=chat.shelf).graph(),
    }
    if model is not None:
        graphs["agent"] = Agent(model=model).graph()
    return Builtin(graphs=graphs, closings={"chat": chat.closing}, shows={CODING: SHOWN})
