"""Seed 000, chat history in a LangGraph store: what a user of the Python names sees."""

import asyncio
import json
import logging
import os
import random
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore, GetOp, Item, Op, PutOp, Result
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore
from langgraph.store.sqlite import AsyncSqliteStore

from clew import create_checkpointer, create_graph_store
from clew.config import load_settings
from clew.domain.errors import Invalid, Unavailable
from clew.history.agent_node import AgentNode
from clew.history.chat_history import ChatHistory, HistoryOutcome
from clew.history.graph_store import GraphStore
from clew.history.keys import DEFAULT_CANDIDATES
from clew.ports.cipher import PLAIN
from clew.ports.histories import Histories, HistoryId, HistoryMessage, NewMessage, Shape
from clew.stores.postgres_histories import open_histories
from clew.stores.sql.histories import HistoryRows
from clew.stores.sql.items import ItemRows
from clew.stores.sql.work import Work
from clew.stores.sqlite import connect, drive
from clew.telemetry import Metrics
from tests.databases import locate, open_database
from tests.fakes import ScriptedModel, echo, scripted

pytestmark = pytest.mark.anyio
T = TypeVar("T")

OURS = ("clew sqlite", "clew postgres")
PACKAGED = ("AsyncSqliteStore", "AsyncPostgresStore", "InMemoryStore")
ROOT = Path(__file__).parents[2]
CHUNK_FIELDS = {"conversation_key", "chunk_key", "start_seq", "end_seq", "messages", "updated_at"}
SECRET = "the-cat-is-called-Mehitabel"


@asynccontextmanager
async def open_store(kind: str, where: str) -> AsyncGenerator[BaseStore]:
    match kind:
        case "AsyncSqliteStore":
            async with AsyncSqliteStore.from_conn_string(where) as sqlite:
                await sqlite.setup()
                yield sqlite
        case "AsyncPostgresStore":
            async with AsyncPostgresStore.from_conn_string(where) as postgres:
                await postgres.setup()
                yield postgres
        case "InMemoryStore":
            yield InMemoryStore()
        case _:
            async with open_database(where) as db:
                yield GraphStore(ItemRows(db), open_histories(db), backend=kind.split()[1])


@pytest.fixture(params=[*OURS, *PACKAGED])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def where(kind: str, request: pytest.FixtureRequest) -> str:
    return locate("postgres" if "postgres" in kind.lower() else "sqlite", request)


@pytest.fixture
async def store(kind: str, where: str) -> AsyncIterator[BaseStore]:
    async with open_store(kind, where) as opened:
        yield opened


ours = pytest.mark.parametrize("kind", OURS, indirect=True)
packaged = pytest.mark.parametrize("kind", PACKAGED, indirect=True)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


class BotState(MessagesState, total=False):
    inputs: dict[str, Any]
    results: dict[str, Any]


def bot(agent: AgentNode, store: BaseStore | None, *, checkpoints: bool = False) -> Any:
    builder = StateGraph(BotState)
    builder.add_node("agent", agent)
    builder.add_edge(START, "agent")
    return builder.compile(store=store, checkpointer=InMemorySaver() if checkpoints else None)


def remembering(model: ScriptedModel, **options: Any) -> AgentNode:
    return AgentNode(model, use_graph_chat_history=True, **options)


async def say(graph: Any, text: str, key: str | None = "telegram:1", **state: Any) -> AIMessage:
    """One callback: the graph gets one message, in a run of its own."""
    inputs = {} if key is None else {"history_key": key}
    result = await graph.ainvoke({"messages": [HumanMessage(text)], "inputs": inputs, **state})
    answer = result["messages"][-1]
    assert isinstance(answer, AIMessage)
    return answer


async def stored(store: BaseStore, key: str = "telegram:1", **options: Any) -> list[tuple[str, str]]:
    return [(m.role, m.content) async for m in ChatHistory(store, **options).transcript(key)]


def counted(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of one metric by its labels, as /metrics shows them."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == name and sample.value
    }


