"""Jobs of a process that is killed while its graph runs: talk for ever, and look at what is left."""

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph

from clew.checkpointer.saver import Checkpointer
from clew.failpoints import install
from clew.stores.sql.checkpoints import CheckpointRows
from tests.databases import open_database

Report = Callable[[Any], None]


def config_of(thread: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}}


async def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"to {state['messages'][-1].text}")]}


async def sign(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage("signed")]}


def chat(saver: Checkpointer) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_node("sign", sign)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "sign")
    return builder.compile(checkpointer=saver)


def talk(report: Report, *, where: str, thread: str, name: str, failpoint: str = "") -> None:
    """Turn after turn; each is reported when it is acknowledged, and first of all that they begin."""

    config = config_of(thread)

    async def run() -> None:
        async with open_database(where) as db:
            graph = chat(Checkpointer(CheckpointRows(db)))
            # What an earlier process left half done is finished first, as our engine does. `next` is empty when all
            # tasks of a step are done and only the step is not stored; `tasks` tells.
            if (await graph.aget_state(config)).tasks:
                await graph.ainvoke(None, config, durability="sync")
            install(failpoint)
            report("begun")
            number = 0
            while True:
                said = f"{name} {number}"
                await graph.ainvoke({"messages": [HumanMessage(said)]}, config, durability="sync")
                report(said)
                number += 1

    asyncio.run(run())


def look(report: Report, *, where: str, thread: str) -> None:
    """Every state of the history can be read; report what was said in the newest."""

    config = config_of(thread)

    async def run() -> None:
        async with open_database(where) as db:
            graph = chat(Checkpointer(CheckpointRows(db)))
            history = [state async for state in graph.aget_state_history(config)]
            newest = await graph.aget_state(config)
            messages = newest.values.get("messages", [])
            for state in history:
                older = state.values.get("messages", [])
                assert messages[: len(older)] == older
            if newest.tasks:
                messages = (await graph.ainvoke(None, config, durability="sync"))["messages"]
            report([message.text for message in messages])

    asyncio.run(run())
