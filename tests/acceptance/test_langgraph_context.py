"""The context of a run, and the config a graph is bound to, as LangGraph's own client sends and LangGraph fills them;
of a real server on either database."""

from typing import Any

import httpx
import pytest
from langgraph_sdk.errors import BadRequestError

from tests.acceptance import context_graphs
from tests.acceptance.sdk import Clients, SdkServer
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

BOTH = {"config": {"configurable": {"model": "a"}}, "context": {"model": "b"}}


SDK_GRAPHS = context_graphs


async def said(clients: Clients, graph: str, **given: Any) -> list[Any]:
    values = await clients.ann.runs.wait(None, graph, input={"said": []}, **given)
    found: list[Any] = values["said"]
    return found


class TestContext:
    @pytest.mark.parametrize("graph", ["template", "around_template"])
    async def test_defaults_are_filled_in(self, clients: Clients, graph: str) -> None:
        """As the first message to an official template is sent: with an input and nothing else."""
        assert await said(clients, graph) == ["default-model", 10, {}]
        assert await said(clients, graph, context={"max_results": 3}) == ["default-model", 3, {}]

    async def test_a_context_is_seen_in_configurable_without_what_is_unknown(self, clients: Clients) -> None:
        given = {"model": "small", "other": 1}
        assert await said(clients, "template", context=given) == ["small", 10, {"model": "small"}]

    async def test_what_is_configurable_is_seen_in_the_context(self, clients: Clients) -> None:
        given = {"model": "small", "other": 1}
        told = await said(clients, "template", config={"configurable": given})
        assert told == ["small", 10, given]

    async def test_a_caller_cannot_say_who_is_authenticated(self, clients: Clients) -> None:
        forged = {"langgraph_auth_user_id": "root", "__pregel_store": "x", "other": 1}
        assert await said(clients, "plain", context=forged) == ["{'other': 1}", {"other": 1}]

    async def test_models_and_typed_dicts_are_contexts_too(self, clients: Clients) -> None:
        context, _ = await said(clients, "modelled", context={"maxResults": 5, "other": 1})
        assert context == "Modelled(model='default-model', limit=5)"
        context, _ = await said(clients, "typed", context={"model": "small", "other": 1})
        assert context == "{'model': 'small'}"
        context, _ = await said(clients, "plain", config={"configurable": {"model": "small"}})
        assert context == "{'model': 'small'}"

    async def test_what_has_no_default_must_be_given(self, clients: Clients) -> None:
        context, _ = await said(clients, "strict", context={"model": "small"})
        assert context == "Strict(model='small')"
        with pytest.raises(Exception, match="model"):
            await said(clients, "strict")

    async def test_an_assistant_brings_some_of_it(self, clients: Clients) -> None:
        assistant = await clients.ann.assistants.create(
            "template", context={"model": "large", "max_results": 2}
        )
        name = assistant["assistant_id"]
        assert (await said(clients, name))[:2] == ["large", 2]
        assert await said(clients, name, context={"model": "small"}) == ["small", 2, {"model": "small"}]
        told = await said(clients, name, config={"configurable": {"model": "tiny"}})
        assert told == ["tiny", 2, {"model": "tiny"}]

    async def test_a_native_round_has_the_defaults(self, served: SdkServer) -> None:
        headers = {"X-API-Key": served.keys["ann"]}
        async with httpx.AsyncClient(base_url=served.server.address, headers=headers) as http:
            for graph, wanted in (("template", ["default-model", 10, {}]), ("strict", ["None", {}])):
                body = {"prompt": "go", "graph": graph, "input": {"said": []}}
                workflow = (await http.post("/api/workflows/start", json=body)).json()["id"]

                async def is_done(workflow: str = workflow) -> bool:
                    thread = (await http.get(f"/api/threads/{workflow}")).json()
                    assert thread["status"] != "failed"
                    return bool(thread["status"] == "completed")

                await until(is_done)
                state = (await http.get(f"/api/workflows/{workflow}/state")).json()
                assert state["values"]["said"] == wanted

    async def test_both_are_refused(self, clients: Clients) -> None:
        thread = (await clients.ann.threads.create())["thread_id"]
        for asked in (
            clients.ann.runs.create(thread, "template", input={}, **BOTH),
            clients.ann.runs.create(None, "template", input={}, **BOTH),
            clients.ann.runs.create_batch([{"assistant_id": "template", "input": {}, **BOTH}]),
            clients.ann.crons.create("template", schedule="0 0 1 1 *", input={}, **BOTH),
            clients.ann.assistants.create("template", **BOTH),
        ):
            with pytest.raises(BadRequestError, match="context"):
                await asked
        for calls in (clients.ann.runs.wait(thread, "template", input={}, **BOTH),):
            with pytest.raises(httpx.HTTPStatusError) as refused:
                await calls
            assert refused.value.response.status_code == 400
        assert await clients.ann.runs.list(thread) == []

    async def test_a_cron_that_is_given_the_other_is_refused(self, clients: Clients) -> None:
        cron = await clients.ann.crons.create(
            "template", schedule="0 0 1 1 *", input={}, context={"model": "small"}
        )
        with pytest.raises(BadRequestError, match="context"):
            await clients.ann.crons.update(cron["cron_id"], config={"configurable": {"model": "large"}})
        await clients.ann.crons.delete(cron["cron_id"])


