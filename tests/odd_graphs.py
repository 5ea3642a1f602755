"""Graphs that are built in unusual ways or behave badly, as those of other people do."""

import asyncio
import operator
import os
import signal
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from clew.config import Settings, load_settings
from clew.domain.errors import Permanent, Transient
from clew.domain.events import Log
from clew.graph.agent import Agent
from clew.graph.middleware import ToolLedger
from clew.graph.run import current_run
from clew.graph.tools import tool
from clew.server.app import open_app
from tests.app import House
from tests.chains import chain
from tests.processes import filled

GRAPHS = (
    *(
        "plain_gate",
        "gate_after",
        "nested_gates",
        "nested_decision",
        "nested_question",
        "flaky_gate",
        "question_first",
    ),
    *("two_gates", "two_gates_after", "two_gates_collected", "two_gates_replaced", "two_gates_checked"),
    *("two_gates_inside", "two_gates_inside_alike", "two_gates_after_inside", "two_gates_collected_inside"),
    *("gate_then_fail", "gate_then_fail_collected", "gate_then_fail_checked"),
    *(
        "ask_and_fail",
        "say_and_fail",
        "say_and_ask",
        "commanding",
        "anonymous",
        "repeating",
        "in_other_forms",
    ),
    *("cancelled", "cancelled_branch", "stubborn", "unspeakable", "talkative", "once_then_fail"),
    *(
        "deadly",
        "hurried",
        "two_naps",
        "numbering",
        "numbering_agent",
        "asking_tool",
        "heavy",
        "cut_off",
        "whispering",
    ),
    *("paid_by_args", "paid_by_args_at_once", "paid_without_end", "paid_by_a_plain_function"),
    *("misnamed_agent", "endless_agent"),
)
PLAIN_GRAPHS = ("gated", "asking", "branching", "agent", "langchain_agent")


def odd_settings(where: str, folder: Path, **environ: str) -> Settings:
    # One a process: a file that several write is at moments half a file to the others.
    config = folder / f"odd-{os.getpid()}.yaml"
    config.write_text(
        "graphs:\n"
        + "".join(f"  {name}: tests.odd_graphs:{name}\n" for name in GRAPHS)
        + "".join(f"  {name}: tests.graphs:{name}\n" for name in PLAIN_GRAPHS)
    )
    url = (
        where if where.startswith("postgres") else "memory://" if where == "memory" else f"sqlite:///{where}"
    )
    return load_settings({"CLEW_DATABASE_URL": url, **environ}, cwd=folder, config=config)


@asynccontextmanager
async def open_odd_house(where: str, folder: Path, **environ: str) -> AsyncGenerator[House]:
    async with open_app(odd_settings(where, folder, **environ)) as app:
        assert not app.execution.registry.broken, app.execution.registry.broken
        yield House(app)


class Notes(TypedDict, total=False):
    log: Annotated[list[str], operator.add]
    marks: str
    messages: Annotated[list[AnyMessage], add_messages]


class Decided(Notes, total=False):
    human_approved: bool | None


def mark(state: Notes, text: str) -> int:
    """Leave a mark, and say how often it was left before."""
    path = Path(state["marks"])
    before = path.read_text().split().count(text) if path.exists() else 0
    with path.open("a") as file:
        file.write(f"{text}\n")
    return before


def plan(state: Notes) -> Notes:
    mark(state, "plan")
    return {"log": ["plan"]}


def danger(state: Notes) -> Notes:
    mark(state, "danger")
    return {"log": ["danger"]}


def _line(*nodes: Any, state: Any = Notes) -> StateGraph[Any]:
    return chain(state, *nodes)


def plain_gate() -> Any:
    """A stop before a node, in a graph that has no word for a decision."""
    return _line(plan, danger).compile(interrupt_before=["danger"])


def gate_after() -> Any:
    return _line(plan, danger).compile(interrupt_after=["plan"])


