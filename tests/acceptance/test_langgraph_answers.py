"""Answers to what a graph asks, as LangGraph's own client gives them: to which question, after which changes of its
state, in which copy; of a real server on either database."""

import asyncio
from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import ConflictError

from tests.acceptance import answer_graphs
from tests.acceptance.sdk import Clients
from tests.acceptance.sdk_runs import Door
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

X = {"words": ["x"]}
STALE = "0123456789abcdef0123456789abcdef"


SDK_GRAPHS = answer_graphs


async def asked(clients: Clients, thread: str, graph: str, given: Any = X) -> dict[str, str]:
    """The ids of what the graph asks, by its words."""
    values = await clients.ann.runs.wait(thread, graph, input=given)
    return {str(one["value"]): one["id"] for one in values["__interrupt__"]}


async def status(clients: Clients, thread: str) -> str:
    return str((await clients.ann.threads.get(thread))["status"])


async def pending(http: httpx.AsyncClient, thread: str) -> dict[str, Any]:
    found: dict[str, Any] = (await http.get(f"/api/threads/{thread}")).json()["pending"]
    return found


async def resolve(http: httpx.AsyncClient, thread: str, call_id: str, **body: Any) -> httpx.Response:
    return await http.post(f"/api/workflows/{thread}/tool-calls/{call_id}/resolve", json=body)


class TestById:
    @pytest.mark.parametrize("strategy", ["enqueue", "reject"])
    async def test_an_id_that_is_not_pending_is_no_answer(
        self, clients: Clients, thread: str, strategy: str
    ) -> None:
        ids = await asked(clients, thread, "asker")
        with pytest.raises(ConflictError, match=STALE):
            await clients.ann.runs.create(
                thread, "asker", command={"resume": {STALE: True}}, multitask_strategy=strategy
            )
        (known,) = ids.values()
        with pytest.raises(ConflictError, match=STALE):
            await clients.ann.runs.create(thread, "asker", command={"resume": {known: True, STALE: True}})
        assert await status(clients, thread) == "interrupted"
        values = await clients.ann.runs.wait(thread, "asker", command={"resume": {known: "yes"}})
        assert values["words"] == ["x", "answered yes"]

    async def test_an_answered_question_takes_no_answer_for_the_next(
        self, clients: Clients, thread: str
    ) -> None:
        (first,) = (await asked(clients, thread, "twice")).values()
        await clients.ann.runs.wait(thread, "twice", command={"resume": {first: "one"}})
        with pytest.raises(ConflictError, match=first):
            await clients.ann.runs.create(thread, "twice", command={"resume": {first: "again"}})
        values = await clients.ann.runs.wait(thread, "twice", command={"resume": "two"})
        assert values["words"] == ["x", "answered one", "and two"]

    async def test_an_answered_tool_call_takes_no_answer_for_another(
        self, clients: Clients, thread: str
    ) -> None:
        await clients.ann.runs.wait(thread, "mailer", input={"messages": []})
        await clients.ann.runs.wait(thread, "mailer", command={"resume": {"call-bob": False}})
        for stale in ({"call-bob": True}, {"call-bob": True, "call-ann": True}, {"gate_x": True}):
            with pytest.raises(ConflictError):
                await clients.ann.runs.create(thread, "mailer", command={"resume": stale})
            with pytest.raises(ConflictError):
                await clients.ann.runs.create(thread, "mailer", command={"resume": stale}, after_seconds=1)
        values = await clients.ann.runs.wait(thread, "mailer", command={"resume": {"call-ann": True}})
        sent = [one["content"] for one in values["messages"] if one["type"] == "tool"]
        assert "sent to ann" in sent
        assert "sent to bob" not in sent

    async def test_an_object_that_names_no_question_is_an_answer(self, clients: Clients, thread: str) -> None:
        await asked(clients, thread, "asker")
        answer = {"type": "accept", STALE: 1}
        values = await clients.ann.runs.wait(thread, "asker", command={"resume": answer})
        assert values["words"] == ["x", f"answered {answer}"]


