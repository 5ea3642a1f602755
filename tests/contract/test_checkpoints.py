"""The checkpointer on every database: LangGraph's conformance suite, and the promises LangGraph does not check."""

import asyncio
import itertools
import threading
import uuid
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.test_utils import generate_checkpoint, generate_metadata
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, Overwrite, interrupt

from clew.checkpointer.saver import Checkpointer
from clew.domain.errors import Corrupt, Invalid, InvalidState, LostLease, NotFound
from clew.domain.events import RoundFinished
from clew.domain.thread import Status
from clew.ports.checkpoints import ChannelValue, ParentGone, StoredCheckpoint, Superstep, TaskWrites, Write
from clew.ports.threads import Store
from clew.server.database import open_checkpoints
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.work import Database
from tests.chains import chain
from tests.databases import SHARED, open_database, query
from tests.samples import NOW, opened, recorded

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rows(database: Database) -> CheckpointRows:
    return open_checkpoints(database)


@pytest.fixture
async def saver(rows: CheckpointRows) -> Checkpointer:
    return Checkpointer(rows)


def on(thread_id: str, **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **more}}


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer {len(state['messages'])}")]}


def chat(saver: Checkpointer) -> CompiledStateGraph[Any, Any, Any, Any]:
    return chain(MessagesState, answer).compile(checkpointer=saver)


async def say(graph: Any, text: str, config: RunnableConfig) -> None:
    await graph.ainvoke({"messages": [HumanMessage(text)]}, config, durability="sync")


async def texts(graph: Any, config: RunnableConfig) -> list[str]:
    return [message.text for message in (await graph.aget_state(config)).values["messages"]]


async def listed(saver: Checkpointer, config: RunnableConfig | None, **more: Any) -> list[CheckpointTuple]:
    return [found async for found in saver.alist(config, **more)]


async def count(db: Database, table: str, thread_id: str) -> int:
    rows = await query(db, f"SELECT count(*) FROM {table} WHERE thread_id = $1", thread_id)
    return int(rows[0][0])


@pytest.mark.accept("001-30", "001-31")
async def test_every_capability_langgraph_knows_is_there(rows: CheckpointRows) -> None:
    async def make() -> AsyncGenerator[Checkpointer]:
        yield Checkpointer(rows)

    report = await validate(checkpointer_test(name="Checkpointer")(make))
    failures = [failure for result in report.results.values() for failure in result.failures or ()]
    assert not failures
    assert len(report.results) == 8
    assert all(result.passed for result in report.results.values())


async def test_a_second_checkpointer_reads_what_the_first_wrote(
    saver: Checkpointer, rows: CheckpointRows
) -> None:
    for number in range(5):
        await say(chat(saver), f"question {number}", on("t"))
    cold = Checkpointer(rows)
    assert await texts(chat(cold), on("t")) == await texts(chat(saver), on("t"))
    assert len(await texts(chat(cold), on("t"))) == 10


async def test_two_who_write_in_turn_never_see_an_old_state(
    saver: Checkpointer, rows: CheckpointRows
) -> None:
    graphs = [chat(saver), chat(Checkpointer(rows))]
    for number in range(8):
        await say(graphs[number % 2], f"question {number}", on("t"))
    expected = [text for number in range(8) for text in (f"question {number}", f"answer {2 * number + 1}")]
    assert await texts(graphs[0], on("t")) == expected
    assert await texts(graphs[1], on("t")) == expected


async def test_two_branches_of_one_checkpoint_stay_apart(saver: Checkpointer) -> None:
    graph = chat(saver)
    await say(graph, "root", on("t"))
    root = (await graph.aget_state(on("t"))).config
    heads = []
    for branch in ("left", "right"):
        config = root
        for turn in range(3):
            config = await graph.aupdate_state(config, {"messages": [HumanMessage(f"{branch} {turn}")]})
        heads.append(config)
    for branch, head in zip(("left", "right"), heads, strict=True):
        assert (await texts(graph, head))[2:] == [f"{branch} {turn}" for turn in range(3)]


