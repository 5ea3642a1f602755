"""Graphs that tests register by name, as a user would: questions, gates, branches, tools, failures."""

import asyncio
import operator
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from json import dumps, loads
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel

from clew.domain.errors import Permanent, Transient, Unavailable
from clew.domain.events import Event
from clew.domain.thread import Thread
from clew.graph.agent import Agent
from clew.graph.context_window import Compaction, Rendered
from clew.graph.middleware import ToolLedger
from clew.graph.tools import tool
from tests.chains import chain


class Notes(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    human_approved: bool | None
    marks: str  # a file in which nodes leave a mark for every time they run


def mark(state: Notes, text: str) -> None:
    if path := state.get("marks"):
        with Path(path).open("a") as file:
            file.write(f"{text}\n")


def architect(state: Notes) -> Notes:
    mark(state, "architect")
    return {"log": ["plan"]}


def human_approval_node(state: Notes) -> Notes:
    return {"log": [f"approved={state.get('human_approved')}"]}


def developer(state: Notes) -> Notes:
    mark(state, "developer")
    return {"log": ["code"]}


def gated() -> Any:
    """Architect -> a stop before human_approval_node -> developer, or the end after a no."""
    graph = StateGraph(Notes)
    graph.add_node("architect", architect)
    graph.add_node("human_approval_node", human_approval_node)
    graph.add_node("developer", developer)
    graph.add_edge(START, "architect")
    graph.add_edge("architect", "human_approval_node")
    graph.add_conditional_edges(
        "human_approval_node", lambda state: "developer" if state.get("human_approved") else END
    )
    graph.add_edge("developer", END)
    return graph.compile(interrupt_before=["human_approval_node"])


def two_questions(state: Notes) -> Notes:
    mark(state, "asked")
    first = interrupt({"kind": "elicitation", "question": "name?"})
    second = interrupt({"kind": "elicitation", "question": "age?"})
    return {"log": [f"{first} is {second}"]}


def asking() -> StateGraph[Notes]:
    """One node that asks twice."""
    return chain(Notes, two_questions)


class Branch(TypedDict):
    name: str


def branch(state: Branch) -> Notes:
    answer = interrupt({"kind": "elicitation", "branch": state["name"]})
    return {"log": [f"{state['name']}={answer}"]}


def branching() -> StateGraph[Notes]:
    """Three branches of one step, each with a question of its own."""
    graph = StateGraph(Notes)
    graph.add_node("branch", branch)
    graph.add_conditional_edges(START, lambda _: [Send("branch", {"name": name}) for name in ("a", "b", "c")])
    graph.add_edge("branch", END)
    return graph


def failing_twice(state: Notes) -> Notes:
    mark(state, "tried")
    tries = Path(state["marks"]).read_text().count("tried")
    if tries <= 2:
        raise Transient("overloaded", "llm_overload")
    return {"log": [f"worked at try {tries}"]}


def flaky() -> StateGraph[Notes]:
    """architect, then a node that fails twice with what a retry cures."""
    return chain(Notes, architect, ("failing", failing_twice))


def broken_node(state: Notes) -> Notes:
    mark(state, "tried")
    raise Permanent("no such issue", *(state.get("log") or ["not_found"])[:1])


def broken() -> StateGraph[Notes]:
    return chain(Notes, ("broken", broken_node))


async def slow_node(state: Notes) -> Notes:
    mark(state, "slow")
    await asyncio.sleep(60)
    return {"log": ["slow"]}


def slow() -> StateGraph[Notes]:
    return chain(Notes, ("slow", slow_node))


def blocking_node(state: Notes) -> Notes:
    mark(state, "blocking")
    time.sleep(60)  # what a node does that was written without us in mind
    return {"log": ["blocking"]}


def blocking() -> StateGraph[Notes]:
    """One node that sits in a thread and cannot be ended."""
    return chain(Notes, ("blocking", blocking_node))


async def walk(state: Notes) -> Notes:
    step = f"step {len(state['log'])}"
    mark(state, step)
    await asyncio.sleep(0.1)
    return {"log": [step]}


class Nap(TypedDict):
    name: str
    seconds: float
    marks: str


async def nap(state: Nap) -> None:
    with Path(state["marks"]).open("a") as file:  # noqa: ASYNC230 - a line
        file.write(f"{state['name']}\n")
    await asyncio.sleep(state["seconds"])


def napping() -> StateGraph[Nap]:
    """One node that says its name and sleeps."""
    return chain(Nap, nap)


def walking() -> StateGraph[Notes]:
    """Forty steps that take four seconds."""
    graph = StateGraph(Notes)
    graph.add_node("walk", walk)
    graph.add_edge(START, "walk")
    graph.add_conditional_edges("walk", lambda state: "walk" if len(state["log"]) < 40 else END)
    return graph


def overloaded(state: Notes) -> Notes:
    mark(state, "tried")
    raise Transient("overloaded", "llm_overload", retry_after=0)


def always_overloaded() -> StateGraph[Notes]:
    return chain(Notes, overloaded)


def told_to_wait(state: Notes) -> Notes:
    mark(state, "tried")
    raise Transient("overloaded", "llm_overload", retry_after=250)


def overloaded_for_long() -> StateGraph[Notes]:
    """Fails, and says that it is to be tried again minutes later."""
    return chain(Notes, told_to_wait)


def endless() -> StateGraph[Notes]:
    """Two nodes that send each other the work."""
    graph = StateGraph(Notes)
    graph.add_node("architect", architect)
    graph.add_node("developer", developer)
    graph.add_edge(START, "architect")
    graph.add_edge("architect", "developer")
    graph.add_edge("developer", "architect")
    return graph


class Plan(BaseModel):
    steps: int


class Planned(Notes, total=False):
    plan: Plan


def typed() -> Any:
    """A state with a type of its own, through a gate."""
    graph = StateGraph(Planned)
    graph.add_node("plan", lambda _: {"plan": Plan(steps=3)})
    graph.add_node(
        "tell", lambda state: {"log": [f"{type(state['plan']).__name__}: {state['plan'].steps} steps"]}
    )
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "tell")
    graph.add_edge("tell", END)
    return graph.compile(interrupt_before=["tell"])


