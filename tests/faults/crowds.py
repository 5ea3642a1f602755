"""What several processes on one database do beside each other: run threads, answer the same questions, be in the way."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from clew.domain.errors import ClewError
from clew.domain.events import Opening
from clew.domain.lifecycle import open_thread
from clew.domain.thread import Owner, Status
from clew.engine.commands import Commands, Request
from clew.server.database import open_stores
from tests.app import House, open_house
from tests.faults import standstills
from tests.odd_graphs import odd_settings, open_odd_house
from tests.samples import stamp

Report = Callable[[Any], None]
POLL = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}
GRAPHS = (
    "".join(f"  {name}: tests.odd_graphs:{name}\n" for name in ("deadly", "stubborn")) + standstills.GRAPHS
)


def is_there(path: str) -> bool:
    return Path(path).exists()


def work(
    report: Report,
    *,
    where: str,
    folder: str,
    stop: str,
    lease: float,
    kind: str = "local",
    starts: list[list[Any]] = [],  # noqa: B006
) -> None:
    """Run whatever there is until the file `stop` exists; start what is in `starts` first: id, graph, what is said."""

    async def main() -> None:
        environ = {**POLL, "CLEW_RUNNER_LEASE_SECONDS": str(lease), "CLEW_RUNNER_KIND": kind}
        async with open_house(where, Path(folder), more=GRAPHS, **environ) as house:
            assert not house.app.execution.registry.broken, house.app.execution.registry.broken
            for thread_id, graph, said in starts:
                await _start(house, folder, thread_id, graph, said)
            report("open")
            was_busy = False
            while not is_there(stop):
                is_busy = any(task.get_name().startswith("run ") for task in asyncio.all_tasks())
                if was_busy and not is_busy:
                    report("idle")
                was_busy = is_busy
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
    begin: str,
    pace: float,
) -> None:
    """Each client says the same to every thread, at the same moment as all the other clients of all processes.

    When to begin is in the file `begin`, once all of them are open.
    """

    async def client(house: House, number: int, verb: str, begin_at: float) -> None:
        for n, name in enumerate(names):
            await asyncio.sleep(max(0.0, begin_at + n * pace - time.monotonic()))
            outcome = await _outcome(_VERBS[verb](house.app.execution.commands, name))
            report([name, verb, number, outcome])

    async def main() -> None:
        async with open_odd_house(where, Path(folder), **POLL) as house:
            report("open")
            async with asyncio.timeout(60):
                while not is_there(begin):
                    await asyncio.sleep(0.01)
                begin_at = _said_in(begin)
                await asyncio.gather(*(client(house, n, verb, begin_at) for n, verb in enumerate(clients)))
                for name in names:
                    while (await house.app.stores.threads.get(name)).status is Status.RUNNING:
                        await asyncio.sleep(0.01)

    asyncio.run(main())


def leave(report: Report, *, where: str, folder: str, thread_id: str, graph: str) -> None:
    """Put a thread there for others to run."""

    async def main() -> None:
        async with open_stores(odd_settings(where, Path(folder))) as stores:
            opening = Opening(owner=Owner(), graph=graph)
            await stores.threads.commit(
                open_thread(thread_id, opening, None, stamp=stamp(), graph_input=_marking(folder, thread_id))
            )

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
    given = _marking(folder, thread_id)
    await house.app.execution.commands.start(
        Opening(owner=Owner(), graph=graph),
        Request(message=said and said.format(given["marks"]), graph_input=None if said else given),
        thread_id=thread_id,
    )


def _marking(folder: str, thread_id: str) -> dict[str, Any]:
    return {"log": [], "marks": str(Path(folder) / f"{thread_id}.marks")}


def _said_in(path: str) -> float:
    return float(Path(path).read_text())


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
