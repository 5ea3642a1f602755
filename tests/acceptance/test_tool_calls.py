"""Seed 002, persistence and resumability: a real server, asked over HTTP, killed in every state a thread can be in."""

import json
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.processes import filled, until

CALLS_OF = "SELECT count(*) FROM tool_calls WHERE thread_id = ?"


@pytest.mark.accept("002-11")
def test_a_cache_that_is_damaged_or_wrong_is_told_by_the_log(tmp_path: Path) -> None:
    nothing = {"state": "idle", "pending": {}}
    with api_serving(tmp_path) as server:
        threads = [Api(server).run("agent", "tools: send_mail to=ada") for _ in range(4)]
        server.signal(signal.SIGKILL)
    wrong = ["{damaged", "", "{}", json.dumps({**nothing, "last_seq": threads[3]["lastSeq"]})]
    with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db, db:
        for thread, text in zip(threads, wrong, strict=True):
            db.execute("UPDATE threads SET fsm_state = ? WHERE id = ?", (text, thread["id"]))
    with api_serving(tmp_path) as server:
        api = Api(server)
        for thread in threads:
            now = api.thread(thread["id"])
            assert (now["status"], now["pending"]) == ("blocked", thread["pending"])
            assert api.answer(thread, approved=True)["status"] == "completed"
            types = [event["type"] for event in api.events(thread["id"], "suspension", "resolution")]
            assert types == ["suspension", "resolution"]


