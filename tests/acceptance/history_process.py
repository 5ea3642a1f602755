"""Processes that hold conversations, for tests that run several of them or kill them.

python -m tests.acceptance.history_process talk WHERE KEY WORKER TURNS
python -m tests.acceptance.history_process packaged KIND WHERE KEY WORKER TURNS
python -m tests.acceptance.history_process kills WHERE ACKS TRIALS SEED
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.postgres import AsyncPostgresStore
from langgraph.store.sqlite import AsyncSqliteStore

from clew.checkpointer.saver import Checkpointer
from clew.history.agent_node import AgentNode
from clew.history.chat_history import ChatHistory
from clew.history.graph_store import GraphStore
from clew.stores.postgres_histories import open_histories
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.items import ItemRows
from tests.databases import open_database
from tests.fakes import echo

CONVERSATIONS = 4


@asynccontextmanager
async def open_graph(where: str) -> AsyncGenerator[Any]:
    async with open_database(where) as db:
        builder = StateGraph(MessagesState)
        builder.add_node("agent", AgentNode(echo(), use_graph_chat_history=True))
        builder.add_edge(START, "agent")
        store = GraphStore(ItemRows(db), open_histories(db))
        yield builder.compile(checkpointer=Checkpointer(CheckpointRows(db)), store=store)


async def talk(where: str, key: str, worker: str, turns: int) -> None:
    """All turns at once, each in a thread of its own; says which were answered and stored."""
    async with open_graph(where) as graph:

        async def turn(number: int) -> None:
            said = f"{worker}-{number}"
            config = {"configurable": {"thread_id": said, "history_key": key}}
            result = await graph.ainvoke({"messages": [("user", said)]}, config)
            assert result["messages"][-1].response_metadata == {"chat_history": "ok"}
            sys.stdout.write(said + "\n")

        await asyncio.gather(*(turn(number) for number in range(turns)))


@asynccontextmanager
async def open_packaged(kind: str, where: str) -> AsyncGenerator[BaseStore]:
    if kind == "AsyncSqliteStore":
        async with AsyncSqliteStore.from_conn_string(where) as sqlite:
            yield sqlite
    else:
        async with AsyncPostgresStore.from_conn_string(where) as postgres:
            yield postgres


async def talk_in_packaged(kind: str, where: str, key: str, worker: str, turns: int) -> None:
    """The same in a store that LangGraph brings, set up already; says of each turn how storing it went."""
    async with open_packaged(kind, where) as store:
        builder = StateGraph(MessagesState)
        builder.add_node("agent", AgentNode(echo(), use_graph_chat_history=True))
        builder.add_edge(START, "agent")
        graph: Any = builder.compile(store=store)
        for number in range(turns):
            said = f"{worker}-{number}"
            config: Any = {"configurable": {"history_key": key}}
            result = await graph.ainvoke({"messages": [("user", said)]}, config)
            outcome = result["messages"][-1].response_metadata["chat_history"]
            sys.stdout.write(f"{said}={outcome}\n")


async def append(where: str, key: str, worker: str, messages: int) -> None:
    """Four tasks that append one message after the other; says which were acknowledged."""
    async with open_database(where) as db:
        history = ChatHistory(GraphStore(ItemRows(db), open_histories(db)))

        async def task(number: int) -> None:
            for n in range(messages // 4):
                said = f"{worker}{number}-{n}"
                if await history.append(key, said):
                    sys.stdout.write(said + "\n")

        await asyncio.gather(*(task(number) for number in range(4)))


async def talk_until_killed(where: str, acks: int, pulse: int, trial: int) -> None:
    """Conversations that go on from where the process before was killed; each finished turn is acknowledged."""
    async with open_graph(where) as graph:

        async def conversation(name: str) -> None:
            config: Any = {"configurable": {"thread_id": name, "history_key": name}}
            state = await graph.aget_state(config)
            if state.next or state.tasks:
                await graph.ainvoke(None, config, durability="sync")
            for number in count():
                said = f"{trial}-{number}"
                message = HumanMessage(said, id=f"{name}-{said}")
                await graph.ainvoke({"messages": [message]}, config, durability="sync")
                os.write(acks, f"{name} {said}\n".encode())
                os.write(pulse, b".")

        await asyncio.gather(*(conversation(f"c{n}") for n in range(CONVERSATIONS)))


def kills(where: str, acks: str, trials: int, seed: int) -> None:
    """Fork a child that talks, kill it at a random moment, and again."""
    chance = random.Random(seed)
    log = os.open(acks, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for trial in range(trials):
        feel, pulse = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(talk_until_killed(where, log, pulse, trial))
            finally:
                os._exit(1)
        os.close(pulse)
        # Every fourth while it still opens its database and picks up the threads; the others some turns later.
        for _ in range(chance.randrange(9) if trial % 4 else 0):
            os.read(feel, 1)
        time.sleep(chance.uniform(0, 0.015 if trial % 4 else 0.05))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(feel)
        assert os.WIFSIGNALED(status), (
            f"trial {trial} ended by itself with {os.waitstatus_to_exitcode(status)}"
        )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["talk", where, key, worker, turns]:
            asyncio.run(talk(where, key, worker, int(turns)))
        case ["packaged", kind, where, key, worker, turns]:
            asyncio.run(talk_in_packaged(kind, where, key, worker, int(turns)))
        case ["append", where, key, worker, messages]:
            asyncio.run(append(where, key, worker, int(messages)))
        case ["kills", where, acks, trials, seed]:
            kills(where, str(Path(acks)), int(trials), int(seed))
        case _:
            sys.exit(__doc__)