def more_danger(state: Notes) -> Notes:
    mark(state, "more_danger")
    return {"log": ["more"]}


def nested_gates() -> Any:
    """Two stops, both inside of a graph in a graph."""
    inner = _line(plan, danger, more_danger).compile(interrupt_before=["danger", "more_danger"])
    return chain(Notes, ("inner", inner))


def decided(state: Decided) -> Notes:
    mark(state, "decided")
    return {"log": [f"approved={state.get('human_approved')}"]}


def nested_decision() -> Any:
    """A stop inside of a graph in a graph, where only the inner one has a word for the decision."""
    inner = _line(plan, decided, state=Decided).compile(interrupt_before=["decided"])
    return chain(Notes, ("inner", inner), danger)


class Collected(Notes, total=False):
    human_approved: Annotated[bool, operator.or_]


class Replaced(Notes, total=False):
    human_approved: Annotated[bool | None, lambda _, new: new]


class Checked(BaseModel):
    """A state that looks at its values, and takes no None for a yes or no."""

    log: Annotated[list[str], operator.add] = []
    marks: str = ""
    human_approved: bool = False


def _telling(name: str) -> Any:
    def node(state: Any) -> Any:
        values: Any = state.model_dump(exclude_unset=True) if isinstance(state, BaseModel) else state
        told = f"{name}={values.get('human_approved')}"
        mark(values, told)
        return {"log": [told]}

    node.__name__ = name
    return node


def _asking_twice(schema: Any) -> StateGraph[Any]:
    """A plan, what comes of it, and another plan. Each says what it knows of a decision."""
    names = ("first_plan", "first_deed", "second_plan", "second_deed")
    return _line(*map(_telling, names), state=schema)


DEEDS = ["first_deed", "second_deed"]
PLANS = ["first_plan", "second_plan"]


def two_gates() -> Any:
    return _asking_twice(Decided).compile(interrupt_before=DEEDS)


def two_gates_after() -> Any:
    return _asking_twice(Decided).compile(interrupt_after=PLANS)


def two_gates_collected() -> Any:
    return _asking_twice(Collected).compile(interrupt_before=DEEDS)


def two_gates_replaced() -> Any:
    return _asking_twice(Replaced).compile(interrupt_before=DEEDS)


def two_gates_checked() -> Any:
    return _asking_twice(Checked).compile(interrupt_before=DEEDS)


def _inside(inner: Any, schema: Any = Notes) -> Any:
    return chain(schema, ("inner", inner))


def two_gates_inside() -> Any:
    return _inside(two_gates())


def two_gates_inside_alike() -> Any:
    """The outer state has a word for a decision too."""
    return _inside(two_gates(), Decided)


def two_gates_after_inside() -> Any:
    return _inside(_inside(two_gates_after()).compile())


def two_gates_collected_inside() -> Any:
    return _inside(two_gates_collected())


def fails_first(state: Any) -> Any:
    values: Any = state.model_dump() if isinstance(state, BaseModel) else state
    told = f"approved={values.get('human_approved')}"
    if mark(values, told) == 0:
        raise Permanent("no such issue", "not_found")
    return {"log": [told]}


def _gate_then_fail(schema: Any) -> Any:
    """What comes after the gate fails once for each decision."""
    return _line(_telling("plan"), fails_first, state=schema).compile(interrupt_before=["fails_first"])


def gate_then_fail() -> Any:
    return _gate_then_fail(Decided)


def gate_then_fail_collected() -> Any:
    return _gate_then_fail(Collected)


def gate_then_fail_checked() -> Any:
    return _gate_then_fail(Checked)


def asks(state: Notes) -> Notes:
    mark(state, "asks")
    return {"log": [f"answer={interrupt({'kind': 'elicitation', 'question': 'who?'})}"]}


def nested_question() -> Any:
    return chain(Notes, plan, ("inner", _line(asks, danger).compile()))


def question_first() -> Any:
    return _line(asks, danger)