class TestNativeAnswers:
    """A thread that runs of this API began, answered with the native one: its run goes on."""

    async def begun_and_answered(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> str:
        run = await clients.ann.runs.create(thread, "then_waits", input=door.input())
        await clients.ann.runs.join(thread, run["run_id"])
        (call_id,) = await pending(http, thread)
        assert (await resolve(http, thread, call_id, answer="ok")).status_code == 200
        await door.entered("answered ok")
        return str(run["run_id"])

    async def test_the_run_goes_on_and_is_joined(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> None:
        run_id = await self.begun_and_answered(clients, http, thread, door)
        assert (await clients.ann.runs.get(thread, run_id))["status"] == "running"
        assert await status(clients, thread) == "busy"
        joins = asyncio.ensure_future(clients.ann.runs.join(thread, run_id))
        door.open()
        assert (await joins)["words"] == ["x", "answered ok", "answered ok done", "second"]
        assert (await clients.ann.runs.get(thread, run_id))["status"] == "success"

    async def test_the_run_is_cancelled(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> None:
        run_id = await self.begun_and_answered(clients, http, thread, door)
        await clients.ann.runs.cancel(thread, run_id, wait=True)
        assert (await clients.ann.runs.get(thread, run_id))["status"] == "interrupted"
        assert await status(clients, thread) != "busy"

    @pytest.mark.parametrize(("strategy", "left"), [("interrupt", ["x", "answered ok"]), ("rollback", [])])
    async def test_another_run_takes_its_place(
        self,
        clients: Clients,
        http: httpx.AsyncClient,
        thread: str,
        door: Door,
        strategy: str,
        left: list[str],
    ) -> None:
        await self.begun_and_answered(clients, http, thread, door)
        values = await clients.ann.runs.wait(
            thread, "gated", input={"words": ["y"]}, multitask_strategy=strategy
        )
        assert values["words"] == [*left, "y", "first"]

    async def test_a_failed_run_that_is_resumed_goes_on(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> None:
        run = await clients.ann.runs.create(thread, "fails_once", input=door.input())
        await clients.ann.runs.join(thread, run["run_id"])
        assert (await clients.ann.runs.get(thread, run["run_id"]))["status"] == "error"
        assert (await http.post(f"/api/workflows/{thread}/resume")).status_code == 200
        await door.entered("failed")
        assert (await clients.ann.runs.get(thread, run["run_id"]))["status"] == "running"
        door.open()
        values = await clients.ann.runs.join(thread, run["run_id"])
        assert values["words"] == ["x", "failed", "failed done"]

    async def test_what_a_failed_run_was_told_is_written_once(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> None:
        door.open()
        await clients.ann.runs.wait(thread, "fails_once", input=door.input("a"), interrupt_before="*")
        command = {"update": {"words": ["told"]}, "goto": "fail"}
        run = await clients.ann.runs.create(thread, "fails_once", command=command)
        await clients.ann.runs.join(thread, run["run_id"])
        assert (await clients.ann.runs.get(thread, run["run_id"]))["status"] == "error"
        assert (await http.post(f"/api/workflows/{thread}/resume")).status_code == 200
        values = await clients.ann.runs.join(thread, run["run_id"])
        assert values["words"] == ["a", "told", "failed", "failed done"]

    async def test_a_native_round_is_interrupted_by_a_run(
        self, clients: Clients, http: httpx.AsyncClient, door: Door
    ) -> None:
        body = {"prompt": "go", "graph": "walk", "input": door.input()}
        thread = (await http.post("/api/workflows/start", json=body)).json()["id"]
        await door.entered("first")
        with pytest.raises(ConflictError, match="rolled back"):
            await clients.ann.runs.create(thread, "gated", input=X, multitask_strategy="rollback")
        values = await clients.ann.runs.wait(thread, "gated", input=X, multitask_strategy="interrupt")
        assert values["words"] == ["x", "first", "x", "first"]


async def shown(clients: Clients, thread: str) -> list[Any]:
    """What the thread is seen to ask, by both ways to look at it."""
    state = await clients.ann.threads.get_state(thread)
    now = await clients.ann.threads.get(thread)
    of_tasks = [one for some in now["interrupts"].values() for one in some]
    assert of_tasks == state["interrupts"]
    return [one["value"] for one in of_tasks]


class TestChangedStates:
    """`update_state` on a thread that waits, before its answer."""

    async def test_the_answer_reaches_the_question(self, clients: Clients, thread: str) -> None:
        await asked(clients, thread, "asker")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]})
        assert await status(clients, thread) == "interrupted"
        assert await shown(clients, thread) == [{"question": "sure?"}]
        values = await clients.ann.runs.wait(thread, "asker", command={"resume": "yes"})
        assert values == {"words": ["x", "hand", "answered yes"]}
        assert await status(clients, thread) == "idle"

    async def test_the_answer_is_given_by_the_id_that_was_shown(self, clients: Clients, thread: str) -> None:
        (question,) = (await asked(clients, thread, "then_waits")).values()
        for word in ("one", "two"):
            await clients.ann.threads.update_state(thread, {"words": [word]})
        values = await clients.ann.runs.wait(thread, "then_waits", command={"resume": {question: "yes"}})
        assert values["words"] == ["x", "one", "two", "answered yes", "answered yes done", "second"]

    async def test_the_answer_is_given_natively(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        run = await clients.ann.runs.create(thread, "asker", input=X)
        await clients.ann.runs.join(thread, run["run_id"])
        await clients.ann.threads.update_state(thread, {"words": ["hand"]})
        (call_id,) = await pending(http, thread)
        assert (await resolve(http, thread, call_id, answer="yes")).status_code == 200
        values = await clients.ann.runs.join(thread, run["run_id"])
        assert values["words"] == ["x", "hand", "answered yes"]

    async def test_the_answer_reaches_a_graph_inside(self, clients: Clients, thread: str) -> None:
        await asked(clients, thread, "nested_asker")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]})
        assert await shown(clients, thread) == [{"question": "sure?"}]
        values = await clients.ann.runs.wait(thread, "nested_asker", command={"resume": "yes"})
        assert values["words"][-1] == "answered yes"

    @pytest.mark.parametrize("by_id", [False, True])
    async def test_the_state_of_a_graph_inside_is_changed(
        self, clients: Clients, thread: str, by_id: bool
    ) -> None:
        (question,) = (await asked(clients, thread, "nested_asker")).values()
        state = await clients.ann.threads.get_state(thread, subgraphs=True)
        place = state["tasks"][0]["state"]["checkpoint"]
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, checkpoint=place)
        assert await shown(clients, thread) == [{"question": "sure?"}]
        answer = {question: "yes"} if by_id else "yes"
        values = await clients.ann.runs.wait(thread, "nested_asker", command={"resume": answer})
        assert values["words"] == ["x", "x", "hand", "answered yes"]
        assert await status(clients, thread) == "idle"

    async def test_several_answers_reach_their_questions(self, clients: Clients, thread: str) -> None:
        ids = await asked(clients, thread, "panel")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="__start__")
        assert sorted(await shown(clients, thread)) == ["left?", "right?"]
        answers = {ids["left?"]: "L", ids["right?"]: "R"}
        values = await clients.ann.runs.wait(thread, "panel", command={"resume": answers})
        assert sorted(values["words"]) == ["hand", "left L", "right R", "x"]

    async def test_what_a_node_was_answered_before_is_kept(self, clients: Clients, thread: str) -> None:
        await asked(clients, thread, "both")
        values = await clients.ann.runs.wait(thread, "both", command={"resume": "first"})
        assert [one["value"] for one in values["__interrupt__"]] == ["two?"]
        await clients.ann.threads.update_state(thread, {"words": ["hand"]})
        assert await shown(clients, thread) == ["two?"]
        values = await clients.ann.runs.wait(thread, "both", command={"resume": "last"})
        assert values == {"words": ["x", "hand", "first and last"]}

    async def test_a_tool_that_was_approved_runs(self, clients: Clients, thread: str) -> None:
        await clients.ann.runs.wait(thread, "mailer", input={"messages": []})
        await clients.ann.threads.update_state(thread, {"messages": []})
        answers = {"call-ann": True, "call-bob": True}
        values = await clients.ann.runs.wait(thread, "mailer", command={"resume": answers})
        sent = [one["content"] for one in values["messages"] if one["type"] == "tool"]
        assert sent == ["sent to ann", "sent to bob"]

    async def test_a_node_that_is_answered_for_asks_no_more(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        await asked(clients, thread, "asker")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="ask")
        assert await status(clients, thread) == "idle"
        assert await shown(clients, thread) == []
        assert await pending(http, thread) == {}
        with pytest.raises(ConflictError):
            await clients.ann.runs.create(thread, "asker", command={"resume": "late"})
        assert (await clients.ann.threads.get_state(thread))["values"] == {"words": ["x", "hand"]}

    async def test_a_node_that_is_answered_for_ends_its_step(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        """LangGraph drops what else was to be done in the step."""
        await asked(clients, thread, "panel")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="left")
        assert (await clients.ann.threads.get_state(thread))["next"] == []
        assert await status(clients, thread) == "idle"
        assert await pending(http, thread) == {}

    async def test_a_graph_that_is_written_past_its_question_goes_on_when_it_is_run(
        self, clients: Clients, thread: str
    ) -> None:
        await asked(clients, thread, "twice")
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, as_node="ask")
        assert await status(clients, thread) == "interrupted"
        assert await shown(clients, thread) == []
        values = await clients.ann.runs.wait(thread, "twice", input=None)
        assert [one["value"] for one in values["__interrupt__"]] == ["really?"]
        values = await clients.ann.runs.wait(thread, "twice", command={"resume": "two"})
        assert values == {"words": ["x", "hand", "and two"]}


