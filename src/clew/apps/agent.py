"""The agent app: the model of the default profile, with the tools of the MCP servers, where that profile has a model."""

from collections.abc import Sequence
from typing import Any

from langchain_core.tools import BaseTool

from clew.apps.app import App, AppServices
from clew.graph.agent import Agent


def make_graph(services: AppServices) -> Any:
    if services.model is None:
        return None

    async def tools() -> Sequence[BaseTool]:
        return await services.tools()

    return Agent(model=services.model, tools=tools).graph()


AGENT = App(name="agent", graph=make_graph)