def two_steps() -> StateGraph[Notes]:
    """Two nodes that do next to nothing."""
    return chain(Notes, architect, developer)


def writing() -> StateGraph[Notes]:
    """Twenty steps, each of which writes."""
    graph = StateGraph(Notes)
    graph.add_node("write", lambda state: {"log": [f"line {len(state['log'])}"]})
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", lambda state: "write" if len(state["log"]) < 20 else END)
    return graph


def write_at_the_second_try(state: Notes) -> Notes:
    mark(state, "tried")
    if len(Path(state["marks"]).read_text().split()) % 2:
        raise Unavailable("the database cannot be reached")
    return {"log": [f"line {len(state['log'])}"]}


def stumbling() -> StateGraph[Notes]:
    """Twelve steps, at each of which the database is away once."""
    graph = StateGraph(Notes)
    graph.add_node("write", write_at_the_second_try)
    graph.add_edge(START, "write")
    graph.add_conditional_edges("write", lambda state: "write" if len(state["log"]) < 12 else END)
    return graph


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means something"


@tool(approval=True, idempotent=False, patience=timedelta(hours=1))
async def send_mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool(executor="client")
async def read_clipboard() -> str:
    """Read the clipboard of the client."""
    raise NotImplementedError


@tool(executor="human")
async def ask_person(question: str) -> str:
    """Ask the person."""
    raise NotImplementedError


@tool(executor="client", approval=True)
async def open_door(number: int) -> str:
    """Open a door at the client's."""
    raise NotImplementedError


@tool(needs_user=True)
async def my_name() -> str:
    """Say on whose behalf we are here."""
    return "somebody"