class Watched(InMemoryStore):
    """A foreign store that writes down what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        self.ops += listed
        return await super().abatch(listed)


class Broken(InMemoryStore):
    """A store that fails, and quotes what it was given when it does."""

    def __init__(self, *, reads: bool = True, writes: bool = True) -> None:
        super().__init__()
        self.fails = (*((GetOp,) if reads else ()), *((PutOp,) if writes else ()))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        if any(isinstance(op, self.fails) for op in listed):
            raise RuntimeError(f"cannot do {listed!r}")
        return await super().abatch(listed)


# Compiling and running


@pytest.mark.accept("000-4")
async def test_our_store_and_every_packaged_one_remember(kind: str, store: BaseStore) -> None:
    model = echo()
    graph = bot(remembering(model), store)
    assert isinstance(store, BaseStore)
    await say(graph, "my name is Ada")
    answer = await say(graph, "who am I")
    assert model.texts() == ["my name is Ada", "you said my name is Ada", "who am I"]
    assert answer.response_metadata["chat_history"] == "ok"
    assert len(await stored(store)) == 4


@ours
@pytest.mark.accept("000-4")
async def test_a_store_is_set_up_when_it_is_given_out_and_shares_its_database(kind: str, where: str) -> None:
    url = where if where.startswith("postgres") else f"sqlite:///{where}"
    async with create_graph_store(url) as store, create_checkpointer(url) as saver:
        assert isinstance(store, BaseStore)
        model = echo()
        builder = StateGraph(BotState)
        builder.add_node("agent", remembering(model))
        builder.add_edge(START, "agent")
        graph = builder.compile(store=store, checkpointer=saver)

        async def talk(thread: str) -> None:
            for n in range(5):
                state: Any = {"messages": [HumanMessage(f"{thread}-{n}")], "inputs": {"history_key": "k"}}
                await graph.ainvoke(state, {"configurable": {"thread_id": thread}}, durability="sync")

        # Saver and store write to one file at once, and nobody hears of a lock.
        await asyncio.gather(*(talk(f"t{n}") for n in range(8)))
        assert len(await stored(store, "k")) == 80
    async with create_graph_store(url) as again:
        assert len(await stored(again, "k")) == 80
    with pytest.raises(Unavailable):
        await store.aget(("a",), "k")


@pytest.mark.accept("000-4")
@pytest.mark.parametrize("url", ["redis://localhost", "mysql://u:hunter2@h/db", "", "sqlite:///~/x.db"])
async def test_a_backend_we_do_not_know_is_a_value_error(url: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        async with create_graph_store(url):
            pass
    assert "hunter2" not in str(caught.value)


@pytest.mark.accept("000-4")
async def test_settings_say_where_the_store_is(tmp_path: Path) -> None:
    path = tmp_path / "made" / "for" / "it" / "graph_store.sqlite"
    environ = {"CLEW_GRAPH_STORE_BACKEND": "SQLite", "CLEW_GRAPH_STORE_SQLITE_PATH": str(path)}
    async with create_graph_store(load_settings(environ, cwd=tmp_path)) as store:
        await store.aput(("a",), "k", {"v": 1})
    assert path.exists()


@pytest.mark.accept("000-5")
async def test_a_node_that_does_not_use_the_store_runs_unchanged(kind: str, store: BaseStore) -> None:
    def shout(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(str(state["messages"][-1].text).upper())]}

    builder = StateGraph(MessagesState)
    builder.add_node("shout", shout)
    builder.add_edge(START, "shout")
    config: Any = {"configurable": {"thread_id": "t"}}
    texts = []
    for graph in (builder.compile(), builder.compile(checkpointer=InMemorySaver(), store=store)):
        result = await graph.ainvoke({"messages": [HumanMessage("hi")]}, config)
        texts.append([message.text for message in result["messages"]])
    assert texts == [["hi", "HI"]] * 2


@ours
@pytest.mark.accept("000-6")
async def test_the_store_is_open_until_the_last_node_has_finished(kind: str, where: str) -> None:
    seen: list[int] = []

    async def last(state: BotState, *, store: BaseStore) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        seen.append(len(await store.asearch(("agent_chat_history",))))
        return {}

    async with open_store(kind, where) as store:
        builder = StateGraph(BotState)
        builder.add_node("agent", remembering(echo()))
        builder.add_node("last", last)
        builder.add_edge(START, "agent")
        builder.add_edge("agent", "last")
        graph = builder.compile(store=store)
        state: Any = {"messages": [HumanMessage("hi")], "inputs": {"history_key": "k"}}
        async for _ in graph.astream(state, stream_mode="updates"):
            pass
    assert seen == [2]


# Keys


@pytest.mark.accept("000-7")
async def test_history_is_off_unless_switched_on() -> None:
    store, model = Watched(), echo()
    agent = AgentNode(model)
    assert agent.use_graph_chat_history is False
    answer = await say(bot(agent, store), "hi")
    assert store.ops == []
    assert model.texts() == ["hi"]
    assert "chat_history" not in answer.response_metadata


def test_the_seeds_fields_have_the_seeds_defaults() -> None:
    agent = AgentNode(echo())
    assert agent.use_graph_chat_history is False
    assert list(agent.history_namespace) == ["agent_chat_history"]
    assert agent.history_key_template == "{{conversation_key}}"
    assert list(agent.history_key_candidates) == [
        "{{results.resolve_history_key.session_key}}",
        "{{configurable.history_key}}",
        "{{inputs.history_key}}",
        "telegram:{{results.telegram_events_parser.chat_id}}",
        "wecom_cs:{{results.wecom_cs_sync.open_kf_id}}:{{results.wecom_cs_sync.external_userid}}",
        "wecom_aibot:{{results.wecom_ai_bot_events_parser.chat_type}}:{{results.wecom_ai_bot_events_parser.user}}",
        "wecom_dm:{{results.wecom_events_parser.user}}",
        "{{thread_id}}",
    ]
    assert agent.history_meta_key_suffix == "__meta__"
    assert agent.history_chunk_size == 200
    assert agent.history_value_field == "content"
    assert agent.max_messages == 30
    assert agent.reset_command == ""


async def conversations(store: BaseStore) -> set[str]:
    return {namespace[1] for namespace in await store.alist_namespaces(prefix=("agent_chat_history",))}


TELEGRAM = {"telegram_events_parser": {"chat_id": "123456789"}}


@pytest.mark.parametrize(
    ("results", "inputs", "configurable", "key"),
    [
        pytest.param(TELEGRAM, {}, {}, "telegram:123456789", marks=pytest.mark.accept("000-9")),
        pytest.param(
            {"telegram_events_parser": {"chat_id": -100123}},
            {},
            {},
            "telegram:-100123",
            marks=pytest.mark.accept("000-9"),
        ),
        pytest.param(
            {"wecom_cs_sync": {"open_kf_id": "wkAJ2GCAAA_4-x", "external_userid": "wmEAlECwAA"}},
            {},
            {},
            "wecom_cs:wkAJ2GCAAA_4-x:wmEAlECwAA",
            marks=pytest.mark.accept("000-10"),
        ),
        pytest.param(
            {"wecom_ai_bot_events_parser": {"chat_type": "single", "user": "zs"}},
            {},
            {},
            "wecom_aibot:single:zs",
            marks=pytest.mark.accept("000-10"),
        ),
        pytest.param(
            {"wecom_events_parser": {"user": "zs"}}, {}, {}, "wecom_dm:zs", marks=pytest.mark.accept("000-10")
        ),
        pytest.param(
            {"resolve_history_key": {"session_key": "s"}, **TELEGRAM},
            {"history_key": "i"},
            {"history_key": "c"},
            "s",
            marks=pytest.mark.accept("000-8"),
        ),
        pytest.param(
            TELEGRAM, {"history_key": "i"}, {"history_key": "c"}, "c", marks=pytest.mark.accept("000-8")
        ),
        pytest.param(TELEGRAM, {"history_key": "i"}, {}, "i", marks=pytest.mark.accept("000-8")),
        pytest.param(
            TELEGRAM, {"history_key": "  "}, {}, "telegram:123456789", marks=pytest.mark.accept("000-12")
        ),
        pytest.param(
            TELEGRAM,
            {"history_key": "{{inputs.x}}"},
            {},
            "telegram:123456789",
            marks=pytest.mark.accept("000-12"),
        ),
        pytest.param(
            TELEGRAM, {"history_key": "abc\n"}, {}, "telegram:123456789", marks=pytest.mark.accept("000-13")
        ),
        pytest.param({}, {"history_key": "k" * 256}, {}, "k" * 256, marks=pytest.mark.accept("000-13")),
        pytest.param(
            TELEGRAM, {"history_key": "k" * 257}, {}, "telegram:123456789", marks=pytest.mark.accept("000-13")
        ),
        pytest.param(
            {"telegram_events_parser": {"chat_id": ""}},
            {},
            {"thread_id": "t1"},
            "t1",
            marks=pytest.mark.accept("000-14"),
        ),
        pytest.param(
            {"wecom_cs_sync": {"open_kf_id": "kf1", "external_userid": ""}},
            {},
            {"thread_id": "t1"},
            "t1",
            marks=pytest.mark.accept("000-14"),
        ),
        pytest.param({}, {}, {"thread_id": "t1"}, "t1", marks=pytest.mark.accept("000-15")),
        pytest.param({}, {}, {"thread_id": "t1", "webhook": True}, None, marks=pytest.mark.accept("000-15")),
        pytest.param(
            {"wecom_events_parser": {"user": "zhang.san@corp"}},
            {},
            {},
            "wecom_dm:zhang_x2esan_x40corp",
            marks=pytest.mark.accept("000-16"),
        ),
        pytest.param({}, {}, {}, None, marks=pytest.mark.accept("000-18")),
    ],
)
async def test_the_key_comes_from_the_first_candidate_that_gives_one(
    results: dict[str, Any],
    inputs: dict[str, Any],
    configurable: dict[str, Any],
    key: str | None,
    metrics: Metrics,
) -> None:
    store = Watched()
    graph = bot(remembering(echo(), metrics=metrics), store)
    state = {"messages": [HumanMessage("hi")], "results": results, "inputs": inputs}
    result = await graph.ainvoke(state, {"configurable": configurable})
    assert result["messages"][-1].text == "you said hi"
    assert await conversations(store) == (set() if key is None else {key})
    failures = counted(metrics, "agent_history_key_resolution_failures_total")
    assert failures == ({("memory", "other", "fallback"): 1.0} if key is None else {})
    if key is None:
        assert store.ops == [op for op in store.ops if not isinstance(op, GetOp | PutOp)]
        assert result["messages"][-1].response_metadata["chat_history"] == "fallback"


@pytest.mark.accept("000-11")
async def test_a_literal_candidate_is_a_shared_room() -> None:
    store = Watched()
    graph = bot(remembering(echo(), history_key_candidates=["support-room-1"]), store)
    await say(graph, "hi", key=None)
    assert await conversations(store) == {"support-room-1"}


@pytest.mark.accept("000-17")
@pytest.mark.parametrize(
    ("template", "key"),
    [
        ("v2:{{conversation_key}}", "v2:telegram:1"),
        ("{{conversation_key}}:{{inputs.agent}}", "telegram:1:sales_x20team"),
        ("{{conversation_key}}!", None),
        ("{{nobody.knows}}", None),
        ("k" * 250 + "{{conversation_key}}", None),
    ],
)
async def test_the_template_has_the_last_word(template: str, key: str | None) -> None:
    store = Watched()
    graph = bot(remembering(echo(), history_key_template=template), store)
    await graph.ainvoke(
        {"messages": [HumanMessage("hi")], "inputs": {"history_key": "telegram:1", "agent": "sales team"}}
    )
    assert await conversations(store) == (set() if key is None else {key})


def test_names_that_would_run_into_each_other_are_refused_at_once() -> None:
    with pytest.raises(Invalid, match=":"):
        remembering(echo(), history_key_candidates=["{{inputs.a}}{{inputs.b}}"])


@pytest.mark.accept("000-18")
async def test_without_a_store_the_run_goes_on_in_memory(metrics: Metrics) -> None:
    answer = await say(bot(remembering(echo(), metrics=metrics), None), "hi")
    assert answer.text == "you said hi"
    assert answer.response_metadata["chat_history"] == "fallback"
    assert counted(metrics, "agent_history_key_resolution_failures_total") == {}


@pytest.mark.fault("F4")
@ours
async def test_a_tenant_never_reads_or_writes_anothers_history(kind: str, store: BaseStore) -> None:
    """FAULTS F4: whatever key a tenant asks for, it gets its own."""
    assert isinstance(store, GraphStore)
    keys = [
        "telegram:1",
        "tenant:a",
        "tenant:b",
        "a",
        "agent_chat_history",
        "__meta__",
        "chunk:000000",
        "b:telegram:1",
    ]
    prompts = 0
    for tenant in ("a", "b", "a_x3ab", "a:b"):
        # Told in the run's configurable, or by the store: it is the same tenant.
        for by_label in (True, False):
            model = echo()
            graph = bot(remembering(model), store if by_label else store.for_tenant(tenant))
            for key in keys:
                state = {"messages": [HumanMessage(f"I am {tenant}.")], "inputs": {"history_key": key}}
                config = {"configurable": {"clew_tenant": tenant} if by_label else {}}
                await graph.ainvoke(state, config)
                assert len(model.texts()) == (1 if by_label else 3)
                assert set(model.texts()) <= {f"I am {tenant}.", f"you said I am {tenant}."}
                prompts += 1
    assert prompts == 2 * 4 * len(keys)


# Storage


@pytest.mark.accept("000-19", "000-20", "000-21", "000-23")
async def test_the_items_are_those_of_the_seed(kind: str, store: BaseStore) -> None:
    history = ChatHistory(store)
    said = [NewMessage(role="user" if n % 2 else "assistant", content=f"m{n}") for n in range(1, 402)]
    for start in range(0, 401, 67):
        assert await history.extend("telegram:9", said[start : start + 67]) is HistoryOutcome.OK
    namespace = ("agent_chat_history", "telegram:9")
    meta = await store.aget(namespace, "__meta__")
    assert meta is not None
    assert meta.value | {"updated_at": ""} == {
        "conversation_key": "telegram:9",
        "last_seq": 401,
        "chunk_size": 200,
        "latest_chunk_key": "chunk:000002",
        "updated_at": "",
        "version": 6,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta.value["updated_at"])
    seqs: list[int] = []
    for index, (start, end) in enumerate([(1, 200), (201, 400), (401, 401)]):
        chunk = await store.aget(namespace, f"chunk:{index:06d}")
        assert chunk is not None
        assert chunk.value.keys() == CHUNK_FIELDS
        assert (chunk.value["chunk_key"], chunk.value["start_seq"], chunk.value["end_seq"]) == (
            chunk.key,
            start,
            end,
        )
        for message in chunk.value["messages"]:
            assert message.keys() == {"seq", "role", "content"}
            assert message["content"] == f"m{message['seq']}"
        seqs += [message["seq"] for message in chunk.value["messages"]]
    assert seqs == list(range(1, 402))
    assert [m.seq for m in await history.tail("telegram:9", 30)] == list(range(372, 402))


@pytest.mark.accept("000-21")
async def test_older_chunks_are_never_rewritten() -> None:
    store = Watched()
    history = ChatHistory(store, chunk_size=4)
    for n in range(10):
        await history.append("k", str(n))
    written = [op.key for op in store.ops if isinstance(op, PutOp) and op.key.startswith("chunk:")]
    assert written == sorted(written)
    assert Counter(written) == {"chunk:000000": 4, "chunk:000001": 4, "chunk:000002": 2}


@pytest.mark.accept("000-22")
async def test_only_what_people_said_is_stored(kind: str, store: BaseStore) -> None:
    @tool
    def clock() -> str:
        """Tell the time."""
        return "half past nine"

    @tool
    async def weather() -> str:
        """Look out of the window."""
        return "rain"

    model = scripted(
        {"type": "tool_call", "name": "clock", "args": {}, "id": "1"},
        {"type": "tool_call", "name": "weather", "args": {}, "id": "2"},
        "late and wet",
    )
    graph = bot(
        remembering(model, tools=[clock, weather], system_prompt="be brief", history_value_field="text"),
        store,
    )
    result = await graph.ainvoke({"messages": [HumanMessage("well?")], "inputs": {"history_key": "k"}})
    assert [m.text for m in result["messages"] if isinstance(m, ToolMessage)] == ["half past nine", "rain"]
    assert model.texts() == ["be brief", "well?", "", "half past nine", "", "rain"]
    assert await stored(store, "k", value_field="text") == [("user", "well?"), ("assistant", "late and wet")]
    chunk = await store.aget(("agent_chat_history", "k"), "chunk:000000")
    assert chunk is not None
    assert chunk.value["messages"] == [
        {"seq": 1, "role": "user", "text": "well?"},
        {"seq": 2, "role": "assistant", "text": "late and wet"},
    ]


@pytest.mark.accept("000-22", "000-30")
async def test_with_tools_elsewhere_in_the_graph_a_turn_is_stored_when_it_is_over(
    kind: str, store: BaseStore
) -> None:
    @tool
    def clock() -> str:
        """Tell the time."""
        return "half past nine"

    model = scripted({"type": "tool_call", "name": "clock", "args": {}, "id": "1"}, "late")
    builder = StateGraph(BotState)
    builder.add_node("agent", remembering(model))
    builder.add_node("tools", ToolNode([clock]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges("agent", tools_condition)
    builder.add_edge("tools", "agent")
    graph = builder.compile(store=store)
    history = ChatHistory(store)
    async for part in graph.astream({"messages": [HumanMessage("well?")], "inputs": {"history_key": "k"}}):
        if "tools" in part:
            await history.append("k", "in between")
    assert model.texts() == ["in between", "well?", "", "half past nine"]
    assert await stored(store, "k") == [("assistant", "in between"), ("user", "well?"), ("assistant", "late")]


@pytest.mark.accept("000-23")
@pytest.mark.parametrize(("size", "messages"), [(200, 2000), (7, 500), (200, 1)])
async def test_a_tail_reads_the_metadata_and_no_more_chunks_than_it_needs(size: int, messages: int) -> None:
    store = Watched()
    history = ChatHistory(store, chunk_size=size)
    await history.extend("k", [NewMessage(role="user", content=str(n)) for n in range(messages)])
    store.ops.clear()
    tail = await history.tail("k", 30)
    assert [m.content for m in tail] == [str(n) for n in range(messages)][-30:]
    keys = [op.key for op in store.ops if isinstance(op, GetOp)]
    assert keys.count("__meta__") == 1
    assert len([key for key in keys if key.startswith("chunk:")]) <= ceil(30 / size) + 1


class Counting:
    """A SQLite database that counts the steps its machine takes for a read."""

    cipher = PLAIN

    def __init__(self, path: str) -> None:
        self._connection = connect(f"file:{path}")
        self._connection.set_progress_handler(self._step, 1)
        self.steps = 0

    def close(self) -> None:
        self._connection.close()

    def _step(self) -> int:
        self.steps += 1
        return 0

    async def read(self, work: Callable[[], Work[T]]) -> T:
        return drive(self._connection, work())

    async def glance(self, work: Callable[[], Work[T]]) -> T:
        return drive(self._connection, work())

    async def write(self, work: Callable[[], Work[T]]) -> T:
        return drive(self._connection, work())


@pytest.mark.fault("B11")
@pytest.mark.accept("000-23")
async def test_a_tail_costs_the_same_however_long_the_history(tmp_path: Path) -> None:
    steps: list[int] = []
    async with open_database(str(tmp_path / "db")) as db:
        histories = HistoryRows(db)
        place = HistoryId(namespace=("h",), key="k")
        for _ in range(2):
            for _ in range(10):
                many = [NewMessage(role="user", content="x" * 200)] * (50 if not steps else 5000)
                await histories.append(place, many, shape=Shape())
            with closing(Counting(str(tmp_path / "db"))) as counting:
                assert len(await HistoryRows(counting).tail(place, limit=30)) == 30
            steps.append(counting.steps)
    assert steps[0] == steps[1], "500 and 50,500 messages"


@pytest.mark.accept("000-24")
async def test_the_prompt_is_trimmed_and_the_history_is_not(
    kind: str, store: BaseStore, metrics: Metrics
) -> None:
    model = echo()
    graph = bot(remembering(model, max_messages=4, metrics=metrics), store)
    for n in range(4):
        await say(graph, str(n))
    assert model.texts() == ["you said 1", "2", "you said 2", "3"]
    assert len(await stored(store)) == 8
    (labels,) = counted(metrics, "agent_history_truncation_events_total").items()
    assert labels[0][1:] == ("telegram", "ok")
    assert labels[1] == 2, "the third prompt had five messages, the fourth five as well"


@pytest.mark.accept("000-25")
async def test_two_identical_exchanges_are_two(kind: str, store: BaseStore) -> None:
    graph = bot(remembering(scripted("ok")), store)
    for _ in range(3):
        await say(graph, "ok")
    assert await stored(store) == [("user", "ok"), ("assistant", "ok")] * 3


@pytest.mark.accept("000-26")
async def test_what_a_checkpointer_carries_is_not_doubled(kind: str, store: BaseStore) -> None:
    model = echo()
    graph = bot(remembering(model), store, checkpoints=True)
    config = {"configurable": {"thread_id": "t"}}
    for n in range(3):
        await graph.ainvoke({"messages": [HumanMessage(str(n))], "inputs": {"history_key": "k"}}, config)
    assert model.texts() == ["0", "you said 0", "1", "you said 1", "2"]
    assert len(await stored(store, "k")) == 6


@pytest.mark.accept("000-26")
async def test_nor_when_the_state_gives_messages_no_ids(kind: str, store: BaseStore) -> None:
    class Plain(TypedDict):
        messages: list[Any]
        inputs: dict[str, Any]

    model = echo()
    builder = StateGraph(Plain)
    builder.add_node("agent", remembering(model))
    builder.add_edge(START, "agent")
    graph = builder.compile(store=store)
    talk: list[Any] = []
    for n in range(3):
        talk.append({"role": "user", "content": str(n)})
        result = await graph.ainvoke({"messages": talk, "inputs": {"history_key": "k"}})
        talk.extend(result["messages"])
    assert model.texts() == ["0", "you said 0", "1", "you said 1", "2"]
    assert len(await stored(store, "k")) == 6


@pytest.mark.accept("000-27")
async def test_the_prompt_starts_at_the_latest_reset_wherever_it_was_said(
    kind: str, store: BaseStore
) -> None:
    model = echo()
    graph = bot(remembering(model, reset_command="/reset"), store)
    for text in ("a", "/reset", "b"):
        await say(graph, text)
    assert model.texts() == ["/reset", "you said /reset", "b"]
    await say(graph, " /reset ")
    assert model.texts() == [" /reset "]
    await say(graph, "c")
    assert model.texts() == [" /reset ", "you said  /reset ", "c"]
    assert len(await stored(store)) == 10
    assert await ChatHistory(store).reset("telegram:1", "/reset")
    await say(graph, "d")
    assert model.texts() == ["/reset", "d"]


@pytest.mark.accept("000-28", "000-30")
async def test_callbacks_at_once_lose_nothing(kind: str, store: BaseStore) -> None:
    graph = bot(remembering(echo()), store)
    answers = await asyncio.gather(*(say(graph, f"q{n}") for n in range(24)))
    assert {answer.response_metadata["chat_history"] for answer in answers} == {"ok"}
    messages = [m async for m in ChatHistory(store).transcript("telegram:1")]
    assert [m.seq for m in messages] == list(range(1, 49))
    assert_pairs(messages, {f"q{n}" for n in range(24)})


def assert_pairs(messages: Sequence[HistoryMessage], asked: set[str]) -> None:
    """Every question once, each with its answer right behind it."""
    questions = messages[::2]
    assert {m.content for m in questions} == asked
    assert len(questions) == len(asked)
    for question, answer in zip(questions, messages[1::2], strict=True):
        assert (question.role, answer.role) == ("user", "assistant")
        assert answer.content == f"you said {question.content}"


async def process(*arguments: str) -> list[str]:
    """Run history_process; its lines."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.acceptance.history_process",
        *arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},  # noqa: TID251 - a child inherits what we have
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    return out.decode().split()


