"""What a caller's order makes of a config, and what it cannot."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Send

from clew.checkpointer.rows import FENCE
from clew.domain.events import Opening, Resolution, RunSpec
from clew.domain.lifecycle import carry_out, open_idle
from clew.graph.driver import ROUND
from clew.graph.run_config import MOST_STEPS, command_of, newest_order, ordered_config, with_stops
from clew.history.agent_node import TENANT
from tests.acceptance.run_graphs import echo
from tests.samples import ANN, recorded, stamp, waits

OURS: RunnableConfig = {
    "configurable": {"thread_id": "t1", FENCE: 7, TENANT: "acme"},
    "metadata": {ROUND: 3},
    "recursion_limit": 500,
}
# What says where a run is, under whose fence, and what LangGraph tells itself.
FORBIDDEN = (
    "thread_id",
    "checkpoint_id",
    "checkpoint_ns",
    "checkpoint_map",
    FENCE,
    TENANT,
    ROUND,
    "clew_anything",
    "__pregel_checkpointer",
    "__pregel_resuming",
    "__pregel_task_id",
    "langgraph_auth_user",
    "langgraph_auth_user_id",
    "langgraph_auth_permissions",
    "langgraph_request_id",
)


def order(**more: Any) -> RunSpec:
    return RunSpec(run_id="r1", assistant_id="a1", graph="echo", **more)


def test_an_order_adds_to_the_config() -> None:
    wanted = {
        "configurable": {"color": "red"},
        "metadata": {"m": 1},
        "tags": ["a"],
        "recursion_limit": 7,
    }
    config = ordered_config(OURS, order(config=wanted, metadata={"k": 2}))
    names = {"run_id": "r1", "assistant_id": "a1", "graph_id": "echo"}
    assert config == {
        "configurable": {**OURS["configurable"], "color": "red", **names},
        "metadata": {ROUND: 3, "m": 1, "k": 2, **names},
        "tags": ["a"],
        "recursion_limit": 7,
    }


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_is_not_the_callers_cannot_be_said(name: str) -> None:
    forged = {name: "forged"}
    config = ordered_config(OURS, order(config={"configurable": forged, "metadata": forged}, metadata=forged))
    assert "forged" not in str(config)
    for part in ("configurable", "metadata"):
        assert config[part].get(name) == OURS[part].get(name)


@pytest.mark.parametrize("name", ["run_id", "assistant_id", "graph_id"])
def test_what_a_run_is_called_by_is_said_by_its_order(name: str) -> None:
    forged = {name: "forged"}
    config = ordered_config(OURS, order(config={"configurable": forged, "metadata": forged}, metadata=forged))
    assert "forged" not in str(config)


@given(
    st.dictionaries(
        st.sampled_from(["configurable", "metadata", "tags", "recursion_limit", "callbacks", "other"]),
        st.none() | st.integers() | st.text() | st.lists(st.text()) | st.dictionaries(st.text(), st.text()),
    )
)
def test_no_config_is_too_strange(wanted: dict[str, Any]) -> None:
    config = ordered_config(OURS, order(config=wanted))
    assert OURS["configurable"].items() <= config["configurable"].items()
    assert 1 <= config["recursion_limit"] <= MOST_STEPS
    assert "callbacks" not in config


def test_an_order_without_a_command_gives_none() -> None:
    assert command_of(order()) is None
    assert command_of(order(command={"update": None, "goto": None})) is None


def test_a_command_updates_goes_and_resumes() -> None:
    told = order(command={"update": {"a": 1}, "goto": ["x", {"node": "y", "input": 2}]})
    assert command_of(told, {"q": "yes"}) == Command(
        update={"a": 1}, goto=["x", Send("y", 2)], resume={"q": "yes"}
    )
    assert command_of(order(command={"goto": "x"})) == Command(goto=["x"])
    assert command_of(order(), {"q": "yes"}) == Command(goto=[], resume={"q": "yes"})
    pairs = order(command={"update": [["a", 1], ["b", 2]]})
    assert command_of(pairs) == Command(update=[("a", 1), ("b", 2)], goto=[])


def test_the_stops_of_an_order_take_the_place_of_the_graphs_own() -> None:
    graph = echo()
    assert with_stops(graph, None) is graph
    assert with_stops(graph, order()) is graph
    stopped = with_stops(graph, order(stops_before=("second",), stops_after=("*",)))
    assert (stopped.interrupt_before_nodes, stopped.interrupt_after_nodes) == (["second"], "*")
    assert (graph.interrupt_before_nodes, graph.interrupt_after_nodes) == ([], [])


def test_what_was_ordered_last_counts() -> None:
    idle = open_idle("t1", Opening(owner=ANN, graph=""), stamp=stamp())
    assert newest_order(idle.events) is None
    begun = carry_out(idle.thread, order(), (), None, stamp=stamp())
    assert newest_order(begun.events) == order()
    asked = recorded(begun.thread, waits("c1"))
    again = order(modes=("values",))
    answered = recorded(asked.thread, Resolution(call_id="c1", outcome="answered", order=again))
    assert newest_order([*begun.events, *asked.events, *answered.events]) == again