def leave(path: str, text: str) -> None:
    """An effect on the world outside, which stays whatever becomes of us."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@tool
async def effect(file: str, n: int) -> str:
    """Do something that may be done twice."""
    leave(file, f"effect {n}")
    return f"done {n}"


@tool(idempotent=False)
async def effect_once(file: str, n: int) -> str:
    """Do something that must not be done twice."""
    leave(file, f"effect_once {n}")
    return f"done once {n}"


@tool(on_crash="interrupted")
async def effect_interrupted(file: str, n: int) -> str:
    """Do something that is not repeated after a crash."""
    leave(file, f"effect_interrupted {n}")
    return f"done unless interrupted {n}"


@tool(idempotent=False, approval=True)
async def effect_approved(file: str, n: int) -> str:
    """Do something that must be allowed and not be done twice."""
    leave(file, f"effect_approved {n}")
    return f"done as approved {n}"


class Obedient(BaseChatModel):
    """A model that does what it is told. Told `[path] ...` first, it leaves a mark there for every time it is asked.

    `tools: name key=value,key=value; name` calls tools, and is answered with their results. `slowly: text` says the
    text word by word, with a pause. `parts: [...]` is answered with these parts, `raw: name text` calls a tool with
    that text for its arguments. `recall` is answered with everything tools have said so far, in whichever round.
    Anything else is repeated.
    """

    @property
    def _llm_type(self) -> str:
        return "obedient"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages))])

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        if (last := str(messages[-1].content)).startswith("raw: "):
            name, _, text = last.removeprefix("raw: ").partition(" ")
            chunk = tool_call_chunk(name=name, args=text, id="call_raw", index=0)
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[chunk]))
            return
        if _marked(str(messages[-1].content))[1].startswith("slowly: "):
            for word in str(answer.content).split():
                yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
                await asyncio.sleep(0.2)
            return
        calls = [
            tool_call_chunk(name=call["name"], args=dumps(call["args"]), id=call["id"], index=n)
            for n, call in enumerate(answer.tool_calls)
        ]
        yield ChatGenerationChunk(message=AIMessageChunk(content=answer.content, tool_call_chunks=calls))

    def _answer(self, messages: Sequence[BaseMessage]) -> AIMessage:
        last = next(message for message in reversed(messages) if not isinstance(message, SystemMessage))
        path, said = _marked(next(each.text for each in messages if isinstance(each, HumanMessage)))
        if path:
            self._mark(path)
        if isinstance(last, HumanMessage):
            _, said = _marked(str(last.text))
        if isinstance(last, HumanMessage) and said.startswith("raw: "):
            name, _, args = said.removeprefix("raw: ").partition(" ")
            return AIMessage("", invalid_tool_calls=[invalid_tool_call(name=name, args=args, id="call_raw")])
        if isinstance(last, HumanMessage) and said.startswith("parts: "):
            return AIMessage(loads(said.removeprefix("parts: ")))
        if isinstance(last, HumanMessage) and said.startswith("tools: "):
            wanted = said.removeprefix("tools: ").split("; ")
            calls = [_call(f"call_{len(messages)}_{n}", text) for n, text in enumerate(wanted)]
            return AIMessage("on it", tool_calls=calls)
        if isinstance(last, HumanMessage) and said == "recall":
            return AIMessage(_recalled(messages))
        if isinstance(last, ToolMessage):
            asked = max(n for n, message in enumerate(messages) if isinstance(message, AIMessage))
            return AIMessage(" | ".join(str(message.content) for message in messages[asked + 1 :]))
        return AIMessage(f"you said: {last.content}")

    def _mark(self, path: str) -> None:
        leave(path, "model")


def _recalled(messages: Sequence[BaseMessage]) -> str:
    """As strict as providers are: a call without its result behind it is an error."""
    said: list[str] = []
    for n, message in enumerate(messages):
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        results = messages[n + 1 : n + 1 + len(calls)]
        if {call["id"] for call in calls} != {getattr(each, "tool_call_id", None) for each in results}:
            raise Permanent("a call has no result behind it")
        said += [str(result.content) for result in results]
    return " | ".join(said)


def _marked(text: str) -> tuple[str, str]:
    if not text.startswith("["):
        return "", text
    path, _, rest = text[1:].partition("] ")
    return path, rest


def _call(call_id: str, text: str) -> ToolCall:
    name, _, args = text.partition(" ")
    pairs = (pair.partition("=") for pair in args.split(",") if pair)
    values = {key: int(value) if value.isdigit() else value for key, _, value in pairs}
    return ToolCall(id=call_id, name=name, args=values, type="tool_call")


async def wire_money(file: str, n: int) -> str:
    """Wire money."""
    leave(file, f"wired {n}")
    return f"wired {n}"


async def book(file: str, n: int) -> str:
    """Book a room."""
    leave(file, f"booked {n}")
    return f"booked {n}"


async def count(upto: int) -> str:
    """Count."""
    return " ".join(str(n) for n in range(upto))


async def greet(name: str) -> str:
    """Greet."""
    return f"hello {name}"


def langchain_agent() -> Any:
    """An agent as LangChain's users have it, with our middleware added."""
    ledger = ToolLedger(approval=["wire_money"], once=["wire_money"], interrupted=["book"])
    return create_agent(Obedient(), [wire_money, count, book], middleware=[ledger])


