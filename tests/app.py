"""The product opened inside a test, with graphs of the tests registered as a user would register them."""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.config import load_settings
from clew.domain.events import Body, Event, Opening
from clew.domain.records import RunScope
from clew.domain.thread import Owner, Status, Thread
from clew.domain.tool_calls import Call
from clew.engine.commands import Request
from clew.server.app import Server, open_app
from clew.server.services import EVERYTHING, ProcessRole

GRAPHS = (
    *(
        "gated",
        "asking",
        "branching",
        "flaky",
        "broken",
        "slow",
        "two_steps",
        "writing",
        "stumbling",
        "always_overloaded",
        "overloaded_for_long",
        "endless",
        "blocking",
        "walking",
        "napping",
    ),
    *("typed", "agent", "langchain_agent", "informed_agent", "forgetful_agent", "monotonous_agent"),
    *("summing_agent", "helpless_agent", "speechless_agent"),
    *("reviewed_agent", "planning", "timed"),
)
RESTING = (Status.BLOCKED, Status.COMPLETED, Status.FAILED, Status.STOPPED)


@dataclass(frozen=True, slots=True)
class House:
    """The open app, and the few things every test does with it."""

    app: Server

    async def start(
        self, graph: str, message: str | None = None, scope: RunScope | None = None, **state: Any
    ) -> Thread:
        return await self.app.execution.commands.start(
            Opening(owner=Owner(), graph=graph),
            Request(message=message, graph_input=state or None),
            scope=scope,
        )

    async def rest(
        self, thread: Thread, statuses: Collection[Status] = RESTING, seconds: float = 30
    ) -> Thread:
        """The thread when it has come to rest after what we saw of it, and its run here has ended."""
        async with asyncio.timeout(seconds):
            while True:
                now = await self.app.stores.threads.get(thread.id)
                if now.status in statuses and now.last_seq > thread.last_seq and not _is_run(thread):
                    return now
                await asyncio.sleep(0.01)

    async def run(self, graph: str, message: str | None = None, **state: Any) -> Thread:
        return await self.rest(await self.start(graph, message, **state))

    async def log(self, thread: Thread) -> Sequence[Event]:
        return await self.app.stores.threads.read(thread.id)

    async def bodies(self, thread: Thread, kind: type[Body]) -> list[Any]:
        return [event.body for event in await self.log(thread) if isinstance(event.body, kind)]

    async def calls(self, thread: Thread) -> dict[str, Call]:
        return {call.id: call for call in await self.app.stores.calls.find(thread.id)}

    async def state(self, thread: Thread) -> dict[str, Any]:
        graph: Any = self.app.execution.registry.graphs[thread.graph]
        return dict((await graph.aget_state({"configurable": {"thread_id": thread.id}})).values)


def _is_run(thread: Thread) -> bool:
    """Whether a run of it is under way: what it stored can be read before it has rung the bell for it."""
    return any(task.get_name() == f"run {thread.id}" for task in asyncio.all_tasks())


def graphs_yaml() -> str:
    graphs = "".join(f"  {name}: tests.graphs:{name}\n" for name in GRAPHS)
    chosen = "  staged: {path: 'tests.graphs:gated', stages: [developer]}\n"
    return f"graphs:\n{graphs}{chosen}"


@asynccontextmanager
async def open_house(
    where: str, folder: Path, role: ProcessRole = EVERYTHING, /, *, more: str = "", **environ: str
) -> AsyncGenerator[House]:
    """`where` as tests/databases.py locates it: memory, a path, or a URL. `more` is YAML for the settings."""
    # One a process: a file that several write is at moments half a file to the others.
    config = folder / f"clew-{os.getpid()}.yaml"
    config.write_text(graphs_yaml() + more)
    url = (
        "memory://" if where == "memory" else where if where.startswith("postgres") else f"sqlite:///{where}"
    )
    settings = load_settings({"CLEW_DATABASE_URL": url, **environ}, cwd=folder, config=config)
    async with open_app(settings, role=role) as app:
        yield House(app)
