"""Apps of installed packages: found, validated, served; a broken one is named and stops nothing else."""

import logging
import re
import sys
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.errors import ConfigError
from clew.domain.thread import Owner
from clew.server.app import Server
from tests.http_client import client_of, new_key, opened_app

pytestmark = pytest.mark.anyio

GUIDE = (Path(__file__).parents[2] / "docs" / "howto" / "write-an-app.md").read_text("utf-8")
TOKEN = "a-token-of-the-tickets"
SMALL = """
from langgraph.graph import END, START, StateGraph
from clew import App

def make_graph(services):
    graph = StateGraph(dict)
    graph.add_node("one", lambda state: state)
    graph.add_edge(START, "one")
    graph.add_edge("one", END)
    return graph
"""


def block(language: str) -> str:
    """The one block of the guide in this language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(found)


def install(folder: Path, module: str, source: str, **apps: str) -> None:
    """A package as pip leaves it behind: a module, and metadata that names its apps."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = [f"{name} = {value}\n" for name, value in apps.items()]
    (info / "entry_points.txt").write_text("".join(["[clew.apps]\n", *lines]))


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on sys.path. What is imported from it is forgotten afterwards."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [path.stem for path in folder.glob("*.py")]:
        sys.modules.pop(name, None)


@pytest.fixture
def tickets(packages: Path) -> None:
    project = tomllib.loads(block("toml"))["project"]
    install(packages, "clew_tickets", block("python"), **project["entry-points"]["clew.apps"])


@asynccontextmanager
async def opened(folder: Path, yaml: str = "") -> AsyncGenerator[tuple[Server, httpx.AsyncClient]]:
    (folder / "clew.yaml").write_text(yaml or block("yaml"))
    async with opened_app(folder, TICKETS_TOKEN=TOKEN) as app:
        key = await new_key(app.stores.keys)
        async with client_of(app.http, key) as client:
            yield app, client


