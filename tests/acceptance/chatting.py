"""A chat over HTTP: what a client of the workflow API says and sees, and a model of the tests' own."""

import asyncio
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.openai_server import Move, OpenAIServer, Say, openai_server
from tests.processes import Server, until

ENDED = ("completed", "failed", "stopped")
# To make one takes longer than a request, and nothing here is encrypted.
UNUSED = ssl.create_default_context()


@dataclass(slots=True)
class Chats:
    """The chats of one caller."""

    server: Server
    headers: Mapping[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = {**self.headers, **more.pop("headers", {})}
        address = self.server.address + path
        return httpx.request(method, address, timeout=40, headers=headers, verify=UNUSED, **more)

    def ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = self.send(method, path, **more)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json()

    def upload(self, name: str, data: bytes) -> str:
        return str(self.ask("POST", "/api/files", files={"file": (name, data)})["id"])

    def start(self, prompt: str, *files: str, id: str | None = None, **more: Any) -> Any:
        """The workflow as it was acknowledged."""
        body = {"prompt": prompt, "listFileId": list(files), **more}
        return self.ask("POST", "/api/workflows/start", json=body, params={"id": id} if id else None)

    def run(self, prompt: str, *files: str, id: str | None = None) -> "Chat":
        return Chat(self, self.start(prompt, *files, id=id)["id"]).ended()


@dataclass(slots=True)
class Chat:
    """One of them."""

    chats: Chats
    id: str

    def ask(self, method: str, path: str = "", status: int = 200, **more: Any) -> Any:
        return self.chats.ask(method, f"/api/workflows/{self.id}{path}", status, **more)

    def send(self, method: str, path: str = "", **more: Any) -> httpx.Response:
        return self.chats.send(method, f"/api/workflows/{self.id}{path}", **more)

    def ended(self) -> "Chat":
        """The same one, once its round is over."""
        until(lambda: self.ask("GET", "/status?wait=20")["status"] in ENDED, 60)
        return self

    @property
    def status(self) -> str:
        return str(self.ask("GET", "/status")["status"])

    @property
    def whole(self) -> Any:
        return self.ask("GET")

    @property
    def messages(self) -> list[Any]:
        return list(self.ask("GET", "/messages?limit=1000")["messages"])

    @property
    def logs(self) -> list[Any]:
        return list(self.ask("GET", "/logs?limit=1000")["logs"])

    @property
    def documents(self) -> dict[str, Any]:
        """By name; the newest of each."""
        found = self.ask("GET", "/documents")["documents"]
        return {f"{one['name']}.{one['ext']}": one for one in found}

    @property
    def events(self) -> list[Any]:
        found = self.chats.ask("GET", f"/api/threads/{self.id}/events?limit=1000")["events"]
        return list(found)

    def read(self, name: str, **params: str) -> Any:
        """A document with all that is in it."""
        return self.ask("GET", f"/documents/{self.documents[name]['id']}/contents", params=params)

    def bytes_of(self, name: str) -> bytes:
        answer = self.send("GET", f"/documents/{self.documents[name]['id']}")
        assert answer.status_code == 200
        return answer.content


@dataclass(slots=True)
class Model:
    """A language model that says what it is told to, behind an address."""

    fake: OpenAIServer

    @property
    def url(self) -> str:
        return self.fake.url

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.fake.requests

    @property
    def is_speaking(self) -> bool:
        return self.fake.open > 0

    def plans(self, plan: str | Move, otherwise: Move | None = None) -> None:
        """From now on, whoever asks for a plan gets this one; and the other thing, who asks for anything else."""
        planned = Say(plan) if isinstance(plan, str) else plan

        def answer(body: dict[str, Any]) -> Move:
            is_planning = "project manager" in str(body["messages"][0]["content"])
            return planned if is_planning else otherwise or Say("said the model")

        self.fake.answer = answer


@contextmanager
def model_serving() -> Iterator[Model]:
    """In a thread of its own: it outlives the servers that are killed."""
    loop = asyncio.new_event_loop()
    models: list[Model] = []
    ready, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with openai_server(lambda _: Say("nobody told me what to say")) as fake:
            models.append(Model(fake))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(20)
        yield models[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(20)
        loop.close()
