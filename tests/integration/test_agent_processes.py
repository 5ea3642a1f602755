"""Agents of the folder in processes: what one does to its process is told, and is done to nothing else."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.apps.chat.agents.registry import Role, find_agents
from clew.apps.chat.cpu_budget import CpuBudget
from clew.apps.chat.workers import AgentWorkers, open_workers
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.domain.errors import LimitExceeded, Permanent

pytestmark = pytest.mark.anyio

AGENT = """
import os
import sys

from clew.apps.drivers.inquiries import Inquiry, Purpose


class Wild:
    name = "wild"
    description = "Does what it is told."

    def __init__(self, driver):
        self.driver = driver

    async def process_task(self, task):
        how = task["prompt"]
        if how == "exit":
            sys.exit("enough")
        if how == "crash":
            os.abort()
        if how == "compute":
            while True:
                pass
        if how == "swell":
            return {"feedback": str(len(bytearray(2**31))), "documents": []}
        if how == "odd":
            return {"feedback": object(), "documents": []}
        if how == "look":
            return {"feedback": " ".join(sorted(os.environ)), "documents": []}
        reply = await self.driver.ask(Inquiry(purpose=Purpose.WRITE, role="r", prompt=how))
        return {"feedback": f"{reply.text} {os.getpid()}", "documents": [{"label": "a.bin", "content": b"\\0"}]}
"""


class Echo:
    name = "echo"
    model = "echo"

    def can(self, purpose: Purpose) -> bool:
        return True

    async def ask(self, inquiry: Inquiry) -> Reply:
        return Reply(text=f"you said {inquiry.prompt}")


@pytest.fixture
def role(tmp_path: Path) -> Role:
    (tmp_path / "wild.py").write_text(AGENT)
    return find_agents(tmp_path).role("wild")


@pytest.fixture
async def workers() -> AsyncIterator[AgentWorkers]:
    async with open_workers(
        memory_bytes=2**29, output_bytes=2**20, isolates_all=True, environment={"GIVEN": "yes"}
    ) as opened:
        yield opened


async def done(workers: AgentWorkers, role: Role, how: str) -> Any:
    task: Any = {"prompt": how, "context": {"language": "en"}, "inputDocuments": []}
    return await workers.process(role, Echo(), task, CpuBudget(limit=1.0, spent_before=0.0))


async def test_what_it_does_to_its_process_ends_its_task_alone(workers: AgentWorkers, role: Role) -> None:
    with pytest.raises(Permanent, match="SystemExit: enough"):
        await done(workers, role, "exit")
    with pytest.raises(Permanent, match="process ended with status -6"):
        await done(workers, role, "crash")
    with pytest.raises(LimitExceeded, match="computed for more than 1 s"):
        await done(workers, role, "compute")
    with pytest.raises(LimitExceeded, match="task_memory_bytes"):
        await done(workers, role, "swell")
    with pytest.raises(Permanent, match="not JSON serializable"):
        await done(workers, role, "odd")
    result = await done(workers, role, "hello")
    said, _, pid = result["feedback"].rpartition(" ")
    assert said == "you said hello"
    assert int(pid) != os.getpid()
    assert result["documents"] == [{"label": "a.bin", "content": b"\0"}]


async def test_it_has_the_variables_it_was_given_and_none_of_the_server(
    workers: AgentWorkers, role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "secret")
    names = (await done(workers, role, "look"))["feedback"].split()
    assert "GIVEN" in names
    assert "OF_THE_SERVER" not in names