async def test_messages_are_replaced_and_removed_as_in_any_saver(
    saver: Checkpointer, rows: CheckpointRows
) -> None:
    graph = chat(saver)
    ids = [str(number) for number in range(30)]
    await graph.aupdate_state(on("t"), {"messages": [HumanMessage(f"m{n}", id=n) for n in ids]})
    await graph.aupdate_state(on("t"), {"messages": [HumanMessage("first, again", id="0")]})
    await graph.aupdate_state(on("t"), {"messages": [RemoveMessage("7"), RemoveMessage("29")]})
    await graph.aupdate_state(on("t"), {"messages": [HumanMessage("last")]})
    expected = ["first, again", *(f"m{n}" for n in ids[1:7]), *(f"m{n}" for n in ids[8:29]), "last"]
    assert await texts(graph, on("t")) == expected
    assert await texts(chat(Checkpointer(rows)), on("t")) == expected


async def test_the_newest_is_what_was_stored_last_whatever_its_id_says(
    saver: Checkpointer, rows: CheckpointRows
) -> None:
    # Ids made after the clock was set back sort before the older ones.
    ids = ["1f1e1365-0000-6000-8000-000000000000", "1f1e1000-0000-6000-8000-000000000000"]
    parent = on("t")
    for number, checkpoint_id in enumerate(ids):
        checkpoint = generate_checkpoint(checkpoint_id=checkpoint_id)
        parent = await saver.aput(parent, checkpoint, generate_metadata(step=number), {})
    for reader in (saver, Checkpointer(rows)):
        newest = await reader.aget_tuple(on("t"))
        assert newest is not None
        assert newest.checkpoint["id"] == ids[1]
        assert [found.checkpoint["id"] for found in await listed(reader, on("t"))] == ids[::-1]
        older = await listed(reader, on("t"), before=on("t", checkpoint_id=ids[1]))
        assert [found.checkpoint["id"] for found in older] == [ids[0]]


async def test_a_checkpoint_stored_again_keeps_its_place(saver: Checkpointer) -> None:
    first = generate_checkpoint()
    stored = await saver.aput(on("t"), first, generate_metadata(step=0), {})
    second = generate_checkpoint()
    await saver.aput(stored, second, generate_metadata(step=1), {})
    await saver.aput(on("t"), first, generate_metadata(step=0, again=True), {})
    found = await listed(saver, on("t"))
    assert [tuple_.checkpoint["id"] for tuple_ in found] == [second["id"], first["id"]]
    assert found[1].metadata.get("again") is True


async def test_what_a_subgraph_stored_early_is_not_before_its_parent(saver: Checkpointer) -> None:
    parent, child = generate_checkpoint(), generate_checkpoint()
    await saver.aput(on("t"), generate_checkpoint(), generate_metadata(step=0), {})
    # LangGraph stores in the background, and this order happens.
    inner: Any = {**generate_metadata(step=0), "parents": {"": parent["id"]}}
    await saver.aput(on("t", checkpoint_ns="child:1"), child, inner, {})
    await saver.aput(on("t"), parent, generate_metadata(step=1), {})
    later = await saver.aput(on("t"), generate_checkpoint(), generate_metadata(step=2), {})
    in_child = on("t", checkpoint_ns="child:1")
    assert not await listed(saver, in_child, before=on("t", checkpoint_id=parent["id"]))
    assert len(await listed(saver, in_child, before=later, limit=1)) == 1


@pytest.mark.parametrize("key", ["source", "x') OR 1=1 --", '"', "$.a", "a.b", ""])
async def test_a_filter_key_is_only_a_key(saver: Checkpointer, key: str) -> None:
    for value in ("yes", "no", "yes"):
        metadata: Any = {**generate_metadata(), key: value}
        await saver.aput(on("t"), generate_checkpoint(), metadata, {})
    assert len(await listed(saver, on("t"), filter={key: "yes"})) == 2
    assert len(await listed(saver, on("t"), filter={key: "yes"}, limit=1)) == 1
    assert not await listed(saver, on("t"), filter={key: "maybe"})


async def test_listing_goes_on_over_many_pages(saver: Checkpointer) -> None:
    parent = on("t")
    for step in range(150):
        parent = await saver.aput(parent, generate_checkpoint(), generate_metadata(step=step), {})
    assert [found.metadata["step"] for found in await listed(saver, on("t"))] == list(range(149, -1, -1))
    assert [found.metadata["step"] for found in await listed(saver, on("t"), limit=70)] == list(
        range(149, 79, -1)
    )
    odd = await listed(saver, on("t"), filter={"step": 3})
    assert [found.metadata["step"] for found in odd] == [3]
    assert len(await listed(saver, None, limit=5)) == 5


