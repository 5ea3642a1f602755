"""Clew, a durable backend for LangGraph agents."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from clew.api.access import needs
    from clew.api.guard import Caller
    from clew.api.workflow_apps import Prepared, StartCall, View
    from clew.apps.app import App, AppServices, RouteServices
    from clew.graph.agent import Agent
    from clew.graph.middleware import ToolLedger
    from clew.graph.tools import tool
    from clew.history.agent_node import AgentNode
    from clew.history.chat_history import ChatHistory
    from clew.server.embedding import EmbeddedServer, open_server
    from clew.server.library import create_checkpointer, create_graph_store, delete_by_tenant, delete_by_user
    from clew.toolsets.mcp_tools import mcp_tools

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "AgentNode",
    "App",
    "AppServices",
    "Caller",
    "ChatHistory",
    "EmbeddedServer",
    "Prepared",
    "RouteServices",
    "StartCall",
    "ToolLedger",
    "View",
    "create_checkpointer",
    "create_graph_store",
    "delete_by_tenant",
    "delete_by_user",
    "mcp_tools",
    "needs",
    "open_server",
    "tool",
]

# Imported when first used: LangGraph takes seconds, and not everything that says `import clew` needs it.
_HOMES: Final = {
    "Agent": "clew.graph.agent",
    "AgentNode": "clew.history.agent_node",
    "App": "clew.apps.app",
    "AppServices": "clew.apps.app",
    "Caller": "clew.api.guard",
    "ChatHistory": "clew.history.chat_history",
    "EmbeddedServer": "clew.server.embedding",
    "Prepared": "clew.api.workflow_apps",
    "RouteServices": "clew.apps.app",
    "StartCall": "clew.api.workflow_apps",
    "ToolLedger": "clew.graph.middleware",
    "View": "clew.api.workflow_apps",
    "create_checkpointer": "clew.server.library",
    "create_graph_store": "clew.server.library",
    "delete_by_tenant": "clew.server.library",
    "delete_by_user": "clew.server.library",
    "mcp_tools": "clew.toolsets.mcp_tools",
    "needs": "clew.api.access",
    "open_server": "clew.server.embedding",
    "tool": "clew.graph.tools",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
