"""Tool calls that are rebuilt from the log alone, which does not tell whether a tool was begun."""

import pytest

from clew.domain.events import Body, Event, Resolution, RoundFinished, RoundStarted, ToolCall, ToolResult
from clew.domain.events import Suspension as Asked
from clew.domain.thread import Executor, Status, SuspensionKind
from clew.domain.tool_calls import CallStatus, rebuild_calls
from tests.samples import NOW

CALL = ToolCall(call_id="c1", name="pay", args={})
GATE = Asked(call_id="c1", executor=Executor.SERVER, kind=SuspensionKind.APPROVAL, prompt=None)
DOUBT = Asked(call_id="c1", executor=Executor.SERVER, kind=SuspensionKind.IN_DOUBT, prompt=None)
YES = Resolution(call_id="c1", outcome="answered", settles=False)
FAILED = RoundFinished(status=Status.FAILED)
AGAIN = RoundStarted(round=1)
CLIENTS = ToolCall(call_id="c1", name="open", args={}, executor=Executor.CLIENT)


@pytest.mark.parametrize(
    ("bodies", "status", "was_begun"),
    [
        ([CALL], CallStatus.STARTED, True),
        ([CALL, GATE], CallStatus.PENDING, False),
        ([CALL, GATE, YES], CallStatus.STARTED, True),
        ([CALL, DOUBT], CallStatus.IN_DOUBT, True),
        ([CALL, ToolResult(call_id="c1", ok=True)], CallStatus.RESOLVED, True),
        ([CALL, FAILED], CallStatus.ERRORED, True),
        ([CALL, FAILED, AGAIN], CallStatus.STARTED, True),
        ([CALL, GATE, FAILED], CallStatus.ERRORED, False),
        ([CALL, GATE, FAILED, AGAIN], CallStatus.PENDING, False),
        ([CLIENTS], CallStatus.PENDING, False),
    ],
)
def test_a_tool_that_may_have_been_begun_counts_as_begun(
    bodies: list[Body], status: CallStatus, was_begun: bool
) -> None:
    log = [
        Event(thread_id="t1", seq=n, id=f"evt_{n}", round=1, at=NOW, body=body)
        for n, body in enumerate(bodies, 1)
    ]
    (call,) = rebuild_calls(log).values()
    assert (call.status, call.started_at is not None) == (status, was_begun)