class TestGuards:
    async def test_a_run_that_lost_its_thread_writes_nothing(self, saver: Checkpointer, store: Store) -> None:
        await store.commit(opened("t"))
        (lease,) = await store.claim("me", lease=timedelta(seconds=30), limit=1)
        mine = on("t", clew_fence=lease.fence)
        await say(chat(saver), "hello", mine)
        before = await texts(chat(saver), on("t"))
        with pytest.raises(LostLease):
            await say(chat(saver), "too late", on("t", clew_fence=lease.fence - 1))
        found = await saver.aget_tuple(on("t"))
        assert found is not None
        stale = on("t", clew_fence=0, checkpoint_id=found.checkpoint["id"])
        with pytest.raises(LostLease):
            await saver.aput_writes(stale, [("messages", "x")], str(uuid.uuid4()))
        assert await texts(chat(saver), on("t")) == before
        assert "clew_fence" not in found.metadata

    async def test_the_fence_reaches_the_checkpoints_of_subgraphs(
        self, saver: Checkpointer, store: Store
    ) -> None:
        await store.commit(opened("t"))
        (lease,) = await store.claim("me", lease=timedelta(seconds=30), limit=1)
        inner = StateGraph(MessagesState)

        async def lose_the_thread(state: MessagesState) -> dict[str, Any]:
            await store.release("me", lease)
            await store.claim("somebody else", lease=timedelta(seconds=30), limit=1)
            return {"messages": [AIMessage("from a run that is no longer mine")]}

        inner.add_node("lose", lose_the_thread)
        inner.add_edge(START, "lose")
        outer = StateGraph(MessagesState)
        outer.add_node("inner", inner.compile())
        outer.add_edge(START, "inner")
        graph = outer.compile(checkpointer=saver)
        with pytest.raises(LostLease):
            await say(graph, "hello", on("t", clew_fence=lease.fence))
        assert await texts(graph, on("t")) == ["hello"]

    async def test_nothing_is_written_under_a_deleted_thread(
        self, saver: Checkpointer, store: Store, database: Database
    ) -> None:
        await store.commit(opened("t"))
        await say(chat(saver), "hello", on("t"))
        found = await saver.aget_tuple(on("t"))
        assert found is not None
        await store.tombstone("t", now=NOW)
        while await store.purge():
            pass
        for write in (
            saver.aput(found.config, generate_checkpoint(), generate_metadata(), {}),
            saver.aput_writes(found.config, [("messages", "x")], str(uuid.uuid4())),
            saver.acopy_thread("other", "t"),
            say(chat(saver), "again", on("t")),
        ):
            with pytest.raises(NotFound):
                await write
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            assert await count(database, table, "t") == 0

    async def test_a_fence_without_a_thread_is_refused(self, saver: Checkpointer) -> None:
        with pytest.raises(NotFound):
            await say(chat(saver), "hello", on("nobody", clew_fence=1))


