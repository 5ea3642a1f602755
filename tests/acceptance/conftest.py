"""A server of the tests' own graphs, as its users have it: a process, a folder, HTTP."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.acceptance import graphs, sdk_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of, sdk_serving_on
from tests.acceptance.sdk_runs import Door
from tests.app import graphs_yaml
from tests.processes import ROOT, Server, serving, until

RESTING = ("blocked", "completed", "failed", "stopped")


@dataclass(slots=True)
class Api:
    """What a client says to the server, in as few words as there are."""

    server: Server

    def ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        # Reading the certificates of the world, of which none is needed here, takes longer than most answers.
        answer = httpx.request(method, self.server.address + path, timeout=40, verify=False, **more)
        assert answer.status_code == status, (method, path, answer.status_code, answer.text)
        return answer.json()

    def start(self, graph: str, prompt: str = "go", **state: Any) -> str:
        body = {"prompt": prompt, "graph": graph, **({"input": state} if state else {})}
        return str(self.ask("POST", "/api/workflows/start", json=body)["id"])

    def thread(self, workflow: str) -> Any:
        return self.ask("GET", f"/api/threads/{workflow}")

    def rest(self, workflow: str, *statuses: str, after: int = 0) -> Any:
        """The thread once it has come to rest, later than event `after`."""
        found: Any = None

        def rested() -> bool:
            nonlocal found
            found = self.thread(workflow)
            return found["status"] in (statuses or RESTING) and found["lastSeq"] > after

        until(rested)
        return found

    def run(self, graph: str, prompt: str = "go", **state: Any) -> Any:
        return self.rest(self.start(graph, prompt, **state))

    def events(self, workflow: str, *types: str) -> list[Any]:
        found = self.ask("GET", f"/api/threads/{workflow}/events?limit=1000")["events"]
        return [event for event in found if not types or event["type"] in types]

    def content(self, workflow: str, kind: str) -> list[Any]:
        return [event["content"] for event in self.events(workflow, kind)]

    def state(self, workflow: str) -> Any:
        return self.ask("GET", f"/api/workflows/{workflow}/state")["values"]

    def resolve(self, workflow: str, call_id: str, status: int = 200, **body: Any) -> Any:
        path = f"/api/workflows/{workflow}/tool-calls/{call_id}/resolve"
        return self.ask("POST", path, status=status, json=body)

    def answer(self, thread: Any, **body: Any) -> Any:
        """Answer the one thing the thread waits for, and wait for what comes of it."""
        (call_id,) = thread["pending"]
        self.resolve(thread["id"], call_id, **body)
        return self.rest(thread["id"], after=thread["lastSeq"] + 1)


PROFILES = """
profiles:
  work: {driver: "api:openai", tracker: github}
"""


def all_graphs_yaml() -> str:
    own = "".join(f"  {name}: {graphs.__name__}:{name}\n" for name in graphs.NAMES)
    return graphs_yaml() + own


def api_serving(folder: Path, **environ: str) -> Any:
    (folder / "clew.yaml").write_text(all_graphs_yaml() + PROFILES)
    settings: dict[str, Any] = {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CLEW_RUNNER_LEASE_SECONDS": "1",
        "CLEW_RUNNER_POLL_SECONDS": "0.1",
        **environ,
    }
    return serving(folder, **settings)


@pytest.fixture(scope="session")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One server for all tests that leave it alive. Model calls are recorded there."""
    with api_serving(tmp_path_factory.mktemp("server"), CLEW_MODEL_CALLS_RECORD="true") as server:
        yield Api(server)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SdkServer]:
    """A server for a module's tests with LangGraph's client. `SDK_GRAPHS` of the module has its graphs."""
    folder = tmp_path_factory.mktemp(request.module.__name__.rpartition(".")[2].removeprefix("test_"))
    graphs: ModuleType = getattr(request.module, "SDK_GRAPHS", sdk_graphs)
    with sdk_serving_on(request.param, request, folder, graphs) as served:
        yield served


@pytest.fixture
async def clients(served: SdkServer) -> AsyncIterator[Clients]:
    async with clients_of(served) as clients:
        yield clients


@pytest.fixture
async def http(served: SdkServer) -> AsyncIterator[httpx.AsyncClient]:
    """For what LangGraph's client does not say, or does not show; the same caller."""
    headers = {"X-API-Key": served.keys["ann"]}
    async with httpx.AsyncClient(base_url=served.server.address, headers=headers, timeout=40) as client:
        yield client


@pytest.fixture
async def thread(clients: Clients) -> str:
    return str((await clients.ann.threads.create())["thread_id"])


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    door = Door(tmp_path)
    yield door
    door.open()
