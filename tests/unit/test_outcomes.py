"""How a graph that ran to its end has ended: completed, or failed because a person said no."""

import pytest

from clew.domain.events import AssistantMessage, Body, Event, Resolution, RoundStarted, RunSpec
from clew.domain.thread import Executor
from clew.domain.tool_calls import GATE
from clew.engine.outcomes import Completed, Failed, ended
from tests.samples import NOW, waits

LAST = AssistantMessage(content="done", marker="last")
SPEC = RunSpec(run_id="r1", assistant_id="a1", graph="g")
STOP = f"{GATE}1"


def answered(call_id: str, answer: object, order: RunSpec | None = None) -> Resolution:
    return Resolution(call_id=call_id, outcome="answered", answer=answer, spec=order)


@pytest.mark.parametrize(
    ("bodies", "reason"),
    [
        ([], None),
        ([waits("i1"), answered("i1", {"approved": True})], None),
        ([waits("i1"), answered("i1", {"approved": False})], "rejected"),
        ([waits("i1"), answered("i1", {"approved": False, "feedback": "too dear"})], "too dear"),
        # What is neither a yes nor a no is an answer like any other.
        ([waits("i1"), answered("i1", "blue")], None),
        ([waits("i1"), answered("i1", False)], None),
        # A breakpoint opens to a plain yes only.
        ([waits(STOP), answered(STOP, False)], "rejected"),
        ([waits(STOP), answered(STOP, "blue")], "rejected"),
        ([waits(STOP), answered(STOP, True)], None),
        # The last word counts.
        ([waits(STOP), answered(STOP, False), waits("i1"), answered("i1", {"approved": True})], None),
        ([waits("i1"), answered("i1", {"approved": True}), waits(STOP), answered(STOP, False)], "rejected"),
        # A client's result of a tool is no decision of a person.
        ([waits("c1", executor=Executor.CLIENT), answered("c1", {"approved": False})], None),
        # In a run of LangGraph's API the graph says what an answer means; a breakpoint stays one.
        ([waits("i1"), answered("i1", {"approved": False}, SPEC)], None),
        ([RoundStarted(round=1, spec=SPEC), waits("i1"), answered("i1", {"approved": False})], None),
        ([waits(STOP), answered(STOP, False, SPEC)], "rejected"),
    ],
)
def test_a_graph_that_ended_after_a_no_has_failed(bodies: list[Body], reason: str | None) -> None:
    log = [
        Event(thread_id="t1", seq=seq, id=f"e{seq}", round=1, at=NOW, body=body)
        for seq, body in enumerate([RoundStarted(round=1), *bodies], 1)
    ]
    outcome = Completed(messages=[LAST]) if reason is None else Failed(reason=reason, messages=[LAST])
    assert ended(log, [LAST]) == outcome
