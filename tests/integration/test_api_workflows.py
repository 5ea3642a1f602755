"""/api/workflows: starts, rounds, answers, stops and deletions, over HTTP on real graphs and databases."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.domain.errors import NotFound
from clew.domain.events import AssistantMessage, Log
from clew.domain.lifecycle import finish, redact
from clew.domain.records import File
from clew.domain.thread import Owner, Status
from clew.server.app import Server
from tests.app import House, open_house
from tests.databases import query
from tests.http_client import client_of, new_key, opened_app
from tests.samples import ANN, NOW, opened, recorded, stamp
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

# Far more than anything here takes, and less than a slow graph does.
SECONDS = 50


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(where, tmp_path, CLEW_SHUTDOWN_SECONDS="0.2") as house:
        yield house


@dataclass(frozen=True, slots=True)
class Client:
    """One caller of the API, and the few things every test asks."""

    http: httpx.AsyncClient

    async def ask(self, method: str, path: str, status: int = 200, **more: Any) -> Any:
        answer = await self.http.request(method, path, **more)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def refused(self, method: str, path: str, status: int, **more: Any) -> dict[str, str]:
        error: dict[str, str] = (await self.ask(method, path, status, **more))["error"]
        return error

    async def start(self, graph: str = "two_steps", *, id: str | None = None, **body: Any) -> Any:
        body = {"prompt": "go", **body} if id else {"prompt": "go", "graph": graph, **body}
        return await self.ask("POST", "/api/workflows/start", params={"id": id} if id else {}, json=body)

    async def rest(self, workflow: Any, status: str) -> Any:
        """The whole workflow, once it is no longer running."""
        path = f"/api/workflows/{workflow['id']}"
        await self.ask("GET", f"{path}/status", params={"wait": SECONDS})
        whole = await self.ask("GET", path)
        assert whole["status"] == status, whole
        return whole


@pytest.fixture
async def ann(house: House) -> AsyncGenerator[Client]:
    async with client_of(house.app.http, await new_key(house.app.stores.keys, owner=ANN)) as http:
        yield Client(http)


@pytest.fixture
async def bob(house: House) -> AsyncGenerator[Client]:
    owner = Owner(tenant=ANN.tenant, user_id="bob")
    async with client_of(house.app.http, await new_key(house.app.stores.keys, owner=owner)) as http:
        yield Client(http)


NO_STARTS: list[tuple[dict[str, Any], str]] = [
    ({}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": " \n\t"}, "prompt"),
    ({"prompt": None}, "prompt"),
    ({"prompt": 7}, "prompt"),
    ({"prompt": ["a"]}, "prompt"),
    ({"prompt": "a", "listFileId": "f"}, "listFileId"),
    ({"prompt": "a", "listFileId": [1.5]}, "listFileId.0"),
    ({"prompt": "a", "ttlDays": "7"}, "ttlDays"),
    ({"prompt": "a", "ttlDays": True}, "ttlDays"),
    ({"prompt": "a", "ttlDays": 0}, "ttlDays"),
    ({"prompt": "a", "hold": "yes"}, "hold"),
    ({"prompt": "a", "hold": 1}, "hold"),
    ({"prompt": "a", "graph": 3}, "graph"),
    ({"prompt": "a", "name": "n" * 201}, "name"),
]


class TestStart:
    @pytest.mark.accept("004-1", "004-7", "004-33")
    async def test_a_workflow_runs_to_its_end(self, ann: Client) -> None:
        started = await ann.start(input={"log": ["in"]}, name="a name")
        assert (started["status"], started["currentRound"], started["name"]) == ("running", 1, "a name")
        whole = await ann.rest(started, "completed")
        assert {
            *("id", "mandateId", "userId", "name", "startedAt", "messages", "messageIds", "logs"),
            *("dataStats", "currentRound", "status", "lastActivity"),
        } <= set(whole)
        assert (whole["tenant"], whole["user"]) == (ANN.tenant, ANN.user_id)
        assert {type(whole["mandateId"]), type(whole["userId"])} == {int}
        assert [message["content"] for message in whole["messages"]] == ["go"]
        assert whole["messageIds"] == [message["id"] for message in whole["messages"]]
        state = await ann.ask("GET", f"/api/workflows/{started['id']}/state")
        assert (state["values"]["log"], state["next"]) == (["in", "plan", "code"], [])
        small = await ann.ask("GET", f"/api/workflows/{started['id']}/status")
        assert small == {"status": "completed", "lastActivity": whole["lastActivity"]}

    async def test_whoever_waits_is_answered_with_the_state(self, ann: Client) -> None:
        async def start(graph: str, wait: float, **more: Any) -> Any:
            return await ann.ask(
                "POST", "/api/workflows/start", params={"wait": wait}, json={"graph": graph, **more}
            )

        done = await start("two_steps", SECONDS, input={"log": ["in"]})
        assert (done["status"], done["state"]["values"]["log"]) == ("completed", ["in", "plan", "code"])
        held = await start("gated", SECONDS, input={"log": []})
        assert (held["status"], held["state"]["next"]) == ("blocked", ["human_approval_node"])
        assert len(held["pending"]) == 1
        slow = await start("slow", 0.2, prompt="go")
        assert (slow["status"], slow["state"]) == ("running", None)
        assert (await ann.start(input={"log": []}))["state"] is None
        for wait in ("-1", "61", "soon"):
            body = {"graph": "two_steps", "prompt": "go"}
            refused = await ann.refused("POST", "/api/workflows/start", 400, params={"wait": wait}, json=body)
            assert refused["field"] == "wait"

    async def test_whoever_is_refused_a_place_to_wait_in_has_started_nothing(self, tmp_path: Path) -> None:
        limits = {"CLEW_SHUTDOWN_SECONDS": "0.2", "CLEW_LIMITS_STREAMS_PER_CALLER": "1"}
        async with open_house("memory", tmp_path, **limits) as house, client_of(house.app.http) as http:
            ann = Client(http)
            start, body, wait = "/api/workflows/start", {"graph": "slow", "prompt": "go"}, {"wait": SECONDS}
            waiting = asyncio.create_task(ann.ask("POST", start, params=wait, json=body))
            async with asyncio.timeout(SECONDS):
                while not (await ann.ask("GET", "/api/workflows"))["workflows"]:
                    await asyncio.sleep(0.01)
            assert (await ann.refused("POST", start, 429, params=wait, json=body))["code"] == "TOO_MANY"
            (slow,) = (await ann.ask("GET", "/api/workflows"))["workflows"]
            await ann.ask("POST", f"/api/workflows/{slow['id']}/stop")
            assert (await waiting)["status"] == "stopped"

    async def test_a_request_that_is_repeated_waits_for_the_same_run(self, ann: Client) -> None:
        first, again = [
            await ann.ask(
                "POST",
                "/api/workflows/start",
                params={"wait": SECONDS},
                json={"graph": "two_steps", "input": {"log": ["in"]}},
                headers={"Idempotency-Key": "one"},
            )
            for _ in range(2)
        ]
        assert first == again
        assert first["status"] == "completed"

    @pytest.mark.accept("004-5")
    async def test_what_is_not_a_start_is_refused(self, ann: Client) -> None:
        for body, field in NO_STARTS:
            error = await ann.refused("POST", "/api/workflows/start", 400, json={"graph": "two_steps"} | body)
            assert (error["code"], error["field"]) == ("INVALID", field), body
        assert (await ann.ask("GET", "/api/workflows"))["workflows"] == []

    async def test_a_body_that_is_no_object_is_refused(self, ann: Client) -> None:
        for content in (b"", b"[]", b"7", b"{", b'{"prompt": "a", "prompt": "b"}'):
            answer = await ann.http.post(
                "/api/workflows/start", content=content, headers={"Content-Type": "application/json"}
            )
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID"), content

    async def test_an_unknown_graph_names_the_known_ones(self, ann: Client) -> None:
        body = {"prompt": "a", "graph": "nothing"}
        error = await ann.refused("POST", "/api/workflows/start", 400, json=body)
        assert error["field"] == "graph"
        assert "gated" in error["message"]
        assert "two_steps" in error["message"]

    async def test_a_graph_that_cannot_be_loaded_is_named_and_why_is_in_the_log(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "clew.yaml").write_text("graphs:\n  lost: tests.graphs:no_such_graph\n")
        async with opened_app(tmp_path) as app, client_of(app.http) as http:
            body = {"prompt": "a", "graph": "lost"}
            error = await Client(http).refused("POST", "/api/workflows/start", 400, json=body)
        assert error["field"] == "graph"
        assert error["message"] == "the graph 'lost' could not be loaded; the server's log says why"
        assert "tests.graphs:no_such_graph: it has no 'no_such_graph'" in caplog.text

    async def test_an_unknown_profile_is_refused(self, ann: Client) -> None:
        body = {"prompt": "a", "graph": "two_steps", "profile": "nobody"}
        error = await ann.refused("POST", "/api/workflows/start", 400, json=body)
        assert (error["field"], "default" in error["message"]) == ("profile", True)
        await ann.start(profile="default")

    @pytest.mark.accept("004-6")
    async def test_an_unknown_file_is_refused_before_anything_is_written(
        self, house: House, ann: Client, bob: Client
    ) -> None:
        files = house.app.stores.files
        await files.add_part("ab", 0, b"x", now=NOW)
        mine = File(id="f1", owner=ANN, name="a.txt", mime="text/plain", size=1, sha256="ab", created_at=NOW)
        await files.add_file(mine)
        body = {"prompt": "a", "graph": "two_steps", "listFileId": ["f1", "f2"]}
        assert (await ann.refused("POST", "/api/workflows/start", 400, json=body))["field"] == "listFileId"
        body["listFileId"] = ["f1"]
        assert (await bob.refused("POST", "/api/workflows/start", 400, json=body))["field"] == "listFileId"
        assert (await ann.ask("GET", "/api/workflows"))["workflows"] == []
        await ann.ask("POST", "/api/workflows/start", json=body)

    @pytest.mark.fault("G3")
    async def test_what_the_server_owns_cannot_be_given(self, ann: Client, bob: Client) -> None:
        for name in ("mandateId", "tenant", "userId", "status", "currentRound", "seq"):
            body = {"prompt": "a", "graph": "two_steps", name: 7}
            assert (await ann.refused("POST", "/api/workflows/start", 400, json=body))["field"] == name
        assert (await ann.ask("GET", "/api/workflows"))["workflows"] == []
        started = await ann.start()
        assert (started["tenant"], started["user"]) == (ANN.tenant, ANN.user_id)
        assert (started["status"], started["currentRound"]) == ("running", 1)
        await bob.refused("GET", f"/api/workflows/{started['id']}", 404)

    async def test_the_time_to_live_is_the_callers_or_ours(self, house: House, ann: Client) -> None:
        store = house.app.stores.threads
        assert (await store.get((await ann.start())["id"])).ttl == timedelta(days=30)
        assert (await store.get((await ann.start(ttlDays=3))["id"])).ttl == timedelta(days=3)


class TestRounds:
    @pytest.mark.accept("004-2", "004-40", "004-44")
    async def test_the_next_round_has_the_same_id_and_another_number(self, ann: Client) -> None:
        first = await ann.rest(await ann.start(), "completed")
        again = await ann.start(id=first["id"], prompt="and more")
        assert (again["id"], again["currentRound"], again["status"]) == (first["id"], 2, "running")
        whole = await ann.rest(again, "completed")
        assert [message["content"] for message in whole["messages"]] == ["go", "and more"]
        assert [message["sequenceNo"] for message in whole["messages"]] == [1, 2]
        assert whole["lastActivity"] > first["lastActivity"]
        assert whole["dataStats"]["bytes"] > first["dataStats"]["bytes"]

    @pytest.mark.accept("004-2")
    async def test_a_stopped_and_a_failed_workflow_go_on_too(self, ann: Client) -> None:
        stopped = await ann.start("slow")
        await ann.ask("POST", f"/api/workflows/{stopped['id']}/stop")
        assert (await ann.start(id=stopped["id"]))["currentRound"] == 2
        failed = await ann.rest(await ann.start("broken"), "failed")
        assert (await ann.start(id=failed["id"]))["currentRound"] == 2

    @pytest.mark.accept("004-3", "004-43", "002-7")
    async def test_a_round_of_nothing_is_not_found(self, ann: Client, bob: Client) -> None:
        mine = await ann.rest(await ann.start(), "completed")
        for client, name in ((ann, "nothing"), (bob, mine["id"]), (bob, "nothing")):
            error = await client.refused(
                "POST", "/api/workflows/start", 404, params={"id": name}, json={"prompt": "a"}
            )
            assert error == {"code": "NOT_FOUND", "message": f"no thread {name!r}"}
        assert len((await ann.ask("GET", "/api/workflows"))["workflows"]) == 1

    @pytest.mark.accept("004-4", "002-35")
    async def test_a_busy_workflow_refuses_another_round(self, ann: Client) -> None:
        for graph in ("slow", "gated"):
            busy = await ann.start(graph)
            error = await ann.refused(
                "POST", "/api/workflows/start", 409, params={"id": busy["id"]}, json={"prompt": "a"}
            )
            assert error["code"] == "INVALID_STATE"

    @pytest.mark.fault("C3")
    @pytest.mark.accept("002-35")
    async def test_of_many_rounds_at_once_one_begins(self, ann: Client) -> None:
        done = await ann.rest(await ann.start(), "completed")
        answers = await asyncio.gather(
            *(
                ann.http.post("/api/workflows/start", params={"id": done["id"]}, json={"prompt": f"p{n}"})
                for n in range(8)
            )
        )
        begun = [answer.json()["currentRound"] for answer in answers if answer.status_code == 200]
        assert sorted(begun) == list(range(2, 2 + len(begun)))
        assert {answer.status_code for answer in answers} <= {200, 409}
        whole = await ann.rest(done, "completed")
        assert whole["currentRound"] == 1 + len(begun)
        assert len(whole["messages"]) == 1 + len(begun)

    async def test_what_only_a_new_workflow_has_is_refused_later(self, ann: Client) -> None:
        done = await ann.rest(await ann.start(), "completed")
        for field, value in (
            *(("graph", "gated"), ("profile", "default"), ("name", "n")),
            *(("ttlDays", 1), ("hold", True), ("verbose", True)),
        ):
            error = await ann.refused(
                *("POST", "/api/workflows/start", 400),
                params={"id": done["id"]},
                json={"prompt": "a", field: value},
            )
            assert error["field"] == field
        body = {"prompt": "a", "graph": "two_steps"}
        again = await ann.ask("POST", "/api/workflows/start", params={"id": done["id"]}, json=body)
        assert again["currentRound"] == 2


class TestOnce:
    async def test_the_same_request_is_answered_as_the_first_time(self, ann: Client) -> None:
        request: dict[str, Any] = {
            "json": {"prompt": "a", "graph": "two_steps"},
            "headers": {"Idempotency-Key": "k-1"},
        }
        first = await ann.ask("POST", "/api/workflows/start", **request)
        await ann.rest(first, "completed")
        assert await ann.ask("POST", "/api/workflows/start", **request) == first
        assert len((await ann.ask("GET", "/api/workflows"))["workflows"]) == 1

    async def test_another_request_under_the_same_key_is_refused(self, ann: Client, bob: Client) -> None:
        headers = {"Idempotency-Key": "k-1"}
        body = {"prompt": "a", "graph": "two_steps"}
        first = await ann.ask("POST", "/api/workflows/start", json=body, headers=headers)
        other = body | {"prompt": "b"}
        error = await ann.refused("POST", "/api/workflows/start", 409, json=other, headers=headers)
        assert error["code"] == "DUPLICATE"
        # Somebody else's key is another key.
        assert (await bob.ask("POST", "/api/workflows/start", json=body, headers=headers))["id"] != first[
            "id"
        ]

    @pytest.mark.fault("B3")
    async def test_many_at_once_are_one(self, ann: Client) -> None:
        headers = {"Idempotency-Key": "k-2"}
        body = {"prompt": "a", "graph": "two_steps"}
        answers = await asyncio.gather(
            *(ann.ask("POST", "/api/workflows/start", json=body, headers=headers) for _ in range(8))
        )
        assert len({answer["id"] for answer in answers}) == 1
        done = await ann.rest(answers[0], "completed")
        rounds = await asyncio.gather(
            *(
                ann.ask(
                    *("POST", "/api/workflows/start"),
                    params={"id": done["id"]},
                    json={"prompt": "b"},
                    headers={"Idempotency-Key": "k-3"},
                )
                for _ in range(8)
            )
        )
        assert {answer["currentRound"] for answer in rounds} == {2}
        assert (await ann.rest(done, "completed"))["currentRound"] == 2

    @pytest.mark.parametrize("key", ["", "k" * 256, "with a space"])
    async def test_what_is_no_key_is_refused(self, ann: Client, key: str) -> None:
        error = await ann.refused(
            *("POST", "/api/workflows/start", 400),
            json={"prompt": "a", "graph": "two_steps"},
            headers={"Idempotency-Key": key},
        )
        assert error["field"].lower() == "idempotency-key"


class TestHeld:
    @pytest.mark.accept("001-39")
    async def test_a_held_workflow_begins_when_told_to(self, ann: Client) -> None:
        held = await ann.start(hold=True)
        assert held["status"] == "pending"
        path = f"/api/workflows/{held['id']}"
        assert (await ann.ask("POST", f"{path}/begin"))["status"] == "running"
        assert (await ann.refused("POST", f"{path}/begin", 409))["code"] == "INVALID_STATE"
        whole = await ann.rest(held, "completed")
        assert (whole["currentRound"], len(whole["messages"])) == (1, 1)

    @pytest.mark.accept("001-39")
    async def test_a_batch_begins_what_it_can(self, ann: Client, bob: Client) -> None:
        held = [(await ann.start(hold=True))["id"] for _ in range(3)]
        foreign = (await bob.start(hold=True))["id"]
        await ann.ask("POST", f"/api/workflows/{held[0]}/begin")
        answer = await ann.ask(
            "POST", "/api/workflows/start-batch", json={"ids": [*held[:2], foreign, "none"]}
        )
        assert answer["started"] == [held[1]]
        codes = {name: error["code"] for name, error in answer["errors"].items()}
        assert codes == {held[0]: "INVALID_STATE", foreign: "NOT_FOUND", "none": "NOT_FOUND"}
        assert {frozenset(error) for error in answer["errors"].values()} == {frozenset({"code", "message"})}
        assert (await ann.ask("POST", "/api/workflows/start-batch", json={}))["started"] == [held[2]]
        assert (await bob.ask("GET", f"/api/workflows/{foreign}/status"))["status"] == "pending"

    @pytest.mark.accept("001-35")
    async def test_a_held_workflow_can_be_stopped(self, ann: Client) -> None:
        held = await ann.start(hold=True)
        assert (await ann.ask("POST", f"/api/workflows/{held['id']}/stop"))["status"] == "stopped"


class TestLooking:
    @asynccontextmanager
    async def waiting(
        self, house: House, ann: Client, workflow: Any
    ) -> AsyncGenerator[asyncio.Task[dict[str, Any]]]:
        """Somebody waits for its status, longer than there is time inside the block."""
        gauge = house.app.metrics.streams.labels("poll")
        path = f"/api/workflows/{workflow['id']}/status"
        async with asyncio.timeout(SECONDS / 2):
            waiting = asyncio.create_task(ann.ask("GET", path, params={"wait": SECONDS}))
            while gauge._value.get() < 1:
                assert not waiting.done()
                await asyncio.sleep(0.01)
            yield waiting

    async def test_a_list_is_the_callers_own_newest_first_in_pages(self, ann: Client, bob: Client) -> None:
        mine = [(await ann.start(hold=True))["id"] for _ in range(5)]
        await bob.start(hold=True)
        seen: list[str] = []
        params: dict[str, Any] = {"limit": 2}
        while True:
            page = await ann.ask("GET", "/api/workflows", params=params)
            seen += [workflow["id"] for workflow in page["workflows"]]
            if page["next"] is None:
                break
            params["cursor"] = page["next"]
        assert seen == mine[::-1]
        await ann.ask("POST", f"/api/workflows/{mine[0]}/stop")
        page = await ann.ask("GET", "/api/workflows", params={"status": "stopped"})
        assert [workflow["id"] for workflow in page["workflows"]] == mine[:1]
        assert (await ann.ask("GET", "/api/workflows", params={"graph": "gated"}))["workflows"] == []

    async def test_a_status_can_be_waited_for(self, house: House, ann: Client) -> None:
        started = await ann.start("gated")
        path = f"/api/workflows/{started['id']}/status"
        assert (await ann.ask("GET", path, params={"wait": SECONDS}))["status"] == "blocked"
        slow = await ann.start("slow")
        path = f"/api/workflows/{slow['id']}"
        assert (await ann.ask("GET", f"{path}/status", params={"wait": 0.2}))["status"] == "running"
        async with self.waiting(house, ann, slow) as waiting:
            await ann.ask("POST", f"{path}/stop")
            assert (await waiting)["status"] == "stopped"
        for wait in (-1, 61, "long"):
            assert (await ann.refused("GET", f"{path}/status", 400, params={"wait": wait}))["field"] == "wait"

    async def test_waiting_ends_when_the_process_does(self, house: House, ann: Client) -> None:
        slow = await ann.start("slow")
        async with self.waiting(house, ann, slow) as waiting:
            house.app.stopping.set()
            assert (await waiting)["status"] == "running"

    @pytest.mark.accept("004-19", "004-33")
    async def test_a_failure_says_why(self, ann: Client) -> None:
        failed = await ann.rest(await ann.start("broken"), "failed")
        status = await ann.ask("GET", f"/api/workflows/{failed['id']}/status")
        assert "no such issue" in status["error"]
        assert failed["failureReason"] == status["error"]

    async def test_looking_keeps_it_from_expiring(self, house: House, ann: Client) -> None:
        started = await ann.start(hold=True)
        store = house.app.stores.threads
        long_ago = datetime.now(UTC) - timedelta(days=20)
        for path in ("", "/status", "/messages", "/logs", "/state", "/tool-calls"):
            await query(
                *(house.app.stores.db, "UPDATE threads SET last_accessed_at = $1"),
                (long_ago - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1),
            )
            await ann.ask("GET", f"/api/workflows/{started['id']}{path}")
            await house.app.access.flush()
            accessed = (await store.get(started["id"])).last_accessed_at
            assert accessed is not None
            assert accessed > long_ago + timedelta(days=19), path


class TestRecords:
    """Messages and logs for those who poll."""

    async def filled(self, app: Server, ann: Client, count: int) -> tuple[str, list[str], list[str]]:
        """A workflow with so many messages and as many logs, all of one moment."""
        first = opened("w1", "0", graph="two_steps", held=True)
        bodies = [
            body
            for n in range(1, count)
            for body in (Log(message=f"l{n}", progress=n % 100), AssistantMessage(content=str(n)))
        ]
        change = recorded(first.thread, *bodies, Log(message="end"))
        await app.stores.threads.commit(first)
        await app.stores.threads.commit(change)
        ids = [event.id for event in (*first.events, *change.events)]
        return (
            "w1",
            [name for name in ids if name.startswith("msg_")],
            [name for name in ids if name.startswith("log_")],
        )

    @pytest.mark.accept("004-34", "004-36", "004-9")
    @pytest.mark.parametrize("kind", ["messages", "logs"])
    async def test_records_from_an_id_on_and_page_by_page(self, house: House, ann: Client, kind: str) -> None:
        workflow, messages, logs = await self.filled(house.app, ann, 25)
        ids = messages if kind == "messages" else logs
        path = f"/api/workflows/{workflow}/{kind}"
        assert [record["id"] for record in (await ann.ask("GET", path))[kind]] == ids
        for place in (0, 7, 24):
            found = await ann.ask("GET", path, params={"id": ids[place]})
            assert [record["id"] for record in found[kind]] == ids[place:]
        seen: list[str] = []
        params: dict[str, Any] = {"limit": 7}
        while True:
            page = await ann.ask("GET", path, params=params)
            seen += [record["id"] for record in page[kind]]
            if page["next"] is None:
                break
            params["id"] = page["next"]
        assert seen == ids

    @pytest.mark.accept("004-34")
    async def test_an_unknown_id_is_not_found(self, house: House, ann: Client, bob: Client) -> None:
        workflow, messages, logs = await self.filled(house.app, ann, 3)
        other = await ann.start(hold=True)
        for kind, name in (
            *(("messages", "msg_x"), ("messages", logs[0]), ("logs", messages[0]), ("logs", "")),
            *(("messages", "evt_x"), ("logs", "log_x")),
        ):
            path = f"/api/workflows/{workflow}/{kind}"
            assert (await ann.refused("GET", path, 404, params={"id": name}))["code"] == "NOT_FOUND"
        path = f"/api/workflows/{other['id']}/messages"
        await ann.refused("GET", path, 404, params={"id": messages[0]})
        await bob.refused("GET", f"/api/workflows/{workflow}/messages", 404)

    @pytest.mark.accept("004-10", "004-15")
    async def test_records_have_the_fields_of_their_contract(self, house: House, ann: Client) -> None:
        workflow, _, _ = await self.filled(house.app, ann, 2)
        first, second = (await ann.ask("GET", f"/api/workflows/{workflow}/messages"))["messages"]
        assert {key: first[key] for key in ("workflowId", "role", "agentName", "content", "documents")} == {
            "workflowId": workflow,
            "role": "user",
            "agentName": "",
            "content": "0",
            "documents": [],
        }
        assert (first["status"], first["sequenceNo"]) == ("first", 1)
        assert (second["role"], second["status"], second["sequenceNo"]) == ("assistant", "step", 2)
        assert datetime.fromisoformat(first["timestamp"]) == NOW
        line = (await ann.ask("GET", f"/api/workflows/{workflow}/logs"))["logs"][0]
        assert (line["message"], line["progress"], line["type"]) == ("l1", 1, "info")
        assert (line["workflowId"], line["agentName"], line["status"]) == (workflow, "", "pending")

    @pytest.mark.accept("004-37")
    async def test_what_is_known_is_not_sent_again(self, house: House, ann: Client) -> None:
        workflow, messages, _ = await self.filled(house.app, ann, 3)
        store = house.app.stores.threads
        for kind in ("messages", "logs", "status"):
            path = f"/api/workflows/{workflow}/{kind}"
            first = await ann.http.get(path)
            tag = first.headers["etag"]
            again = await ann.http.get(path, headers={"If-None-Match": tag})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
            assert "private" in again.headers["cache-control"]
            thread = await store.get(workflow)
            await store.commit(recorded(thread, AssistantMessage(content="new"), Log(message="new")))
            newer = await ann.http.get(path, headers={"If-None-Match": tag})
            assert (newer.status_code, newer.headers["etag"] != tag) == (200, True)
        thread = await store.get(workflow)
        path = f"/api/workflows/{workflow}/messages"
        tag = (await ann.http.get(path)).headers["etag"]
        await ann.ask("POST", f"/api/workflows/{workflow}/stop")
        await store.commit(redact(await store.get(workflow), messages[0], stamp=stamp()))
        shown = await ann.http.get(path, headers={"If-None-Match": tag})
        assert messages[0] not in [message["id"] for message in shown.json()["messages"]]

    @pytest.mark.accept("004-35", "004-37")
    async def test_a_poller_misses_nothing_while_others_write(self, house: House, ann: Client) -> None:
        await house.app.stores.threads.commit(opened("w1", "0", graph="two_steps", held=True))
        total = 60

        async def write() -> None:
            store = house.app.stores.threads
            for n in range(1, total):
                await store.commit(recorded(await store.get("w1"), AssistantMessage(content=str(n))))
                await asyncio.sleep(0)

        async def poll() -> list[str]:
            seen: list[str] = []
            last: str | None = None
            headers: dict[str, str] = {}
            while len(seen) < total:
                params: dict[str, Any] = {"limit": 5} | ({"id": last} if last else {})
                answer = await ann.http.get("/api/workflows/w1/messages", params=params, headers=headers)
                await asyncio.sleep(0.001)  # without a network in between, nobody else would get a turn
                if answer.status_code == 304:
                    continue
                page = answer.json()
                found = page["messages"]
                assert [message["id"] for message in found[:1]] in ([], [last]) or last is None
                seen += [message["content"] for message in found[bool(last) :]]
                last = found[-1]["id"] if found else last
                headers = {} if page["next"] else {"If-None-Match": answer.headers["etag"]}
            return seen

        async with asyncio.timeout(60):
            _, *polled = await asyncio.gather(write(), poll(), poll())
        assert polled == [[str(n) for n in range(total)]] * 2


class TestApproval:
    @pytest.mark.accept("001-3", "001-4", "001-5", "001-6", "001-8", "002-19")
    @pytest.mark.parametrize("prefix", ["", "/api"])
    async def test_a_yes_goes_on_in_the_background(
        self, house: House, ann: Client, tmp_path: Path, prefix: str
    ) -> None:
        marks = tmp_path / "marks"
        started = await ann.start("gated", input={"log": ["in"], "marks": str(marks)})
        blocked = await ann.rest(started, "blocked")
        (pending,) = blocked["pending"].values()
        assert (pending["kind"], pending["executor"]) == ("approval", "human")
        state = await ann.ask("GET", f"/api/workflows/{started['id']}/state")
        assert (state["values"]["log"], state["next"]) == (["in", "plan"], ["human_approval_node"])

        answer = await ann.ask("POST", f"{prefix}/workflows/{started['id']}/approve")
        assert answer == {"status": "approved", "workflow_id": started["id"]}
        await ann.rest(started, "completed")
        state = await ann.ask("GET", f"/api/workflows/{started['id']}/state")
        assert (state["values"]["log"], state["values"]["human_approved"]) == (
            ["in", "plan", "approved=True", "code"],
            True,
        )
        assert marks.read_text().split() == ["architect", "developer"]

    @pytest.mark.accept("001-7")
    @pytest.mark.parametrize("prefix", ["", "/api"])
    async def test_a_no_needs_a_reason_and_fails_with_it(self, ann: Client, prefix: str) -> None:
        started = await ann.start("gated")
        await ann.rest(started, "blocked")
        path = f"{prefix}/workflows/{started['id']}/reject"
        for body in ({}, {"feedback": ""}, {"feedback": "  "}, {"feedback": None}, {"feedback": 3}, None):
            error = await ann.refused("POST", path, 400, json=body)
            assert error["field"] in ("feedback", "body")
        answer = await ann.ask("POST", path, json={"feedback": "too vague"})
        assert answer == {"status": "rejected", "workflow_id": started["id"]}
        failed = await ann.rest(started, "failed")
        assert failed["failureReason"] == "too vague"
        state = await ann.ask("GET", f"/api/workflows/{started['id']}/state")
        assert "code" not in state["values"]["log"]

    @pytest.mark.accept("001-9")
    async def test_an_answer_nobody_waits_for_is_refused(self, ann: Client, bob: Client) -> None:
        done = await ann.rest(await ann.start(), "completed")
        for verb, body in (("approve", None), ("reject", {"feedback": "no"})):
            for name, client, status, code in (
                (done["id"], ann, 409, "INVALID_STATE"),
                (done["id"], bob, 404, "NOT_FOUND"),
                ("nothing", ann, 404, "NOT_FOUND"),
            ):
                for prefix in ("", "/api"):
                    path = f"{prefix}/workflows/{name}/{verb}"
                    assert (await client.refused("POST", path, status, json=body))["code"] == code

    @pytest.mark.accept("001-9")
    async def test_of_many_answers_one_counts_and_the_others_are_told_which(
        self, ann: Client, tmp_path: Path
    ) -> None:
        for turn in range(5):
            marks = tmp_path / f"marks{turn}"
            started = await ann.start("gated", input={"log": [], "marks": str(marks)})
            await ann.rest(started, "blocked")
            path = f"/api/workflows/{started['id']}"
            answers = await asyncio.gather(
                ann.http.post(f"{path}/approve"),
                ann.http.post(f"{path}/reject", json={"feedback": "no"}),
                ann.http.post(f"{path}/approve"),
            )
            (accepted,) = [answer for answer in answers if answer.status_code == 200]
            decision = accepted.json()["status"]
            late = [answer.json()["error"] for answer in answers if answer is not accepted]
            assert all(f"it was {decision} by ann" in error["message"] for error in late), late
            whole = await ann.rest(started, "completed" if decision == "approved" else "failed")
            assert whole["pending"] == {}
            assert marks.read_text().count("developer") == (decision == "approved")


class TestToolCalls:
    async def waiting(self, ann: Client, prompt: str) -> tuple[Any, list[Any]]:
        started = await ann.start("agent", prompt=prompt)
        await ann.rest(started, "blocked")
        return started, (await ann.ask("GET", f"/api/workflows/{started['id']}/tool-calls"))["toolCalls"]

    @pytest.mark.accept("002-17", "002-9")
    async def test_what_waits_is_listed_with_all_there_is_to_know(self, ann: Client) -> None:
        started, calls = await self.waiting(ann, "tools: send_mail to=ada; read_clipboard; look_up word=x")
        assert {(call["name"], call["executor"], call["kind"], call["status"]) for call in calls} == {
            ("send_mail", "server", "approval", "pending"),
            ("read_clipboard", "client", "client_exec", "pending"),
        }
        (mail,) = [call for call in calls if call["name"] == "send_mail"]
        assert mail["args"] == mail["prompt"]["args"] == {"to": "ada"}
        assert len(mail["prompt"]["args_hash"]) == 64
        assert (mail["waiting"], mail["result"], mail["resolvedAt"]) == (True, None, None)
        assert mail["deadline"] is not None
        path = f"/api/workflows/{started['id']}/tool-calls"
        assert await ann.ask("GET", f"{path}/{mail['id']}") == mail
        resolved = (await ann.ask("GET", path, params={"status": "resolved"}))["toolCalls"]
        assert [(call["name"], call["waiting"]) for call in resolved] == [("look_up", False)]
        await ann.refused("GET", path, 400, params={"status": "lost"})

    @pytest.mark.accept("002-18", "002-20")
    async def test_the_turn_goes_on_when_the_last_call_is_answered(self, ann: Client) -> None:
        started, calls = await self.waiting(ann, "tools: read_clipboard; ask_person question=who")
        path = f"/api/workflows/{started['id']}/tool-calls"
        first, last = sorted(calls, key=lambda call: call["name"], reverse=True)
        answered = await ann.ask("POST", f"{path}/{first['id']}/resolve", json={"answer": "text"})
        assert (answered["status"], answered["result"], answered["waiting"]) == ("resolved", "text", False)
        error = await ann.refused("POST", f"{path}/{first['id']}/resolve", 409, json={"answer": "other"})
        assert error["code"] == "INVALID_STATE"
        assert "it was answered by ann" in error["message"]
        assert (await ann.ask("GET", f"{path}/{first['id']}"))["result"] == "text"
        assert (await ann.ask("GET", f"/api/workflows/{started['id']}/status"))["status"] == "blocked"
        await ann.ask("POST", f"{path}/{last['id']}/resolve", json={"answer": {"name": "Ada"}})
        whole = await ann.rest(started, "completed")
        assert "text" in whole["messages"][-1]["content"]
        assert "Ada" in whole["messages"][-1]["content"]

    async def test_an_answer_must_answer_what_was_asked(self, ann: Client) -> None:
        started, calls = await self.waiting(ann, "tools: send_mail to=ada; read_clipboard")
        path = f"/api/workflows/{started['id']}/tool-calls"
        mail, clipboard = sorted(calls, key=lambda call: call["name"], reverse=True)
        for call, body, field in (
            (mail, {}, "approved"),
            (mail, {"answer": True}, "approved"),
            (mail, {"answer": {"approved": True}}, "approved"),
            (mail, {"approved": "yes"}, "approved"),
            (clipboard, {}, "answer"),
            (clipboard, {"approved": True}, "answer"),
        ):
            error = await ann.refused("POST", f"{path}/{call['id']}/resolve", 400, json=body)
            assert error["field"] == field
        refused = {"approved": False, "feedback": "not now"}
        answered = await ann.ask("POST", f"{path}/{mail['id']}/resolve", json=refused)
        assert answered["status"] == "errored"
        assert answered["result"]["error"].endswith(": not now")
        await ann.ask("POST", f"{path}/{clipboard['id']}/resolve", json={"answer": None})
        await ann.rest(started, "completed")

    async def test_a_question_of_the_graph_takes_any_answer(self, ann: Client) -> None:
        started = await ann.start("asking")
        for answer in ("Ada", {"years": 36}):
            whole = await ann.rest(started, "blocked")
            (call_id,) = whole["pending"]
            await ann.ask(
                *("POST", f"/api/workflows/{started['id']}/tool-calls/{call_id}/resolve"),
                json={"answer": answer},
            )
        await ann.rest(started, "completed")
        state = await ann.ask("GET", f"/api/workflows/{started['id']}/state")
        assert state["values"]["log"] == ["Ada is {'years': 36}"]

    async def test_calls_of_others_and_calls_of_nobody_are_not_found(self, ann: Client, bob: Client) -> None:
        started, (call,) = await self.waiting(ann, "tools: read_clipboard")
        path = f"/api/workflows/{started['id']}/tool-calls"
        deadline = {"deadline": "2030-01-01T00:00:00Z"}
        for client, name in ((bob, call["id"]), (ann, "nothing")):
            await client.refused("GET", f"{path}/{name}", 404)
            await client.refused("POST", f"{path}/{name}/resolve", 404, json={"answer": 1})
            await client.refused("PUT", f"{path}/{name}/deadline", 404, json=deadline)
            await client.refused("DELETE", f"{path}/{name}/deadline", 404)
        assert (await ann.ask("GET", f"{path}/{call['id']}"))["waiting"] is True

    @pytest.mark.accept("002-21", "002-22")
    async def test_a_deadline_can_be_moved_and_lifted(self, ann: Client) -> None:
        started, (call,) = await self.waiting(ann, "tools: send_mail to=ada")
        path = f"/api/workflows/{started['id']}/tool-calls/{call['id']}"
        assert (await ann.ask("DELETE", f"{path}/deadline"))["deadline"] is None
        for wrong in ("soon", None, 7, "2030-01-01T00:00:00"):
            error = await ann.refused("PUT", f"{path}/deadline", 400, json={"deadline": wrong})
            assert error["field"] == "deadline"
        moved = await ann.ask("PUT", f"{path}/deadline", json={"deadline": "2030-01-01T00:00:00+01:00"})
        assert datetime.fromisoformat(moved["deadline"]) == datetime(2029, 12, 31, 23, tzinfo=UTC)
        past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
        await ann.ask("PUT", f"{path}/deadline", json={"deadline": past})
        await self.until(ann, started, "completed")
        expired = await ann.ask("GET", path)
        assert (expired["status"], expired["deadline"]) == ("expired", None)
        assert expired["result"]["error"] == "tool call expired: no response"
        for method, more in (("PUT", {"json": {"deadline": past}}), ("DELETE", {})):
            await ann.refused(method, f"{path}/deadline", 409, **more)
        error = await ann.refused("POST", f"{path}/resolve", 409, json={"approved": True})
        assert "it was expired" in error["message"]

    async def until(self, ann: Client, workflow: Any, status: str) -> None:
        async with asyncio.timeout(SECONDS):
            while (await ann.ask("GET", f"/api/workflows/{workflow['id']}/status"))["status"] != status:
                await asyncio.sleep(0.05)

    async def test_a_gated_call_of_a_client_is_approved_then_carried_out(self, ann: Client) -> None:
        started, (call,) = await self.waiting(ann, "tools: open_door number=3")
        path = f"/api/workflows/{started['id']}/tool-calls/{call['id']}"
        answers = await asyncio.gather(
            *(ann.http.post(f"{path}/resolve", json={"approved": True}) for _ in range(4))
        )
        # A yes that comes late must not be taken for what the door said.
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses[0] == 200
        assert set(statuses[1:]) <= {400, 409}
        whole = await ann.rest(started, "blocked")
        assert whole["pending"][call["id"]]["kind"] == "client_exec"
        await ann.ask("POST", f"{path}/resolve", json={"answer": "open"})
        whole = await ann.rest(started, "completed")
        assert whole["messages"][-1]["content"] == "open"


class TestEnding:
    @pytest.mark.accept("004-16", "001-35", "002-34")
    async def test_a_stop_is_at_once_and_final(self, house: House, ann: Client, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        started = await ann.start("slow", input={"log": [], "marks": str(marks)})
        await until(marks.exists, SECONDS)
        stopped = await ann.ask("POST", f"/api/workflows/{started['id']}/stop")
        assert stopped["status"] == "stopped"
        log = await house.app.stores.threads.read(started["id"])
        logs = (await ann.ask("GET", f"/api/workflows/{started['id']}/logs"))["logs"]
        assert [(line["message"], line["progress"]) for line in logs] == [("Workflow stopped by user", 100)]
        await asyncio.sleep(0.3)
        assert await house.app.stores.threads.read(started["id"]) == log

    @pytest.mark.accept("004-12", "004-16")
    async def test_the_client_of_a_chat_is_told_that_this_was_the_last(
        self, house: House, ann: Client
    ) -> None:
        await house.app.stores.threads.commit(opened("w1", graph="chat", held=True))
        assert (await ann.ask("GET", "/api/workflows/w1/status"))["status"] == "running"
        await ann.ask("POST", "/api/workflows/w1/stop")
        whole = await ann.ask("GET", "/api/workflows/w1")
        assert [message["status"] for message in whole["messages"]] == ["first", "last"]
        assert whole["status"] == "stopped"

    @pytest.mark.accept("001-35", "002-34")
    async def test_a_stop_of_what_waits_cancels_its_calls(self, ann: Client) -> None:
        started = await ann.start("agent", prompt="tools: read_clipboard")
        await ann.rest(started, "blocked")
        await ann.ask("POST", f"/api/workflows/{started['id']}/stop")
        path = f"/api/workflows/{started['id']}/tool-calls"
        (call,) = (await ann.ask("GET", path, params={"status": "errored"}))["toolCalls"]
        assert call["result"]["error"] == "[cancelled]"
        await ann.refused("POST", f"{path}/{call['id']}/resolve", 409, json={"answer": "late"})
        assert (await ann.ask("GET", path))["toolCalls"] == []

    @pytest.mark.accept("004-17", "001-34", "001-35")
    async def test_a_finished_workflow_cannot_be_stopped(self, ann: Client, bob: Client) -> None:
        done = await ann.rest(await ann.start(), "completed")
        path = f"/api/workflows/{done['id']}/stop"
        assert (await ann.refused("POST", path, 409))["code"] == "INVALID_STATE"
        await ann.refused("POST", "/api/workflows/nothing/stop", 404)
        await bob.refused("POST", path, 404)
        assert (await ann.ask("GET", f"/api/workflows/{done['id']}")) == done

    @pytest.mark.accept("001-11")
    async def test_only_a_failed_workflow_is_taken_up_again(self, ann: Client, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        failed = await ann.rest(await ann.start("broken", input={"log": [], "marks": str(marks)}), "failed")
        again = await ann.ask("POST", f"/api/workflows/{failed['id']}/resume")
        assert (again["status"], again["currentRound"], again["failureReason"]) == ("running", 1, None)
        await ann.rest(failed, "failed")
        assert marks.read_text().split() == ["tried", "tried"]
        done = await ann.rest(await ann.start(), "completed")
        assert (await ann.refused("POST", f"/api/workflows/{done['id']}/resume", 409))[
            "code"
        ] == "INVALID_STATE"
        await ann.refused("POST", "/api/workflows/nothing/resume", 404)

    @pytest.mark.accept("004-38")
    async def test_a_deleted_workflow_is_gone_once(self, house: House, ann: Client, bob: Client) -> None:
        started = await ann.start("slow")
        path = f"/api/workflows/{started['id']}"
        await bob.refused("DELETE", path, 404)
        assert await ann.ask("DELETE", path) == {"id": started["id"], "status": "deleted"}
        for method, tail in (
            *(("DELETE", ""), ("GET", ""), ("GET", "/status"), ("GET", "/messages"), ("GET", "/logs")),
            *(("GET", "/state"), ("GET", "/tool-calls"), ("GET", "/events"), ("POST", "/stop")),
        ):
            await ann.refused(method, path + tail, 404)
        with pytest.raises(NotFound):
            await house.app.stores.threads.get(started["id"])
        assert await house.app.stores.threads.read(started["id"]) == []


@pytest.mark.accept("001-10", "001-18", "002-8", "002-9")
@pytest.mark.mainly_sqlite(False)
async def test_a_workflow_outlives_its_process(where: str, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    async with open_house(where, tmp_path) as house, client_of(house.app.http) as http:
        started = await Client(http).start("gated", input={"log": [], "marks": str(marks)})
        before = await Client(http).rest(started, "blocked")
        calls = await Client(http).ask("GET", f"/api/workflows/{started['id']}/tool-calls")
        talk = await Client(http).rest(await Client(http).start("agent", prompt="I am Ada"), "completed")
    async with open_house(where, tmp_path) as house, client_of(house.app.http) as http:
        client = Client(http)
        path = f"/api/workflows/{started['id']}"
        assert (await client.ask("GET", path))["pending"] == before["pending"]
        assert await client.ask("GET", f"{path}/tool-calls") == calls
        await client.ask("POST", f"{path}/approve")
        await client.rest(started, "completed")
        seqs = [event.seq for event in await house.app.stores.threads.read(started["id"])]
        assert seqs == list(range(1, len(seqs) + 1))
        again = await client.rest(await client.start(id=talk["id"], prompt="and who am I?"), "completed")
        assert len(again["messages"]) == 4
    assert marks.read_text().split() == ["architect", "developer"]


@pytest.mark.accept("001-36")
async def test_a_slow_graph_does_not_hold_up_the_others(ann: Client) -> None:
    slow = [await ann.start("slow") for _ in range(4)]
    async with asyncio.timeout(SECONDS):
        await ann.rest(await ann.start(), "completed")
    for workflow in slow:
        await ann.ask("POST", f"/api/workflows/{workflow['id']}/stop")


async def test_the_status_of_a_graph_of_ones_own_is_not_a_chats(house: House, ann: Client) -> None:
    await house.app.stores.threads.commit(opened("w1", graph="two_steps", held=True))
    assert (await ann.ask("GET", "/api/workflows/w1/status"))["status"] == str(Status.PENDING)


@pytest.mark.accept("004-7")
async def test_the_ids_of_all_messages_are_listed_however_many_there_are(house: House, ann: Client) -> None:
    first = opened("long", owner=ANN, graph="chat")
    await house.app.stores.threads.commit(first)
    said_all = recorded(first.thread, *(AssistantMessage(content=f"message {n}") for n in range(450)))
    await house.app.stores.threads.commit(said_all)
    ended = finish(said_all.thread, Status.COMPLETED, stamp=stamp(1))
    await house.app.stores.threads.commit(ended)
    gone = said_all.events[100].id
    await house.app.stores.threads.commit(redact(ended.thread, gone, stamp=stamp(2)))
    every = [event.id for event in (*first.events, *said_all.events) if event.id.startswith("msg_")]
    whole = await ann.ask("GET", "/api/workflows/long")
    assert (len(whole["messages"]), whole["truncated"]) == (200, True)
    assert whole["messageIds"] == [message_id for message_id in every if message_id != gone]
    assert len(whole["messageIds"]) == 450
