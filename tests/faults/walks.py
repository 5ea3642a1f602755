"""A thread led from its start to its end by somebody who answers every question the same way each time it is asked."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import (
    AssistantMessage,
    Body,
    Opening,
    Resolution,
    RoundFinished,
    Suspension,
    ToolCall,
    ToolResult,
)
from clew.domain.thread import Json, Owner, Pending, Status, SuspensionKind
from clew.engine.commands import Request
from tests.app import House
from tests.databases import open_database, query
from tests.odd_graphs import open_odd_house

Report = Callable[[Any], None]
POLL = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}


def walk(
    report: Report,
    *,
    where: str,
    folder: str,
    thread_id: str,
    graph: str,
    message: str | None,
    failpoint: str,
) -> None:
    """Start the thread unless it is there, and lead it to its end; dies where the failpoint says."""

    async def main() -> None:
        async with open_database(where) as db:
            # Whoever held one is dead, and its time need not be waited for.
            await query(db, "UPDATE threads SET lease_until = 0 WHERE lease_until IS NOT NULL")
        async with open_odd_house(where, Path(folder), **POLL) as house, asyncio.timeout(30):
            failpoints.install(failpoint)
            await _start(house, thread_id, graph, message, str(Path(folder) / f"{thread_id}.marks"))
            await _lead(house, thread_id)
            failpoints.install("")
            thread = await house.app.stores.threads.get(thread_id)
            log = await house.app.stores.threads.read(thread_id)
            state = await house.state(thread)
            report(
                {
                    "status": thread.status,
                    "reason": thread.failure_reason,
                    "dense": [event.seq for event in log] == list(range(1, len(log) + 1)),
                    "story": [told for event in log if (told := _told(event.body))],
                    "notes": sorted(state.get("log", ())),
                    "messages": [str(message.content) for message in state.get("messages", ())],
                }
            )

    asyncio.run(main())


async def _start(house: House, thread_id: str, graph: str, message: str | None, marks: str) -> None:
    try:
        await house.app.stores.threads.get(thread_id)
    except NotFound:
        await house.app.execution.commands.start(
            Opening(owner=Owner(), graph=graph),
            Request(message=message, graph_input=None if message else {"log": [], "marks": marks}),
            thread_id=thread_id,
        )


async def _lead(house: House, thread_id: str) -> None:
    while True:
        thread = await house.app.stores.threads.get(thread_id)
        if thread.status.is_terminal:
            return
        if any(call.kind is SuspensionKind.IN_DOUBT for call in thread.pending.values()):
            return  # for a person to look at
        for call_id, pending in thread.pending.items():
            try:
                await house.app.execution.commands.resolve(thread_id, None, call_id, _answer(pending))
            except InvalidState:
                continue
        if thread.status is Status.RUNNING:
            await asyncio.sleep(0.005)


def _answer(pending: Pending) -> Json:
    if pending.kind is SuspensionKind.APPROVAL:
        return {"approved": True}
    return f"answer to {pending.prompt}"


def _told(body: Body) -> list[Any] | None:
    """What must be the same whether or not somebody died on the way. Ids are not: they are made at random."""
    match body:
        case AssistantMessage(content=content):
            return ["said", content]
        case ToolCall(name=name):
            return ["called", name]
        case ToolResult(ok=ok, result=result, error=error):
            return ["resulted", ok, result, error]
        case Suspension(kind=kind, prompt=prompt):
            return ["asked", kind, prompt]
        case Resolution(outcome=outcome, answer=answer):
            return ["answered", outcome, answer]
        case RoundFinished(status=status, reason=reason):
            return ["finished", status, reason]
        case _:
            return None