@pytest.mark.fault("C7")
@ours
@pytest.mark.accept("000-28", "000-30")
async def test_thirty_two_writers_in_two_processes_on_one_key(kind: str, where: str) -> None:
    async with open_store(kind, where) as store:  # the file exists and is migrated before they race for it
        told = await asyncio.gather(
            *(process("talk", where, "telegram:7", name, "16") for name in ("a", "b"))
        )
        messages = [m async for m in ChatHistory(store).transcript("telegram:7")]
    acknowledged = {line for lines in told for line in lines}
    assert len(acknowledged) == 32
    assert [m.seq for m in messages] == list(range(1, 65))
    assert_pairs(messages, acknowledged)


@pytest.mark.parametrize("kind", ["AsyncSqliteStore", "AsyncPostgresStore"], indirect=True)
@pytest.mark.parametrize("turns", [15, pytest.param(160, marks=pytest.mark.long)])
@pytest.mark.accept("000-4", "000-28")
async def test_a_packaged_store_in_two_processes_keeps_every_turn_it_reported(
    kind: str, where: str, turns: int
) -> None:
    async with open_store(kind, where) as store:
        told = await asyncio.gather(
            *(process("packaged", kind, where, "telegram:7", name, str(turns)) for name in ("a", "b"))
        )
        messages = [m async for m in ChatHistory(store).transcript("telegram:7")]
    said = dict(line.split("=") for lines in told for line in lines)
    assert len(said) == 2 * turns
    acknowledged = {turn for turn, outcome in said.items() if outcome == "ok"}
    assert len(acknowledged) > turns  # else it proves little
    assert [m.seq for m in messages] == list(range(1, len(messages) + 1))
    stored = {m.content for m in messages[::2]}
    assert acknowledged <= stored
    assert_pairs(messages, stored)


