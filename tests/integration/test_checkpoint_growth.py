"""What a checkpointer costs over a long life, who else may touch its rows and objects, and what a clock can do to it."""

import asyncio
import json
import random
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import id as checkpoint_ids
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from clew.checkpointer.saver import Checkpointer
from clew.checkpointer.serializer import StrictSerializer
from clew.domain.errors import ConfigError, Corrupt
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.work import Database
from tests.databases import open_database, query

pytestmark = pytest.mark.anyio

THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("a" * 200)]}


def graph_of(saver: Checkpointer, node: Any = answer, state: Any = MessagesState) -> Any:
    builder = StateGraph(state)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    return builder.compile(checkpointer=saver)


async def say(graph: Any, text: str) -> None:
    await graph.ainvoke({"messages": [HumanMessage(text)]}, THREAD, durability="sync")


async def texts(graph: Any) -> list[str]:
    return [message.text for message in (await graph.aget_state(THREAD)).values["messages"]]


async def stored_bytes(db: Database) -> int:
    total = 0
    for table, columns in (
        ("checkpoints", "body || metadata || apart"),
        ("checkpoint_blobs", "data"),
        ("checkpoint_writes", "data"),
    ):
        rows = await query(db, f"SELECT COALESCE(SUM(LENGTH({columns})), 0) FROM {table}")
        total += rows[0][0]
    return total


class TestGrowth:
    @pytest.mark.accept("001-25")
    async def test_bytes_follow_the_number_of_turns(self) -> None:
        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)))
            sizes = {}
            for turn in range(1, 401):
                await say(graph, "q" * 200)
                if turn in (50, 100, 200, 400):
                    sizes[turn] = await stored_bytes(db)
            # Twice the turns, about twice the bytes; a state stored whole at each step would make it four times.
            for turn in (100, 200, 400):
                assert sizes[turn] < 2.5 * sizes[turn // 2]
            assert sizes[400] < 400 * 4000

    @pytest.mark.accept("001-25")
    @pytest.mark.parametrize("where", ["first", "last"])
    async def test_a_node_that_returns_the_whole_list_costs_what_it_adds(self, where: str) -> None:
        async def whole(state: MessagesState) -> dict[str, Any]:
            new = AIMessage("x" * 200, id=f"new-{len(state['messages'])}")
            old = state["messages"]
            return {"messages": [new, *old] if where == "first" else [*old, new]}

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), whole)
            for _ in range(100):
                await say(graph, "q" * 200)
            assert await stored_bytes(db) < 100 * 5000
            cold = graph_of(Checkpointer(CheckpointRows(db)), whole)
            assert await texts(cold) == await texts(graph)
            newest, *_ = [one async for one in cold.aget_state_history(THREAD) if one.tasks]
            (task,) = newest.tasks
            assert len(task.result["messages"]) == 200

    async def test_a_message_replaced_at_the_top_of_a_long_list_costs_one_message(self) -> None:
        async def retitle(state: MessagesState) -> dict[str, Any]:
            return {"messages": [HumanMessage("title", id="title"), AIMessage("x" * 200)]}

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), retitle)
            for _ in range(100):
                await say(graph, "q" * 200)
            assert await stored_bytes(db) < 100 * 5000
            cold = graph_of(Checkpointer(CheckpointRows(db)), retitle)
            assert await texts(cold) == await texts(graph)

    async def test_steps_that_add_nothing_make_no_chain(self) -> None:
        async def idle(state: MessagesState) -> dict[str, Any]:
            return {"messages": []}

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), idle)
            await graph.aupdate_state(THREAD, {"messages": [HumanMessage("x" * 200) for _ in range(50)]})
            before = await stored_bytes(db)
            for _ in range(100):
                await graph.ainvoke({"messages": []}, THREAD, durability="sync")
            assert await stored_bytes(db) < before + 100 * 1500
            assert len(await texts(graph_of(Checkpointer(CheckpointRows(db)), idle))) == 50

    async def test_a_window_that_slides_stays_small(self) -> None:
        class Window(TypedDict):
            messages: Annotated[list[AnyMessage], lambda old, new: add_messages(old, new)[-20:]]

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), answer, Window)
            for _ in range(100):
                await say(graph, "q" * 200)
            assert await stored_bytes(db) < 100 * 6000
            assert len(await texts(graph_of(Checkpointer(CheckpointRows(db)), answer, Window))) == 20

    async def test_what_is_kept_in_memory_is_bounded(self) -> None:
        async with open_database("memory") as db:
            saver = Checkpointer(CheckpointRows(db), cache_bytes=100_000)
            graph = graph_of(saver)
            for number in range(60):
                config: RunnableConfig = {"configurable": {"thread_id": f"t{number}"}}
                for _ in range(5):
                    await graph.ainvoke({"messages": [HumanMessage("q" * 200)]}, config, durability="sync")
            assert 0 < saver._heads.size <= 100_000
            for number in range(60):
                config = {"configurable": {"thread_id": f"t{number}"}}
                assert len((await graph.aget_state(config)).values["messages"]) == 10