@pytest.mark.accept("002-11")
def test_tool_calls_that_were_lost_are_rebuilt_from_the_log(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        api = Api(server)
        threads = [api.run("agent", "tools: send_mail to=ada") for _ in range(3)]
        asks = api.run("agent", "tools: ask_person question=x")
        left = api.run("agent", "tools: send_mail to=ada")
        (call,) = api.ask("GET", f"/api/workflows/{left['id']}/tool-calls")["toolCalls"]
        server.signal(signal.SIGKILL)
    answered, refused, stopped = threads
    with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db, db:
        assert db.execute("DELETE FROM tool_calls").rowcount == 5
    with api_serving(tmp_path) as server:
        api = Api(server)
        # Also where nobody asks after them: a call with a deadline must expire.
        with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db:
            until(lambda: db.execute(CALLS_OF, (left["id"],)).fetchone() == (1,))
        assert api.ask("GET", f"/api/workflows/{left['id']}/tool-calls")["toolCalls"] == [call]
        (listed,) = api.ask("GET", f"/api/workflows/{answered['id']}/tool-calls")["toolCalls"]
        assert (listed["name"], listed["args"], listed["status"]) == ("send_mail", {"to": "ada"}, "pending")
        assert api.answer(answered, approved=True)["status"] == "completed"
        assert [each["result"] for each in api.content(answered["id"], "tool_result")] == ["sent to ada"]
        assert api.answer(refused, approved=False)["status"] == "completed"
        assert [each["ok"] for each in api.content(refused["id"], "tool_result")] == [False]
        assert api.answer(asks, answer="42")["status"] == "completed"
        api.ask("POST", f"/api/workflows/{stopped['id']}/stop")
        (result,) = api.content(stopped["id"], "tool_result")
        assert result["error"] == "[cancelled]"
        api.ask("GET", f"/api/workflows/{answered['id']}/tool-calls/call_9_9", status=404)


@pytest.mark.accept("002-11", "002-15")
def test_a_lost_call_that_may_have_happened_is_not_repeated(tmp_path: Path) -> None:
    """Whether a tool was begun stands in its row alone: without the row it may have been."""
    marks = tmp_path / "marks"
    with api_serving(tmp_path, CLEW_FAILPOINTS="tool_after_effect:kill@1") as server:
        api = Api(server)
        thread = api.run("agent", f"[{marks}] tools: effect_approved file={marks},n=7")
        (call_id,) = thread["pending"]
        path = f"/api/workflows/{thread['id']}/tool-calls/{call_id}"
        with suppress(httpx.TransportError):  # it may die before it answers
            httpx.post(f"{server.address}{path}/resolve", json={"approved": True}, timeout=40)
        server.wait()
    with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db, db:
        assert db.execute("DELETE FROM tool_calls").rowcount == 1
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.rest(thread["id"], "blocked", after=thread["lastSeq"] + 1)
        assert [call["kind"] for call in thread["pending"].values()] == ["in_doubt"]
        assert api.answer(thread, answer="it was sent, I looked")["status"] == "completed"
        assert marks.read_text().count("effect_approved 7") == 1


def test_a_thread_has_the_status_of_a_conversation_and_the_settings_of_its_model(
    api: Api, tmp_path: Path
) -> None:
    def shown(thread: Any) -> tuple[str, str]:
        (listed,) = [one for one in api.ask("GET", "/api/threads")["threads"] if one["id"] == thread["id"]]
        assert listed["conversationStatus"] == thread["conversationStatus"]
        return thread["status"], thread["conversationStatus"]

    thread = api.run("agent", "tools: send_mail to=ada")
    assert shown(thread) == ("blocked", "suspended")
    assert thread["settings"] == {"provider": "obedient", "model": "", "systemPrompt": "You are a test."}
    assert shown(api.answer(thread, approved=True)) == ("completed", "idle")
    running = api.start("wilful_agent", f"until: {tmp_path / 'never'}")
    assert shown(api.rest(running, "running")) == ("running", "active")
    api.ask("POST", f"/api/workflows/{running}/stop")
    assert shown(api.thread(running)) == ("stopped", "ended")
    assert shown(api.run("wilful_agent", "fail")) == ("failed", "idle")
    langchain = api.run("langchain_agent", "tools: count upto=3")
    assert langchain["settings"]["provider"] == "obedient"
    # A chat asks whatever driver its profile names; a graph without a model has no settings.
    chat = api.rest(api.ask("POST", "/api/workflows/start", json={"prompt": "hello"})["id"])
    assert chat["settings"] == {"provider": "offline", "model": "", "systemPrompt": ""}
    assert set(api.run("writing", log=[])["settings"].values()) == {""}


@pytest.mark.accept("002-17")
def test_a_tool_that_was_refused_is_listed_as_an_error(api: Api) -> None:
    thread = api.run("agent", "tools: send_mail to=ada")
    (call_id,) = thread["pending"]
    thread = api.answer(thread, approved=False, feedback="not to her")
    assert thread["status"] == "completed"
    (call,) = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls?status=errored")["toolCalls"]
    assert (call["id"], call["status"]) == (call_id, "errored")
    assert call["result"]["ok"] is False
    assert call["result"]["error"].endswith(": not to her")
    # The model is told that it failed, and why, not that the tool said no.
    assert api.content(thread["id"], "assistant_msg")[-1]["content"] == call["result"]["error"]


@pytest.mark.accept("002-8", "002-30", "002-31")
def test_killed_while_idle_it_remembers_everything(tmp_path: Path) -> None:
    with api_serving(tmp_path, CLEW_MODEL_CALLS_RECORD="true") as server:
        api = Api(server)
        thread = api.run("agent", "tools: look_up word=clew")
        before = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
        server.signal(signal.SIGKILL)
    with api_serving(tmp_path, CLEW_MODEL_CALLS_RECORD="true") as server:
        api = Api(server)
        api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": "hello again"})
        thread = api.rest(thread["id"], after=thread["lastSeq"])
        assert api.content(thread["id"], "assistant_msg")[-1]["content"] == "you said: hello again"
        (call, *earlier) = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
        assert (earlier, len(earlier)) == (before, 2)
        assert call["turnRef"] > earlier[0]["turnRef"] > earlier[1]["turnRef"]
        shown = [(turn["role"], turn["content"]) for turn in call["renderedContext"]]
        assert shown == [
            ("system", "You are a test."),
            ("user", "tools: look_up word=clew"),
            ("assistant", "on it"),
            ("tool", "clew means something"),
            ("assistant", "clew means something"),
            ("user", "hello again"),
        ]


@pytest.mark.accept("002-12")
def test_killed_while_the_model_speaks_it_is_asked_once_more(tmp_path: Path) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    with api_serving(tmp_path) as server:
        thread_id = Api(server).start("wilful_agent", f"[{marks}] until: {go}")
        until(filled(marks))
        server.signal(signal.SIGKILL)
    go.touch()
    with api_serving(tmp_path) as server:
        api = Api(server)
        api.rest(thread_id, "completed")
        assert marks.read_text().split() == ["model", "model"]
        assert len(api.events(thread_id, "user_msg")) == 1
        assert len(api.events(thread_id, "assistant_msg")) == 1


@pytest.mark.fault("A3")
@pytest.mark.accept("002-13")
def test_killed_in_a_tool_the_same_call_is_made_again(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with api_serving(tmp_path, CLEW_FAILPOINTS="tool_after_effect:kill@1") as server:
        thread_id = Api(server).start("agent", f"[{marks}] tools: effect file={marks},n=7")
        server.wait()
    with api_serving(tmp_path) as server:
        api = Api(server)
        api.rest(thread_id, "completed")
        assert marks.read_text().split("\n") == ["model", "effect 7", "effect 7", "model", ""]
        (call,) = api.content(thread_id, "tool_call")
        (result,) = api.content(thread_id, "tool_result")
        assert call["callId"] == result["callId"]
        assert call["args"] == {"file": str(marks), "n": 7}


@pytest.mark.fault("A3")
@pytest.mark.accept("002-13", "002-15")
def test_what_must_not_be_repeated_waits_for_a_person(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with api_serving(tmp_path, CLEW_FAILPOINTS="tool_after_effect:kill@1") as server:
        api = Api(server)
        thread = api.run("agent", f"[{marks}] tools: effect_approved file={marks},n=7")
        (call_id,) = thread["pending"]
        path = f"/api/workflows/{thread['id']}/tool-calls/{call_id}"
        assert not api.ask("GET", path)["idempotent"], "whoever approves it is told"
        with suppress(httpx.TransportError):  # it may die before it answers
            httpx.post(f"{server.address}{path}/resolve", json={"approved": True}, timeout=40)
        server.wait()
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.rest(thread["id"], "blocked", after=thread["lastSeq"] + 1)
        assert not api.ask("GET", path)["idempotent"]
        assert [call["kind"] for call in thread["pending"].values()] == ["in_doubt"]
        assert api.events(thread["id"], "tool_result") == []
        thread = api.answer(thread, answer="it was sent, I looked")
        assert thread["status"] == "completed"
        (result,) = api.content(thread["id"], "tool_result")
        assert result["result"] == "it was sent, I looked"
        assert marks.read_text().count("effect_approved 7") == 1


@pytest.mark.accept("002-13")
@pytest.mark.parametrize(
    ("graph", "name", "effect"),
    [("agent", "effect_interrupted", "effect_interrupted 7"), ("langchain_agent", "book", "booked 7")],
)
def test_a_tool_that_opted_out_is_recorded_as_interrupted(
    tmp_path: Path, graph: str, name: str, effect: str
) -> None:
    marks = tmp_path / "marks"
    with api_serving(tmp_path, CLEW_FAILPOINTS="tool_after_effect:kill@1") as server:
        thread_id = Api(server).start(graph, f"[{marks}] tools: {name} file={marks},n=7")
        server.wait()
    with api_serving(tmp_path) as server:
        api = Api(server)
        # By itself: nobody is asked, and no further message is needed.
        assert api.rest(thread_id)["status"] == "completed"
        assert marks.read_text().splitlines() == ["model", effect, "model"]
        (call,) = api.content(thread_id, "tool_call")
        (result,) = api.content(thread_id, "tool_result")
        assert (result["callId"], result["ok"]) == (call["callId"], False)
        assert result["error"].startswith("tool call interrupted")
        row = api.ask("GET", f"/api/workflows/{thread_id}/tool-calls/{call['callId']}")
        assert (row["status"], row["result"]) == ("errored", {"ok": False, "error": result["error"]})
        assert api.content(thread_id, "assistant_msg")[-1]["content"] == result["error"]
        assert api.content(thread_id, "suspension") == []


@pytest.mark.accept("002-14")
def test_a_call_that_waits_and_one_that_runs_are_both_taken_up(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    with api_serving(tmp_path, CLEW_FAILPOINTS="tool_after_effect:kill@1") as server:
        thread_id = Api(server).start("agent", f"[{marks}] tools: send_mail to=ada; effect file={marks},n=7")
        server.wait()
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.rest(thread_id, "blocked")
        assert [call["prompt"]["tool"] for call in thread["pending"].values()] == ["send_mail"]
        thread = api.answer(thread, approved=True)
        assert thread["status"] == "completed"
        assert sorted(result["result"] for result in api.content(thread_id, "tool_result")) == [
            "done 7",
            "sent to ada",
        ]


@pytest.mark.accept("002-16")
def test_a_gated_client_tool_is_not_asked_about_twice(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.answer(api.run("agent", "tools: open_door number=7"), approved=True)
        assert [call["kind"] for call in thread["pending"].values()] == ["client_exec"]
        server.signal(signal.SIGKILL)
    with api_serving(tmp_path) as server:
        api = Api(server)
        assert api.thread(thread["id"])["pending"] == thread["pending"]
        assert api.answer(thread, answer="opened")["status"] == "completed"
        assert [each["kind"] for each in api.content(thread["id"], "suspension")] == [
            "approval",
            "client_exec",
        ]


@pytest.mark.accept("002-18", "002-21")
def test_a_deadline_passes_while_nobody_is_there(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.run("agent", "tools: send_mail to=ada")
        (call_id,) = thread["pending"]
        soon = (datetime.now(UTC) + timedelta(seconds=0.5)).isoformat()
        path = f"/api/workflows/{thread['id']}/tool-calls/{call_id}/deadline"
        api.ask("PUT", path, json={"deadline": soon})
        server.signal(signal.SIGKILL)
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.rest(thread["id"], "completed")
        (result,) = api.content(thread["id"], "tool_result")
        assert (result["ok"], result["error"]) == (False, "tool call expired: no response")
        call = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls/{call_id}")
        assert call["status"] == "expired"
        assert api.resolve(thread["id"], call_id, status=409, approved=True)
        assert api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls/{call_id}") == call


@pytest.mark.accept("002-18")
def test_of_many_answers_at_once_one_counts(api: Api) -> None:
    thread = api.run("agent", "tools: ask_person question=x")
    (call_id,) = thread["pending"]
    url = f"{api.server.address}/api/workflows/{thread['id']}/tool-calls/{call_id}/resolve"

    def answer(n: int) -> int:
        return httpx.post(url, json={"answer": f"answer {n}"}, timeout=40, verify=False).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(answer, range(8)))
    assert sorted(statuses) == [200] + [409] * 7
    first = f"answer {statuses.index(200)}"
    api.rest(thread["id"], "completed")
    assert answer(8) == 409
    assert [said["answer"] for said in api.content(thread["id"], "resolution")] == [first]
    assert [said["result"] for said in api.content(thread["id"], "tool_result")] == [first]
    assert api.content(thread["id"], "assistant_msg")[-1]["content"] == first
    assert api.resolve(thread["id"], "call_9_9", status=404, answer="x")["error"]["code"] == "NOT_FOUND"


@pytest.mark.accept("002-24")
def test_a_deadline_acts_for_nobody_in_particular(api: Api) -> None:
    def name_of(thread: Any) -> Any:
        (call,) = [call for call in api.content(thread["id"], "tool_call") if call["name"] == "my_name"]
        results = api.content(thread["id"], "tool_result")
        return next(result for result in results if result["callId"] == call["callId"])

    # Whoever asked over HTTP is here.
    assert name_of(api.run("wilful_agent", "tools: my_name"))["result"] == "somebody"
    thread = api.run("wilful_agent", "tools: send_mail to=ada")
    (call_id,) = thread["pending"]
    path = f"/api/workflows/{thread['id']}/tool-calls/{call_id}/deadline"
    api.ask("PUT", path, json={"deadline": datetime.now(UTC).isoformat()})
    thread = api.rest(thread["id"], "completed", "failed")
    assert thread["status"] == "completed"
    refused = name_of(thread)
    assert (refused["ok"], refused["result"]) == (False, None)
    assert "user" in refused["error"]
    # Whoever comes back is here again.
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": "tools: my_name"})
    api.rest(thread["id"], "completed", after=thread["lastSeq"])
    assert api.content(thread["id"], "tool_result")[-1]["result"] == "somebody"


@pytest.mark.accept("002-27", "002-28", "002-30")
def test_model_calls_hold_what_was_injected_and_the_log_does_not(api: Api) -> None:
    thread = api.run("informed_agent", "hello")
    calls = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    assert len(calls) == 1
    assert "the time is now" in str(calls[0]["renderedContext"])
    assert (calls[0]["model"], calls[0]["status"]) == ("Obedient", "ok")
    assert (calls[0]["summaryVersion"], calls[0]["evictions"], calls[0]["usage"]) == (None, [], {})
    assert calls[0]["latencyMs"] >= 0
    assert "the time is now" not in str(api.events(thread["id"]))
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": "more"})
    api.rest(thread["id"], "completed", after=thread["lastSeq"])
    later, earlier = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    assert later["turnRef"] > earlier["turnRef"]


@pytest.mark.accept("002-28", "002-30", "002-37")
def test_model_calls_that_failed_or_were_cancelled_say_so(api: Api, tmp_path: Path) -> None:
    failed = api.run("wilful_agent", "fail")
    assert failed["status"] == "failed"
    marks = tmp_path / "marks"
    cancelled = api.start("wilful_agent", f"[{marks}] until: {tmp_path / 'never'}")
    until(filled(marks))
    api.ask("POST", f"/api/workflows/{cancelled}/stop")

    def recorded(thread_id: str) -> list[str]:
        calls = api.ask("GET", f"/api/threads/{thread_id}/model-calls")["modelCalls"]
        return [call["status"] for call in calls]

    assert recorded(failed["id"]) == ["failed"]
    until(lambda: recorded(cancelled) == ["cancelled"])
    # A provider that failed is an end of its own, and says why.
    (end,) = api.content(failed["id"], "round_finished")
    assert (end["status"], end["reason"].startswith("auth after 1 attempt")) == ("failed", True)
    (end,) = api.content(cancelled, "round_finished")
    assert end["status"] == "stopped"


@pytest.mark.accept("002-28")
def test_model_calls_are_not_kept_unless_asked_for(tmp_path: Path) -> None:
    with api_serving(tmp_path) as server:
        api = Api(server)
        thread = api.run("agent", "hello")
        assert api.ask("GET", f"/api/threads/{thread['id']}/model-calls") == {"modelCalls": []}


@pytest.mark.accept("002-25")
def test_a_long_conversation_is_summed_up_and_stays_whole(api: Api) -> None:
    thread = api.run("forgetful_agent", "tools: look_up word=first")
    for n in range(6):
        api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": f"message {n}"})
        thread = api.rest(thread["id"], "completed", after=thread["lastSeq"])
    (newest, *_) = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    shown = newest["renderedContext"]
    assert newest["summaryVersion"]
    assert any(
        turn["role"] == "system" and "Summary of the conversation" in turn["content"] for turn in shown
    )
    assert len(shown) < 12
    assert [message["content"] for message in api.content(thread["id"], "user_msg")] == [
        "tools: look_up word=first",
        *(f"message {n}" for n in range(6)),
    ]


@pytest.mark.accept("002-28", "002-36")
def test_every_call_a_model_is_shown_has_a_result_behind_it(api: Api) -> None:
    thread = api.run("frugal_agent", "tools: look_up word=first; look_up word=second")
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": "tools: look_up word=third"})
    thread = api.rest(thread["id"], "completed", after=thread["lastSeq"])
    (newest, *earlier) = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    assert len(earlier) == 3
    for call in (newest, *earlier):
        shown = call["renderedContext"]
        for number, turn in enumerate(shown):
            behind = shown[number + 1 : number + 1 + len(turn["calls"])]
            assert [each["call_id"] for each in behind] == [each["call_id"] for each in turn["calls"]]
            assert {each["role"] for each in behind} <= {"tool"}
    results = [(turn["call_id"], turn["content"]) for turn in newest["renderedContext"] if turn["call_id"]]
    calls = [call["callId"] for call in api.content(thread["id"], "tool_call")]
    assert results == list(zip(calls, ["[result expired]"] * 2 + ["third means something"], strict=True))
    assert newest["evictions"] == calls[:2]
    # The log has them all.
    assert [result["result"] for result in api.content(thread["id"], "tool_result")] == [
        *("first means something", "second means something", "third means something"),
    ]


@pytest.mark.accept("002-34")
def test_a_stop_keeps_what_was_said_until_then(api: Api) -> None:
    prompt = "slowly: " + " ".join(f"word{n}" for n in range(100))
    body = {"graph": "agent", "prompt": prompt, "verbose": True}
    thread_id = api.ask("POST", "/api/workflows/start", json=body)["id"]
    url = f"{api.server.address}/api/workflows/{thread_id}/events?types=llm_token"
    with httpx.stream("GET", url, timeout=20, verify=False) as answer:
        next(line for line in answer.iter_lines() if "word" in line)
    api.ask("POST", f"/api/workflows/{thread_id}/stop")
    (said,) = api.content(thread_id, "assistant_msg")
    assert said["cancelled"] is True
    assert said["content"].startswith("you said: slowly: word0")
    assert "word99" not in said["content"]


@pytest.mark.accept("002-34")
@pytest.mark.parametrize("tool", ["wait_for", "send_mail"])
def test_a_stop_cancels_what_was_open_and_ignores_what_comes_late(
    api: Api, tmp_path: Path, tool: str
) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    if tool == "wait_for":
        thread_id = api.start("wilful_agent", f"tools: wait_for go={go},marks={marks}")
        until(filled(marks))
    else:
        thread_id = api.run("wilful_agent", "tools: send_mail to=ada")["id"]
    api.ask("POST", f"/api/workflows/{thread_id}/stop")
    (result,) = api.content(thread_id, "tool_result")
    assert (result["ok"], result["error"]) == (False, "[cancelled]")
    log = api.events(thread_id)
    go.touch()
    if tool == "wait_for":
        until(lambda: "done" in marks.read_text().split())
    # What is late has had its turn before another run has come to its end.
    assert api.run("two_steps", log=[])["status"] == "completed"
    assert api.events(thread_id) == log
    assert api.thread(thread_id)["status"] == "stopped"


@pytest.mark.accept("002-37")
def test_a_failing_provider_and_a_stop_are_told_apart(api: Api, tmp_path: Path) -> None:
    failed = api.run("broken", log=[], marks=str(tmp_path / "marks"))
    stopped = api.run("agent", "tools: send_mail to=ada")
    api.ask("POST", f"/api/workflows/{stopped['id']}/stop")
    (of_failure,) = api.content(failed["id"], "round_finished")
    (of_stop,) = api.content(stopped["id"], "round_finished")
    assert (of_failure["status"], of_stop["status"]) == ("failed", "stopped")
    assert of_failure["reason"] != of_stop["reason"]


@pytest.mark.accept("002-38")
def test_settings_hold_names_and_nothing_else(tmp_path: Path) -> None:
    """No keys, functions or handles: what was asked for is kept, and what its model was set to."""
    secret = "sk-canary-4712-4712-4712"
    with api_serving(tmp_path, OPENAI_API_KEY=secret) as server:
        api = Api(server)
        body = {"graph": "agent", "prompt": "hello", "profile": "work", "verbose": True}
        thread = api.rest(api.ask("POST", "/api/workflows/start", json=body)["id"])
        (started,) = api.content(thread["id"], "round_started")
        model = {"provider": "obedient", "system_prompt": "You are a test."}
        asked = {"profile": "work", "verbose": True, **model}
        assert started["opening"]["settings"] == asked
        with closing(sqlite3.connect(tmp_path / ".clew" / "clew.db")) as db:
            assert [json.loads(text) for (text,) in db.execute("SELECT settings FROM threads")] == [asked]
            assert secret not in "\n".join(db.iterdump())


THOUGHT = {"type": "thinking", "thinking": "a cat, and it is grey: 猫", "signature": "c2ln"}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
SAID = {"type": "text", "text": "It is a cat."}
CALLED = {"type": "tool_use", "id": "toolu_1", "name": "look_up", "input": {"word": "cat"}}


@pytest.mark.accept("002-33")
@pytest.mark.parametrize("parts", [[THOUGHT, SAID], [SAID, IMAGE], [THOUGHT, SAID, CALLED], []])
def test_what_a_model_says_in_parts_comes_back_as_it_was(api: Api, parts: list[Any]) -> None:
    thread = api.run("agent", f"parts: {json.dumps(parts)}")
    assert thread["status"] == "completed"
    assert [said["content"] for said in api.content(thread["id"], "assistant_msg")] == [parts]
    shown = shown_next(api, thread)
    assert ("assistant", parts) in shown


@pytest.mark.accept("002-33")
def test_what_a_user_says_in_parts_reaches_the_model_as_it_was(api: Api) -> None:
    parts = [{"type": "text", "text": "What is this?"}, IMAGE]
    body = {"graph": "agent", "input": {"messages": [{"role": "user", "content": parts}]}}
    thread = api.rest(api.ask("POST", "/api/workflows/start", json=body)["id"])
    assert thread["status"] == "completed"
    assert [said["content"] for said in api.content(thread["id"], "user_msg")] == [parts]
    assert shown_next(api, thread)[:2] == [("system", "You are a test."), ("user", parts)]


def shown_next(api: Api, thread: Any) -> list[Any]:
    """What the model is shown in the next round."""
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": "and now?"})
    thread = api.rest(thread["id"], after=thread["lastSeq"])
    calls = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    newest = max(calls, key=lambda call: call["turnRef"])
    return [(turn["role"], turn["content"]) for turn in newest["renderedContext"]]


def test_the_round_after_one_that_failed_in_a_tool_knows_how_far_the_tool_came(tmp_path: Path) -> None:
    # One workflow after the other passes there: the third for the second time when it was approved.
    faults = "toolcall_logged:raise@1,tool_before_effect:raise@1,toolcall_logged:raise@4"
    with api_serving(tmp_path, CLEW_FAILPOINTS=faults, CLEW_MODEL_CALLS_RECORD="true") as server:
        api = Api(server)
        left = [api.run("agent", "tools: look_up word=clew") for _ in range(2)]
        left.append(api.answer(api.run("agent", "tools: send_mail to=ada"), approved=True))
        assert [thread["status"] for thread in left] == ["failed"] * 3
        assert [dict(shown_next(api, thread))["tool"] for thread in left] == [
            "[no result: it was not begun]",
            "[no result: it was begun and cut off, so its effect may have happened]",
            "[no result: it was approved, and not run]",
        ]


@pytest.mark.fault("F10")
@pytest.mark.accept("002-33")
@pytest.mark.parametrize("graph", ["agent", "langchain_agent"])
@pytest.mark.parametrize(
    "args", ["nonsense", "[1, 2]", '"text"', "7", "null", '{"word"', '{"word": }', "{'upto': 3}"]
)
def test_odd_arguments_of_a_tool_are_answered_and_the_turn_goes_on(api: Api, graph: str, args: str) -> None:
    name = "look_up" if graph == "agent" else "count"
    thread = api.run(graph, f"raw: {name} {args}")
    assert thread["status"] == "completed"
    (result,) = api.content(thread["id"], "tool_result")
    assert result["ok"] is False
    assert result["error"].startswith("invalid tool arguments")
    (call,) = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls?status=errored")["toolCalls"]
    assert call["name"] == name
    assert api.content(thread["id"], "assistant_msg")[-1]["content"].startswith("invalid tool arguments")


@pytest.mark.accept("002-33")
def test_no_arguments_where_some_are_needed_are_answered_too(api: Api) -> None:
    thread = api.run("agent", "raw: look_up ")
    (result,) = api.content(thread["id"], "tool_result")
    assert (thread["status"], result["ok"]) == ("completed", False)
    assert result["error"].startswith("invalid tool arguments: word")
