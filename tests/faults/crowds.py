"""What several processes on one database do beside each other: run threads, answer the same questions, be in the way."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from clew.domain.errors import ClewError
from clew.domain.events import Opening
from clew.domain.thread import Owner, Status
from clew.engine.commands import Commands, Request
from clew.opening import open_stores
from tests.house import House
from tests.odd_graphs import odd_settings, open_odd_house

Report = Callable[[Any], None]
POLL = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}
# Where somebody is to lose it. On a busy machine a short one is lost by those who only wait for the processor too, and
# then a node runs twice, as it may.
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "1"}


def is_there(path: str) -> bool:
    return Path(path).exists()


def work(report: Report, *, where: str, folder: str, stop: str, starts: list[list[Any]] = []) -> None:  # noqa: B006
    """Run whatever there is until the file `stop` exists; start what is in `starts` first: id, graph, what is said."""

    async def main() -> None:
        async with open_odd_house(where, Path(folder), **POLL, **LEASE) as house:
            for thread_id, graph, said in starts:
                await _start(house, folder, thread_id, graph, said)
            report("open")
            while not is_there(stop):
                await asyncio.sleep(0.02)
        report("closed")

    asyncio.run(main())


def bring_to_gates(report: Report, *, where: str, folder: str, names: list[str]) -> None:
    """Start a thread by each name, and wait until all of them wait for somebody."""

    async def main() -> None:
        async with open_odd_house(where, Path(folder), **POLL) as house, asyncio.timeout(60):
            for name in names:
                await _start(house, folder, name, "plain_gate", None)
            for name in names:
                while (await house.app.stores.threads.get(name)).status is not Status.BLOCKED:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def decide(
    report: Report,
    *,
    where: str,
    folder: str,
    names: list[str],
    clients: list[str],
    begin_at: float,
    pace: float,
) -> None:
    """Each client says the same to every thread, at the same moment as all the other clients of all processes."""

    async def client(house: House, number: int, verb: str) -> None:
        for n, name in enumerate(names):
            await asyncio.sleep(max(0.0, begin_at + n * pace - time.monotonic()))
            outcome = await _outcome(_VERBS[verb](house.app.execution.commands, name))
            report([name, verb, number, outcome])

    async def main() -> None:
        async with open_odd_house(where, Path(folder), **POLL) as house:
            async with asyncio.timeout(60):
                await asyncio.gather(*(client(house, n, verb) for n, verb in enumerate(clients)))
                for name in names:
                    while (await house.app.stores.threads.get(name)).status is Status.RUNNING:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def look(report: Report, *, where: str, folder: str) -> None:
    """Say what is in the database, and run nothing."""

    async def main() -> None:
        async with open_stores(odd_settings(where, Path(folder))) as stores:
            for thread in await stores.threads.find(limit=500):
                log = await stores.threads.read(thread.id)
                report(
                    {
                        "id": thread.id,
                        "status": thread.status,
                        "round": thread.round,
                        "reason": thread.failure_reason,
                        "pending": [call.kind for call in thread.pending.values()],
                        "dense": [event.seq for event in log] == list(range(1, thread.last_seq + 1)),
                        "types": [event.type for event in log],
                        "rounds": [event.round for event in log],
                        "calls": {call.id: call.status for call in await stores.calls.find(thread.id)},
                    }
                )

    asyncio.run(main())


async def _start(house: House, folder: str, thread_id: str, graph: str, said: str | None) -> None:
    marks = str(Path(folder) / f"{thread_id}.marks")
    await house.app.execution.commands.start(
        Opening(owner=Owner(), graph=graph),
        Request(
            message=said and said.format(marks), graph_input=None if said else {"log": [], "marks": marks}
        ),
        thread_id=thread_id,
    )


async def _outcome(command: Awaitable[Any]) -> str:
    try:
        await command
    except ClewError as exc:
        return exc.code
    return "ok"


def _again(commands: Commands, name: str) -> Awaitable[Any]:
    return commands.next_round(name, None, Request(graph_input={"log": ["again"]}))


_VERBS: dict[str, Callable[[Commands, str], Awaitable[Any]]] = {
    "yes": lambda commands, name: commands.approve(name, None, approved=True),
    "no": lambda commands, name: commands.approve(name, None, approved=False, feedback="no"),
    "again": _again,
}
