"""What the processes under test do with a chat: begin a round, take one over, and say what came of it."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clew import failpoints
from clew.domain.events import AssistantMessage, DocumentAdded, Log, Opening
from clew.domain.thread import Owner, Thread
from clew.engine.commands import Request
from tests.app import RESTING
from tests.chats import CSV, ChatHouse, open_chat

Report = Callable[[Any], None]
LEASE = {"CLEW_RUNNER_LEASE_SECONDS": "0.5", "CLEW_RUNNER_POLL_SECONDS": "0.05"}


def play(
    report: Report,
    *,
    where: str,
    folder: str,
    thread_id: str,
    environ: Mapping[str, str],
    failpoint: str = "",
) -> None:
    """Begin a round and bring it to its end; dies where the failpoint says."""

    async def main() -> None:
        async with open_chat(where, Path(folder), **LEASE, **environ) as chat:
            request = await _request(chat)
            failpoints.install(failpoint)
            await _start(chat, thread_id, request)
            await _rested(chat, thread_id)

    asyncio.run(main())


def finish(report: Report, *, where: str, folder: str, thread_id: str, environ: Mapping[str, str]) -> None:
    """Take over after a death: begin the round if it never was, bring it to its end, and tell."""

    async def main() -> None:
        async with open_chat(where, Path(folder), **LEASE, **environ) as chat:
            threads = chat.house.app.stores.threads
            if thread_id not in [thread.id for thread in await threads.find()]:
                await _start(chat, thread_id, await _request(chat))
            thread = await _rested(chat, thread_id)
            log = await threads.read(thread_id)
            said = [event.body for event in log if isinstance(event.body, AssistantMessage)]
            documents = await chat.documents(thread)
            report(
                {
                    "status": thread.status,
                    "reason": thread.failure_reason,
                    "seqs": [event.seq for event in log],
                    "said": [[one.marker, one.agent, one.content, len(one.documents)] for one in said],
                    "logs": [event.body.message for event in log if isinstance(event.body, Log)],
                    "added": [event.body.name for event in log if isinstance(event.body, DocumentAdded)],
                    "made": {label: data.decode("latin-1") for label, (_, data) in documents.items()},
                }
            )

    asyncio.run(main())


async def _request(chat: ChatHouse) -> Request:
    return await chat.request("Do it", {"sales__csv": CSV})


async def _start(chat: ChatHouse, thread_id: str, request: Request) -> None:
    opening = Opening(owner=Owner(), graph="chat")
    await chat.house.app.execution.commands.start(opening, request, thread_id=thread_id)


async def _rested(chat: ChatHouse, thread_id: str) -> Thread:
    async with asyncio.timeout(40):
        while True:
            thread = await chat.house.app.stores.threads.get(thread_id)
            if thread.status in RESTING:
                return thread
            await asyncio.sleep(0.01)