class Late(InMemoryStore):
    """A store with another process in it, which read everything before an append and writes it back afterwards."""

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        if not any(isinstance(op, PutOp) and op.key.startswith("chunk:") for op in listed):
            return await super().abatch(listed)
        path = next(op.namespace for op in listed if isinstance(op, PutOp))
        names = [op.key for op in listed if isinstance(op, PutOp) and op.namespace == path]
        old = await super().abatch([GetOp(path, name) for name in names])
        self.before = [
            PutOp(path, name, item.value if isinstance(item, Item) else None)
            for name, item in zip(names, old, strict=True)
        ]
        return await super().abatch(listed)

    async def write_back(self) -> None:
        await super().abatch(self.before)


@pytest.mark.accept("000-28")
async def test_a_turn_that_a_late_writer_put_its_own_state_over_is_not_lost() -> None:
    store = Late()
    graph = bot(remembering(echo()), store)
    for text in ("one", "two", "three"):
        assert (await say(graph, text)).response_metadata["chat_history"] == "ok"
    await store.write_back()  # long after it was verified
    summary = await ChatHistory(store).summary("telegram:1")
    assert summary is not None
    assert summary.last_seq == 6
    expected = [line for text in ("one", "two", "three") for line in (text, f"you said {text}")]
    assert [text for _, text in await stored(store)] == expected
    await say(graph, "four")
    assert [text for _, text in await stored(store)] == [*expected, "four", "you said four"]
    meta = await store.aget(("agent_chat_history", "telegram:1"), "__meta__")
    assert meta is not None
    assert meta.value["last_seq"] == 8


