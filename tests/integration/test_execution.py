"""A thread from its start to its rest: questions, gates, tools, failures and stops, on real graphs and databases."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.config import load_settings
from clew.domain.errors import InvalidState, LostLease
from clew.domain.events import (
    AssistantMessage,
    Log,
    Opening,
    RoundFinished,
    StageChanged,
    StageCompleted,
    Suspension,
    ToolCall,
    ToolResult,
)
from clew.domain.records import RunScope
from clew.domain.thread import Owner, Status, SuspensionKind
from clew.domain.tool_calls import Call, CallStatus
from clew.domain.views import Token
from clew.engine.commands import Request
from clew.ports.tool_calls import Calls
from clew.server.app import open_app
from tests.app import House, open_house
from tests.databases import APP_DATABASES, locate
from tests.http_client import client_of
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]


@pytest.fixture(params=APP_DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.fixture
async def house(where: str, tmp_path: Path) -> AsyncGenerator[House]:
    async with open_house(where, tmp_path) as house:
        yield house


class TestGate:
    async def test_a_yes_goes_on_where_it_stopped(self, house: House, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        thread = await house.run("gated", log=["in"], marks=str(marks))
        assert thread.status is Status.BLOCKED
        assert [call.kind for call in thread.pending.values()] == [SuspensionKind.APPROVAL]
        assert (await house.state(thread))["log"] == ["in", "plan"]

        await house.app.execution.commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert (await house.state(thread))["log"] == ["in", "plan", "approved=True", "code"]
        assert marks.read_text().split() == ["architect", "developer"]

    async def test_a_no_fails_for_the_reason_given(self, house: House) -> None:
        thread = await house.run("gated", log=[])
        await house.app.execution.commands.approve(thread.id, None, approved=False, feedback="too vague")
        thread = await house.rest(thread)
        assert (thread.status, thread.failure_reason) == (Status.FAILED, "too vague")
        assert (await house.state(thread))["log"] == ["plan", "approved=False"]

    async def test_a_decision_is_not_used_twice(self, house: House) -> None:
        thread = await house.run("gated", log=[])
        await house.app.execution.commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        again = await house.app.execution.commands.next_round(thread.id, None, _input(log=["more"]))
        thread = await house.rest(again)
        assert (thread.status, thread.round) == (Status.BLOCKED, 2)
        assert (await house.state(thread))["human_approved"] is None

    async def test_a_state_is_changed_by_hand_only_while_nobody_runs_it(self, house: House) -> None:
        graph_driver, store = house.app.execution.graph_driver, house.app.stores.threads
        thread = await house.run("two_steps", log=[])
        before = await store.fence(thread.id)
        again = await house.app.execution.commands.next_round(thread.id, None, _input(log=["more"]))
        thread = await house.rest(again)
        log = (await house.state(thread))["log"]
        with pytest.raises(LostLease):
            await graph_driver.change_state(thread, {"log": ["late"]}, fence=before)
        assert (await house.state(thread))["log"] == log
        await graph_driver.change_state(thread, {"log": ["by hand"]}, fence=await store.fence(thread.id))
        assert (await house.state(thread))["log"] == [*log, "by hand"]

    async def test_two_answers_at_once_one_counts(self, house: House, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        thread = await house.run("gated", log=[], marks=str(marks))
        commands = house.app.execution.commands
        outcomes = await asyncio.gather(
            *(commands.approve(thread.id, None, approved=yes, feedback="x") for yes in (True, False, True)),
            return_exceptions=True,
        )
        assert sum(isinstance(outcome, InvalidState) for outcome in outcomes) == 2
        await house.rest(thread)
        assert marks.read_text().count("developer") <= 1


class TestQuestions:
    async def test_one_node_asks_twice(self, house: House) -> None:
        thread = await house.run("asking", log=[])
        for answer in ("Ada", "36"):
            (call_id,) = thread.pending
            await house.app.execution.commands.resolve(thread.id, None, call_id, answer)
            thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert (await house.state(thread))["log"] == ["Ada is 36"]

    @pytest.mark.fault("C11")
    async def test_each_branch_gets_its_own_answer(self, house: House) -> None:
        thread = await house.run("branching", log=[])
        asked = {call_id: call.prompt["branch"] for call_id, call in thread.pending.items()}
        assert sorted(asked.values()) == ["a", "b", "c"]
        for call_id in sorted(asked, key=lambda call_id: asked[call_id], reverse=True):
            thread = await house.app.execution.commands.resolve(
                thread.id, None, call_id, f"for {asked[call_id]}"
            )
        thread = await house.rest(thread)
        assert sorted((await house.state(thread))["log"]) == ["a=for a", "b=for b", "c=for c"]

    async def test_a_late_or_second_answer_is_refused(self, house: House) -> None:
        thread = await house.run("asking", log=[])
        (call_id,) = thread.pending
        await house.app.execution.commands.resolve(thread.id, None, call_id, "Ada")
        with pytest.raises(InvalidState):
            await house.app.execution.commands.resolve(thread.id, None, call_id, "Eve")
        assert (await house.calls(thread))[call_id].result == "Ada"


class TestTools:
    async def test_a_plain_tool_runs_and_is_logged_once(self, house: House) -> None:
        thread = await house.run("agent", "tools: look_up word=clew")
        assert thread.status is Status.COMPLETED
        (call,) = await house.bodies(thread, ToolCall)
        (result,) = await house.bodies(thread, ToolResult)
        assert (call.name, call.args, result.result) == ("look_up", {"word": "clew"}, "clew means something")
        said = [message.content for message in await house.bodies(thread, AssistantMessage)]
        assert said == ["on it", "clew means something"]

    async def test_what_is_approved_is_what_runs(self, house: House) -> None:
        thread = await house.run("agent", "tools: send_mail to=ada")
        ((call_id, pending),) = thread.pending.items()
        assert (pending.kind, pending.prompt["tool"], pending.prompt["args"]) == (
            SuspensionKind.APPROVAL,
            "send_mail",
            {"to": "ada"},
        )
        assert await house.bodies(thread, ToolResult) == []
        await house.app.execution.commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        (result,) = await house.bodies(thread, ToolResult)
        assert (result.ok, result.result) == (True, "sent to ada")
        assert (await house.calls(thread))[call_id].status is CallStatus.RESOLVED

    async def test_a_refused_tool_does_not_run_and_the_turn_goes_on(self, house: House) -> None:
        thread = await house.run("agent", "tools: send_mail to=ada")
        await house.app.execution.commands.approve(thread.id, None, approved=False, by="eve")
        thread = await house.rest(thread)
        (result,) = await house.bodies(thread, ToolResult)
        assert (thread.status, result.ok, result.error) == (Status.COMPLETED, False, "refused by eve")

    async def test_tools_of_one_turn_wait_for_all_answers(self, house: House) -> None:
        thread = await house.run("agent", "tools: send_mail to=ada; look_up word=x; send_mail to=bob")
        assert len(thread.pending) == 2
        ran = [result.result for result in await house.bodies(thread, ToolResult)]
        assert ran == ["x means something"]
        for call_id in reversed(list(thread.pending)):
            thread = await house.app.execution.commands.resolve(thread.id, None, call_id, {"approved": True})
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        results = {result.call_id: result.result for result in await house.bodies(thread, ToolResult)}
        assert sorted(results.values()) == ["sent to ada", "sent to bob", "x means something"]
        assert len(await house.bodies(thread, ToolResult)) == 3

    @pytest.mark.parametrize(
        ("name", "kind"), [("read_clipboard", "client_exec"), ("ask_person question=a", "elicitation")]
    )
    async def test_a_tool_that_others_carry_out(self, house: House, name: str, kind: str) -> None:
        thread = await house.run("agent", f"tools: {name}")
        ((call_id, pending),) = thread.pending.items()
        assert pending.kind == kind
        await house.app.execution.commands.resolve(thread.id, None, call_id, "from outside")
        thread = await house.rest(thread)
        (result,) = await house.bodies(thread, ToolResult)
        assert (thread.status, result.result) == (Status.COMPLETED, "from outside")

    async def test_a_gated_client_tool_is_asked_for_approval_once(self, house: House) -> None:
        thread = await house.run("agent", "tools: open_door number=7")
        await house.app.execution.commands.approve(thread.id, None, approved=True)
        thread = await house.rest(thread)
        ((call_id, pending),) = thread.pending.items()
        assert pending.kind is SuspensionKind.CLIENT_EXEC
        await house.app.execution.commands.resolve(thread.id, None, call_id, "opened")
        thread = await house.rest(thread)
        kinds = [suspension.kind for suspension in await house.bodies(thread, Suspension)]
        assert (thread.status, kinds) == (
            Status.COMPLETED,
            [SuspensionKind.APPROVAL, SuspensionKind.CLIENT_EXEC],
        )

    async def test_a_tool_that_needs_a_user(self, house: House) -> None:
        nobody = await house.run("agent", "tools: my_name")
        (result,) = await house.bodies(nobody, ToolResult)
        assert not result.ok
        thread = await house.start("agent", "tools: my_name", scope=RunScope(user_id="ada", is_system=False))
        thread = await house.rest(thread)
        (result,) = await house.bodies(thread, ToolResult)
        assert result.result == "somebody"

    async def test_odd_calls_are_answered_not_crashed_on(self, house: House) -> None:
        thread = await house.run("agent", "tools: no_such_tool; look_up wrong=1")
        assert thread.status is Status.COMPLETED
        errors = [result.error for result in await house.bodies(thread, ToolResult)]
        assert "no tool 'no_such_tool'" in errors[0] or "no tool 'no_such_tool'" in errors[1]
        assert any("invalid tool arguments" in error for error in errors)

    async def test_the_next_round_knows_the_one_before(self, house: House) -> None:
        thread = await house.run("agent", "tools: look_up word=clew")
        again = await house.app.execution.commands.next_round(
            thread.id, None, _says("tools: look_up word=ball")
        )
        thread = await house.rest(again)
        said = [message.content for message in await house.bodies(thread, AssistantMessage)]
        assert said[-1] == "ball means something"
        assert thread.stats.messages == 6


class TestLangChainAgent:
    async def test_existing_tools_gain_the_ledger(self, house: House, tmp_path: Path) -> None:
        effects = tmp_path / "effects"
        thread = await house.run(
            "langchain_agent",
            f"tools: wire_money file={effects},n=5; count upto=3; wire_money file={effects},n=6",
        )
        assert thread.status is Status.BLOCKED
        assert [call.prompt["tool"] for call in thread.pending.values()] == ["wire_money", "wire_money"]
        assert not effects.exists()
        answers = dict(zip(thread.pending, (True, False), strict=True))
        for call_id, yes in answers.items():
            thread = await house.app.execution.commands.resolve(
                thread.id, None, call_id, {"approved": yes}, approved=yes
            )
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert effects.read_text().split("\n") == ["wired 5", ""]
        results = {result.call_id: result for result in await house.bodies(thread, ToolResult)}
        assert len(results) == len(await house.bodies(thread, ToolResult)) == 3
        assert [results[call_id].ok for call_id in answers] == [True, False]
        assert len(await house.bodies(thread, ToolCall)) == 3


class TestFailure:
    async def test_what_a_retry_cures_is_tried_again_from_the_last_checkpoint(
        self, where: str, tmp_path: Path
    ) -> None:
        marks = tmp_path / "marks"
        quick = "profiles: {default: {driver: offline, retry: {base_delay: 0.1}}}\n"
        async with open_house(where, tmp_path, more=quick) as house:
            thread = await house.run("flaky", log=[], marks=str(marks))
            assert thread.status is Status.COMPLETED
            assert (await house.state(thread))["log"] == ["plan", "worked at try 3"]
            assert marks.read_text().split() == ["architect", "tried", "tried", "tried"]
            attempts = [line.attempt for line in await house.bodies(thread, Log)]
            assert attempts == [1, 2]

    async def test_a_run_outlives_more_outages_than_a_few(self, where: str, tmp_path: Path) -> None:
        """The database is away once in every step, and the run stores something in between."""
        async with open_house(where, tmp_path) as house, client_of(house.app.http) as http:
            body = {
                "graph": "stumbling",
                "prompt": "go",
                "input": {"log": [], "marks": str(tmp_path / "marks")},
            }
            thread_id = (await http.post("/api/workflows/start", json=body)).json()["id"]
            await house.rest(await house.app.stores.threads.get(thread_id), seconds=60)
            shown = (await http.get(f"/api/threads/{thread_id}")).json()
            assert (shown["status"], shown["failureReason"]) == ("completed", None)
            events = (await http.get(f"/api/threads/{thread_id}/events?types=log")).json()["events"]
            assert [one for one in events if one["content"].get("attempt")] == []  # it cost no attempt

    @pytest.mark.parametrize(
        ("given", "named"),
        [("not_found", "not_found"), ("rate_limit", "rate_limit"), ("a class of its own", "internal")],
    )
    async def test_what_no_retry_cures_fails_at_once(
        self, house: House, tmp_path: Path, given: str, named: str
    ) -> None:
        marks = tmp_path / "marks"
        thread = await house.run("broken", log=[given], marks=str(marks))
        assert thread.status is Status.FAILED
        assert thread.failure_reason == f"{named} after 1 attempt: not retried: no such issue"
        assert marks.read_text().split() == ["tried"]

    async def test_what_waits_to_be_tried_again_is_handed_over_when_its_process_ends(
        self, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "clew.engine.step")
        marks = tmp_path / "marks"
        # Far longer than this test may take, and longer than a process is given to end.
        patient = "profiles: {default: {driver: offline, retry: {base_delay: 30, max_delay: 300}}}\n"
        async with open_house(where, tmp_path, more=patient) as house:
            thread = await house.start("overloaded_for_long", log=[], marks=str(marks))
            async with asyncio.timeout(30):
                while not await house.bodies(thread, Log):
                    await asyncio.sleep(0.01)
        assert marks.read_text().split() == ["tried"]
        assert "run handed over" in caplog.text

    async def test_a_failed_thread_is_taken_up_where_it_stood(self, house: House, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        thread = await house.run("broken", log=[], marks=str(marks))
        again = await house.app.execution.commands.resume(thread.id, None)
        thread = await house.rest(again)
        assert (thread.status, thread.round) == (Status.FAILED, 1)
        assert marks.read_text().split() == ["tried", "tried"]
        done = await house.run("two_steps", log=[])
        with pytest.raises(InvalidState):
            await house.app.execution.commands.resume(done.id, None)


class TestStop:
    async def test_a_stop_ends_at_once_and_for_good(self, house: House, tmp_path: Path) -> None:
        marks = tmp_path / "marks"
        thread = await house.start("slow", marks=str(marks))
        await until(marks.exists)
        thread = await house.app.execution.commands.stop(thread.id, None)
        assert thread.status is Status.STOPPED
        length = len(await house.log(thread))
        with pytest.raises(InvalidState):
            await house.app.execution.commands.stop(thread.id, None)
        await asyncio.sleep(0.3)
        assert len(await house.log(thread)) == length

    async def test_what_was_said_until_the_stop_is_kept(self, house: House) -> None:
        # More than can be said before the stop, however long that takes.
        thread = await house.start("agent", "slowly: one two " + "and so on " * 100 + "to the end")
        drafts = house.app.execution.commands.drafts
        await until(lambda: "one two" in drafts.get(thread.id, ""))
        thread = await house.app.execution.commands.stop(thread.id, None)
        (message,) = await house.bodies(thread, AssistantMessage)
        assert message.cancelled
        assert "one two" in message.content
        assert "to the end" not in message.content

    async def test_open_calls_are_cancelled_with_the_round(self, house: House) -> None:
        thread = await house.run("agent", "tools: send_mail to=ada")
        thread = await house.app.execution.commands.stop(thread.id, None)
        (result,) = await house.bodies(thread, ToolResult)
        assert result.error == "[cancelled]"
        again = await house.app.execution.commands.next_round(thread.id, None, _says("hello"))
        assert (await house.rest(again)).status is Status.COMPLETED


class TestExpiry:
    async def test_nobody_answers_and_the_thread_goes_on(self, house: House) -> None:
        thread = await house.run("agent", "tools: send_mail to=ada")
        (call_id,) = thread.pending
        now = house.app.execution.commands.clock()
        assert await house.app.stores.calls.reschedule(thread.id, call_id, now - timedelta(seconds=1))
        thread = await house.rest(thread)
        assert thread.status is Status.COMPLETED
        assert (await house.calls(thread))[call_id].status is CallStatus.EXPIRED
        (result,) = await house.bodies(thread, ToolResult)
        assert result.error == "tool call expired: no response"

    async def test_who_was_told_that_there_is_more_time_has_it(self, house: House) -> None:
        """The deadline is moved when whoever ends the call has looked at it for the last time."""
        calls, commands = house.app.stores.calls, house.app.execution.commands
        thread = await house.run("agent", "tools: ask_person question=a")
        (call_id,) = thread.pending
        later = commands.clock() + timedelta(hours=1)
        slow = replace(commands, calls=Overtaken(calls, later))
        overdue = replace(await calls.get(thread.id, call_id), deadline=commands.clock())
        with pytest.raises(InvalidState):
            await slow.expire(overdue)
        assert (await house.app.stores.threads.get(thread.id)).status is Status.BLOCKED
        assert (await calls.get(thread.id, call_id)).deadline == later


class Overtaken:
    """Calls as one reads them whose every look is late: what it saw as overdue is given more time at once."""

    def __init__(self, calls: Calls, later: datetime) -> None:
        self._calls, self._later = calls, later

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    async def get(self, thread_id: str, call_id: str) -> Call:
        call = await self._calls.get(thread_id, call_id)
        if call.deadline is not None:
            return call
        assert await self._calls.reschedule(thread_id, call_id, self._later)
        return replace(call, deadline=datetime.min.replace(tzinfo=UTC))


class TestLog:
    async def test_each_node_starts_and_completes_once(self, house: House) -> None:
        thread = await house.run("two_steps", log=[])
        started = [body.stage for body in await house.bodies(thread, StageChanged)]
        completed = [body.stage for body in await house.bodies(thread, StageCompleted)]
        assert started == completed == ["architect", "developer"]
        assert [event.seq for event in await house.log(thread)] == list(range(1, thread.last_seq + 1))
        assert len(await house.bodies(thread, RoundFinished)) == 1


def _input(**state: object) -> Request:
    return Request(graph_input=state)


def _says(message: str) -> Request:
    return Request(message=message)


async def test_a_model_that_uses_one_id_for_all_it_says_is_heard_each_time(tmp_path: Path) -> None:
    async with open_house("memory", tmp_path) as house:
        thread = await house.run("monotonous_agent", "hello")
        said = await house.bodies(thread, AssistantMessage)
        assert (thread.status, [one.content for one in said]) == (Status.COMPLETED, ["hm", "hm"])
        assert said[0].ref == "chatcmpl-1"
        assert len({one.ref for one in said}) == 2


async def test_a_summary_is_a_model_call_and_no_part_of_the_conversation(tmp_path: Path) -> None:
    heard: list[Token] = []

    def hear(token: Token) -> bool:
        heard.append(token)
        return True

    recording = {"CLEW_MODEL_CALLS_RECORD": "true", "CLEW_VERBOSE": "true"}
    async with open_house("memory", tmp_path, **recording) as house:
        with house.app.execution.live.listen(hear):
            thread = await house.run("summing_agent", "hello")
        summary, _ = await house.app.stores.summaries.load_since(thread.id)
        assert summary is not None
        assert "Summarize the conversation" in str(summary.content)
        recorded = await house.app.stores.audit.find(thread.id)
        assert [call.status for call in recorded] == ["ok", "ok"]
        assert sum("Summarize the conversation" in str(call.rendered_context) for call in recorded) == 1
    assert {token.agent for token in heard} == {"model"}


@pytest.mark.parametrize("graph", ["helpless_agent", "speechless_agent"])
async def test_an_answer_that_was_given_does_not_fail_with_its_summary(tmp_path: Path, graph: str) -> None:
    async with open_house("memory", tmp_path) as house:
        thread = await house.run(graph, "hello")
        assert thread.status is Status.COMPLETED
        assert [said.content for said in await house.bodies(thread, AssistantMessage)] == ["you said: hello"]
        summary, events = await house.app.stores.summaries.load_since(thread.id)
        assert (summary, len(events)) == (None, thread.last_seq)


async def test_whoever_woke_a_thread_is_known_to_the_process_that_runs_it(tmp_path: Path) -> None:
    where = str(tmp_path / "clew.sqlite")
    environ = {"CLEW_RUNNER_CONCURRENCY": "1", "CLEW_SHUTDOWN_SECONDS": "0"}
    async with open_house(where, tmp_path, **environ) as one:
        slow = await one.start("slow", marks=str(tmp_path / "marks"))
        await until(lambda: (tmp_path / "marks").exists())
        ada = RunScope(user_id="ada", is_system=False)
        thread = await one.start("agent", "tools: my_name", scope=ada)
        deadline = await one.start("agent", "tools: my_name")
        async with open_house(where, tmp_path) as other:
            (result,) = await other.bodies(await other.rest(thread), ToolResult)
            assert (result.ok, result.result) == (True, "somebody")
            (result,) = await other.bodies(await other.rest(deadline), ToolResult)
            assert (result.ok, "no user is here" in result.error) == (False, True)
            await other.app.execution.commands.stop(slow.id, None)


async def test_stages_that_a_graph_does_not_have_are_named_and_stop_no_other(tmp_path: Path) -> None:
    config = tmp_path / "clew.yaml"
    config.write_text(
        "graphs:\n  wrong: {path: 'tests.graphs:gated', stages: [architekt]}\n  right: tests.graphs:gated\n"
    )
    settings = load_settings({"CLEW_DATABASE_URL": "memory://"}, cwd=tmp_path, config=config)
    async with open_app(settings) as app:
        registry = app.execution.registry
        assert "right" in registry.graphs
        assert "wrong" not in registry.graphs
        assert "architekt" in registry.broken["wrong"]


async def test_a_module_that_ends_its_process_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "leaving.py").write_text("import sys\n\nsys.exit('no key, no graph')\n")
    (tmp_path / "clew.yaml").write_text("graphs:\n  wrong: ./leaving.py:graph\n  right: tests.graphs:gated\n")
    settings = load_settings({"CLEW_DATABASE_URL": "memory://"}, cwd=tmp_path)
    async with open_app(settings) as app:
        registry = app.execution.registry
        assert "right" in registry.graphs
        assert registry.broken == {"wrong": "./leaving.py:graph: SystemExit: no key, no graph"}


async def test_a_graph_in_another_language_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "agent.ts").write_text("export const graph = 1;\n")
    graphs = {
        "page": {"path": "./agent.ts:graph"},
        "away": "./src/agent.js:graph",
        "right": "tests.graphs:gated",
    }
    (tmp_path / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs}))
    settings = load_settings({"CLEW_DATABASE_URL": "memory://"}, cwd=tmp_path)
    async with open_app(settings) as app:
        registry = app.execution.registry
        assert "right" in registry.graphs
        assert registry.broken == {
            "page": "./agent.ts:graph: it is not a Python file",
            "away": "./src/agent.js:graph: it is not a Python file",
        }


async def test_a_thread_whose_graph_is_away_waits_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A deployment with a broken import must not fail what runs."""
    url = {"CLEW_DATABASE_URL": f"sqlite:///{tmp_path}/clew.sqlite"}
    config = tmp_path / "one.yaml"
    config.write_text("graphs:\n  two_steps: tests.nothing:two_steps\n")
    async with open_house(str(tmp_path / "clew.sqlite"), tmp_path, CLEW_SHUTDOWN_SECONDS="0") as house:
        await house.run("two_steps", log=[])  # it can be run
        thread = await house.app.execution.commands.start(
            Opening(owner=Owner(), graph="two_steps"), Request(graph_input={"log": []}), held=True
        )
    async with open_app(load_settings(url, cwd=tmp_path, config=config)) as app:
        assert "two_steps" in app.execution.registry.broken
        await app.execution.commands.begin(thread.id, None)
        other = await app.execution.commands.start(
            Opening(owner=Owner(), graph="chat"), Request(message="hello")
        )
        async with asyncio.timeout(30):
            while (await app.stores.threads.get(other.id)).status is Status.RUNNING:
                await asyncio.sleep(0.01)
        assert (await app.stores.threads.get(thread.id)).status is Status.RUNNING
    async with open_app(load_settings(url, cwd=tmp_path, config=config)) as app:
        assert "1 running threads wait for a graph that is not here" in caplog.text
    async with open_house(str(tmp_path / "clew.sqlite"), tmp_path) as house:
        assert (await house.rest(thread)).status is Status.COMPLETED