class TestSharedObjects:
    """Elements of a list are shared between the graph, its readers and us; LangGraph says not to change them."""

    async def test_what_a_reader_does_to_a_state_stays_with_that_reader(self) -> None:
        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)))
            await say(graph, "hello")
            state = await graph.aget_state(THREAD)
            state.values["messages"][0].content = "scribbled over"
            state.values["messages"][1].additional_kwargs["scribbled"] = True
            state.values["messages"].clear()
            again = (await graph.aget_state(THREAD)).values["messages"]
            assert again[0].text == "hello"
            assert again[1].additional_kwargs == {}
            await say(graph, "more")
            assert (await texts(graph))[::2] == ["hello", "more"]

    async def test_a_change_in_place_that_is_returned_is_stored(self) -> None:
        async def correct(state: MessagesState) -> dict[str, Any]:
            first = state["messages"][0]
            first.content = "corrected"
            first.additional_kwargs["by"] = "correct"
            return {"messages": [first]}

        async with open_database("memory") as db:
            await say(graph_of(Checkpointer(CheckpointRows(db))), "hello")
            graph = graph_of(Checkpointer(CheckpointRows(db)), correct)
            await say(graph, "more")
            cold = (await graph_of(Checkpointer(CheckpointRows(db))).aget_state(THREAD)).values["messages"]
            assert [message.text for message in cold] == ["corrected", "a" * 200, "more"]
            assert cold[0].additional_kwargs == {"by": "correct"}
            assert await texts(graph) == [message.text for message in cold]

    async def test_a_change_in_place_that_is_not_returned_ends_with_the_run(self) -> None:
        async def shorten(state: MessagesState) -> dict[str, Any]:
            for message in state["messages"]:
                message.content = message.text[:1]  # to save tokens, say
            return {"messages": [AIMessage("short")]}

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), shorten)
            await say(graph, "hello")
            await say(graph, "world")
            expected = ["hello", "short", "world", "short"]
            assert await texts(graph) == expected
            assert await texts(graph_of(Checkpointer(CheckpointRows(db)), shorten)) == expected

    async def test_warm_and_cold_readers_see_the_same_types(self) -> None:
        class Loose(TypedDict):
            things: Annotated[list[Any], lambda a, b: a + b]

        async def add(state: Loose) -> dict[str, Any]:
            return {"things": [(1, 2), {"a": {1, 2}}, "text", [("x",)]]}

        async with open_database("memory") as db:
            graph = graph_of(Checkpointer(CheckpointRows(db)), add, Loose)
            for _ in range(3):
                await graph.ainvoke({"things": [None]}, THREAD, durability="sync")
                warm = (await graph.aget_state(THREAD)).values["things"]
                cold = (
                    await graph_of(Checkpointer(CheckpointRows(db)), add, Loose).aget_state(THREAD)
                ).values["things"]
                assert warm == cold
                assert [type(thing) for thing in warm] == [type(thing) for thing in cold]


@pytest.mark.accept("003-34")
async def test_a_finished_thread_is_pruned_and_still_answers() -> None:
    async with open_database("memory") as db:
        saver = Checkpointer(CheckpointRows(db))
        graph = graph_of(saver)
        for _ in range(50):
            await say(graph, "q" * 200)
        before = await stored_bytes(db)
        await saver.aprune(["t"], strategy="keep_latest")
        assert await stored_bytes(db) < before / 2
        assert len(await texts(graph_of(Checkpointer(CheckpointRows(db))))) == 100


async def test_the_clock_set_back_hides_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_database("memory") as db:
        await say(graph_of(Checkpointer(CheckpointRows(db))), "first")
        # A new process an hour earlier: its ids sort before all that is stored.
        now = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: now() - 3600 * 10**9)
        monkeypatch.setattr(checkpoint_ids, "_last_v6_timestamp", None)
        graph = graph_of(Checkpointer(CheckpointRows(db)))
        for text in ("second", "third"):
            await say(graph, text)
        assert (await texts(graph))[::2] == ["first", "second", "third"]
        steps = [state.metadata["step"] async for state in graph.aget_state_history(THREAD)]
        assert steps == sorted(steps, reverse=True)
        assert len(steps) == 9


async def test_no_mutation_of_a_row_does_more_than_fail_its_thread() -> None:
    rng = random.Random(7)
    async with open_database("memory") as db:
        rows = CheckpointRows(db)
        for number in range(6):
            await say(graph_of(Checkpointer(rows)), f"question {number}")
        stored = await query(db, "SELECT channel, version, data FROM checkpoint_blobs")
        outcomes = {"read": 0, "corrupt": 0}
        for _ in range(300):
            channel, version, data = rng.choice(stored)
            damaged = bytearray(data)
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            change = "UPDATE checkpoint_blobs SET data = $1 WHERE channel = $2 AND version = $3"
            await query(db, change, bytes(damaged), channel, version)
            try:
                await Checkpointer(rows).aget_tuple(THREAD)
                outcomes["read"] += 1
            except Corrupt:
                outcomes["corrupt"] += 1
            await query(db, change, data, channel, version)
        assert outcomes["corrupt"] > 20
        assert len(await texts(graph_of(Checkpointer(rows)))) == 12


