"""`priority.path` of langgraph.json: the project's function decides which runs start first."""

import asyncio
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.priority.types import PriorityContext

from clew.config import load_settings
from clew.domain.assistants import Assistant
from clew.domain.errors import ConfigError
from clew.domain.events import RunSpec
from clew.domain.thread import Owner
from clew.ports.priorities import FirstRun
from clew.server import priority
from clew.server.priority import ProjectPriorities, load_assign
from tests.processes import serving, until

CODE = """
import asyncio
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph_sdk import Priority, PriorityContext, PrioritySettings

priority = Priority()


@priority.assign
async def assign(ctx: PriorityContext) -> PrioritySettings | None:
    plan = ctx.thread_metadata.get("plan")
    if plan == "broken":
        raise RuntimeError("secret words")
    return {"priority": -3, "fairness_group": "a"} if plan == "premium" else None


class State(TypedDict, total=False):
    name: str


async def work(state: State):
    with Path("order").open("a") as order:
        order.write(state["name"] + " ")
    while state["name"] == "first" and not Path("go").exists():
        await asyncio.sleep(0.05)


graph = StateGraph(State).add_node("work", work).add_edge(START, "work").add_edge("work", END).compile()
"""


def test_runs_start_in_the_order_that_the_project_decides(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(CODE)
    keys = {"graphs": {"agent": "./agent.py:graph"}, "priority": {"path": "./agent.py:priority"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(keys))
    order = tmp_path / "order"

    def start(name: str, plan: str) -> str:
        thread = client.post("/threads", json={"metadata": {"plan": plan}}).json()["thread_id"]
        started = client.post(
            f"/threads/{thread}/runs", json={"assistant_id": "agent", "input": {"name": name}}
        )
        assert started.status_code == 200, started.text
        return str(thread)

    with (
        serving(tmp_path, CLEW_RUNNER_CONCURRENCY="1") as server,
        httpx.Client(base_url=server.address) as client,
    ):
        start("first", "free")
        until(order.exists)
        start("free", "free")
        broken = start("broken", "broken")
        start("premium", "premium")
        (tmp_path / "go").touch()
        until(lambda: len(order.read_text().split()) == 4)
        assert order.read_text().split() == ["first", "premium", "free", "broken"]
        assert "priority.path failed (RuntimeError)" in server.log
        assert "secret words" not in server.log
        # It is asked once a thread; after it failed, again.
        until(lambda: client.get(f"/threads/{broken}").json()["status"] == "idle")
        body = {"assistant_id": "agent", "input": {"name": "again"}}
        client.post(f"/threads/{broken}/runs/wait", json=body, timeout=30)
        assert server.log.count("priority.path failed") == 2


def made(assign: Callable[[PriorityContext], Any]) -> ProjectPriorities:
    async def read(assistant_id: str, owner: Owner) -> Assistant:
        now = datetime(2026, 1, 1, tzinfo=UTC)
        return Assistant(
            id=assistant_id,
            graph="agent",
            name="a",
            metadata={"a": owner.tenant},
            created_at=now,
            updated_at=now,
        )

    return ProjectPriorities(assign, read)


def first_run(**more: Any) -> FirstRun:
    spec = RunSpec(run_id="r", assistant_id="a", graph="agent", metadata={"m": 1}, **more)
    return FirstRun(thread_id=None, owner=Owner(tenant="t"), metadata={"k": 1}, spec=spec, cron_id="c")


@pytest.mark.anyio
async def test_the_function_learns_who_runs_what() -> None:
    seen: list[PriorityContext] = []

    async def assign(ctx: PriorityContext) -> dict[str, int]:
        seen.append(ctx)
        return {"priority": 5}

    user = {
        "identity": "ann",
        "display_name": "Ann",
        "is_authenticated": True,
        "permissions": ["p"],
        "org": "x",
    }
    assert await made(assign).of(first_run(user=user)) == 5
    assert await made(assign).of(first_run()) == 5
    known, none = seen
    assert (known.user["org"], known.user.identity, known.permissions) == ("x", "ann", ["p"])
    assert (none.user.identity, none.permissions) == ("", [])
    assert (known.thread_id, known.thread_metadata, known.run_metadata) == (None, {"k": 1}, {"m": 1})
    assert (known.assistant_id, known.graph_id, known.assistant_metadata) == ("a", "agent", {"a": "t"})
    assert known.cron_id == "c"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (6, "instead of a dict"),
        ({"priority": 6}, "a whole number from -5 to 5"),
        ({"priority": True}, "a whole number from -5 to 5"),
        ({"priority": 1, "fairness_group": "x" * 257}, "at most 256 characters"),
        ({"priorty": 1}, "1 unknown keys"),
        (asyncio.sleep, "took longer than"),
    ],
)
async def test_what_is_no_priority_delays_no_run(
    answer: Any, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "SECONDS", 0.05)

    async def assign(_: PriorityContext) -> Any:
        return await answer(60) if callable(answer) else answer

    with caplog.at_level(logging.WARNING):
        assert await made(assign).of(first_run()) is None
    assert said in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize("answer", [None, {}, {"priority": None, "fairness_group": None}])
async def test_the_default_is_kept_too(answer: Any) -> None:
    async def assign(_: PriorityContext) -> Any:
        return answer

    assert await made(assign).of(first_run()) == 0


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("priority = 1", "is no langgraph_sdk.Priority but int"),
        ("from langgraph_sdk import Priority\npriority = Priority()", "add @priority.assign"),
        ("other = 1", "has no 'priority'"),
    ],
)
def test_what_assigns_nothing_is_refused_at_the_start(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "agent.py").write_text(code)
    (tmp_path / "langgraph.json").write_text(json.dumps({"priority": {"path": "./agent.py:priority"}}))
    settings = load_settings({}, cwd=tmp_path)
    assert settings.custom_priority is not None
    with pytest.raises(ConfigError, match=r"langgraph\.json: priority\.path: ") as refused:
        load_assign(settings.custom_priority, settings)
    assert said in str(refused.value)