def reviewed_agent() -> Any:
    """LangChain's own middleware asks a person, who may change the arguments."""
    review = HumanInTheLoopMiddleware(
        interrupt_on={"count": True, "greet": {"allowed_decisions": ["approve"]}}
    )
    return create_agent(Obedient(), [count, greet], middleware=[review])


def planner(state: MessagesState) -> dict[str, Any]:
    """Data for the program, then code for the reader."""
    data = AIMessage(content='{"steps": ["read", "write"]}', name="planner")
    code = AIMessage(content='The code:\n\n```python\n# greets\nreturn "hello", 42\n```', name="writer")
    return {"messages": [data, code]}


def planning() -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("planner", planner)
    graph.add_edge(START, "planner")
    graph.add_edge("planner", END)
    return graph


def hurried(state: Notes) -> Notes:
    return {
        "log": [
            str(
                interrupt(
                    {"kind": "elicitation", "question": "Which?", "options": ["red", "blue"], "timeout": 3600}
                )
            )
        ]
    }


def timed() -> StateGraph[Notes]:
    """A question with a deadline."""
    return chain(Notes, hurried)


def agent() -> Any:
    tools = (
        *(look_up, send_mail, read_clipboard, ask_person, open_door, my_name),
        *(effect, effect_once, effect_approved, effect_interrupted),
    )
    return Agent(model=Obedient(), tools=tools, system="You are a test.").graph()


class Monotonous(Obedient):
    """A model that says one thing only, and under one id: some servers number their answers like that."""

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        chunk = AIMessageChunk(content="hm", id="chatcmpl-1")
        if isinstance(messages[-1], HumanMessage):
            call = tool_call_chunk(name="look_up", args=dumps({"word": "x"}), id="call_0", index=0)
            chunk = AIMessageChunk(content="hm", id="chatcmpl-1", tool_call_chunks=[call])
        yield ChatGenerationChunk(message=chunk)


def monotonous_agent() -> Any:
    return Agent(model=Monotonous(), tools=(look_up,)).graph()


async def the_time(thread: Thread, events: Sequence[Event]) -> str:
    return f"the time is now, in thread {thread.id} of {len(events)} events"


def informed_agent() -> Any:
    return Agent(model=Obedient(), inject=the_time).graph()


def forgetful_agent() -> Any:
    return Agent(model=Obedient(), tools=(look_up,), compaction=Compaction(messages=6, keep=4)).graph()


def summing_agent() -> Any:
    """Sums up whatever was said, at once."""
    return Agent(model=Obedient(), compaction=Compaction(messages=1, keep=0)).graph()


async def refuses(shown: Rendered) -> str:
    raise ValueError("prompt is too long")


async def says_nothing(shown: Rendered) -> str:
    return " "


def helpless_agent() -> Any:
    return Agent(model=Obedient(), compaction=Compaction(messages=1, keep=0), sum_up=refuses).graph()


def speechless_agent() -> Any:
    return Agent(model=Obedient(), compaction=Compaction(messages=1, keep=0), sum_up=says_nothing).graph()