WAITS = {
    "moment": 0.2,
    "words": "soon",
    "never": float("nan"),
    "forever": float("inf"),
    "too long": 1e12,
    "yes": True,
}


def hurries(state: Notes) -> Notes:
    timeout = WAITS[Path(state["marks"]).name]
    return {"log": [f"answer={interrupt({'kind': 'elicitation', 'question': 'who?', 'timeout': timeout})}"]}


def hurried() -> Any:
    """Waits for an answer as long as its name says."""
    return _line(hurries)


def flaky_danger(state: Decided) -> Notes:
    if mark(state, "tried") == 0:
        raise Transient("overloaded", "llm_overload", retry_after=0)
    return {"log": [f"approved={state.get('human_approved')}"]}


def flaky_gate() -> Any:
    """What comes after the gate fails once."""
    return _line(plan, flaky_danger, state=Decided).compile(interrupt_before=["flaky_danger"])


async def fails_once(state: Notes) -> Notes:
    # Late: what runs beside it has begun, and has ended by then if it does so at once.
    is_marked = filled(Path(state["marks"]))
    while not is_marked():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    if mark(state, "failed") == 0:
        raise Transient("overloaded", "llm_overload", retry_after=0)
    return {"log": ["worked"]}


def _side_by_side(*nodes: Any) -> StateGraph[Any]:
    graph = StateGraph(Notes)
    for node in nodes:
        graph.add_node(node.__name__, node)
        graph.add_edge(START, node.__name__)
        graph.add_edge(node.__name__, END)
    return graph


def ask_and_fail() -> Any:
    return _side_by_side(asks, fails_once)


async def says(state: Notes) -> Notes:
    mark(state, "says")
    return {"messages": [AIMessage("said beside it")]}


def say_and_fail() -> Any:
    return _side_by_side(says, fails_once)


def say_and_ask() -> Any:
    return _side_by_side(says, asks)


def commands(state: Notes) -> list[Any]:
    return [
        Command(update={"messages": [AIMessage("one")]}),
        Command(update={"messages": [AIMessage("two")]}, goto="last"),
    ]


def last(state: Notes) -> Command[Any]:
    return Command(update={"messages": [AIMessage("three")]}, goto=END)


def commanding() -> Any:
    """Nodes that say where to go next, and more than one thing at once."""
    graph = StateGraph(Notes)
    graph.add_node("commands", commands, destinations=("last",))
    graph.add_node("last", last, destinations=(END,))
    graph.add_edge(START, "commands")
    return graph


class Bare(TypedDict, total=False):
    marks: str
    said: Annotated[list[AnyMessage], operator.add]
    messages: Annotated[list[AnyMessage], add_messages]


def speaks(state: Bare) -> Bare:
    mark(state, "speaks")  # type: ignore[arg-type]
    return {"said": [AIMessage("without a name")], "messages": [AIMessage("given a name later")]}


async def waits(state: Bare) -> Bare:
    if mark(state, "waits") == 0:  # type: ignore[arg-type]
        await asyncio.sleep(30)
    return {}


def anonymous() -> Any:
    """Messages without ids, then a node to be killed in."""
    return chain(Bare, speaks, waits)


def pair(state: Bare) -> Any:
    return {"messages": [("user", "and I"), ("ai", "as a pair")]}


def dictionary(state: Bare) -> Any:
    said = {"role": "assistant", "content": "as a dict"}
    return Command(update=[("messages", said), ("messages", ("ai", "at once"))])


def in_other_forms() -> Any:
    """Messages as the reducer of messages takes them, too; then a node to be killed in."""
    return chain(Bare, pair, dictionary, waits)


def says_all(state: Notes) -> Notes:
    return {"messages": [*state["messages"], AIMessage(f"number {len(state['messages'])}")]}


def repeating() -> Any:
    """A node that returns the whole conversation with what it adds."""

    def twice(state: Notes) -> Notes:
        return says_all(state)

    return _line(says_all, twice)


