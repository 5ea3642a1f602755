"""Clew, a durable backend for LangGraph agents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clew.graph.agent_node import AgentNode
    from clew.graph.history import ChatHistory
    from clew.library import create_checkpointer, create_graph_store

__version__ = "0.1.0"
__all__ = ["AgentNode", "ChatHistory", "create_checkpointer", "create_graph_store"]

# Imported when first used: LangGraph takes seconds, and not everything that says `import clew` needs it.
_HOMES: Final = {
    "AgentNode": "clew.graph.agent_node",
    "ChatHistory": "clew.graph.history",
    "create_checkpointer": "clew.library",
    "create_graph_store": "clew.library",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
