"""Traces: a round with an approval and a kill is one trace at a real collector."""

import json
import signal
from pathlib import Path
from typing import Any

from tests.otlp_collector import Collector, attributes, collecting
from tests.processes import Server, clew, serving, until

GRAPH = """
from pathlib import Path
from typing import TypedDict
import time

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt


class State(TypedDict, total=False):
    question: str
    approved: bool


def ask(state):
    return {"approved": interrupt("May I?")}


def work(state):
    Path("at-work").touch()
    while not Path("go-on").exists():
        time.sleep(0.02)
    return {}


graph = StateGraph(State)
graph.add_node(ask)
graph.add_node(work)
graph.add_edge(START, "ask")
graph.add_edge("ask", "work")
graph = graph.compile()
"""
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


def project(folder: Path) -> Path:
    (folder / "agent.py").write_text(GRAPH)
    (folder / "langgraph.json").write_text(
        json.dumps({"dependencies": ["."], "graphs": {"agent": "agent.py:graph"}})
    )
    return folder


def start(server: Server, **headers: str) -> str:
    thread: str = server.post("/threads", {}).json()["thread_id"]
    body = {"assistant_id": "agent", "input": {"question": "a secret of mine"}}
    assert server.post(f"/threads/{thread}/runs", body, **headers).status_code == 200
    return thread


def comes_to(server: Server, thread: str, status: str) -> None:
    until(lambda: server.get(f"/threads/{thread}").json()["status"] == status)


def answer(server: Server, thread: str) -> None:
    body: dict[str, Any] = {"assistant_id": "agent", "command": {"resume": True}}
    assert server.post(f"/threads/{thread}/runs", body).status_code == 200


def sent(collector: Collector, count: int = 1) -> None:
    until(lambda: sum(span.name == "round agent" for span in collector.spans.values()) == count)


def test_a_round_with_an_approval_and_a_kill_is_one_trace(tmp_path: Path) -> None:
    folder = project(tmp_path)
    with collecting() as collector:
        endpoint = collector.address
        with serving(folder, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
            thread = start(server, traceparent=f"00-{TRACE}-{CALLER}-01")
            comes_to(server, thread, "interrupted")
            answer(server, thread)
            until((folder / "at-work").exists)
            server.signal(signal.SIGKILL)
            server.wait()
        (folder / "go-on").touch()
        with serving(folder, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
            comes_to(server, thread, "idle")
            sent(collector)
    assert {span.trace_id.hex() for span in collector.spans.values()} == {TRACE}
    assert collector.services == {"clew"}
    whole, wait = collector.named("round agent"), collector.named("wait approval")
    assert whole.parent_span_id.hex() == CALLER
    assert attributes(whole) | {"clew.thread_id": thread, "clew.status": "completed"} == attributes(whole)
    assert [event.name for event in whole.events] == ["recovered after a crash"]
    assert attributes(whole.events[0]) == {"clew.recovery": 1}
    assert wait.parent_span_id == whole.span_id
    assert [link.span_id for link in wait.links] == [whole.span_id]
    assert attributes(wait)["clew.wait.outcome"] == "answered"
    assert whole.start_time_unix_nano <= wait.start_time_unix_nano < wait.end_time_unix_nano
    assert wait.end_time_unix_nano <= whole.events[0].time_unix_nano < whole.end_time_unix_nano
    assert b"a secret of mine" not in b"".join(span.SerializeToString() for span in collector.spans.values())


def test_traces_missed_in_an_outage_are_sent_again(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "go-on").touch()
    with collecting() as collector:
        endpoint = collector.address
        collector.is_away = True
        with serving(folder, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint) as server:
            threads = [start(server) for _ in range(2)]
            for thread in threads:
                comes_to(server, thread, "interrupted")
                answer(server, thread)
                comes_to(server, thread, "idle")
            until(lambda: "traces cannot be sent" in server.log)
            refused = clew(folder, "traces", "export", "--since", "1h", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
            assert (refused.returncode, collector.spans) == (69, {})
            assert "did not accept" in refused.stderr
            collector.is_away = False
            for _ in range(2):
                done = clew(folder, "traces", "export", "--since", "1h", OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
                assert done.returncode == 0, done.stderr
                sent(collector, 2)
            assert server.log.count("traces cannot be sent") == 1
    assert len({span.trace_id for span in collector.spans.values()}) == 2


def test_a_trace_that_the_caller_does_not_sample_is_not_sent(tmp_path: Path) -> None:
    folder = project(tmp_path)
    (folder / "go-on").touch()
    with collecting() as collector, serving(folder, OTEL_EXPORTER_OTLP_ENDPOINT=collector.address) as server:
        threads = [start(server, traceparent=f"00-{TRACE}-{CALLER}-{flag}") for flag in ("00", "01")]
        for thread in threads:
            comes_to(server, thread, "interrupted")
            answer(server, thread)
            comes_to(server, thread, "idle")
        sent(collector)
        assert attributes(collector.named("round agent"))["clew.thread_id"] == threads[1]


def test_a_wrong_time_is_refused(tmp_path: Path) -> None:
    refused = clew(tmp_path, "traces", "export", "--since", "yesterday")
    assert refused.returncode == 1
    assert "--since: give a time span" in refused.stderr
    refused = clew(tmp_path, "traces", "export", "--since", "1h")
    assert refused.returncode == 2
    assert "OTEL_EXPORTER_OTLP_ENDPOINT is not set" in refused.stderr
