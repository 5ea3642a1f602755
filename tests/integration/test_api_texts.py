"""What people and graphs say, whatever characters are in it and however large it is, on every database."""

import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.server.app import Server
from tests.databases import SHARED, locate
from tests.http_client import client_of, new_key, opened_app

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]

GRAPH = """
import operator
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.types import interrupt


class State(MessagesState):
    extra: Annotated[list[Any], operator.add]


def say(state: State):
    return {"messages": [AIMessage(content="a\\0b\\ud800c")], "extra": ["d\\0e", {"f\\0": "\\udc00"}]}


async def keep(state: State, *, store: BaseStore):
    await store.aput(("n",), "k", {"text": "g\\0h", "half": "i\\ud800"})


def ask(state: State):
    return {"extra": [interrupt("well\\0?")]}


def fail(state: State):
    raise ValueError("j\\0k\\ud800l")


speaker = StateGraph(State).add_sequence([say, keep]).add_edge(START, "say")
asker = StateGraph(State).add_node(ask).add_edge(START, "ask")
failing = StateGraph(State).add_node(fail).add_edge(START, "fail")
"""
# As a client writes it: JSON in ASCII.
ODD = '"page one\\u0000page two \\ud83d"'
SEEN = "page one\ufffdpage two \ufffd"


@pytest.fixture
async def app(where: str, tmp_path: Path) -> AsyncGenerator[Server]:
    (tmp_path / "flows.py").write_text(GRAPH)
    names = "".join(f"  {name}: ./flows.py:{name}\n" for name in ("speaker", "asker", "failing"))
    (tmp_path / "clew.yaml").write_text(f"graphs:\n{names}")
    async with opened_app(tmp_path, CLEW_DATABASE_URL=where) as app:
        yield app


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    located = locate(request.param, request)
    return located if request.param == "postgres" else f"sqlite:///{located}"


@pytest.fixture
async def ann(app: Server) -> AsyncGenerator[httpx.AsyncClient]:
    async with client_of(app.http, await new_key(app.stores.keys)) as client:
        client.timeout = httpx.Timeout(60)
        yield client


