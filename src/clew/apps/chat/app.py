"""The chat app: the default graph, with agents that are built in, installed or in a folder."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from langgraph.graph import StateGraph
from pydantic import BaseModel, ConfigDict, SecretStr

from clew.apps.app import App, AppServices
from clew.apps.chat.agents.language import LanguageDetector
from clew.apps.chat.agents.registry import find_agents
from clew.apps.chat.documents import ChatDocuments
from clew.apps.chat.ending import closing
from clew.apps.chat.graph import Chat, ChatLimits
from clew.apps.chat.offline.rules import RULES
from clew.apps.chat.workers import open_workers
from clew.domain.events import Body, Event
from clew.domain.thread import Status, Thread
from clew.domain.views import chat_status

logger = logging.getLogger(__name__)

# What a round may make, and what one task may be given, in files of the largest size.
_OUTPUT = 2
_INPUT = 4


class ChatOptions(BaseModel):
    """What the chat is made with."""

    model_config = ConfigDict(frozen=True)

    agents_folder: Path | None = None
    # Whether agents of third parties run in processes with limits, and the variables they have there.
    agents_in_processes: bool = False
    environment: Mapping[str, SecretStr] = {}
    upload_bytes: int = 50 * 2**20
    cpu_seconds: float = 120.0
    task_memory_bytes: int = 2**30


@asynccontextmanager
async def open_graph(services: AppServices) -> AsyncGenerator[StateGraph[Any, Any, Any, Any]]:
    """Raises ConfigError when two agents have one name."""
    options: ChatOptions = services.settings
    agents = find_agents(options.agents_folder)
    for source, reason in agents.broken.items():
        logger.error("agent cannot be loaded: %s", reason, extra={"source": source})
    output_bytes = _OUTPUT * options.upload_bytes
    async with open_workers(
        memory_bytes=options.task_memory_bytes,
        output_bytes=output_bytes,
        isolates_all=options.agents_in_processes,
        environment={name: value.get_secret_value() for name, value in options.environment.items()},
    ) as workers:
        yield Chat(
            shelf=ChatDocuments(documents=services.documents),
            agents=agents,
            driver=services.driver,
            policy=services.policy,
            budget=services.budget,
            detect=_detector(),
            workers=workers,
            tools=services.tools,
            limits=ChatLimits(
                input_bytes=_INPUT * options.upload_bytes,
                output_bytes=output_bytes,
                cpu_seconds=options.cpu_seconds,
            ),
        ).graph()


def close(thread: Thread, log: Sequence[Event], status: Status, reason: str) -> Sequence[Body]:  # noqa: ARG001 - other apps may need the thread
    return closing(log, status, reason, detect=_detector())


@cache
def _detector() -> LanguageDetector:
    """One a process: its model is loaded once."""
    return LanguageDetector()


CHAT = App(
    name="chat",
    graph=open_graph,
    close=close,
    settings=ChatOptions,
    # Its clients know four statuses; see docs/reference/endpoints.md.
    status=chat_status,
    uses_profiles=True,
    offline=RULES,
)