async def cancels_itself(state: Notes) -> Notes:
    mark(state, "cancels_itself")
    raise asyncio.CancelledError


def cancelled() -> Any:
    return _line(cancels_itself, danger)


def cancelled_branch() -> Any:
    graph = _side_by_side(cancels_itself, says)
    graph.add_node("danger", danger)
    graph.add_edge(["cancels_itself", "says"], "danger")
    graph.add_edge("danger", END)
    return graph


async def will_not_stop(state: Notes) -> Notes:
    mark(state, "stubborn")
    until = time.monotonic() + 2
    while time.monotonic() < until:
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return {"log": ["stubborn"]}


def stubborn() -> Any:
    """Ignores being cancelled, for a while, if it is told to; else ends at once."""

    async def maybe(state: Notes) -> Notes:
        if "be stubborn" in state["log"]:
            return await will_not_stop(state)
        return {"log": ["meek"]}

    return chain(Notes, maybe)


def says_half_a_character(state: Notes) -> Notes:
    mark(state, "unspeakable")
    return {"log": ["\ud800"]}


def unspeakable() -> Any:
    """Says what no database can keep."""
    return _line(says_half_a_character)


async def talks(state: Notes) -> Notes:
    run = current_run()
    assert run is not None
    mark(state, "talks")
    for n in range(100_000):
        run.note(Log(message=f"line {n}"))
        await asyncio.sleep(0)
    return {}


def talkative() -> Any:
    return _line(talks)


@tool(idempotent=False)
async def once(marks: str) -> str:
    """Do what must not be done twice."""
    mark({"marks": marks}, "once")
    return "done"


async def acts(state: Notes) -> Notes:
    call = {"type": "tool_call", "id": "the_call", "name": "once", "args": {"marks": state["marks"]}}
    said = await once.ainvoke(call)
    if mark(state, "acts") == 0:
        raise Permanent("no such issue", "not_found")
    return {"messages": [HumanMessage("do it"), said]}


def once_then_fail() -> Any:
    """A tool that must not be repeated, then a failure in the same node."""
    return _line(acts)


async def dies(state: Notes) -> Notes:
    mark(state, "dies")
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def deadly() -> Any:
    """Takes its process down, each time."""
    return _line(dies)


async def nap(state: Notes) -> Notes:
    mark(state, "nap")
    await asyncio.sleep(1)
    return {"log": ["nap"]}


async def second_nap(state: Notes) -> Notes:
    mark(state, "second_nap")
    await asyncio.sleep(1)
    return {"log": ["second nap"]}


def two_naps() -> Any:
    return _line(nap, second_nap)


class Numbering(BaseChatModel):
    """A model that numbers its calls anew in every turn, and calls a tool twice at once under one number."""

    @property
    def _llm_type(self) -> str:
        return "numbering"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        turns = sum(isinstance(message, ToolMessage) for message in messages)
        if turns >= 4:
            said = AIMessage(
                " ".join(str(each.content) for each in messages if isinstance(each, ToolMessage))
            )
        else:
            calls = [
                {"id": "call_0", "name": "echo", "args": {"text": f"{turns + n}"}, "type": "tool_call"}
                for n in range(2)
            ]
            said = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return f"<{text}>"


def numbering() -> Any:
    return Agent(model=Numbering(), tools=(echo,)).graph()


def numbering_agent() -> Any:
    return create_agent(Numbering(), [echo], middleware=[ToolLedger()])


@tool(approval=True, idempotent=False)
async def careful(marks: str) -> str:
    """Ask in the middle of the work."""
    answer = interrupt({"kind": "elicitation", "question": "really?"})
    mark({"marks": marks}, "careful")
    return f"done, for {answer}"


async def works(state: Notes) -> Notes:
    call = {"type": "tool_call", "id": "c", "name": "careful", "args": {"marks": state["marks"]}}
    return {"messages": [await careful.ainvoke(call)]}