@pytest.mark.parametrize(("graph", "count"), [("agent", 1000), ("langchain_agent", 300)])
async def test_a_model_that_asks_for_what_is_not_there_or_for_far_too_much(
    tmp_path: Path, graph: str, count: int
) -> None:
    async with open_house(str(tmp_path / "clew.sqlite"), tmp_path) as house:
        thread = await house.run(graph, "tools: no_such_tool x=1")
        (result,) = await house.bodies(thread, ToolResult)
        assert (thread.status, result.ok, "no_such_tool" in result.error) == (Status.COMPLETED, False, True)
        many = "; ".join(f"no_such_tool word=w{n}" for n in range(count))
        thread = await house.rest(await house.start(graph, f"tools: {many}"), seconds=60)
        assert thread.status is Status.COMPLETED
        assert len(await house.bodies(thread, ToolResult)) == count


@pytest.mark.parametrize("thought", ["<think>The user is slow.</think>", "aloud</think>"])
async def test_an_agent_records_no_thoughts_as_its_answer(tmp_path: Path, thought: str) -> None:
    async with open_house("memory", tmp_path) as house:
        thread = await house.run("agent", f"{thought}Four.")
        (said,) = await house.bodies(thread, AssistantMessage)
    assert "Four." in said.content
    assert "think" not in said.content


async def test_a_run_does_not_wait_for_a_write_beside_its_thread(postgres_url: str, tmp_path: Path) -> None:
    """Such a write, of metadata or of a document, keeps the thread's row from being deleted and from nothing else."""
    async with (
        open_house(postgres_url, tmp_path, CLEW_RUNNER_POLL_SECONDS="60") as house,
        client_of(house.app.http) as http,
    ):
        thread = await house.run("gated", log=[])
        async with await psycopg.AsyncConnection.connect(postgres_url) as other:
            await other.execute("SELECT 1 FROM threads WHERE id = %s FOR KEY SHARE", (thread.id,))
            assert (await http.post(f"/api/workflows/{thread.id}/approve")).status_code == 200
            assert (await house.rest(thread, [Status.COMPLETED], seconds=20)).status is Status.COMPLETED
