"""A bot of the tests that remembers a chat by its conversation key, and one that says much."""

from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore
from langgraph.types import interrupt

from clew.history.agent_node import AgentNode
from clew.history.chat_history import ChatHistory
from tests.chains import chain
from tests.fakes import ScriptedModel
from tests.graphs import Obedient


class Chat(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    results: dict[str, Any]


def remembering() -> Any:
    """An AgentNode on the parsed message, as the templates of its history keys want it."""
    return chain(Chat, ("agent", AgentNode(Obedient(), use_graph_chat_history=True)))


def recounting() -> Any:
    """Answers with all that its prompt holds. Told `push KEY TEXT`, another node pushes that text first."""

    def recount(messages: Sequence[BaseMessage]) -> str:
        return " | ".join(str(message.text) for message in messages)

    async def push(state: Chat, *, store: BaseStore) -> Chat:
        words = state["messages"][-1].text.split(" ", 2)
        if words[0] == "push":
            assert await ChatHistory(store).append(words[1], words[2])
        return {}

    return chain(Chat, push, ("agent", AgentNode(ScriptedModel(answer=recount), use_graph_chat_history=True)))


def verbose() -> Any:
    """Says a word as often as it is told: `word 3000`."""

    def say(state: Chat) -> Chat:
        word, _, times = state["messages"][-1].text.partition(" ")
        return {"messages": [AIMessage(" ".join([word] * int(times)))]}

    return chain(Chat, say)


class Filing(Chat, total=False):
    documents: list[dict[str, Any]]


def filing() -> Any:
    """Says what the files are that came with a message."""

    def name(state: Filing) -> Filing:
        files = [f"{one['name']} {one['mime']} {one['size']}" for one in state.get("documents", [])]
        return {"messages": [AIMessage(", ".join(files) or "no files")]}

    return chain(Filing, name)


def curious() -> Any:
    """Asks in its own words, and repeats what it was answered."""

    def ask(state: Chat) -> Chat:
        return {"messages": [AIMessage(f"so it is {interrupt('which colour?')}")]}

    return chain(Chat, ask)