class Torn(InMemoryStore):
    """A store in which another process writes between two reads of ours: `theirs`, before a chunk is read."""

    theirs: Sequence[PutOp] = ()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        if any(isinstance(op, GetOp) and op.key.startswith("chunk:") for op in listed):
            theirs, self.theirs = self.theirs, ()
            await super().abatch(theirs)
        return await super().abatch(listed)


@pytest.mark.accept("000-28")
async def test_what_another_process_writes_between_two_reads_is_neither_lost_nor_doubled() -> None:
    async def everything(store: InMemoryStore) -> list[PutOp]:
        found = await store.asearch(("agent_chat_history",), limit=100)
        return [PutOp(item.namespace, item.key, item.value) for item in found]

    ours, theirs = Torn(), Torn()
    await ChatHistory(ours).append("k", "first")
    await theirs.abatch(await everything(ours))
    # Both go on from the same state, and write under the same number.
    await ChatHistory(theirs).append("k", "of the other process")
    await ChatHistory(ours).append("k", "of ours")
    ours.theirs = await everything(theirs)
    await ChatHistory(ours).append("k", "last")
    texts = [text for _, text in await stored(ours, "k")]
    assert sorted(texts) == sorted(["first", "of the other process", "of ours", "last"])


async def test_turns_leave_no_items_of_their_own_behind_once_they_are_settled() -> None:
    store = InMemoryStore()
    now = datetime(2026, 1, 1, tzinfo=UTC)
    history = ChatHistory(store, now=lambda: now)
    for n in range(5):
        assert await history.append("k", f"m{n}", id=str(n))
        now += timedelta(seconds=40)
    assert len(await store.asearch(("agent_chat_history", "k", "__turns__"), limit=100)) == 2
    assert await history.append("k", "m4", id="4")  # it is there
    assert [m.content for m in await history.tail("k", 10)] == [f"m{n}" for n in range(5)]