class TestPort:
    """What the rows promise by themselves."""

    @staticmethod
    def step(
        checkpoint_id: str, parent_id: str | None = None, *, builds_on_parent: bool = False, **apart: str
    ) -> Superstep:
        return Superstep(
            checkpoint=StoredCheckpoint(
                thread_id="t",
                ns="",
                id=checkpoint_id,
                parent_id=parent_id,
                body="{}",
                metadata="{}",
                apart=apart,
            ),
            values=[
                ChannelValue(channel=channel, version=version, kind="k", data=b"x", root=version)
                for channel, version in apart.items()
            ],
            builds_on_parent=builds_on_parent,
        )

    async def test_steps_are_stored_all_or_none(self, rows: CheckpointRows) -> None:
        await rows.put([self.step("a"), self.step("b", "a", builds_on_parent=True)])
        with pytest.raises(ParentGone):
            await rows.put([self.step("c", m="1"), self.step("d", "nobody", builds_on_parent=True)])
        assert [found.id for found in await rows.find("t", limit=9)] == ["b", "a"]
        assert not await rows.values_of("t", "", {"m": ["1"]})

    async def test_what_tasks_wrote_is_stored_with_the_step_that_takes_it_over_or_not_at_all(
        self, rows: CheckpointRows
    ) -> None:
        await rows.put([self.step("a")])
        wrote = TaskWrites(checkpoint_id="a", task_id="one", writes=[Write(0, "m", "k", b"x", "")])
        with pytest.raises(ParentGone):
            await rows.put([self.step("b", "nobody", builds_on_parent=True)], writes=[wrote])
        assert await rows.writes_of("t", "", ["a"]) == []
        await rows.put([self.step("b", "a", builds_on_parent=True)], writes=[wrote])
        assert await rows.writes_of("t", "", ["a"]) == [wrote]

    async def test_a_value_that_is_there_stays(self, rows: CheckpointRows) -> None:
        await rows.put([self.step("a", m="1")])
        other = ChannelValue(channel="m", version="1", kind="other", data=b"y")
        await rows.put([Superstep(checkpoint=self.step("b").checkpoint, values=[other])])
        (value,) = await rows.values_of("t", "", {"m": ["1"]})
        assert (value.kind, value.data) == ("k", b"x")

    async def test_of_two_writes_the_first_stays_but_of_special_ones_the_last(
        self, rows: CheckpointRows
    ) -> None:
        await rows.put([self.step("a")])
        first = [Write(0, "x", "k", b"first", "p"), Write(-1, "__error__", "k", b"first", "p")]
        again = [
            Write(0, "x", "k", b"again", "q"),
            Write(1, "y", "k", b"", "q"),
            Write(-1, "__error__", "k", b"again", "q"),
        ]
        for writes in (first, again):
            await rows.put_writes("t", "", TaskWrites(checkpoint_id="a", task_id="task", writes=writes))
        found = await rows.get("t", "")
        assert found is not None
        assert found.writes == [
            TaskWrites(checkpoint_id="a", task_id="task", writes=[first[0], again[2], again[1]]),
        ]

    async def test_what_is_held_is_left_out(self, rows: CheckpointRows) -> None:
        chain = [
            ChannelValue(
                channel="m",
                version=str(n),
                kind="k",
                data=b"x",
                base=str(n - 1) if n > 1 else None,
                root="1",
            )
            for n in range(1, 6)
        ]
        await rows.put([Superstep(checkpoint=self.step("a").checkpoint, values=chain)])
        every = await rows.values_of("t", "", {"m": ["5"]})
        assert sorted(value.version for value in every) == ["1", "2", "3", "4", "5"]
        some = await rows.values_of("t", "", {"m": ["5"]}, held={"m": "3"})
        assert sorted(value.version for value in some) == ["4", "5"]


