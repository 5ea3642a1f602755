"""What the processes under test do: start threads, answer questions, bring them to rest, and say what they saw."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.errors import NotAllowed
from clew.domain.events import Opening, ToolCall, ToolResult
from clew.domain.thread import Kind, Owner, Status, Thread
from clew.engine.commands import Request
from tests.house import RESTING, House, open_house

Report = Callable[[Any], None]
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


def play(
    report: Report, *, where: str, folder: str, thread_id: str, graph: str, message: str, failpoint: str = ""
) -> None:
    """Start a thread and bring it to its end, saying yes to whatever it asks; dies where the failpoint says."""

    async def main() -> None:
        async with _house(where, folder) as house:
            failpoints.install(failpoint)
            await _start(house, thread_id, graph, message)
            report({"started": thread_id})
            await _to_the_end(house, thread_id, report)

    asyncio.run(main())


def finish(report: Report, *, where: str, folder: str, thread_id: str, graph: str, message: str) -> None:
    """Take over after a death: start the thread if it never was, and bring it to its end."""

    async def main() -> None:
        async with _house(where, folder) as house:
            known = [thread.id for thread in await house.app.stores.threads.find()]
            if thread_id not in known:
                await _start(house, thread_id, graph, message)
            await _to_the_end(house, thread_id, report)
            thread = await house.app.stores.threads.get(thread_id)
            log = await house.app.stores.threads.read(thread_id)
            report(
                {
                    "status": thread.status,
                    "reason": thread.failure_reason,
                    "pending": {key: call.kind for key, call in thread.pending.items()},
                    "seqs": [event.seq for event in log],
                    "log": [[event.type, getattr(event.body, "call_id", "")] for event in log],
                    "said": [event.body.content for event in log if event.type == "assistant_msg"],  # type: ignore[union-attr]
                    "calls": {call.id: call.status for call in await house.app.stores.calls.find(thread_id)},
                }
            )

    asyncio.run(main())


async def _start(house: House, thread_id: str, graph: str, message: str) -> None:
    await house.app.execution.commands.start(
        Opening(owner=Owner(), graph=graph), Request(message=message), thread_id=thread_id
    )


async def _to_the_end(house: House, thread_id: str, report: Report) -> None:
    commands = house.app.execution.commands
    async with asyncio.timeout(30):
        while True:
            thread = await house.app.stores.threads.get(thread_id)
            if thread.status in RESTING and thread.status is not Status.BLOCKED:
                return
            # A call in doubt is for a person to look at, and this one only says yes.
            waiting = [key for key, call in thread.pending.items() if call.kind is not Kind.IN_DOUBT]
            if thread.status is Status.BLOCKED and not waiting:
                return
            for call_id in waiting:
                await commands.resolve(thread_id, None, call_id, {"approved": True})
                report({"answered": call_id})
            await asyncio.sleep(0.005)


def _house(where: str, folder: str) -> AbstractAsyncContextManager[House]:
    return open_house(where, Path(folder), **LEASE)


def soak(report: Report, *, where: str, folder: str, trial: int) -> None:
    """Start threads of every kind as fast as they end, say yes to whatever is asked, until somebody kills us."""

    async def main() -> None:
        async with _house(where, folder) as house:
            failpoints.install("")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_say_yes(house))
                for n in range(1000):
                    tool = ("effect", "effect_once", "effect_approved")[n % 3]
                    thread_id = f"{tool}-{trial}-{n}"
                    marks = Path(folder) / f"{thread_id}.marks"
                    await _start(house, thread_id, "agent", f"[{marks}] tools: {tool} file={marks},n=7")
                    report(thread_id)
                    await asyncio.sleep(0.02)

    asyncio.run(main())


def settle(report: Report, *, where: str, folder: str) -> None:
    """After the last death: bring every thread to its end, and say how each of them ended."""

    async def main() -> None:
        async with _house(where, folder) as house, asyncio.timeout(100), asyncio.TaskGroup() as tasks:
            yes = tasks.create_task(_say_yes(house))
            store = house.app.stores.threads
            while await _threads(house, Status.RUNNING) or any(
                call.kind is not Kind.IN_DOUBT
                for thread in await _threads(house, Status.BLOCKED)
                for call in thread.pending.values()
            ):
                await asyncio.sleep(0.05)
            yes.cancel()
            for thread in await _threads(house):
                log = await store.read(thread.id)
                report(
                    {
                        "id": thread.id,
                        "status": thread.status,
                        "reason": thread.failure_reason,
                        "pending": [call.kind for call in thread.pending.values()],
                        "dense": [event.seq for event in log] == list(range(1, thread.last_seq + 1)),
                        "calls": [event.body.call_id for event in log if isinstance(event.body, ToolCall)],
                        "results": [
                            event.body.call_id for event in log if isinstance(event.body, ToolResult)
                        ],
                    }
                )

    asyncio.run(main())


async def _threads(house: House, *status: Status) -> list[Thread]:
    found: list[Thread] = []
    while True:
        before = (found[-1].created_at, found[-1].id) if found else None
        page = await house.app.stores.threads.find(status=status, before=before, limit=100)
        found += page
        if len(page) < 100:
            return found


async def _say_yes(house: House) -> None:
    while True:
        for thread in await house.app.stores.threads.find(status=[Status.BLOCKED], limit=200):
            for call_id, call in thread.pending.items():
                if call.kind is not Kind.IN_DOUBT:
                    with contextlib.suppress(NotAllowed):
                        await house.app.execution.commands.resolve(
                            thread.id, None, call_id, {"approved": True}
                        )
        await asyncio.sleep(0.02)