@pytest.mark.fault("C7")
@ours
@pytest.mark.long
@pytest.mark.accept("000-28")
async def test_ten_thousand_appends_from_two_processes(kind: str, where: str) -> None:
    """FAULTS C7."""
    async with open_store(kind, where) as store:
        told = await asyncio.gather(*(process("append", where, "k", name, "5000") for name in ("a", "b")))
        messages = [m async for m in ChatHistory(store).transcript("k")]
    acknowledged = [line for lines in told for line in lines]
    assert len(acknowledged) == 10_000
    assert [m.seq for m in messages] == list(range(1, 10_001))
    assert sorted(m.content for m in messages) == sorted(acknowledged)


@pytest.mark.fault("A1")
@pytest.mark.accept("000-28")
@pytest.mark.parametrize("kills", [15, pytest.param(200, marks=pytest.mark.long)])
async def test_kills_lose_no_turn_and_tear_nothing(tmp_path: Path, kills: int) -> None:
    seed = random.randrange(2**32)
    path, acks = tmp_path / "db", tmp_path / "acks"
    await process("kills", str(path), str(acks), str(kills), str(seed))
    acknowledged = [line.split() for line in acks.read_text().splitlines()]
    assert len(acknowledged) > kills, f"seed {seed}: too few turns to prove anything"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    async with open_store("clew sqlite", str(path)) as store:
        history = ChatHistory(store)
        for name in {name for name, _ in acknowledged}:
            messages = [m async for m in history.transcript(name)]
            assert [m.seq for m in messages] == list(range(1, len(messages) + 1)), f"seed {seed}"
            assert {said for of, said in acknowledged if of == name} <= {m.content for m in messages[::2]}
            assert_pairs(messages, {m.content for m in messages[::2]})
            meta = await store.aget(("agent_chat_history", name), "__meta__")
            assert meta is not None
            assert meta.value["last_seq"] == len(messages)
            last = await store.aget(("agent_chat_history", name), meta.value["latest_chunk_key"])
            assert last is not None
            assert last.value["messages"][-1]["seq"] == last.value["end_seq"] == len(messages)


async def test_a_message_delivered_again_is_answered_as_if_it_were_the_last(
    kind: str, store: BaseStore
) -> None:
    model = echo()
    graph = bot(remembering(model), store)
    for text in ("a", "b", "a"):
        await graph.ainvoke(
            {"messages": [HumanMessage(text, id=text)], "inputs": {"history_key": "telegram:1"}}
        )
    assert model.texts() == ["a"]
    assert [content for _, content in await stored(store)] == [
        "a",
        "you said a",
        "b",
        "you said b",
        "you said a",
    ]