def asking_tool() -> Any:
    """A tool that is asked about before it runs, and asks something itself while it does."""
    return _line(works)


@tool
async def weighs(size: int) -> str:
    """Return so many characters."""
    return "x" * size


async def carries(state: Notes) -> Notes:
    call = {"type": "tool_call", "id": "c", "name": "weighs", "args": {"size": 10_000_000}}
    return {"messages": [await weighs.ainvoke(call)]}


def heavy() -> Any:
    return _line(carries)


@tool(idempotent=False)
async def takes_long(marks: str) -> str:
    """Take long, the first time."""
    if mark({"marks": marks}, "takes_long") == 0:
        await asyncio.sleep(30)
    return "done"


async def begins(state: Notes) -> Notes:
    call = {"type": "tool_call", "id": "c", "name": "takes_long", "args": {"marks": state["marks"]}}
    return {"messages": [await takes_long.ainvoke(call)]}


def cut_off() -> Any:
    """A tool that must not be repeated is cut off by what fails beside it."""
    return _side_by_side(begins, fails_once)


def _paid(marks: str, amount: float | None) -> str:
    mark({"marks": marks}, f"paid={amount}")
    return f"paid {amount}"


@tool(approval=True)
async def pay(marks: str, amount: float | None) -> str:
    """Pay."""
    return _paid(marks, amount)


@tool(approval=True)
def pay_at_once(marks: str, amount: float | None) -> str:
    """Pay, in a function that is not async."""
    return _paid(marks, amount)


async def pays_by_args(state: Notes) -> Notes:
    return {"log": [await pay.ainvoke({"marks": state["marks"], "amount": 5})]}


def paid_by_args() -> Any:
    """A tool that needs a yes, called by its arguments alone, as in LangGraph's first examples."""
    return _line(pays_by_args)


def pays_by_args_at_once(state: Notes) -> Notes:
    return {"log": [pay_at_once.invoke({"marks": state["marks"], "amount": 5})]}


def paid_by_args_at_once() -> Any:
    return _line(pays_by_args_at_once)


def _payment(state: Notes, amount: float) -> dict[str, Any]:
    args = {"marks": state["marks"], "amount": amount}
    return {"type": "tool_call", "id": "c", "name": "pay", "args": args}


async def pays_without_end(state: Notes) -> Notes:
    return {"messages": [await pay.ainvoke(_payment(state, float("inf")))]}


def paid_without_end() -> Any:
    """Pays an amount for which JSON has no word."""
    return _line(pays_without_end)


async def pays_by_a_plain_function(state: Notes) -> Notes:
    return {"messages": [await pay_at_once.ainvoke(_payment(state, 5))]}


def paid_by_a_plain_function() -> Any:
    return _line(pays_by_a_plain_function)


class Spending(BaseChatModel):
    """A model that spends without end, into the file it is told of."""

    @property
    def _llm_type(self) -> str:
        return "spending"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        said = AIMessage("done")
        if isinstance(messages[-1], HumanMessage):
            spent = {"marks": messages[-1].text, "amount": float("inf")}
            said = AIMessage("", tool_calls=[{"id": "c", "name": "spend", "args": spent}])
        return ChatResult(generations=[ChatGeneration(message=said)])


async def spend(marks: str, amount: float | None) -> str:
    """Spend."""
    return _paid(marks, amount)


def misnamed_agent() -> Any:
    return create_agent(Spending(), [spend], middleware=[ToolLedger(approval=["spent"])])


def endless_agent() -> Any:
    return create_agent(Spending(), [spend], middleware=[ToolLedger(approval=["spend"])])


class Whispers(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], EphemeralValue]


def whispering() -> Any:
    """What a node says is in the state until the next one has spoken."""
    return chain(
        Whispers,
        ("first", lambda _: {"messages": [AIMessage("one", id="one")]}),
        ("second", lambda _: {"messages": [AIMessage("two", id="two")]}),
    )