async def send(client: httpx.AsyncClient, method: str, path: str, body: str, status: int = 200) -> Any:
    answer = await client.request(
        method, path, content=body.encode("ascii"), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, (path, answer.status_code, answer.text[:500])
    return answer.json() if answer.content else None


async def get(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, (path, answer.text[:500])
    return answer.json()


async def test_a_message_out_of_a_pdf_is_taken(ann: httpx.AsyncClient) -> None:
    thread = (await send(ann, "POST", "/threads", f'{{"metadata": {{"title": {ODD}, "a\\u0000": 1}}}}'))[
        "thread_id"
    ]
    run = f'{{"assistant_id": "speaker", "input": {{"messages": [{{"role": "user", "content": {ODD}}}]}}}}'
    values = await send(ann, "POST", f"/threads/{thread}/runs/wait", run)
    assert values["messages"][0]["content"] == SEEN
    state = (await get(ann, f"/threads/{thread}/state"))["values"]
    assert state == values
    (found,) = await send(ann, "POST", "/threads/search", f'{{"metadata": {{"title": {ODD}}}}}')
    assert found["thread_id"] == thread
    assert {"title": SEEN, "a\ufffd": 1}.items() <= found["metadata"].items()
    shown = await get(ann, f"/api/workflows/{thread}")
    assert shown["messages"][0]["content"] == SEEN


async def test_the_native_api_takes_it_too(ann: httpx.AsyncClient) -> None:
    body = f'{{"graph": "speaker", "prompt": {ODD}, "name": {ODD}}}'
    started = await send(ann, "POST", "/api/workflows/start?wait=30", body)
    assert (started["status"], started["name"]) == ("completed", SEEN)
    shown = await get(ann, f"/api/workflows/{started['id']}")
    assert shown["messages"][0]["content"] == SEEN
    asked = await send(ann, "POST", "/api/workflows/start?wait=30", f'{{"graph": "asker", "prompt": {ODD}}}')
    await send(ann, "POST", f"/api/workflows/{asked['id']}/approve", f'{{"feedback": {ODD}}}')


async def test_items_assistants_crons_and_answers_take_it(ann: httpx.AsyncClient) -> None:
    item = f'{{"namespace": ["n"], "key": "mine", "value": {{"text": {ODD}}}}}'
    await send(ann, "PUT", "/store/items", item, status=204)
    assert (await get(ann, "/store/items?namespace=n&key=mine"))["value"] == {"text": SEEN}
    made = await send(
        ann,
        "POST",
        "/assistants",
        f'{{"graph_id": "speaker", "name": {ODD}, "metadata": {{"m": {ODD}}}, "config": {{"tags": [{ODD}]}}}}',
    )
    assert (made["name"], made["metadata"]["m"]) == (SEEN, SEEN)
    cron = await send(
        ann,
        "POST",
        "/runs/crons",
        f'{{"assistant_id": "speaker", "schedule": "0 0 1 1 *", "input": {{"x": {ODD}}}}}',
    )
    assert cron["payload"]["input"] == {"x": SEEN}
    thread = (await send(ann, "POST", "/threads", "{}"))["thread_id"]
    await send(ann, "POST", f"/threads/{thread}/runs/wait", '{"assistant_id": "asker", "input": {}}')
    resume = f'{{"assistant_id": "asker", "command": {{"resume": {ODD}}}}}'
    answered = await send(ann, "POST", f"/threads/{thread}/runs/wait", resume)
    assert answered["extra"] == [SEEN]
    await send(ann, "POST", f"/threads/{thread}/state", f'{{"values": {{"extra": [{ODD}]}}}}')


async def test_what_a_graph_says_is_stored_and_shown(ann: httpx.AsyncClient) -> None:
    thread = (await send(ann, "POST", "/threads", "{}"))["thread_id"]
    values = await send(
        ann, "POST", f"/threads/{thread}/runs/wait", '{"assistant_id": "speaker", "input": {}}'
    )
    assert "__error__" not in values
    assert values["messages"][-1]["content"] == "a\0b\ufffdc"
    assert values["extra"] == ["d\0e", {"f\0": "\ufffd"}]
    kept = (await get(ann, "/store/items?namespace=n&key=k"))["value"]
    assert kept == {"text": "g\ufffdh", "half": "i\ufffd"}
    for path in (f"/threads/{thread}/state", f"/api/threads/{thread}/events", f"/api/workflows/{thread}"):
        await get(ann, path)
    await send(ann, "POST", f"/threads/{thread}/history", "{}")


async def test_an_error_with_such_characters_ends_its_run(
    ann: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    # Its traceback holds half a surrogate pair, which a parallel run of the tests cannot report.
    caplog.set_level(logging.CRITICAL, logger="clew")
    thread = (await send(ann, "POST", "/threads", "{}"))["thread_id"]
    failed = await send(
        ann, "POST", f"/threads/{thread}/runs/wait", '{"assistant_id": "failing", "input": {}}'
    )
    assert failed["__error__"]["error"] == "ValueError"
    assert (await get(ann, f"/threads/{thread}"))["status"] == "error"


async def test_an_image_in_a_message_is_taken(ann: httpx.AsyncClient) -> None:
    image = "A" * 1_900_000
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
    ]
    thread = (await send(ann, "POST", "/threads", "{}"))["thread_id"]
    body = {"assistant_id": "speaker", "input": {"messages": [{"role": "user", "content": content}]}}
    answer = await ann.post(f"/threads/{thread}/runs/wait", json=body)
    assert answer.status_code == 200, answer.text[:500]
    assert answer.json()["messages"][0]["content"] == content
    assert (await get(ann, f"/threads/{thread}/state"))["values"]["messages"][0]["content"] == content
    (found,) = await send(ann, "POST", "/threads/search", "{}")
    assert found["values"]["messages"][0]["content"] == content
    streamed = await ann.post(f"/threads/{thread}/runs/stream", json=body)
    assert streamed.status_code == 200
    assert image in streamed.text
    given = {
        "graph": "speaker",
        "prompt": "look",
        "input": {"messages": [{"role": "user", "content": content}]},
    }
    started = await ann.post("/api/workflows/start?wait=30", json=given)
    assert (started.status_code, started.json()["status"]) == (200, "completed"), started.text[:300]