@ours
async def test_a_run_that_was_cut_off_answers_in_the_place_of_its_first_answer(
    kind: str, store: BaseStore
) -> None:
    """The turn was stored, then the process died before LangGraph's checkpoint: the run is repeated."""
    model = scripted("first", "second", "third")
    graph = bot(remembering(model), store, checkpoints=True)
    graph.checkpointer = Dying()
    config = {"configurable": {"thread_id": "t"}}
    with pytest.raises(ConnectionError):
        await graph.ainvoke(
            {"messages": [HumanMessage("q")], "inputs": {"history_key": "k"}}, config, durability="sync"
        )
    assert await stored(store, "k") == [("user", "q"), ("assistant", "first")]
    graph.checkpointer.dead = False
    result = await graph.ainvoke(None, config, durability="sync")
    assert result["messages"][-1].text == "second"
    assert model.texts() == ["q"], "asked again as if for the first time"
    assert await stored(store, "k") == [("user", "q"), ("assistant", "second")]
    await graph.ainvoke({"messages": [HumanMessage("and?")], "inputs": {"history_key": "k"}}, config)
    assert model.texts() == ["q", "second", "and?"]


class Dying(InMemorySaver):
    """A checkpointer that keeps the input and dies before it keeps anything else."""

    dead = True

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.dead:
            raise ConnectionError
        await super().aput_writes(config, writes, task_id, task_path)

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.dead and metadata["source"] == "loop" and metadata["step"] > 0:
            raise ConnectionError
        return await super().aput(config, checkpoint, metadata, new_versions)


# When the store fails


class Overwriting(InMemoryStore):
    """A store with another writer in it, who puts its own message over every one of ours, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.writes = 0

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        listed = list(ops)
        results = await super().abatch(listed)
        if any(isinstance(op, PutOp) and op.key.startswith("chunk:") for op in listed):
            self.writes += 1
            if self.writes <= self.times:
                theirs = {"messages": [{"seq": 1, "role": "user", "content": "theirs"}]}
                puts = [op for op in listed if isinstance(op, PutOp) and op.key.startswith("chunk:")]
                await super().abatch(
                    [PutOp(put.namespace, put.key, {**(put.value or {}), **theirs}) for put in puts]
                )
        return results


@pytest.mark.accept("000-29")
@pytest.mark.parametrize(
    ("overwritten", "written"), [(0, True), (1, True), (3, True), (4, False), (9, False)]
)
async def test_a_conflict_is_retried_three_times_and_then_told(
    overwritten: int, written: bool, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    store = Overwriting(overwritten)
    history = ChatHistory(store, metrics=metrics, sleep=sleep, jitter=lambda: 0.5)
    outcome = await history.extend("wecom_dm:u", [NewMessage(role="user", content="hi")])
    assert outcome is (HistoryOutcome.OK if written else HistoryOutcome.CONFLICT)
    assert store.writes == min(overwritten + 1, 4)
    assert waits == [pytest.approx(wait * 1.25) for wait in (0.025, 0.05, 0.1)][: min(overwritten, 3)]
    failures = {} if written else {("memory", "wecom_dm", "conflict"): 1.0}
    assert counted(metrics, "agent_history_store_write_failures_total") == failures
    outcomes = counted(metrics, "agent_history_store_write_latency_ms_count")
    assert outcomes == {("memory", "wecom_dm", "ok" if written else "conflict"): 1.0}
    said = [record.levelname for record in caplog.records if record.name.startswith("clew.")]
    assert said == ([] if written else ["WARNING"])


@pytest.mark.accept("000-29")
async def test_the_answer_is_given_though_it_could_not_be_stored(metrics: Metrics) -> None:
    graph = bot(remembering(echo(), metrics=metrics), Overwriting(99))
    answer = await say(graph, "hi")
    assert answer.text == "you said hi"
    assert answer.response_metadata["chat_history"] == "conflict"


@pytest.mark.accept("000-31")
async def test_a_history_that_cannot_be_read_costs_the_memory_not_the_answer(
    metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    store = Broken(writes=False)
    model = echo()
    graph = bot(remembering(model, metrics=metrics), store)
    answer = await say(graph, SECRET, key="telegram:5")
    assert answer.text == f"you said {SECRET}"
    assert model.texts() == [SECRET]
    assert counted(metrics, "agent_history_store_read_failures_total") == {
        ("memory", "telegram", "fallback"): 1.0
    }
    record = next(record for record in caplog.records if record.levelname == "WARNING")
    assert "agent_chat_history" in record.getMessage()
    assert "telegram:5" in record.getMessage()
    assert SECRET not in caplog.text


class Gone:
    """Histories of a database that went away."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def fail(*_: Any, **__: Any) -> Any:
            raise Unavailable("the database did not answer within 8 seconds")

        return fail