class TestGates:
    """A graph that stops before a node waits there for an approval. What is written over it is none."""

    async def at_the_gate(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, **update: Any
    ) -> tuple[str, str]:
        """Its id before the state was written, and after."""
        await clients.ann.runs.wait(thread, "gated", input=X)
        (before,) = await pending(http, thread)
        await clients.ann.threads.update_state(thread, {"words": ["hand"]}, **update)
        (after,) = await pending(http, thread)
        assert await status(clients, thread) == "interrupted"
        return before, after

    async def test_a_state_written_over_a_gate_waits_for_an_approval_of_its_own(
        self, clients: Clients, http: httpx.AsyncClient, thread: str, door: Door
    ) -> None:
        before, after = await self.at_the_gate(clients, http, thread, as_node="human")
        assert (await pending(http, thread))[after]["prompt"] == {"before": ["wait"]}
        assert (await resolve(http, thread, before, approved=True)).status_code == 409
        with pytest.raises(ConflictError, match=before):
            await clients.ann.runs.create(thread, "gated", command={"resume": {before: True}})
        assert (await http.post(f"/api/workflows/{thread}/approve")).status_code == 200
        await until_status(clients, thread, "idle")
        values = (await clients.ann.threads.get_state(thread))["values"]
        assert values["words"] == ["x", "first", "hand", "hand done"]

    async def test_a_refusal_ends_it(self, clients: Clients, http: httpx.AsyncClient, thread: str) -> None:
        await self.at_the_gate(clients, http, thread, as_node="human")
        body = {"feedback": "not like this"}
        assert (await http.post(f"/api/workflows/{thread}/reject", json=body)).status_code == 200
        await until_status(clients, thread, "error")
        assert (await clients.ann.threads.get_state(thread))["values"]["words"] == ["x", "first", "hand"]

    async def test_a_run_without_an_input_goes_on(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        await self.at_the_gate(clients, http, thread, as_node="human")
        values = await clients.ann.runs.wait(thread, "gated", input=None)
        assert values["words"] == ["x", "first", "hand", "hand done"]

    async def test_a_state_written_at_a_gate_is_asked_about_anew(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        before, after = await self.at_the_gate(clients, http, thread)
        assert before != after
        assert (await pending(http, thread))[after]["prompt"] == {"before": ["human"]}
        assert (await resolve(http, thread, before, approved=True)).status_code == 409
        assert (await resolve(http, thread, after, approved=True)).status_code == 200
        await until_status(clients, thread, "idle")
        values = (await clients.ann.threads.get_state(thread))["values"]
        assert values["words"] == ["x", "first", "hand", "second", "second done"]


async def until_status(clients: Clients, thread: str, wanted: str) -> None:
    async def is_so() -> bool:
        return await status(clients, thread) == wanted

    await until(is_so)


class TestCopies:
    """A copy of a thread that waits, waits as well, and is answered by itself."""

    async def copied(self, clients: Clients, thread: str) -> str:
        copy = await clients.ann.threads.copy(thread)
        assert copy["status"] == "interrupted"
        assert await shown(clients, copy["thread_id"]) == await shown(clients, thread)
        return str(copy["thread_id"])

    @pytest.mark.parametrize("graph", ["asker", "nested_asker"])
    async def test_a_copy_is_answered(self, clients: Clients, thread: str, graph: str) -> None:
        (question,) = (await asked(clients, thread, graph)).values()
        copy = await self.copied(clients, thread)
        values = await clients.ann.runs.wait(copy, graph, command={"resume": {question: "copy"}})
        assert values["words"][-1] == "answered copy"
        assert await status(clients, copy) == "idle"
        assert await status(clients, thread) == "interrupted"
        values = await clients.ann.runs.wait(thread, graph, command={"resume": "original"})
        assert values["words"][-1] == "answered original"

    async def test_a_copy_of_a_later_round_is_answered(self, clients: Clients, thread: str) -> None:
        for answer in ("one", "two"):
            await asked(clients, thread, "asker")
            await clients.ann.runs.wait(thread, "asker", command={"resume": answer})
        await asked(clients, thread, "asker")
        copy = await self.copied(clients, thread)
        values = await clients.ann.runs.wait(copy, "asker", command={"resume": "three"})
        assert values["words"] == ["x", "answered one", "x", "answered two", "x", "answered three"]
        assert [run["status"] for run in await clients.ann.runs.list(copy)] == ["success"]

    async def test_a_copy_keeps_what_was_answered(self, clients: Clients, thread: str) -> None:
        ids = await asked(clients, thread, "panel")
        await clients.ann.runs.wait(thread, "panel", command={"resume": {ids["left?"]: "L"}})
        copy = await self.copied(clients, thread)
        values = await clients.ann.runs.wait(copy, "panel", command={"resume": "R"})
        assert sorted(values["words"]) == ["left L", "right R", "x"]

    async def test_a_copy_of_a_tool_that_needs_a_yes_is_answered(self, clients: Clients, thread: str) -> None:
        await clients.ann.runs.wait(thread, "mailer", input={"messages": []})
        copy = await self.copied(clients, thread)
        answers = {"call-ann": True, "call-bob": False}
        values = await clients.ann.runs.wait(copy, "mailer", command={"resume": answers})
        sent = {one["tool_call_id"]: one["content"] for one in values["messages"] if one["type"] == "tool"}
        assert sent["call-ann"] == "sent to ann"
        assert "refused" in sent["call-bob"]

    async def test_a_copy_of_a_thread_at_a_gate_is_approved(
        self, clients: Clients, http: httpx.AsyncClient, thread: str
    ) -> None:
        await clients.ann.runs.wait(thread, "gated", input=X)
        copy = await self.copied(clients, thread)
        assert (await http.post(f"/api/workflows/{copy}/approve")).status_code == 200
        await until_status(clients, copy, "idle")
        values = (await clients.ann.threads.get_state(copy))["values"]
        assert values["words"] == ["x", "first", "second", "second done"]
        assert await status(clients, thread) == "interrupted"

    async def test_a_copy_is_given_something_else_to_do(self, clients: Clients, thread: str) -> None:
        await asked(clients, thread, "asker")
        copy = await self.copied(clients, thread)
        values = await clients.ann.runs.wait(copy, "gated", input={"words": ["y"]})
        assert values["words"] == ["x", "y", "first"]