class TestBoundConfig:
    """`.with_config()` of a compiled graph."""

    async def test_it_is_kept(self, clients: Clients) -> None:
        thread = (await clients.ann.threads.create())["thread_id"]
        values = await clients.ann.runs.wait(thread, "bound", input={"said": []})
        assert values["said"] == [["bound"], {"color": "red"}, {"color": "red"}, 1234]
        assert (await clients.ann.threads.get_state(thread))["values"] == values

    async def test_a_run_adds_to_it(self, clients: Clients) -> None:
        config = {
            "tags": ["run"],
            "metadata": {"size": 1},
            "configurable": {"color": "blue", "size": 2},
            "recursion_limit": 77,
        }
        assert await said(clients, "bound", config=config) == [
            ["bound", "run"],
            {"color": "red", "size": 1},
            {"color": "blue", "size": 2},
            77,
        ]

    async def test_its_limit_ends_a_graph_in_circles(self, clients: Clients) -> None:
        answer = await clients.ann.runs.wait(None, "circling", input={"said": []}, raise_error=False)
        assert "Recursion limit of 7 reached" in answer["__error__"]["message"]


class TestClientInsideANode:
    """`get_client()` without an address."""

    async def test_it_reaches_the_server_it_runs_in(self, clients: Clients) -> None:
        config = {"tags": ["outer"], "configurable": {"model": "outer", "other": 1}}
        thread, values, last, found, tags = await said(clients, "delegating", config=config)
        # What is begun inside of a node is a run like any other: nothing of the node's own config is in it.
        assert values == ["None", {}]
        assert (last, found, tags) == ("end", {"said": values}, ["outer"])
        made = await clients.ann.threads.get(thread)
        assert (made["metadata"]["made"], made["status"]) == ("inside", "idle")
        assert [run["status"] for run in await clients.ann.runs.list(thread)] == ["success"]

    async def test_it_is_reached_from_a_node_that_is_not_async(self, clients: Clients) -> None:
        (thread,) = await said(clients, "delegating_blocking")
        assert (await clients.ann.threads.get(thread))["metadata"]["made"] == "in a thread"

    async def test_it_calls_for_the_owner_of_the_thread(self, clients: Clients) -> None:
        thread = (await clients.ann.threads.create())["thread_id"]
        for who, sees in (
            ("ann", "something"),
            ("acme", "something"),
            ("bob", "nothing"),
            ("rival", "nothing"),
        ):
            client = getattr(clients, who)
            values = await client.runs.wait(None, "looking", input={"said": [thread]})
            assert (who, values["said"][-1]) == (who, sees)