@dataclass
class Ticket:
    """A type of somebody's own state."""

    title: str
    done: bool = False


class Desk(TypedDict):
    tickets: Annotated[list[Ticket], lambda old, new: old + new]
    current: Ticket


class TestOwnTypes:
    @staticmethod
    async def file(state: Desk) -> dict[str, Any]:
        ticket = Ticket(f"ticket {len(state['tickets'])}")
        return {"tickets": [ticket], "current": ticket}

    @pytest.mark.accept("001-32")
    async def test_types_that_are_allowed_come_back(self, caplog: pytest.LogCaptureFixture) -> None:
        async with open_database("memory") as db:
            for number in range(1, 4):
                saver = Checkpointer(CheckpointRows(db), serde=StrictSerializer([Ticket]))
                graph = graph_of(saver, self.file, Desk)
                await graph.ainvoke({"tickets": []}, THREAD, durability="sync")
                for reader in (saver, Checkpointer(CheckpointRows(db), serde=StrictSerializer([Ticket]))):
                    values = (await graph_of(reader, self.file, Desk).aget_state(THREAD)).values
                    assert values["tickets"] == [Ticket(f"ticket {n}") for n in range(number)]
                    assert values["current"] == values["tickets"][-1]
        assert not caplog.records

    async def test_langgraph_can_allow_the_types_of_a_graph(self) -> None:
        async with open_database("memory") as db:
            strict = Checkpointer(CheckpointRows(db))
            await graph_of(strict, self.file, Desk).ainvoke({"tickets": []}, THREAD, durability="sync")
            # As `compile` does it when LANGGRAPH_STRICT_MSGPACK is set.
            widened = strict.with_allowlist({(Ticket.__module__, "Ticket")})
            found = await widened.aget_tuple(THREAD)
            assert found is not None
            assert found.checkpoint["channel_values"]["current"] == Ticket("ticket 0")
            # The same saver without the list, after the other one has read: still only data.
            plain = await strict.aget_tuple(THREAD)
            assert plain is not None
            assert plain.checkpoint["channel_values"]["tickets"] == [{"title": "ticket 0", "done": False}]


class Reverser:
    """Not a cipher."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "reversed", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


async def test_an_encrypting_serializer_sees_every_value() -> None:
    class Notes(TypedDict):
        messages: Annotated[list[AnyMessage], add_messages]
        secret: str

    async def note(state: Notes) -> dict[str, Any]:
        return {"messages": [AIMessage("topsecret answer")], "secret": "topsecret"}

    async with open_database("memory") as db:
        serde = EncryptedSerializer(Reverser(), StrictSerializer())
        for _ in range(3):
            await say(
                graph_of(Checkpointer(CheckpointRows(db), serde=serde), note, Notes), "topsecret question"
            )
        for table in ("checkpoints", "checkpoint_blobs", "checkpoint_writes"):
            for row in await query(db, f"SELECT * FROM {table}"):
                assert b"topsecret" not in repr(row).encode()
        cold = graph_of(Checkpointer(CheckpointRows(db), serde=serde), note, Notes)
        assert (await cold.aget_state(THREAD)).values["secret"] == "topsecret"
        assert len(await texts(cold)) == 6


async def test_a_permissive_serializer_does_not_start() -> None:
    async with open_database("memory") as db:
        with pytest.raises(ConfigError):
            Checkpointer(CheckpointRows(db), serde=json)  # type: ignore[arg-type]


WRITER = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.integration.test_checkpoint_growth import Checkpointer, CheckpointRows, graph_of, open_database, say

async def main():
    async with open_database({where!r}) as db:
        graph = graph_of(Checkpointer(CheckpointRows(db)))
        for line in sys.stdin:
            await say(graph, line.strip())
            print("done", flush=True)

asyncio.run(main())
"""


async def test_a_process_with_a_warm_state_sees_what_another_wrote(tmp_path: Path) -> None:
    where = str(tmp_path / "clew.sqlite")
    root = Path(__file__).parents[2]
    async with open_database(where) as db:
        graph = graph_of(Checkpointer(CheckpointRows(db)))
        other = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", WRITER.format(root=str(root), where=where)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(root / "src")},
        )
        assert other.stdin is not None
        assert other.stdout is not None
        try:
            for number in range(6):
                await say(graph, f"here {number}")
                other.stdin.write(f"there {number}\n".encode())
                async with asyncio.timeout(60):
                    assert await other.stdout.readline() == b"done\n"
                asked = (await texts(graph))[::2]
                assert asked == [f"{place} {n}" for n in range(number + 1) for place in ("here", "there")]
        finally:
            with suppress(ProcessLookupError):
                other.kill()
            await other.communicate()  # which also closes its pipes