class TestDeletion:
    async def test_pruned_threads_keep_their_newest_state(
        self, saver: Checkpointer, rows: CheckpointRows, database: Database
    ) -> None:
        for number in range(20):
            await say(chat(saver), f"question {number}", on("t"))
        expected = await texts(chat(saver), on("t"))
        await saver.aprune(["t"])
        assert len(await listed(saver, on("t"))) == 1
        for reader in (saver, Checkpointer(rows)):
            assert await texts(chat(reader), on("t")) == expected
        assert await count(database, "checkpoint_writes", "t") == 0
        await say(chat(saver), "and on", on("t"))
        assert await texts(chat(Checkpointer(rows)), on("t")) == [*expected, "and on", "answer 41"]

    async def test_a_pruned_thread_goes_on_from_a_checkpoint_that_is_gone(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        graph = chat(saver)
        for number in range(20):
            await say(graph, f"question {number}", on("t"))
        history = [state async for state in graph.aget_state_history(on("t"))]
        old = await saver.aget_tuple(history[10].config)
        assert old is not None
        await Checkpointer(rows).aprune(["t"])
        checkpoint = generate_checkpoint(
            channel_values=old.checkpoint["channel_values"],
            channel_versions=old.checkpoint["channel_versions"],
        )
        stored = await saver.aput(old.config, checkpoint, generate_metadata(), {})
        assert await texts(chat(Checkpointer(rows)), stored) == await texts(graph, stored)

    async def test_deleting_a_run_leaves_what_later_runs_build_on(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        graph = chat(saver)
        for run in ("one", "two", "three"):
            await graph.ainvoke(
                {"messages": [HumanMessage(run)]}, {**on("t"), "metadata": {"run_id": run}}, durability="sync"
            )
        expected = await texts(graph, on("t"))
        await saver.adelete_for_runs(["one", "two"])
        assert {found.metadata.get("run_id") for found in await listed(saver, on("t"))} == {"three"}
        assert await texts(chat(Checkpointer(rows)), on("t")) == expected

    async def test_a_copy_is_a_thread_of_its_own(self, saver: Checkpointer, rows: CheckpointRows) -> None:
        graph = chat(saver)
        await say(graph, "hello", on("source"))
        await saver.acopy_thread("source", "copy")
        await say(graph, "only here", on("copy"))
        cold = chat(Checkpointer(rows))
        assert await texts(cold, on("source")) == ["hello", "answer 1"]
        assert await texts(cold, on("copy")) == ["hello", "answer 1", "only here", "answer 3"]

    @pytest.mark.parametrize("where", SHARED, indirect=True)
    async def test_a_copy_of_one_that_goes_on_is_a_state_it_was_in(
        self, saver: Checkpointer, store: Store, where: str
    ) -> None:
        """Copied by another process: in this one nothing would be written meanwhile."""
        await store.commit(opened("source"))
        graph = chat(saver)
        await say(graph, "0", on("source"))
        copies = [f"copy{n}" for n in range(30)]

        async def go_on() -> None:
            for n in itertools.count(1):
                await say(graph, str(n), on("source"))

        async with open_database(where) as other:
            going_on = asyncio.create_task(go_on())
            for copy in copies:
                await Checkpointer(CheckpointRows(other)).acopy_thread("source", copy)
            going_on.cancel()
            await asyncio.wait((going_on,))
            cold = chat(Checkpointer(CheckpointRows(other)))
            whole = await texts(cold, on("source"))
            for copy in copies:
                said = await texts(cold, on(copy))
                assert said == whole[: len(said)]

    async def test_a_deleted_thread_is_not_copied(self, saver: Checkpointer, store: Store) -> None:
        await store.commit(opened("t"))
        await say(chat(saver), "hello", on("t"))
        # Not purged yet.
        await store.tombstone("t", now=NOW)
        with pytest.raises(NotFound):
            await saver.acopy_thread("t", "copy")

    async def test_a_thread_deleted_by_another_process_starts_anew(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        graph = chat(saver)
        for number in range(3):
            await say(graph, f"question {number}", on("t"))
        checkpoint = await saver.aget_tuple(on("t"))
        assert checkpoint is not None
        await Checkpointer(rows).adelete_thread("t")
        # A run that was under way still holds its state: what it stores must be whole.
        await graph.aupdate_state(
            checkpoint.config, {"messages": [HumanMessage("still here")]}, as_node="answer"
        )
        assert (await texts(chat(Checkpointer(rows)), on("t")))[-1] == "still here"

    async def test_a_thread_that_runs_is_not_pruned(self, saver: Checkpointer, store: Store) -> None:
        """Whatever it was when somebody looked: it may go on from any of its states."""
        change = opened("t")
        await store.commit(change)
        await say(chat(saver), "hello", on("t"))
        before = await listed(saver, on("t"))
        with pytest.raises(InvalidState):
            await saver.aprune(["t"])
        assert [one.config for one in await listed(saver, on("t"))] == [one.config for one in before]
        await store.commit(recorded(change.thread, RoundFinished(status=Status.COMPLETED)))
        await saver.aprune(["t"])
        assert [one.config for one in await listed(saver, on("t"))] == [before[0].config]

    async def test_an_unknown_way_to_prune_is_refused(self, saver: Checkpointer) -> None:
        with pytest.raises(Invalid):
            await saver.aprune(["t"], strategy="keep_some")


class TestSteps:
    """Interrupts, errors and the order in which things become durable."""

    async def test_an_interrupted_step_is_resumed_by_another_process(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        ran: list[str] = []

        class State(TypedDict):
            said: Annotated[list[str], lambda a, b: a + b]

        def make(with_saver: Checkpointer) -> Any:
            def quick(state: State) -> dict[str, Any]:
                ran.append("quick")
                return {"said": ["quick"]}

            def ask(state: State) -> dict[str, Any]:
                ran.append("ask")
                return {"said": [interrupt("what?"), interrupt("and?")]}

            builder = StateGraph(State)
            builder.add_node("quick", quick)
            builder.add_node("ask", ask)
            builder.add_edge(START, "quick")
            builder.add_edge(START, "ask")
            return builder.compile(checkpointer=with_saver)

        await make(saver).ainvoke({"said": ["in"]}, on("t"), durability="sync")
        await make(Checkpointer(rows)).ainvoke(Command(resume="this"), on("t"), durability="sync")
        state = await make(Checkpointer(rows)).aget_state(on("t"))
        assert [waiting.value for waiting in state.interrupts] == ["and?"]
        last = await make(Checkpointer(rows)).ainvoke(Command(resume="that"), on("t"), durability="sync")
        assert sorted(last["said"]) == ["in", "quick", "that", "this"]
        assert sorted(ran) == ["ask", "ask", "ask", "quick"]

    async def test_an_input_is_stored_even_if_its_first_node_fails(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        async def fail(state: MessagesState) -> dict[str, Any]:
            raise ValueError("no")

        builder = StateGraph(MessagesState)
        builder.add_node("fail", fail)
        builder.add_edge(START, "fail")
        with pytest.raises(ValueError, match="no"):
            await say(builder.compile(checkpointer=saver), "hello", on("t"))
        state = await builder.compile(checkpointer=Checkpointer(rows)).aget_state(on("t"))
        assert [message.text for message in state.values["messages"]] == ["hello"]
        assert state.next == ("fail",)

    async def test_an_input_nobody_took_over_is_stored_before_it_is_looked_for(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        checkpoint = generate_checkpoint()
        checkpoint["updated_channels"] = ["__start__"]
        await saver.aput(on("t"), checkpoint, generate_metadata(source="input", step=-1), {})
        assert len(await listed(saver, on("t"))) == 1
        other = generate_checkpoint()
        other["updated_channels"] = ["__start__"]
        await saver.aput(on("t"), other, generate_metadata(source="input", step=-1), {})
        async with asyncio.timeout(30):
            while len(await rows.find("t", limit=9)) < 2:
                await asyncio.sleep(0.01)

    async def test_closing_stores_what_waits(self, saver: Checkpointer, rows: CheckpointRows) -> None:
        checkpoint = generate_checkpoint()
        checkpoint["updated_channels"] = ["__start__"]
        await saver.aput(on("t"), checkpoint, generate_metadata(source="input", step=-1), {})
        await saver.aclose()
        assert len(await rows.find("t", limit=9)) == 1

    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    async def test_every_durability_ends_in_the_same_state(
        self, saver: Checkpointer, rows: CheckpointRows, durability: Any
    ) -> None:
        for number in range(3):
            await chat(saver).ainvoke(
                {"messages": [HumanMessage(f"question {number}")]}, on("t"), durability=durability
            )
        assert len(await texts(chat(Checkpointer(rows)), on("t"))) == 6


def gathered(state: list[AnyMessage], writes: Sequence[Any]) -> list[AnyMessage]:
    for write in writes:
        state = add_messages(state, write)  # type: ignore[arg-type, assignment]
    return state


class DeltaState(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(gathered, snapshot_frequency=7)]
    plain: Annotated[list[str], lambda a, b: a + b]


def delta_chat(saver: Checkpointer) -> Any:
    async def reply(state: DeltaState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}")], "plain": ["x"]}

    builder = StateGraph(DeltaState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


class TestDeltaChannel:
    @pytest.mark.parametrize("durability", ["sync", "exit"])
    async def test_it_is_rebuilt_from_snapshots_and_writes(
        self, saver: Checkpointer, rows: CheckpointRows, durability: Any
    ) -> None:
        for number in range(20):
            config = on("t")
            await delta_chat(saver).ainvoke(
                {"messages": [HumanMessage(f"question {number}")], "plain": []}, config, durability=durability
            )
        expected = [text for n in range(20) for text in (f"question {n}", f"answer {2 * n + 1}")]
        assert await texts(delta_chat(Checkpointer(rows)), on("t")) == expected
        history = [state async for state in delta_chat(saver).aget_state_history(on("t"))]
        assert {len(state.values["messages"]) for state in history if state.next == ()} - {0} == {
            2 * n for n in range(1, 21)
        }

    async def test_pruning_keeps_what_it_is_rebuilt_from(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        for number in range(11):
            await say(delta_chat(saver), f"question {number}", on("t"))
            await saver.aprune(["t"])
        assert len(await texts(delta_chat(Checkpointer(rows)), on("t"))) == 22
        assert len(await listed(saver, on("t"))) < 15

    async def test_a_branch_sees_only_its_own_writes(self, saver: Checkpointer, rows: CheckpointRows) -> None:
        graph = delta_chat(saver)
        await say(graph, "root", on("t"))
        root = (await graph.aget_state(on("t"))).config
        left = await graph.aupdate_state(root, {"messages": [HumanMessage("left")]}, as_node="reply")
        right = await graph.aupdate_state(
            root, {"messages": Overwrite([HumanMessage("right")])}, as_node="reply"
        )
        cold = delta_chat(Checkpointer(rows))
        assert await texts(cold, left) == ["root", "answer 1", "left"]
        assert await texts(cold, right) == ["right"]


class Lists(TypedDict):
    words: Annotated[list[str], lambda _, new: new]


def lists(saver: Checkpointer, *, is_broken: bool) -> Any:
    """Two nodes side by side: one returns its whole list with one more, the other may fail."""

    async def grow(state: Lists) -> dict[str, Any]:
        return {"words": [*state["words"], f"word {len(state['words'])}, {is_broken}"]}

    async def stumble(state: Lists) -> None:
        if is_broken:
            raise ValueError("broken")

    builder = StateGraph(Lists)
    builder.add_node("grow", grow)
    builder.add_node("stumble", stumble)
    builder.add_edge(START, "grow")
    builder.add_edge(START, "stumble")
    return builder.compile(checkpointer=saver)


class TestWholeLists:
    """What a task returned may be stored as a change to what its channel held."""

    async def test_a_write_that_waits_for_its_step_is_read_and_applied_by_another_process(
        self, saver: Checkpointer, rows: CheckpointRows, database: Database
    ) -> None:
        words = [f"word {n}" for n in range(300)]
        with pytest.raises(ValueError, match="broken"):
            await lists(saver, is_broken=True).ainvoke({"words": words}, on("t"), durability="sync")
        sizes = await query(database, "SELECT LENGTH(data) FROM checkpoint_writes ORDER BY LENGTH(data)")
        assert sizes[-1][0] > 2000 > 300 > sizes[-2][0]  # the input, and no other list
        await saver.acopy_thread("t", "copy")
        await saver.aprune(["t"])
        for thread_id in ("t", "copy"):
            cold = Checkpointer(rows)
            found = await cold.aget_tuple(on(thread_id))
            assert found is not None
            (written,) = [value for _, channel, value in found.pending_writes or () if channel == "words"]
            assert written == [*words, "word 300, True"]
            assert (await listed(cold, on(thread_id)))[0].pending_writes == found.pending_writes
            await lists(cold, is_broken=False).ainvoke(None, on(thread_id))
            state = await lists(Checkpointer(rows), is_broken=False).aget_state(on(thread_id))
            assert state.values["words"] == written

    async def test_a_change_of_a_list_that_is_not_there_is_corrupt(
        self, saver: Checkpointer, rows: CheckpointRows, database: Database
    ) -> None:
        stored = await saver.aput(on("t"), generate_checkpoint(), generate_metadata(), {})
        await saver.aput_writes(stored, [("a", ["b"])], str(uuid.uuid4()))
        kind, data = saver.serde.dumps_typed(["b"])
        for change in ("|", "|[[0,1],1]", "|[", "|[9]"):
            entries = f'[[0,"a","{kind}{change}",{len(data)}]]'
            await query(database, "UPDATE checkpoint_writes SET entries = $1", entries)
            with pytest.raises(Corrupt):
                await Checkpointer(rows).aget_tuple(on("t"))


class TestCancellation:
    @pytest.mark.fault("B9")
    async def test_a_cancelled_write_is_done_or_not_and_the_next_one_works(
        self, saver: Checkpointer, rows: CheckpointRows
    ) -> None:
        graph = chat(saver)
        await say(graph, "hello", on("t"))
        for number in range(40):
            run = asyncio.ensure_future(say(graph, f"cancelled {number}", on("t")))
            # A different place each time: the loop turns this often before the run is cancelled.
            for _ in range(number):
                await asyncio.sleep(0)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)
            assert await texts(graph, on("t")) == await texts(chat(Checkpointer(rows)), on("t"))
        await say(graph, "after all", on("t"))
        found = await texts(chat(Checkpointer(rows)), on("t"))
        assert found[-2] == "after all"
        assert found == await texts(graph, on("t"))

    async def test_a_write_that_began_is_finished_for_a_caller_that_is_gone(
        self, saver: Checkpointer
    ) -> None:
        checkpoint = generate_checkpoint(channel_values={"k": ["v"]}, channel_versions={"k": 1})
        put = asyncio.ensure_future(saver.aput(on("t"), checkpoint, generate_metadata(), {"k": 1}))
        await asyncio.sleep(0)
        put.cancel()
        with pytest.raises(asyncio.CancelledError):
            await put
        found = await saver.aget_tuple(on("t"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"k": ["v"]}


class TestSync:
    async def test_another_thread_may_use_the_sync_methods(self, saver: Checkpointer) -> None:
        def work() -> tuple[list[str], int]:
            graph = chat_sync(saver)
            graph.invoke({"messages": [HumanMessage("hello")]}, on("t"))
            state = graph.get_state(on("t"))
            steps = len(list(graph.get_state_history(on("t"))))
            return [message.text for message in state.values["messages"]], steps

        assert await asyncio.to_thread(work) == (["hello", "sync"], 3)

        def delete() -> None:
            saver.delete_thread("t")

        await asyncio.to_thread(delete)
        assert await saver.aget_tuple(on("t")) is None

    async def test_the_loops_own_thread_is_told_to_await(self, saver: Checkpointer) -> None:
        with pytest.raises(asyncio.InvalidStateError, match="async"):
            saver.get_tuple(on("t"))
        assert threading.current_thread() is threading.main_thread()


def chat_sync(saver: Checkpointer) -> Any:
    def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("sync")]}

    builder = StateGraph(MessagesState)
    builder.add_node("reply", reply)
    builder.add_edge(START, "reply")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("where", SHARED, indirect=True)
async def test_a_state_survives_the_process(where: str) -> None:
    async with open_database(where) as db:
        await say(chat(Checkpointer(CheckpointRows(db))), "hello", on("t"))
    async with open_database(where) as db:
        assert await texts(chat(Checkpointer(CheckpointRows(db))), on("t")) == ["hello", "answer 1"]


class TestCorruption:
    """Damage in the rows is the thread's own problem."""

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE checkpoints SET body = 'no json' WHERE thread_id = $1",
            "UPDATE checkpoints SET body = '{}' WHERE thread_id = $1",
            "UPDATE checkpoints SET metadata = '[]' WHERE thread_id = $1",
            "UPDATE checkpoints SET apart = '3' WHERE thread_id = $1",
            "DELETE FROM checkpoint_blobs WHERE thread_id = $1",
            "DELETE FROM checkpoint_blobs WHERE thread_id = $1 AND base IS NULL",
            "UPDATE checkpoint_blobs SET data = $2 WHERE thread_id = $1",
            "UPDATE checkpoint_blobs SET kind = 'pickle' WHERE thread_id = $1",
            "UPDATE checkpoint_blobs SET base = version WHERE thread_id = $1",
            "UPDATE checkpoint_blobs SET splice = '[[0]]' WHERE thread_id = $1 AND base IS NOT NULL",
            "UPDATE checkpoint_blobs SET splice = '[9]' WHERE thread_id = $1 AND base IS NOT NULL",
            "UPDATE checkpoint_blobs SET splice = 'x' WHERE thread_id = $1 AND base IS NOT NULL",
        ],
    )
    async def test_only_the_damaged_thread_fails(
        self, rows: CheckpointRows, database: Database, damage: str
    ) -> None:
        saver = Checkpointer(rows)
        for thread_id in ("damaged", "whole"):
            for number in range(5):
                await say(chat(saver), f"question {number}", on(thread_id))
        args = ("damaged", b"\xc1\xff") if "$2" in damage else ("damaged",)
        await query(database, damage, *args)
        cold = Checkpointer(rows)
        with pytest.raises(Corrupt):
            await cold.aget_tuple(on("damaged"))
        assert len(await texts(chat(cold), on("whole"))) == 10
        await cold.adelete_thread("damaged")
        assert await cold.aget_tuple(on("damaged")) is None

    async def test_damaged_writes_are_corrupt_too(
        self, saver: Checkpointer, rows: CheckpointRows, database: Database
    ) -> None:
        stored = await saver.aput(on("t"), generate_checkpoint(), generate_metadata(), {})
        await saver.aput_writes(stored, [("a", "b")], str(uuid.uuid4()))
        for damage in ("[[0]]", "x", '[[0,"a","clew",99]]'):
            await query(database, "UPDATE checkpoint_writes SET entries = $1", damage)
            with pytest.raises(Corrupt):
                await Checkpointer(rows).aget_tuple(on("t"))
