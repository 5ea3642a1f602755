"""What a chat round may compute and keep in memory, and that nothing of it goes on after a stop."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from clew.domain.thread import Status, Thread
from tests.chats import ChatHouse, open_chat, plan_of, planning
from tests.openai_server import openai_server
from tests.waiting import until

pytestmark = pytest.mark.anyio

LINE = "The words of this text go on and on, and there is not one blank line between them all, number %d\n"
AGENT = """
import os
import pathlib
import time

# A descriptor: a file object in the hands of a thread that is interrupted may be left unclosed.
ALIVE = os.open(pathlib.Path(__file__).parent / "alive", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Busy:
    name = "busy"
    description = "Computes."

    async def process_task(self, task):
        while True:
            os.write(ALIVE, b".")


class Sleepy:
    name = "sleepy"
    description = "Sleeps, without letting anybody else work."

    async def process_task(self, task):
        while True:
            os.write(ALIVE, b".")
            time.sleep(0.01)
"""


def long_text(megabytes: int) -> bytes:
    line = LINE % 7
    return (line * (megabytes * 2**20 // len(line))).encode()


def workers() -> list[psutil.Process]:
    """The processes that do tasks of built-in agents now: the children of the fork server."""
    return [
        child
        for server in psutil.Process(os.getpid()).children()
        if "clew.apps.chat.worker" in _command(server)
        for child in server.children()
    ]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def _has_computed(process: psutil.Process) -> bool:
    try:
        return bool(process.cpu_times().user > 0.2)
    except psutil.Error:
        return False


@asynccontextmanager
async def open_busy(tmp_path: Path, agent: str, **environ: str) -> AsyncGenerator[ChatHouse]:
    folder = tmp_path / "agents"
    folder.mkdir()
    (folder / "busy.py").write_text(AGENT)
    plan = plan_of({"agent": agent, "prompt": "Compute", "outputDocuments": []})
    async with (
        openai_server(planning(plan)) as model,
        open_chat(
            "memory",
            tmp_path,
            CLEW_MODELS_OPENAI_BASE_URL=model.url,
            CLEW_AGENTS_FOLDER=str(folder),
            **environ,
        ) as chat,
    ):
        yield chat


async def ending(chat: ChatHouse, thread: Thread) -> tuple[str, list[str], str]:
    """Why the round failed, the markers of its messages, and its last log line."""
    assert thread.status is Status.FAILED
    messages, logs = await chat.messages(thread), await chat.logs(thread)
    assert (logs[-1].level, logs[-1].progress) == ("error", 100)
    return thread.failure_reason or "", [one.marker for one in messages], logs[-1].message


class TestBuiltInAgents:
    async def test_a_long_text_without_blank_lines_is_summed_up(self, tmp_path: Path) -> None:
        # Done in two seconds of computing; where the work grows with the square of the text it takes half a minute.
        async with open_chat("memory", tmp_path, CLEW_LIMITS_ROUND_CPU_SECONDS="12") as chat:
            thread = await chat.run("Summarize it", long__txt=long_text(8))
            documents = await chat.documents(thread)
        assert (thread.status, thread.failure_reason) == (Status.COMPLETED, None)
        assert b"The words of this text go on" in documents["summary.md"][1]

    @pytest.mark.accept("004-22")
    async def test_a_round_that_computes_too_long_has_failed(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path, CLEW_LIMITS_ROUND_CPU_SECONDS="1") as chat:
            thread = await chat.run("Summarize it", long__txt=long_text(40))
            reason, markers, last = await ending(chat, thread)
            await until(lambda: not workers(), 20)
        assert "resource limit: the round computed for more than 1 s" in reason
        assert reason in last
        assert markers[-1] == "last"
        assert markers.count("last") == 1

    @pytest.mark.accept("004-22")
    async def test_a_task_that_takes_too_much_memory_has_failed(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path, CLEW_LIMITS_TASK_MEMORY_BYTES=str(2**27)) as chat:
            thread = await chat.run("Summarize it", long__txt=long_text(40))
            reason, markers, _ = await ending(chat, thread)
            await until(lambda: not workers(), 20)
            small = await chat.run("Summarize it", short__txt=(LINE % 1).encode() * 20)
        assert "resource limit: a task needs more than 134217728 bytes of memory" in reason
        assert markers.count("last") == 1
        assert small.status is Status.COMPLETED

    async def test_nothing_is_computed_after_a_stop(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            started = await chat.start("Summarize it", long__txt=long_text(40))
            await until(lambda: any(map(_has_computed, workers())))
            for worker in workers():
                worker.suspend()  # now it would take for ever
            await chat.house.app.execution.commands.stop(started.id, None)
            await until(lambda: not workers(), 20)
            thread = await chat.house.app.stores.threads.get(started.id)
            assert thread.status is Status.STOPPED

    async def test_a_fork_server_that_was_killed_is_started_again(self, tmp_path: Path) -> None:
        async with open_chat("memory", tmp_path) as chat:
            first = await chat.run("Summarize it", a__txt=long_text(1))
            for server in psutil.Process(os.getpid()).children():
                if "clew.apps.chat.worker" in _command(server):
                    server.kill()
            second = await chat.again(first, "Summarize it again", b__txt=long_text(1))
        assert [first.status, second.status] == [Status.COMPLETED] * 2


class TestOtherAgents:
    @pytest.mark.accept("004-22")
    async def test_one_that_computes_too_long_fails_its_round(self, tmp_path: Path) -> None:
        async with open_busy(tmp_path, "busy", CLEW_LIMITS_ROUND_CPU_SECONDS="1") as chat:
            thread = await chat.run("Compute")
            reason, markers, _ = await ending(chat, thread)
            await self.ended(tmp_path)
        assert "resource limit: the round computed for more than 1 s" in reason
        assert markers.count("last") == 1

    @pytest.mark.parametrize("agent", ["busy", "sleepy"])
    async def test_one_that_is_stopped_ends(self, tmp_path: Path, agent: str) -> None:
        async with open_busy(tmp_path, agent) as chat:
            started = await chat.start("Compute")
            await until(lambda: (tmp_path / "agents" / "alive").stat().st_size > 0)
            await chat.house.app.execution.commands.stop(started.id, None)
            await self.ended(tmp_path)
            assert (await chat.house.app.stores.threads.get(started.id)).status is Status.STOPPED

    async def ended(self, tmp_path: Path) -> None:
        """The agent's file has stopped to grow."""
        alive = tmp_path / "agents" / "alive"
        size = 0
        async with asyncio.timeout(20):
            while size != (size := alive.stat().st_size):
                await asyncio.sleep(0.3)
