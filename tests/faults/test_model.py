"""Any sequence of API calls, restarts and expiries, against a model of a workflow in a few lines: the API answers as it does."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from clew.server.services import ProcessRole
from tests.app import House, open_house
from tests.databases import locate, query
from tests.faults.report import Trials
from tests.http_client import client_of
from tests.waiting import until

RUNNERS = (
    "sqlite",
    pytest.param("postgres", marks=pytest.mark.long),
    pytest.param("postgres, workers", marks=pytest.mark.long),
)
GRAPHS = ("two_steps", "gated", "asking", "broken")
ENDED = {"completed", "failed", "stopped"}
LONG_AGO = "UPDATE threads SET last_accessed_at = 1, expires_at = 1 WHERE id = $1"


@dataclass(slots=True)
class Workflow:
    """What a client that knows the rules believes of one."""

    id: str
    graph: str
    status: str = "pending"
    round: int = 1
    asked: int = 0  # questions that were answered in this round
    is_deleted: bool = False
    is_old: bool = False

    def run(self) -> None:
        self.asked = 0
        self.status = {"two_steps": "completed", "gated": "blocked", "asking": "blocked", "broken": "failed"}[
            self.graph
        ]

    def decide(self, *, approved: bool) -> None:
        self.status = "completed" if approved else "failed"

    def answer(self) -> None:
        self.asked += 1
        self.status = "blocked" if self.asked < 2 else "completed"


@dataclass(slots=True)
class Product:
    """The whole of it in this process, and a client. It can be opened again and again."""

    where: str
    folder: Path
    has_workers: bool
    loop: asyncio.Runner = field(default_factory=asyncio.Runner)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    house: House | None = None
    client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        environ = {"CLEW_RUNNER_POLL_SECONDS": "0.05"}
        if self.has_workers:
            environ["CLEW_RUNNER_KIND"] = "workers"
            worker = open_house(self.where, self.folder, ProcessRole(listens=False), **environ)
            await self.stack.enter_async_context(worker)
        role = ProcessRole(has_runner=not self.has_workers)
        self.house = await self.stack.enter_async_context(
            open_house(self.where, self.folder, role, **environ)
        )
        self.client = await self.stack.enter_async_context(client_of(self.house.app.http))

    async def restart(self) -> None:
        await self.stack.aclose()
        await self.open()

    def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        assert self.client is not None
        return self.loop.run(self.client.request(method, path, **more))

    def sql(self, statement: str, *args: Any) -> None:
        assert self.house is not None
        self.loop.run(query(self.house.app.stores.db, statement, *args))


@pytest.fixture(params=RUNNERS)
def product(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Product]:
    where = locate("sqlite" if request.param == "sqlite" else "postgres", request)
    product = Product(where, tmp_path, "workers" in request.param)
    product.loop.run(product.open())
    yield product
    product.loop.run(product.stack.aclose())
    product.loop.close()


def machine_of(product: Product) -> type[RuleBasedStateMachine]:
    class ApiMachine(RuleBasedStateMachine):
        """A few workflows of one client. A rule waits for what it began, so that the next one knows where it is."""

        workflows = Bundle("workflows")

        def __init__(self) -> None:
            super().__init__()
            self.mine: list[Workflow] = []
            self.keys = 0

        def post(self, path: str, expected: int, **more: Any) -> Any:
            answer = product.ask("POST", path, **more)
            assert answer.status_code == expected, (path, answer.status_code, answer.text, self.mine)
            return answer.json()

        def command(self, one: Workflow, verb: str, may: bool, **body: Any) -> bool:
            """Whether it may be done now: else it is a 409, and a 404 for one that is deleted."""
            expected = 404 if one.is_deleted else 200 if may else 409
            one.is_old = False
            self.post(f"/api/workflows/{one.id}/{verb}", expected, json=body)
            return expected == 200

        def rest(self, one: Workflow) -> None:
            def found() -> Any:
                return self.look(one)["status"]

            async def rested() -> bool:
                assert product.client is not None
                answer = await product.client.get(f"/api/threads/{one.id}")
                thread = answer.json()
                return thread["status"] != "running" and (
                    one.status != "blocked" or len(thread["pending"]) == 1
                )

            product.loop.run(until(rested))
            assert found() == one.status, (one, self.look(one))

        def look(self, one: Workflow) -> Any:
            answer = product.ask("GET", f"/api/threads/{one.id}")
            assert answer.status_code == (404 if one.is_deleted else 200), (one, answer.text)
            return answer.json()

        @rule(target=workflows, graph=st.sampled_from(GRAPHS), held=st.booleans(), again=st.booleans())
        def starts(self, graph: str, held: bool, again: bool) -> Workflow:
            """Sent twice with the same key, it is one."""
            self.keys += 1
            key = {"Idempotency-Key": f"{id(self)}-{self.keys}"} if again else {}
            body = {"prompt": "go", "graph": graph, "hold": held}
            told = [
                self.post("/api/workflows/start", 200, json=body, headers=key)["id"] for _ in range(1 + again)
            ]
            assert len(set(told)) == 1
            one = Workflow(told[0], graph)
            self.mine.append(one)
            if not held:
                one.run()
                self.rest(one)
            return one

        @rule(one=workflows)
        def begins(self, one: Workflow) -> None:
            if self.command(one, "begin", one.status == "pending"):
                one.run()
                self.rest(one)

        @rule(one=workflows, restarted=st.booleans())
        def goes_on(self, one: Workflow, restarted: bool) -> None:
            expected = 404 if one.is_deleted else 200 if one.status in ENDED else 409
            one.is_old = False
            self.post(f"/api/workflows/start?id={one.id}", expected, json={"prompt": "more"})
            if restarted:
                product.loop.run(product.restart())
            if expected == 200:
                one.round += 1
                one.run()
                self.rest(one)

        @rule(one=workflows, approved=st.booleans())
        def is_decided(self, one: Workflow, approved: bool) -> None:
            may = one.graph == "gated" and one.status == "blocked"
            verb, body = ("approve", {}) if approved else ("reject", {"feedback": "no"})
            if self.command(one, verb, may, **body):
                one.decide(approved=approved)
                self.rest(one)

        @rule(one=workflows, twice=st.booleans())
        def is_answered(self, one: Workflow, twice: bool) -> None:
            if one.graph != "asking" or one.status != "blocked" or one.is_deleted:
                return
            (call,) = self.look(one)["pending"]
            self.command(one, f"tool-calls/{call}/resolve", may=True, answer="x")
            if twice:
                self.command(one, f"tool-calls/{call}/resolve", may=False, answer="y")
            one.answer()
            self.rest(one)

        @rule(one=workflows)
        def expires(self, one: Workflow) -> None:
            """Its question; for an approval that is a no."""
            if one.status != "blocked" or one.is_deleted:
                return
            product.sql(
                "UPDATE tool_calls SET deadline = 1 WHERE thread_id = $1 AND status = 'pending'", one.id
            )
            before = self.look(one)["lastSeq"]
            product.loop.run(until(lambda: self.has_moved(one, before)))
            if one.graph == "gated":
                one.decide(approved=False)
            else:
                one.answer()
            self.rest(one)

        async def has_moved(self, one: Workflow, before: int) -> bool:
            assert product.client is not None
            return bool((await product.client.get(f"/api/threads/{one.id}")).json()["lastSeq"] > before)

        @rule(one=workflows)
        def is_stopped(self, one: Workflow) -> None:
            if self.command(one, "stop", one.status not in ENDED):
                one.status = "stopped"
                self.rest(one)

        @rule(one=workflows)
        def is_resumed(self, one: Workflow) -> None:
            if one.graph != "broken" and one.status == "failed":
                return  # a graph that ended after a no has nothing to go on with
            if self.command(one, "resume", one.status == "failed"):
                self.rest(one)

        @rule(one=workflows)
        def is_deleted(self, one: Workflow) -> None:
            answer = product.ask("DELETE", f"/api/workflows/{one.id}")
            assert answer.status_code == (404 if one.is_deleted else 200), answer.text
            one.is_deleted = True

        @rule(one=workflows)
        def is_forgotten(self, one: Workflow) -> None:
            """A long time without an access."""
            if not one.is_deleted:
                product.sql(LONG_AGO, one.id)
                one.is_old = True

        @rule()
        def cleans_up(self) -> None:
            self.post("/api/threads/cleanup", 200, json={})
            for one in self.mine:
                one.is_deleted |= one.is_old and one.status in ENDED

        @rule()
        def restarts(self) -> None:
            product.loop.run(product.restart())

        @invariant()
        def the_api_answers_as_the_model_does(self) -> None:
            for one in self.mine:
                if one.is_old:
                    continue  # to look at it would be an access
                thread = self.look(one)
                if one.is_deleted:
                    continue
                assert (thread["status"], thread["round"]) == (one.status, one.round), (one, thread)
                events = product.ask("GET", f"/api/threads/{one.id}/events?limit=1000").json()["events"]
                assert [event["seq"] for event in events] == list(range(1, thread["lastSeq"] + 1))

        @invariant()
        def the_list_shows_them(self) -> None:
            shown = product.ask("GET", "/api/threads?limit=200").json()["threads"]
            statuses = {thread["id"]: thread["status"] for thread in shown}
            for one in self.mine:
                assert statuses.get(one.id) == (None if one.is_deleted else one.status), one

    return ApiMachine


@pytest.mark.fault("C9")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("examples", "steps"), [(3, 10), pytest.param(120, 25, marks=pytest.mark.long)])
def test_the_api_is_as_its_model(product: Product, trials: Trials, examples: int, steps: int) -> None:
    for _ in trials.run(1):
        run_state_machine_as_test(
            machine_of(product),
            settings=settings(
                max_examples=trials.scaled(examples),
                stateful_step_count=steps,
                deadline=None,
                derandomize=examples < 10,
                database=None,
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
            ),
        )
    trials.made = trials.scaled(examples)
    trials.note(f"{trials.made} examples of up to {steps} steps")
