"""Tool use in the chat: an agent that asks the model with tools, call by call, each a step of the graph.

A turn of the model is in the checkpoint before its calls are carried out, and each call goes through the ledger. So a
killed or waiting round asks no model again, and repeats no call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool

from clew.apps.chat.agents.researcher import search
from clew.apps.chat.agents.tasks import Part, material
from clew.apps.chat.documents import ChatDocuments, Entry
from clew.apps.chat.plan import AgentResult, AgentTask, PlannedTask
from clew.apps.drivers.inquiries import Inquiry, Purpose, ToolUse
from clew.apps.drivers.session import DriverSession
from clew.apps.prompts import prompt
from clew.domain.documents import split_name
from clew.domain.errors import Permanent
from clew.domain.events import ToolCall
from clew.domain.retry import ErrorClass
from clew.domain.thread import Thread
from clew.graph.tools import LedgerTool, act_on, own_ids, tool
from clew.ports.run_context import RunContext

# Turns of the model in one task.
MAX_TURNS = 12
# What it writes itself; the others are written from its answer by `writer`.
_WRITES = ("md", "txt")

_PASSAGES = 6
FindTools = Callable[[], Awaitable[Sequence[BaseTool]]]


@dataclass(frozen=True, slots=True)
class ToolUser:
    find: FindTools

    async def description(self) -> str:
        """For the project manager."""
        tools = await self.find()
        named = "; ".join(f"{tool.name}: {tool.description.partition(chr(10))[0][:200]}" for tool in tools)
        return (
            "Uses tools and answers from what they return. Makes at most one md or txt document; let `writer` make others"
            f" from it. Its tools are {named}."
        )

    async def ask(
        self, run: RunContext, session: DriverSession, task: AgentTask, turns: Sequence[BaseMessage]
    ) -> AIMessage:
        """The next turn of the model."""
        tools = await self.find()
        taken = sum(isinstance(turn, AIMessage) for turn in turns)
        reply = await session.ask(
            Inquiry(
                purpose=Purpose.USE,
                role=prompt("tool_user"),
                prompt=task["prompt"],
                language=task["context"]["language"],
                material=material(task),
                facts={"turns left": MAX_TURNS - taken},
                tool_use=ToolUse(tools=tuple(tools), turns=tuple(turns)),
            )
        )
        message = AIMessage(reply.text) if reply.message is None else reply.message
        if taken + 1 >= MAX_TURNS and wants_tools([message]):
            raise Permanent(f"no answer after {MAX_TURNS} turns with tools", ErrorClass.VALIDATION)
        _, events = await run.transcript()
        used = {event.body.call_id for event in events if isinstance(event.body, ToolCall)}
        return own_ids(message, used=used, new_id=run.stamp().new_id)

    async def act(self, run: RunContext, turn: AIMessage) -> list[ToolMessage]:
        """The results of the calls of a turn."""
        return await act_on(run, await self.find(), turn)


async def no_tools() -> Sequence[BaseTool]:
    return ()


def document_search(shelf: ChatDocuments, thread: Thread, known: Sequence[Entry]) -> LedgerTool:
    """Finds passages in the documents of the chat, with their places."""

    @tool(
        name="search_documents",
        description="Finds passages in the user's documents by words, with their pages.",
    )
    async def search_documents(query: str) -> str:
        parts = [
            Part(entry.label, content)
            for entry in known
            for content in await shelf.contents(thread, entry)
            if content["metadata"].get("isText") and content["data"].strip()
        ]
        found = await asyncio.to_thread(search, parts, query, limit=_PASSAGES)
        return (
            "\n\n".join(f"({one.source('en')}) {one.text}" for one in found) or "no passage has these words"
        )

    return search_documents


def wants_tools(turns: Sequence[BaseMessage]) -> bool:
    last = turns[-1] if turns else None
    return isinstance(last, AIMessage) and bool(last.tool_calls or last.invalid_tool_calls)


def result_of(planned: PlannedTask, text: str) -> AgentResult:
    """The answer, and the document that was planned of it."""
    labels = [output.label for output in planned.outputs]
    documents: list[Any] = [
        {"label": label, "content": f"{text}\n"} for label in labels if split_name(label)[1] in _WRITES
    ]
    return {"feedback": text, "documents": documents}
