"""An agent that acts on the world outside, and a model that never says the same thing twice."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import InjectedToolCallId

from clew.graph.agent import Agent
from clew.graph.context_window import Compaction
from clew.graph.tools import tool
from tests.faults.sink import act
from tests.graphs import Obedient

GRAPHS = "graphs:\n" + "".join(
    f"  {name}: tests.faults.effects:{name}\n" for name in ("acting", "forgetting")
)

CallId = Annotated[str, InjectedToolCallId]


@tool
async def effect(at: str, call_id: CallId) -> str:
    """Do what may be done again, under the same key."""
    act(at, "effect", call_id)
    return "done"


@tool(idempotent=False)
async def effect_once(at: str, call_id: CallId) -> str:
    """Do what must not be done twice."""
    act(at, "effect_once", call_id)
    return "done once"


@tool(idempotent=False, approval=True)
async def effect_approved(at: str, call_id: CallId) -> str:
    """Do what must be allowed, and not be done twice."""
    act(at, "effect_approved", call_id)
    return "done as approved"


@tool(approval=True, patience=timedelta(seconds=0.2))
async def effect_if_quick(at: str, call_id: CallId) -> str:
    """Do what must be allowed at once."""
    act(at, "effect_if_quick", call_id)
    return "done quickly"


class Fickle(Obedient):
    """Asked again, it has another answer and another call in mind. Leaves a mark for every time it is asked."""

    def _answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        answer = super()._answer(messages)
        calls = [{**call, "id": f"call_{uuid4().hex}"} for call in answer.tool_calls]
        return AIMessage(f"{answer.content} ({uuid4().hex})", tool_calls=calls)

    def _mark(self, place: str) -> None:
        act(place, "model", uuid4().hex)


def acting() -> Any:
    tools = (effect, effect_once, effect_approved, effect_if_quick)
    return Agent(model=Fickle(), tools=tools, system="You are a test.").graph()


def forgetting() -> Any:
    """Sums up what it was told after every few messages."""
    return Agent(model=Fickle(), tools=(), compaction=Compaction(messages=4, keep=2)).graph()
