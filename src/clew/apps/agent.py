"""The agent app: the model of the default profile as a graph without tools, where that profile has a model."""

from typing import Any

from clew.apps.app import App, AppServices
from clew.graph.agent import Agent


def make_graph(services: AppServices) -> Any:
    return None if services.model is None else Agent(model=services.model).graph()


AGENT = App(name="agent", graph=make_graph)