async def start(client: httpx.AsyncClient, status: int = 200, **body: Any) -> Any:
    answer = await client.post("/api/workflows/start?wait=20", json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.usefixtures("tickets")
class TestTheAppOfTheGuide:
    async def test_it_is_among_the_graphs_with_what_a_start_needs(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (_, client):
            graphs = (await client.get("/api/graphs")).json()["graphs"]
            (listed,) = (graph for graph in graphs if graph["name"] == "tickets")
            assert (listed["isDefault"], listed["isOwn"], listed["fields"]) == (False, False, ["ticket"])

    async def test_a_workflow_begins_with_its_fields_and_shows_them(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (_, client):
            made = await start(client, graph="tickets", ticket="SHOP-7", severity=1)
            assert (made["name"], made["status"], made["ticket"]) == ("Ticket SHOP-7", "completed", "SHOP-7")
            assert made["state"]["values"]["severity"] == 1
            whole = (await client.get(f"/api/workflows/{made['id']}")).json()
            assert (whole["ticket"], whole["severity"], whole["graph"]) == ("SHOP-7", 1, "tickets")
            assert [message["content"] for message in whole["messages"]] == ["Draft for SHOP-7 of SHOP."]
            assert whole["logs"][-1]["message"] == "Ticket SHOP-7: completed"
            other = await start(client, ticket="SHOP-8")  # a field of its own says which graph is meant
            assert (other["graph"], other["severity"]) == ("tickets", 3)

    @pytest.mark.parametrize(
        ("body", "field", "message"),
        [
            ({"graph": "tickets"}, "ticket", "a tickets workflow needs the id of a ticket"),
            ({"graph": "tickets", "tickt": "SHOP-7"}, "tickt", "did you mean 'ticket'?"),
            ({"graph": "tickets", "ticket": "SHOP-7", "severity": 9}, "severity", "less than or equal to 5"),
            ({"graph": "tickets", "ticket": {"a": 1}}, "ticket", "valid string"),
            ({"graph": "tickets", "ticket": "HOME-1"}, "ticket", "expected a ticket of SHOP"),
            ({"graph": "interview", "prompt": "Hi", "ticket": "SHOP-7"}, "ticket", "only a tickets workflow"),
            ({"graph": "tickets", "ticket": "SHOP-7", "issueId": "A-1"}, "issueId", "only a coding workflow"),
        ],
    )
    async def test_what_is_wrong_is_named_and_nothing_begins(
        self, tmp_path: Path, body: Any, field: str, message: str
    ) -> None:
        async with opened(tmp_path) as (_, client):
            error = (await start(client, 400, **body))["error"]
            assert (error["code"], error["field"]) == ("INVALID", field)
            assert message in error["message"]
            assert (await client.get("/api/workflows")).json()["workflows"] == []

    async def test_a_further_round_takes_no_start_fields(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (_, client):
            made = await start(client, graph="tickets", ticket="SHOP-7")
            again = await client.post(f"/api/workflows/start?id={made['id']}", json={"ticket": "SHOP-7"})
            assert (again.status_code, again.json()["error"]["field"]) == (400, "ticket")

    async def test_one_workflow_holds_a_ticket_and_no_more_than_may(self, tmp_path: Path) -> None:
        more = block("yaml") + "    at_once: 1\n"
        async with opened(tmp_path, more) as (_, client):
            held = await start(client, graph="tickets", ticket="SHOP-7", hold=True)
            refused = await start(client, 409, graph="tickets", ticket="SHOP-7")
            assert refused["error"]["code"] == "WORKFLOW_CONFLICT"
            await start(client, 429, graph="tickets", ticket="SHOP-8")
            assert (await client.get("/api/tickets")).json() == {"SHOP-7": held["id"]}
            await client.post(f"/api/workflows/{held['id']}/stop")
            await start(client, graph="tickets", ticket="SHOP-7")

    async def test_its_routes_are_behind_the_guard(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (app, client):
            assert (await client.get("/api/tickets")).json() == {}
            async with client_of(app.http) as stranger:
                assert (await stranger.get("/api/tickets")).status_code == 401
            writer = await new_key(app.stores.keys, scopes=frozenset({"write"}))
            async with client_of(app.http, writer) as narrow:
                assert (await narrow.get("/api/tickets")).status_code == 403
            theirs = await new_key(app.stores.keys, owner=Owner(tenant="other", user_id="bob"))
            await start(client, graph="tickets", ticket="SHOP-7", hold=True)
            async with client_of(app.http, theirs) as other:
                assert (await other.get("/api/tickets")).json() == {}
            document = (await client.get("/openapi.json")).json()
            assert document["paths"]["/api/tickets"]["get"]["x-scope"] == "read"
            properties = document["components"]["schemas"]["StartIn"]["properties"]
            assert properties["severity"]["maximum"] == 5
            assert {"issueId", "worktreePath", "prompt"} <= properties.keys()

    async def test_a_stop_is_told_by_the_app_alone(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as (_, client):
            held = await start(client, graph="tickets", ticket="SHOP-7", hold=True)
            await client.post(f"/api/workflows/{held['id']}/stop")
            logs = (await client.get(f"/api/workflows/{held['id']}/logs")).json()["logs"]
            assert [line["message"] for line in logs] == ["Ticket SHOP-7: stopped"]

    @pytest.mark.parametrize(
        ("yaml", "message"),
        [
            ("{quee: SHOP}", "apps.tickets.quee: no such key; did you mean queue?"),
            ("{queue: [1]}", "apps.tickets.queue: expected Input should be a valid string"),
            ("{queue: SHOP, at_once: 0}", "apps.tickets.at_once: expected Input should be greater"),
            ("{token: hush}", "apps.tickets.queue: expected to be set"),
            ("hush", "apps.tickets: expected a mapping"),
        ],
    )
    async def test_a_wrong_setting_is_named_and_its_value_is_not(
        self, tmp_path: Path, yaml: str, message: str
    ) -> None:
        with pytest.raises(ConfigError) as refused:
            async with opened(tmp_path, f"apps:\n  tickets: {yaml}\n"):
                pytest.fail("the server started")
        assert message in str(refused.value)
        assert "hush" not in str(refused.value)

    async def test_a_graph_of_the_user_runs_in_its_place(self, tmp_path: Path) -> None:
        async with opened(tmp_path, block("yaml") + "graphs: {tickets: 'tests.graphs:two_steps'}\n") as (
            _,
            client,
        ):
            graphs = (await client.get("/api/graphs")).json()["graphs"]
            (listed,) = (graph for graph in graphs if graph["name"] == "tickets")
            assert (listed["isDefault"], listed["isOwn"], listed["fields"]) == (False, True, [])
            error = (await start(client, 400, graph="tickets", prompt="Hi", ticket="SHOP-7"))["error"]
            assert error["message"].startswith("unknown key 'ticket'")
            assert (await client.get("/api/tickets")).status_code == 200


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise RuntimeError('not today')", "RuntimeError: not today"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("BAD = 'an app'", "expected a clew.App, got str"),
        ("BAD = App(name='chat', graph=make_graph)", "another app is called 'chat'"),
        ("BAD = App(name='a b', graph=make_graph)", "its name must be"),
        ("BAD = App(name='bad', graph=make_graph, start=dict)", "must be a pydantic model"),
        (
            "from pydantic import BaseModel\nclass Start(BaseModel): prompt: str\n"
            "BAD = App(name='bad', graph=make_graph, start=Start)",
            "every start has a 'prompt'",
        ),
        (
            "from pydantic import BaseModel\nclass Start(BaseModel): issueId: str\n"
            "BAD = App(name='bad', graph=make_graph, start=Start)",
            "the app 'coding' has one like it",
        ),
        ("BAD = App(name='bad', graph=lambda services: 1 / 0)", "ZeroDivisionError"),
        ("BAD = App(name='bad', graph=lambda services: 'no graph')", "expected a StateGraph"),
        (
            "from fastapi import APIRouter\n"
            "def make_routes(services):\n"
            "    router = APIRouter()\n"
            "    @router.get('/api/open')\n"
            "    async def anyone(): return 1\n"
            "    return router\n"
            "BAD = App(name='bad', graph=make_graph, routes=make_routes)",
            "/api/open does not say who may call it",
        ),
    ],
)
async def test_a_broken_app_is_named_and_stops_nothing_else(
    packages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, why: str
) -> None:
    install(packages, "bad_app", f"{SMALL}\n{source}\n", bad="bad_app:BAD")
    install(
        packages, "good_app", f"{SMALL}\nGOOD = App(name='good', graph=make_graph)\n", good="good_app:GOOD"
    )
    with caplog.at_level(logging.ERROR):
        async with opened(tmp_path, "apps: {}\n") as (_, client):
            graphs = [graph["name"] for graph in (await client.get("/api/graphs")).json()["graphs"]]
            assert {"good", "chat", "coding", "interview"} <= {*graphs}
            assert (await start(client, graph="good", input={"a": 1}))["status"] == "completed"
            assert (await client.get("/api/open")).status_code == 404
    (line,) = [record for record in caplog.records if record.name == "clew.server.apps"]
    assert (why in line.getMessage(), vars(line)["app"]) == (True, "bad")


async def test_a_close_that_raises_ends_the_round_all_the_same(
    packages: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = (
        "def close(*_): raise RuntimeError('no words')\nBAD = App(name='bad', graph=make_graph, close=close)"
    )
    install(packages, "bad_app", f"{SMALL}\n{app}\n", bad="bad_app:BAD")
    async with opened(tmp_path, "apps: {}\n") as (_, client):
        assert (await start(client, graph="bad", input={"a": 1}))["status"] == "completed"
    assert "app cannot close a round: RuntimeError: no words" in caplog.messages


async def test_a_section_of_an_app_that_is_not_here_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, "apps: {lost: {a: 1}}\n") as (_, client):
        assert (await client.get("/api/graphs")).status_code == 200
    assert any("apps.lost has no effect" in message for message in caplog.messages)
