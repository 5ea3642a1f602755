"""Rounds of the chat workflow inside a test: with files, with a model that is a local server, with agents of a folder."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.documents.uploads import Uploads
from clew.domain.events import AssistantMessage, Log, Opening
from clew.domain.records import Document
from clew.domain.thread import Owner, Thread
from clew.engine.commands import Request
from clew.server.database import new_id, utc_now
from tests.app import House, open_house
from tests.openai_server import Move, Say, prompt_of

CSV = b"region,month,sales\nNorth,2024-01,100\nSouth,2024-01,50\nNorth,2024-02,120.5\nEast,2024-02,75\nSouth,2024-03,25\n"

# An agent that keeps what it was asked, does what its prompt says, and counts how often it ran.
RECORDER = """
import json
import pathlib

HERE = pathlib.Path(__file__).parent


class {cls}:
    name = "{name}"
    description = "Does what it is told."

    async def process_task(self, task):
        with open(HERE / "tasks.jsonl", "a") as kept:
            kept.write(json.dumps(task) + "\\n")
        if "fail" in task["prompt"]:
            raise RuntimeError("told to fail")
        if "escape" in task["prompt"]:
            return {{"feedback": "x", "documents": [{{"label": "../../x.txt", "content": "x"}}]}}
        if "huge" in task["prompt"]:
            return {{"feedback": "x", "documents": [{{"label": "x.bin", "content": b"x" * 10_000_000}}]}}
        made = [
            {{"label": one["label"], "content": bytes(range(256)) if one["label"].endswith(".bin") else "made of " + ", ".join(
                doc["name"] + "." + doc["ext"] for doc in task["inputDocuments"]) + "."}}
            for one in task["outputSpecifications"]
        ]
        return {{"feedback": "did " + task["prompt"], "documents": made}}
"""


def agents_folder(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "agents"
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(RECORDER.format(name=name, cls=name.title()))
    return folder


def tasks_of(folder: Path) -> list[dict[str, Any]]:
    kept = folder / "tasks.jsonl"
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def plan_of(
    *tasks: Mapping[str, Any], final: tuple[str, ...] = (), language: str = "en", says: str = "On it."
) -> str:
    return json.dumps(
        {
            "objFinalDocuments": list(final),
            "objWorkplan": [dict(task) for task in tasks],
            "objUserResponse": says,
            "userLanguage": language,
        }
    )


def step(
    agent: str, prompt: str = "do it", out: str | None = None, inputs: list[str] | None = None
) -> dict[str, object]:
    made: dict[str, object] = {
        "agent": agent,
        "prompt": prompt,
        "outputDocuments": [{"label": out}] if out else [],
    }
    return made | ({} if inputs is None else {"inputDocuments": [{"label": label} for label in inputs]})


def planning(plan: str, otherwise: Move | None = None) -> Callable[[dict[str, Any]], Move]:
    """A model that plans so, and says the other thing to whatever else it is asked."""

    def answer(body: dict[str, Any]) -> Move:
        return Say(plan) if "project manager" in prompt_of(body) else otherwise or Say("said the model")

    return answer


@dataclass(frozen=True, slots=True)
class ChatHouse:
    house: House

    async def upload(self, name: str, data: bytes) -> str:
        uploads = Uploads(files=self.house.app.stores.files, clock=utc_now, new_id=new_id, max_bytes=10**8)
        return (await uploads.add(name, _in_one(data), owner=Owner())).id

    async def start(self, prompt: str, **files: bytes) -> Thread:
        return await self.house.app.execution.commands.start(
            Opening(owner=Owner(), graph="chat", name="a chat"), await self.request(prompt, files)
        )

    async def request(self, prompt: str, files: Mapping[str, bytes]) -> Request:
        ids = [await self.upload(name.replace("__", "."), data) for name, data in files.items()]
        return Request(message=prompt, documents=tuple(ids))

    async def run(self, prompt: str, **files: bytes) -> Thread:
        """One round to its rest; `report__pdf=...` is a file called report.pdf."""
        return await self.house.rest(await self.start(prompt, **files), seconds=60)

    async def again(self, thread: Thread, prompt: str, **files: bytes) -> Thread:
        request = await self.request(prompt, files)
        started = await self.house.app.execution.commands.next_round(thread.id, None, request)
        return await self.house.rest(started, seconds=60)

    async def messages(self, thread: Thread) -> list[AssistantMessage]:
        return await self.house.bodies(thread, AssistantMessage)

    async def logs(self, thread: Thread) -> list[Log]:
        return await self.house.bodies(thread, Log)

    async def documents(self, thread: Thread) -> dict[str, tuple[Document, bytes]]:
        files = self.house.app.stores.files
        return {
            f"{one.name}.{one.ext}": (one, b"".join([part async for part in files.read_bytes(one.sha256)]))
            for one in await files.find_documents(thread.id)
        }


@asynccontextmanager
async def open_chat(
    where: str, tmp_path: Path, *, more: str = "", **environ: str
) -> AsyncGenerator[ChatHouse]:
    async with open_house(where, tmp_path, more=more, **environ) as house:
        yield ChatHouse(house)


async def _in_one(data: bytes) -> AsyncIterator[bytes]:
    yield data