@ours
@pytest.mark.accept("000-31")
async def test_so_it_is_when_our_database_is_gone(
    kind: str, store: BaseStore, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(store, GraphStore)
    gone: Histories = Gone()  # type: ignore[assignment]
    broken = GraphStore(store.items, gone, backend=store.backend)
    answer = await say(bot(remembering(echo(), metrics=metrics), broken), SECRET)
    assert answer.response_metadata["chat_history"] == "fallback"
    labels = (store.backend, "telegram", "fallback")
    assert counted(metrics, "agent_history_store_read_failures_total") == {labels: 1.0}
    assert counted(metrics, "agent_history_store_write_failures_total") == {labels: 1.0}
    assert counted(metrics, "agent_history_store_read_latency_ms_count") == {labels: 1.0}
    assert SECRET not in caplog.text


@pytest.mark.accept("000-32")
@pytest.mark.parametrize("broken", [False, True])
async def test_no_log_line_holds_what_was_said(broken: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    store = Broken() if broken else InMemoryStore()
    graph = bot(remembering(echo(), max_messages=1, reset_command="/x"), store)
    for key in ("telegram:1", None, "bad key"):
        await say(graph, SECRET, key=key)
    lines = [json.dumps(record.__dict__, default=repr) for record in caplog.records]
    assert len(lines) >= 2
    ours = [line for line in lines if '"name": "clew' in line]
    assert ours
    assert not [line for line in ours if SECRET in line]
    assert SECRET not in "\n".join(record.getMessage() for record in caplog.records)


@ours
@pytest.mark.accept("000-33")
async def test_reads_and_writes_are_timed_by_backend_channel_and_outcome(
    kind: str, store: BaseStore, metrics: Metrics
) -> None:
    graph = bot(remembering(echo(), metrics=metrics), store)
    channels = {
        "telegram:1": "telegram",
        "wecom_cs:k:u": "wecom_cs",
        "wecom_aibot:single:u": "wecom_aibot",
        "wecom_dm:u": "wecom_dm",
        "vip:1": "other",
    }
    for key in channels:
        await say(graph, "hi", key=key)
    backend = kind.split()[1]
    expected = {(backend, channel, "ok"): 1.0 for channel in channels.values()}
    for name in ("agent_history_store_read_latency_ms", "agent_history_store_write_latency_ms"):
        assert counted(metrics, f"{name}_count") == expected
    assert b"# TYPE agent_history_store_read_latency_ms histogram" in metrics.render()


@pytest.mark.accept("000-34")
async def test_a_message_from_outside_a_turn_is_seen_by_the_next(kind: str, store: BaseStore) -> None:
    model = echo()
    graph = bot(remembering(model), store)
    await say(graph, "hi")
    history = ChatHistory(store)
    assert await history.append("telegram:1", "Your parcel has arrived.", id="parcel-7") is True
    assert await history.append("telegram:1", "Your parcel has arrived.", id="parcel-7") is True
    await say(graph, "what?")
    assert model.texts() == ["hi", "you said hi", "Your parcel has arrived.", "what?"]
    assert (await stored(store))[2] == ("assistant", "Your parcel has arrived.")


@pytest.mark.accept("000-34")
async def test_a_message_that_cannot_be_written_says_so(metrics: Metrics) -> None:
    async def at_once(_: float) -> None:
        return None

    history = ChatHistory(Broken(reads=False), metrics=metrics, sleep=at_once)
    assert await history.append("telegram:1", "Your parcel has arrived.") is False
    with pytest.raises(Invalid):
        await history.append("not a key", "hi")


# Reading a conversation


async def test_a_transcript_is_exported_and_forgotten(kind: str, store: BaseStore) -> None:
    history = ChatHistory(store, chunk_size=50)
    await history.extend("k", [NewMessage(role="user", content=f"{n} \u4f60\u597d\n") for n in range(1234)])
    lines = [json.loads(line) async for line in history.export("k")]
    assert lines == [{"seq": n + 1, "role": "user", "content": f"{n} \u4f60\u597d\n"} for n in range(1234)]
    assert [m.seq async for m in history.transcript("k", after=1230)] == [1231, 1232, 1233, 1234]
    summary = await history.summary("k")
    assert summary is not None
    assert summary.last_seq == 1234
    assert abs((datetime.now(UTC) - summary.updated_at).total_seconds()) < 60
    assert await history.forget("k") is True
    assert await history.forget("k") is False
    assert [line async for line in history.export("k")] == []
    assert await store.asearch(("agent_chat_history",)) == []


# The node by itself


async def test_tokens_are_streamed(kind: str, store: BaseStore) -> None:
    graph = bot(remembering(echo()), store)
    state: Any = {"messages": [HumanMessage("one two")], "inputs": {"history_key": "k"}}
    words = [part[0].text async for part in graph.astream(state, stream_mode="messages")]
    assert [word for word in words if word] == ["you", " said", " one", " two"]


async def test_a_graph_run_without_await_remembers_too(kind: str, store: BaseStore) -> None:
    model = echo()
    graph = bot(remembering(model), store)
    state = {"messages": [HumanMessage("b")], "inputs": {"history_key": "k"}}
    await asyncio.to_thread(graph.invoke, state | {"messages": [HumanMessage("a")]})
    await asyncio.to_thread(graph.invoke, state)
    if kind in OURS:
        assert model.texts() == ["a", "you said a", "b"]
        with pytest.raises(asyncio.InvalidStateError):
            graph.invoke(state)
    elif kind == "InMemoryStore":
        graph.invoke(state | {"messages": [HumanMessage("c")]})
        assert model.texts() == ["a", "you said a", "b", "you said b", "c"]


async def test_a_result_whose_call_was_cut_off_is_left_out() -> None:
    @tool
    def clock() -> str:
        """Tell the time."""
        return "nine"

    model = scripted({"type": "tool_call", "name": "clock", "args": {}, "id": "1"}, "nine", "bye")
    graph = bot(AgentNode(model, tools=[clock], max_messages=3), None, checkpoints=True)
    config = {"configurable": {"thread_id": "t"}}
    await graph.ainvoke({"messages": [HumanMessage("time?")]}, config)
    await graph.ainvoke({"messages": [HumanMessage("bye")]}, config)
    assert model.texts() == ["nine", "bye"]


async def test_a_model_that_never_stops_asking_is_stopped() -> None:
    @tool
    def clock() -> str:
        """Tell the time."""
        return "nine"

    model = scripted({"type": "tool_call", "name": "clock", "args": {}, "id": "1"})
    with pytest.raises(Exception, match="more than 3 times"):
        await say(bot(AgentNode(model, tools=[clock], max_tool_rounds=3), None), "time?")
    assert len(model.prompts) == 4


def test_what_makes_no_sense_is_refused_at_once() -> None:
    bad: list[Mapping[str, Any]] = [
        {"max_messages": 0},
        {"history_key_template": "{{inputs.a}}-{{inputs.b}}"},
    ]
    for options in bad:
        with pytest.raises(Invalid):
            AgentNode(echo(), **options)
    more: Mapping[str, Any]
    for more in (
        {"chunk_size": 0},
        {"value_field": "seq"},
        {"namespace": ["a", ""]},
        {"namespace": ["langgraph"]},
    ):
        with pytest.raises(Invalid):
            ChatHistory(InMemoryStore(), **more)
    assert len(DEFAULT_CANDIDATES) == 8
