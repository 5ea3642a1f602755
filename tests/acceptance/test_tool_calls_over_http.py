"""Seed 002, what is kept and how, seen from outside: a real server over HTTP, and its file opened beside it."""

import hmac
import json
import signal
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.graph.agent import SUM_UP
from tests.acceptance.conftest import Api, api_serving
from tests.databases import DATABASES, locate
from tests.processes import clew, filled, until

KEY = "a-key-for-cleaning-up"
SECRET = "a-secret-of-the-cron-service"
CLEANUP = "/api/optimize/cleanup"
DAY = 86_400_000_000
# Several servers share one file, and a machine may halt each of them at any moment: nobody takes that for a death.
PATIENT = {"CLEW_RUNNER_LEASE_SECONDS": "60", "CLEW_DATABASE_BUSY_SECONDS": "30"}

CANONICAL = {"user_msg", "assistant_msg", "tool_call", "tool_result", "suspension", "resolution"}
FURTHER = {
    *("round_started", "stage_changed", "stage_completed", "round_finished"),
    *("log", "document_added", "redacted"),
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The server of this module. It keeps what models were sent, for ever, and can be told to clean up."""
    with api_serving(
        tmp_path_factory.mktemp("live"),
        CLEW_MODEL_CALLS_RECORD="true",
        CLEANUP_API_KEY=KEY,
        CRON_SECRET=SECRET,
        **PATIENT,
    ) as server:
        yield Api(server)


@pytest.fixture(scope="module")
def neighbour(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Another server on the same file, which knows no secret for cleaning up."""
    with api_serving(
        tmp_path_factory.mktemp("neighbour"),
        CLEW_MODEL_CALLS_RECORD="true",
        CLEW_DATABASE_URL=f"sqlite:///{database(api)}",
        **PATIENT,
    ) as server:
        yield Api(server)


def database(api: Api) -> Path:
    return api.server.stdout.parent / ".clew" / "clew.db"


def rows(api: Api, sql: str, *args: Any) -> list[Any]:
    """What stands in the server's file."""
    with closing(sqlite3.connect(f"file:{database(api)}?mode=ro", uri=True, timeout=30)) as db:
        return db.execute(sql, args).fetchall()


def tamper(file: Path, sql: str, *args: Any) -> None:
    """Write into a server's file by other hands than its own."""
    with closing(sqlite3.connect(file, timeout=30)) as db, db:
        db.execute(sql, args)


def sent(api: Api, method: str, path: str, **more: Any) -> httpx.Response:
    """The answer, whatever it is."""
    return httpx.request(method, api.server.address + path, timeout=40, verify=False, **more)


def say(api: Api, thread: Any, text: str) -> Any:
    """The thread after another round."""
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": text})
    return api.rest(thread["id"], after=thread["lastSeq"])


def seqs(events: list[Any]) -> list[int]:
    return [event["seq"] for event in events]


def told(api: Api, thread_id: str, query: str = "", **headers: str) -> Generator[int]:
    """The sequence numbers an event stream tells, for as long as one asks for the next."""
    url = f"{api.server.address}/api/workflows/{thread_id}/events{query}"
    with httpx.stream("GET", url, headers=headers, timeout=20, verify=False) as answer:
        for line in answer.iter_lines():
            if line.startswith("id:"):
                yield int(line.removeprefix("id:"))


@pytest.mark.accept("002-1")
def test_each_conversation_counts_for_itself_and_gives_back_what_it_was_given(api: Api) -> None:
    odd = {"1": "one", "ü": [None, True, 1.5, -7, {"": ""}], "nested": {"10": {"a b": "\u2028"}}}
    one, two = api.run("agent", "tools: ask_person question=x"), api.run("agent", "hello")
    two = say(api, two, "more")
    one = api.answer(one, answer=odd)
    two = say(api, two, "and more")
    for thread in (one, two):
        log = api.events(thread["id"])
        assert seqs(log) == list(range(1, thread["lastSeq"] + 1))
        assert rows(
            api, "SELECT seq, id, type FROM events WHERE thread_id = ? ORDER BY seq", thread["id"]
        ) == [(event["seq"], event["id"], event["type"]) for event in log]
    (resolution,) = api.content(one["id"], "resolution")
    assert resolution["answer"] == odd
    ((stored,),) = rows(
        api, "SELECT content FROM events WHERE thread_id = ? AND type = 'resolution'", one["id"]
    )
    assert json.loads(stored)["answer"] == odd
    assert [said["content"] for said in api.content(two["id"], "user_msg")] == ["hello", "more", "and more"]


@pytest.mark.accept("002-2")
def test_the_types_of_events_are_a_closed_list(api: Api) -> None:
    thread = api.answer(api.run("agent", "tools: send_mail to=ada"), approved=True)
    found = {event["type"] for event in api.events(thread["id"])}
    assert found >= CANONICAL
    assert found <= CANONICAL | FURTHER
    path = f"/api/threads/{thread['id']}/events"
    api.ask("POST", path, status=405, json={"type": "user_msg", "content": {"content": "mine"}})
    tamper(
        database(api),
        "INSERT INTO events (thread_id, seq, id, round, type, version, content, at)"
        " SELECT thread_id, seq + 1, 'evt_other', round, 'invented', 1, '{}', at FROM events"
        " WHERE thread_id = ? AND seq = ?",
        thread["id"],
        thread["lastSeq"],
    )
    assert api.ask("GET", path, status=500)["error"]["code"] == "CORRUPT"
    # What was written before is still told, up to there.
    assert len(api.ask("GET", f"{path}?after=0&limit={thread['lastSeq']}")["events"]) == thread["lastSeq"]


@pytest.mark.accept("002-3")
def test_nobody_changes_an_event_not_even_compaction(api: Api) -> None:
    thread = api.run("forgetful_agent", "tools: look_up word=first")

    def kept() -> list[Any]:
        return rows(
            api,
            "SELECT seq, id, round, type, version, CAST(content AS BLOB), at FROM events"
            " WHERE thread_id = ? AND seq <= ? ORDER BY seq",
            thread["id"],
            length,
        )

    length = thread["lastSeq"]
    before, shown = kept(), api.events(thread["id"])
    for n in range(4):
        thread = say(api, thread, f"message {n}")
    assert rows(api, "SELECT count(*) FROM summaries WHERE thread_id = ?", thread["id"]) != [(0,)]
    assert kept() == before
    assert api.events(thread["id"])[:length] == shown
    for method in ("PUT", "PATCH", "DELETE"):
        for path, status in (("events", 405), ("events/2", 404)):
            api.ask(method, f"/api/threads/{thread['id']}/{path}", status=status)
    paths = api.ask("GET", "/openapi.json")["paths"]
    assert {
        tuple(methods) for path, methods in paths.items() if path.startswith("/api/") and "/events" in path
    } == {("get",)}
    # A message that is taken back is hidden by an event of its own.
    (message, *_) = api.events(thread["id"], "user_msg")
    api.ask("DELETE", f"/api/workflows/{thread['id']}/messages/{message['id']}")
    assert [event["redacted"] for event in api.events(thread["id"], "user_msg")] == [True] + [False] * 4
    assert kept() == before


@pytest.mark.accept("002-4")
def test_reading_begins_after_what_was_seen_and_goes_page_by_page(api: Api) -> None:
    thread = api.run("writing", log=[])
    last = thread["lastSeq"]
    path = f"/api/threads/{thread['id']}/events"

    def read(query: str) -> list[int]:
        return seqs(api.ask("GET", path + query)["events"])

    assert last > 20
    assert read("?limit=1000") == list(range(1, last + 1))
    assert read(f"?after={last - 3}") == [last - 2, last - 1, last]
    assert read(f"?after={last}") == []
    assert read("?after=4&limit=3") == [5, 6, 7]
    assert read("?after=0&limit=2") == [1, 2]
    pages: list[list[int]] = []
    while page := read(f"?limit=7&after={pages[-1][-1] if pages else 0}"):
        pages.append(page)
    assert [seq for page in pages for seq in page] == list(range(1, last + 1))
    assert {len(page) for page in pages[:-1]} == {7}
    for query in ("?limit=0", "?limit=1001", "?after=-1", "?after=x", "?before=-1", "?before=x"):
        api.ask("GET", path + query, status=400)
    streams = (told(api, thread["id"], "?since=4"), told(api, thread["id"], **{"Last-Event-ID": "4"}))
    for stream in streams:
        assert [next(stream) for _ in range(4, last)] == list(range(5, last + 1))
        stream.close()


@pytest.mark.accept("002-4")
def test_reading_backwards_begins_with_the_newest(api: Api) -> None:
    thread = api.run("writing", log=[])
    last = thread["lastSeq"]
    path = f"/api/threads/{thread['id']}/events"

    def read(query: str) -> list[int]:
        return seqs(api.ask("GET", path + query)["events"])

    assert read("?limit=2") == [last - 1, last]
    assert read("?limit=1000") == list(range(1, last + 1))
    assert read("?before=4") == [1, 2, 3]
    assert (read("?before=1"), read("?before=0")) == ([], [])
    assert read("?before=10&limit=3") == [7, 8, 9]
    assert read("?after=3&before=6") == [4, 5]
    assert read("?after=5&before=6") == []
    assert read("?after=2&before=9&limit=2") == [7, 8]
    pages = [read("?limit=7")]
    assert pages[0] == list(range(last - 6, last + 1))
    while page := read(f"?before={pages[-1][0]}&limit=7"):
        pages.append(page)
    assert [seq for page in reversed(pages) for seq in page] == list(range(1, last + 1))
    assert {len(page) for page in pages[:-1]} == {7}


@pytest.mark.accept("002-5")
def test_writers_in_two_processes_never_share_a_number(api: Api, neighbour: Api) -> None:
    thread = api.run("agent", "first")
    servers = [api, neighbour]

    def post(n: int, path: str, body: Any) -> tuple[int, str]:
        return sent(servers[n % 2], "POST", path, json=body).status_code, str(n)

    said = ["first"]
    with ThreadPoolExecutor(8) as pool:
        for lap in range(2):
            path = f"/api/workflows/start?id={thread['id']}"
            answers = list(pool.map(lambda n: post(n, path, {"prompt": f"{lap} {n}"}), range(8)))  # noqa: B023
            assert {status for status, _ in answers} <= {200, 409}
            said += sorted(f"{lap} {n}" for status, n in answers if status == 200)
            thread = api.rest(thread["id"], after=thread["lastSeq"])
        asked = api.run("branching", log=[])
        path = f"/api/workflows/{asked['id']}/tool-calls"
        answers = list(
            pool.map(
                lambda n: post(n, f"{path}/{list(asked['pending'])[n % 3]}/resolve", {"answer": f"from {n}"}),
                range(6),
            )
        )
    assert sorted(status for status, _ in answers) == [200] * 3 + [409] * 3
    asked = api.rest(asked["id"], "completed")
    heard = {event["answer"] for event in api.content(asked["id"], "resolution")}
    assert heard == {f"from {n}" for status, n in answers if status == 200}
    assert sorted(message["content"] for message in api.content(thread["id"], "user_msg")) == sorted(said)
    assert len(said) >= 3
    for each in (thread, asked):
        stored = rows(api, "SELECT seq FROM events WHERE thread_id = ? ORDER BY seq", each["id"])
        assert stored == [(seq,) for seq in range(1, api.thread(each["id"])["lastSeq"] + 1)]
        assert api.events(each["id"]) == neighbour.events(each["id"])


@pytest.mark.accept("002-6")
def test_a_model_is_told_the_furthest_summary_and_what_came_after(api: Api) -> None:
    thread = api.run("forgetful_agent", "first")
    for n in range(6):
        thread = say(api, thread, f"message {n}")
    reach = dict(rows(api, "SELECT version, to_seq FROM summaries WHERE thread_id = ?", thread["id"]))
    assert len(reach) > 1
    messages = api.events(thread["id"], "user_msg", "assistant_msg")
    calls = answering(api, thread["id"])
    for call in calls:
        shown = [turn["seq"] for turn in call["renderedContext"] if turn["seq"]]
        # A summary that reaches further was not there yet: they are made of what had been said.
        version = call["summaryVersion"]
        to_seq = reach[version] if version else 0
        assert shown == [seq for seq in seqs(messages) if to_seq < seq <= call["turnRef"]]
        assert any(
            "Summary of the conversation" in str(turn["content"]) for turn in call["renderedContext"]
        ) == (version is not None)
    used = [reach.get(call["summaryVersion"], 0) for call in sorted(calls, key=lambda call: call["turnRef"])]
    assert used == sorted(used)
    assert (used[0], used[1], len(set(used)) > 2) == (0, 0, True)
    # The next call is told of the furthest one there is.
    say(api, thread, "the last")
    newest = max(answering(api, thread["id"]), key=lambda call: call["turnRef"])
    assert reach[newest["summaryVersion"]] == max(reach.values())


@pytest.mark.accept("002-25")
def test_without_its_summaries_a_conversation_is_the_same(api: Api) -> None:
    kept, lost = (api.run("forgetful_agent", "first") for _ in range(2))

    def summaries(thread: Any) -> list[Any]:
        return rows(
            api,
            "SELECT from_seq, to_seq, version, content FROM summaries WHERE thread_id = ? ORDER BY to_seq",
            thread["id"],
        )

    for n in range(5):
        kept, lost = (say(api, thread, f"message {n}") for thread in (kept, lost))
    for from_seq, to_seq, version, content in summaries(lost):
        assert 1 <= from_seq <= to_seq <= lost["lastSeq"]
        assert (bool(version), bool(content)) == (True, True)
    assert summaries(lost)
    before = api.events(lost["id"])
    tamper(database(api), "DELETE FROM summaries WHERE thread_id = ?", lost["id"])
    assert api.events(lost["id"]) == before
    kept, lost = (say(api, thread, "the last") for thread in (kept, lost))

    def told(thread: Any) -> list[Any]:
        return [
            (event["seq"], event["type"], (event["content"] or {}).get("content"))
            for event in api.events(thread["id"])
        ]

    assert told(lost) == told(kept)
    newest = max(answering(api, lost["id"]), key=lambda call: call["turnRef"])
    shown = [turn["content"] for turn in newest["renderedContext"] if turn["role"] == "user"]
    assert shown == [
        "first",
        *(f"message {n}" for n in range(5)),
        "the last",
    ]  # all of it, for want of a summary
    assert summaries(lost)  # and there is one again


@pytest.mark.accept("002-10")
def test_only_states_one_can_come_back_to_are_kept(api: Api, tmp_path: Path) -> None:
    marks, begun = tmp_path / "marks", tmp_path / "begun"
    speaking = api.start("wilful_agent", f"[{marks}] until: {tmp_path / 'never'}")
    working = api.start("wilful_agent", f"tools: wait_for go={tmp_path / 'go'},marks={begun}")
    waiting, idle = api.run("agent", "tools: send_mail to=ada"), api.run("agent", "hello")
    until(lambda: filled(marks)() and begun.exists())

    def kept(thread_id: str) -> Any:
        ((text, last),) = rows(api, "SELECT fsm_state, last_seq FROM threads WHERE id = ?", thread_id)
        state = json.loads(text)
        assert list(state) == ["state", "pending", "last_seq"]
        assert state["last_seq"] == last
        return state["state"], state["pending"]

    for running in (speaking, working):
        assert api.thread(running)["status"] == "running"
        assert kept(running) == ("idle", {})
    (call_id,) = waiting["pending"]
    state, pending = kept(waiting["id"])
    assert (state, list(pending)) == ("awaiting_input", [call_id])
    assert (pending[call_id]["executor"], pending[call_id]["kind"]) == ("server", "approval")
    assert pending[call_id]["prompt"] == waiting["pending"][call_id]["prompt"]
    assert kept(idle["id"]) == ("idle", {})
    for running in (speaking, working):
        api.ask("POST", f"/api/workflows/{running}/stop")
    (tmp_path / "go").touch()
    assert set(rows(api, "SELECT DISTINCT json_extract(fsm_state, '$.state') FROM threads")) <= {
        ("idle",),
        ("awaiting_input",),
    }


@pytest.mark.accept("002-17")
def test_a_call_is_a_row_from_its_beginning_to_its_end(api: Api) -> None:
    prompt = "tools: ask_person question=x; read_clipboard; look_up word=x"
    one, two = (api.run("agent", prompt) for _ in range(2))
    path = f"/api/workflows/{one['id']}/tool-calls"
    statuses = "?status=pending&status=resolved&status=errored&status=expired"

    def calls(thread: Any) -> dict[str, Any]:
        found = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls{statuses}")["toolCalls"]
        return {call["name"]: call for call in found}

    first, other = calls(one), calls(two)
    # A provider that gives two conversations the same ids does not mix them up.
    assert {name: call["id"] for name, call in first.items()} == {
        name: call["id"] for name, call in other.items()
    }
    assert {name: (call["executor"], call["status"]) for name, call in first.items()} == {
        "ask_person": ("human", "pending"),
        "read_clipboard": ("client", "pending"),
        "look_up": ("server", "resolved"),
    }
    for call in first.values():
        assert call["workflowId"] == one["id"]
        assert (call["resolvedAt"] is None, call["result"] is None) == (call["status"] == "pending",) * 2
    assert first["look_up"]["result"] == "x means something"
    assert [first[name]["args"] for name in ("ask_person", "look_up")] == [{"question": "x"}, {"word": "x"}]

    api.resolve(one["id"], first["ask_person"]["id"], answer="Ada")
    soon = {"deadline": datetime.now(UTC).isoformat()}
    api.ask("PUT", f"{path}/{first['read_clipboard']['id']}/deadline", json=soon)
    api.rest(one["id"], "completed")
    after = calls(one)
    assert {name: call["status"] for name, call in after.items()} == {
        "ask_person": "resolved",
        "read_clipboard": "expired",
        "look_up": "resolved",
    }
    for call in after.values():
        assert datetime.fromisoformat(call["createdAt"]) <= datetime.fromisoformat(call["resolvedAt"])
    assert calls(two) == other
    assert rows(
        api, "SELECT tool_call_id, status FROM tool_calls WHERE thread_id = ? ORDER BY 1", one["id"]
    ) == sorted((call["id"], call["status"]) for call in after.values())


@pytest.mark.accept("002-23")
def test_of_an_answer_and_a_deadline_at_once_one_counts(api: Api) -> None:
    threads = [api.run("agent", "tools: ask_person question=x") for _ in range(10)]
    *racing, late = threads
    (call_id,) = late["pending"]  # the same in each
    soon = {"deadline": (datetime.now(UTC) + timedelta(seconds=1)).isoformat()}
    for thread in threads:
        api.ask("PUT", f"/api/workflows/{thread['id']}/tool-calls/{call_id}/deadline", json=soon)

    def answer(thread: Any) -> bool:
        path = f"/api/workflows/{thread['id']}/tool-calls/{call_id}/resolve"
        status = sent(api, "POST", path, json={"answer": "in time"}).status_code
        assert status in (200, 409)
        return status == 200

    until(lambda: datetime.now(UTC) >= datetime.fromisoformat(soon["deadline"]))
    with ThreadPoolExecutor(4) as pool:
        won = dict(zip([thread["id"] for thread in racing], pool.map(answer, racing), strict=True))
    api.rest(late["id"], "completed")
    assert answer(late) is False
    won[late["id"]] = False
    for thread_id, answered in won.items():
        assert api.rest(thread_id)["status"] == "completed"
        (resolution,), (result,) = api.content(thread_id, "resolution"), api.content(thread_id, "tool_result")
        assert resolution["outcome"] == ("answered" if answered else "expired")
        assert (result["ok"], result["result"]) == ((True, "in time") if answered else (False, None))
        call = api.ask("GET", f"/api/workflows/{thread_id}/tool-calls/{call_id}")
        assert call["status"] == ("resolved" if answered else "expired")
        heard = api.content(thread_id, "assistant_msg")[-1]["content"]
        assert heard == ("in time" if answered else "tool call expired: no response")


@pytest.mark.accept("002-20")
@pytest.mark.parametrize("order", [("read_clipboard", "ask_person"), ("ask_person", "read_clipboard")])
def test_the_model_is_asked_when_the_last_call_is_answered(api: Api, tmp_path: Path, order: Any) -> None:
    marks = tmp_path / "marks"
    thread = api.run("agent", f"[{marks}] tools: read_clipboard; ask_person question=who")
    waiting = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls")["toolCalls"]
    calls = {call["name"]: call["id"] for call in waiting}
    answers = {"read_clipboard": "a text", "ask_person": "Ada"}
    first, last = order
    api.resolve(thread["id"], calls[first], answer=answers[first])
    now = api.thread(thread["id"])
    assert (now["status"], list(now["pending"])) == ("blocked", [calls[last]])
    assert marks.read_text().split() == ["model"]
    api.resolve(thread["id"], calls[last], answer=answers[last])
    api.rest(thread["id"], "completed")
    assert marks.read_text().split() == ["model", "model"]
    assert api.content(thread["id"], "assistant_msg")[-1]["content"] == "a text | Ada"
    types = [event["type"] for event in api.events(thread["id"], "resolution", "assistant_msg")]
    assert types == ["assistant_msg", "resolution", "resolution", "assistant_msg"]


@pytest.mark.accept("002-22")
def test_a_deadline_that_was_lifted_moved_or_met_does_not_fire(api: Api) -> None:
    names = ("lifted", "moved", "met", "left")
    threads = {name: api.run("agent", f"tools: send_mail to={name}") for name in names}
    paths = {
        name: f"/api/workflows/{thread['id']}/tool-calls/{next(iter(thread['pending']))}"
        for name, thread in threads.items()
    }
    soon = datetime.now(UTC) + timedelta(days=1)
    for name in names:
        # The last to come due is the one that is left: then the turn of the others has passed.
        deadline = soon + timedelta(milliseconds=names.index(name))
        api.ask("PUT", f"{paths[name]}/deadline", json={"deadline": deadline.isoformat()})
    assert api.ask("DELETE", f"{paths['lifted']}/deadline")["deadline"] is None
    later = soon + timedelta(hours=1)
    api.ask("PUT", f"{paths['moved']}/deadline", json={"deadline": later.isoformat()})
    api.ask("POST", f"{paths['met']}/resolve", json={"approved": True})
    # A day goes by, and a moment.
    gone = timedelta(days=1, seconds=1)
    for thread in threads.values():
        tamper(
            database(api),
            "UPDATE tool_calls SET deadline = deadline - ? WHERE thread_id = ?",
            gone // timedelta(microseconds=1),
            thread["id"],
        )
    api.rest(threads["left"]["id"], "completed")
    assert api.ask("GET", paths["left"])["status"] == "expired"
    for name in ("lifted", "moved"):
        assert api.ask("GET", paths[name])["status"] == "pending"
        assert api.thread(threads[name]["id"])["status"] == "blocked"
        assert api.events(threads[name]["id"], "resolution") == []
    assert datetime.fromisoformat(api.ask("GET", paths["moved"])["deadline"]) == later - gone
    api.rest(threads["met"]["id"], "completed")
    met = api.ask("GET", paths["met"])
    assert (met["status"], met["deadline"]) == ("resolved", None)
    assert [result["result"] for result in api.content(threads["met"]["id"], "tool_result")] == [
        "sent to met"
    ]


@pytest.mark.parametrize("deadline", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_deadline_that_could_not_be_read_back_is_refused(api: Api, deadline: str) -> None:
    thread = api.run("agent", "tools: send_mail to=ada")
    (call_id,) = thread["pending"]
    path = f"/api/workflows/{thread['id']}/tool-calls"
    refused = api.ask("PUT", f"{path}/{call_id}/deadline", status=400, json={"deadline": deadline})
    assert refused["error"]["field"] == "deadline"
    (call,) = api.ask("GET", path)["toolCalls"]
    assert call["status"] == "pending"
    api.answer(thread, approved=True)


@pytest.mark.accept("002-35")
def test_a_message_to_a_busy_conversation_is_refused_and_leaves_no_trace(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    running = api.start("wilful_agent", f"[{marks}] until: {tmp_path / 'never'}")
    until(filled(marks))
    blocked = api.run("agent", "tools: send_mail to=ada")["id"]
    for thread_id in (running, blocked):
        path = f"/api/workflows/start?id={thread_id}"
        refused = api.ask("POST", path, status=409, json={"prompt": "and another thing"})
        assert refused["error"]["code"] == "INVALID_STATE"
        assert len(api.events(thread_id, "user_msg")) == 1
    assert api.thread(running)["status"] == "running"
    api.ask("POST", f"/api/workflows/{running}/stop")

    thread = api.run("agent", "first")
    path = f"/api/workflows/start?id={thread['id']}"
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: sent(api, "POST", path, json={"prompt": f"p{n}"}).status_code, range(8))
        )
    assert set(answers) <= {200, 409}
    api.rest(thread["id"], after=thread["lastSeq"])
    log = api.events(thread["id"])
    assert [event["round"] for event in log] == sorted(event["round"] for event in log)
    said = [event for event in log if event["type"] in ("user_msg", "assistant_msg")]
    assert [event["round"] for event in said[::2]] == list(range(1, 2 + answers.count(200)))
    for question, answer in zip(said[::2], said[1::2], strict=True):
        assert answer["content"]["content"] == f"you said: {question['content']['content']}"


@dataclass(frozen=True, slots=True)
class Revived:
    """A server that came up after one was killed, and what the dead one was in the midst of."""

    api: Api
    idle: Any
    waiting: Any
    several: Any  # it waits for an approval, for a person's answer and for the client
    answered: Any
    acknowledged: Any  # what was said to the one who answered


@pytest.fixture(scope="module")
def revived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Revived]:
    """The fifth model call is the end of the first server: it would have followed the answer."""
    folder = tmp_path_factory.mktemp("revived")
    with api_serving(folder, CLEW_FAILPOINTS="llm_before:kill@5") as server:
        api = Api(server)
        idle = api.run("agent", "my name is Ada")
        waiting, answered = (api.run("agent", "tools: ask_person question=x") for _ in range(2))
        several = api.run("agent", "tools: send_mail to=ada; ask_person question=x; read_clipboard")
        (call_id,) = answered["pending"]
        acknowledged = api.resolve(answered["id"], call_id, answer="heard")
        assert server.wait()[0] == -signal.SIGKILL
    with api_serving(folder, CLEW_MODEL_CALLS_RECORD="true") as server:
        yield Revived(Api(server), idle, waiting, several, answered, acknowledged)


@pytest.mark.accept("002-19")
def test_an_answer_is_acknowledged_before_the_model_is_asked(revived: Revived) -> None:
    """The process died before that model call, and its client had been answered."""
    assert (revived.acknowledged["status"], revived.acknowledged["result"]) == ("resolved", "heard")
    api, thread_id = revived.api, revived.answered["id"]
    api.rest(thread_id, "completed")
    assert len(api.events(thread_id, "resolution")) == 1
    assert [said["content"] for said in api.content(thread_id, "assistant_msg")] == ["on it", "heard"]


@pytest.mark.accept("002-9")
def test_whatever_was_waited_for_is_waited_for_again_and_reaches_the_model(revived: Revived) -> None:
    api, before = revived.api, revived.several
    asked = {
        (call["executor"], call["kind"], call["prompt"]["tool"]): (call_id, call["prompt"]["args"])
        for call_id, call in before["pending"].items()
    }
    assert {key: args for key, (_, args) in asked.items()} == {
        ("server", "approval", "send_mail"): {"to": "ada"},
        ("human", "elicitation", "ask_person"): {"question": "x"},
        ("client", "client_exec", "read_clipboard"): {},
    }
    now = api.thread(before["id"])
    assert (now["status"], now["pending"]) == ("blocked", before["pending"])
    answers: dict[str, Any] = {
        "send_mail": {"approved": True},
        "ask_person": {"answer": "Ada"},
        "read_clipboard": {"answer": "a text"},
    }
    for (_, _, tool), (call_id, _) in asked.items():
        api.resolve(before["id"], call_id, **answers[tool])
    assert api.rest(before["id"], after=before["lastSeq"] + 3)["status"] == "completed"
    last = api.content(before["id"], "assistant_msg")[-1]
    assert last["content"] == "sent to ada | Ada | a text"
    assert len(api.events(before["id"], "tool_call")) == 3


@pytest.mark.accept("002-7")
def test_a_message_and_an_answer_both_wake_a_conversation_nobody_runs(revived: Revived) -> None:
    api = revived.api
    thread = say(api, revived.idle, "who am I?")
    (call,) = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
    shown = [turn["content"] for turn in call["renderedContext"] if turn["role"] == "user"]
    assert shown == ["my name is Ada", "who am I?"]
    assert api.answer(revived.waiting, answer="this")["status"] == "completed"
    assert api.content(revived.waiting["id"], "assistant_msg")[-1]["content"] == "this"


@pytest.mark.accept("002-7")
def test_a_conversation_nobody_began_is_not_begun_by_a_message_or_an_answer(api: Api) -> None:
    before = everything(api)
    api.ask("POST", "/api/workflows/start?id=nobody", status=404, json={"prompt": "hello"})
    api.resolve("nobody", "call_2_0", status=404, answer="hello")
    for path in ("approve", "resume", "begin", "stop"):
        api.ask("POST", f"/api/workflows/nobody/{path}", status=404)
    api.ask("GET", "/api/threads/nobody/events", status=404)
    assert everything(api)["threads"] == before["threads"]
    assert rows(api, "SELECT 1 FROM events WHERE thread_id = 'nobody'") == []


def everything(api: Api, thread_id: str | None = None) -> dict[str, int]:
    """How many rows there are in each table that has to do with threads; of one of them, if it is named."""
    tables = rows(
        api,
        "SELECT s.name, c.name FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c WHERE s.type = 'table'"
        " AND s.name <> 'tombstones' AND (c.name = 'thread_id' OR (s.name, c.name) = ('threads', 'id'))",
    )
    where = "" if thread_id is None else " WHERE {} = ?"
    args = () if thread_id is None else (thread_id,)
    return {
        table: rows(api, f"SELECT count(*) FROM {table}{where.format(column)}", *args)[0][0]
        for table, column in tables
    }


@dataclass(frozen=True, slots=True)
class Restarted:
    """A server after another that kept two model calls of a thread, and died when it had accepted a request.

    One thread has ten thousand events, of which those that are summed up cannot be read any more.
    """

    api: Api
    capped: Any
    turns: list[int]  # of the model calls that were kept of it
    other: Any
    long: Any
    summed_up: int  # the last event of it that is
    request: Any
    key: dict[str, str]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    folder = tmp_path_factory.mktemp("restarted")
    request, key = {"prompt": "only once", "graph": "agent"}, {"Idempotency-Key": "update-7"}
    with api_serving(
        folder,
        CLEW_MODEL_CALLS_RECORD="true",
        CLEW_MODEL_CALLS_ROWS_PER_THREAD="2",
        CLEW_FAILPOINTS="accept_after_commit_before_reply:kill@9",
    ) as server:
        api = Api(server)
        other = api.run("agent", "hello")
        capped = api.run("agent", "one")
        for text in ("two", "three"):
            capped = say(api, capped, text)
        turns = turns_of(api, capped["id"])
        long = api.run("frugal_agent", "tools: chatter lines=10000")
        for n in range(3):
            long = say(api, long, f"message {n}")
        with pytest.raises(httpx.TransportError):
            sent(api, "POST", "/api/workflows/start", json=request, headers=key)
        server.wait()
    file = folder / ".clew" / "clew.db"
    older = f"UPDATE model_calls SET created_at = created_at - {2 * DAY} WHERE thread_id = ? AND turn_ref = ?"
    tamper(file, older, capped["id"], turns[-1])
    ((summed_up,),) = rows(api, "SELECT max(to_seq) FROM summaries WHERE thread_id = ?", long["id"])
    tamper(file, "UPDATE events SET content = '{' WHERE thread_id = ? AND seq <= ?", long["id"], summed_up)
    with api_serving(folder, CLEW_MODEL_CALLS_RECORD="true", CLEW_MODEL_CALLS_TTL_DAYS="1") as server:
        yield Restarted(Api(server), capped, turns, other, long, summed_up, request, key)


def model_calls(api: Api, thread_id: str) -> list[Any]:
    return list(api.ask("GET", f"/api/threads/{thread_id}/model-calls")["modelCalls"])


def answering(api: Api, thread_id: str) -> list[Any]:
    """The calls that answer somebody. Others sum up what was said."""
    return [call for call in model_calls(api, thread_id) if call["renderedContext"][-1]["content"] != SUM_UP]


def turns_of(api: Api, thread_id: str) -> list[int]:
    return [call["turnRef"] for call in model_calls(api, thread_id)]


@pytest.mark.accept("002-26")
def test_a_long_conversation_is_revived_from_its_summary_and_what_came_after(restarted: Restarted) -> None:
    api, long = restarted.api, restarted.long
    assert 10_000 < restarted.summed_up < long["lastSeq"]
    path = f"/api/threads/{long['id']}/events"
    assert api.ask("GET", path, status=500)["error"]["code"] == "CORRUPT"  # whoever reads those fails
    now = say(api, long, "who am I?")
    assert now["status"] == "completed"
    tail = api.ask("GET", f"{path}?after={restarted.summed_up}&limit=1000")["events"]
    assert tail[-1]["seq"] == now["lastSeq"]
    (call,) = [call for call in answering(api, long["id"]) if call["turnRef"] > long["lastSeq"]]
    assert "Summary of the conversation" in call["renderedContext"][0]["content"]
    before = [event for event in tail if event["seq"] <= call["turnRef"]]
    # The summary and what is injected are part of the one system message.
    assert call["renderedContext"][0]["content"].endswith(f"of {len(before)} events")
    assert len(before) < 100


@pytest.mark.accept("002-29")
def test_model_calls_are_kept_so_many_and_so_long_as_was_said(restarted: Restarted) -> None:
    api, thread = restarted.api, restarted.capped
    rounds = seqs(api.events(thread["id"], "user_msg"))
    newest, older = restarted.turns
    assert rounds[1] < older < rounds[2] < newest
    assert len(rounds) == 3
    until(lambda: turns_of(api, thread["id"]) == [newest])
    assert len(turns_of(api, restarted.other["id"])) == 1


@pytest.mark.accept("002-29")
def test_model_calls_are_kept_for_ever_unless_something_was_said(api: Api) -> None:
    thread = api.run("agent", "hello")
    tamper(database(api), "UPDATE model_calls SET created_at = 1 WHERE thread_id = ?", thread["id"])
    for n in range(3):
        thread = say(api, thread, str(n))
    assert len(turns_of(api, thread["id"])) == 4


@pytest.mark.accept("002-40")
def test_what_was_accepted_before_a_crash_is_not_accepted_again(restarted: Restarted) -> None:
    api = restarted.api

    def send(status: int = 200, **more: Any) -> Any:
        body = {**restarted.request, **more}
        return api.ask("POST", "/api/workflows/start", status=status, json=body, headers=restarted.key)

    first = send()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: send(), range(8))) == [first] * 8
    assert send(status=409, prompt="something else")["error"]["code"] == "DUPLICATE"
    api.rest(first["id"], "completed")
    listed = [thread["id"] for thread in api.ask("GET", "/api/threads")["threads"]]
    others = (restarted.capped, restarted.other, restarted.long)
    assert sorted(listed) == sorted([first["id"], *(thread["id"] for thread in others)])
    assert [said["content"] for said in api.content(first["id"], "user_msg")] == ["only once"]
    assert rows(api, "SELECT thread_id FROM idempotency") == [(first["id"],)]


@pytest.mark.accept("002-40")
def test_of_many_equal_requests_at_once_one_is_admitted(api: Api, neighbour: Api) -> None:
    servers = [api, neighbour]

    def send(n: int) -> Any:
        body, key = {"prompt": "at once", "graph": "agent"}, {"Idempotency-Key": "update-8"}
        return sent(servers[n % 2], "POST", "/api/workflows/start", json=body, headers=key)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(send, range(8)))
    assert {answer.status_code for answer in answers} == {200}
    (thread_id,) = {answer.json()["id"] for answer in answers}
    assert rows(api, "SELECT id FROM threads WHERE name = 'at once'") == [(thread_id,)]


PLAYED = [
    *("round_started", "user_msg", "stage_changed", "assistant_msg", "tool_call", "stage_completed"),
    *("stage_changed", "suspension", "resolution", "stage_changed", "tool_result", "stage_completed"),
    *(
        "stage_changed",
        "assistant_msg",
        "stage_completed",
        "stage_changed",
        "stage_completed",
        "round_finished",
    ),
    *("round_started", "user_msg", "stage_changed", "assistant_msg", "stage_completed"),
    *("stage_changed", "stage_completed", "round_finished"),
]


@pytest.mark.accept("002-32")
@pytest.mark.parametrize("kind", DATABASES)
def test_one_play_goes_the_same_on_every_database(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if kind == "sqlite":
        play(request.getfixturevalue("api"))
        return
    where = locate(kind, request)
    url = "memory://" if where == "memory" else where
    with api_serving(tmp_path, CLEW_DATABASE_URL=url, CLEW_MODEL_CALLS_RECORD="true") as server:
        play(Api(server))


@pytest.mark.accept("002-31")
def test_what_is_only_in_memory_is_gone_with_the_process_and_that_is_said(tmp_path: Path) -> None:
    with api_serving(tmp_path, CLEW_DATABASE_URL="memory://") as server:
        api = Api(server)
        thread = api.run("agent", "hello")
        thread = say(api, thread, "again")  # it outlives the run that wrote it
        assert [said["content"] for said in api.content(thread["id"], "user_msg")] == ["hello", "again"]
        assert "memory://, lost when this process ends" in server.stdout.read_text()
        server.signal(signal.SIGTERM)
        assert server.wait()[0] == 0
    with api_serving(tmp_path, CLEW_DATABASE_URL="memory://") as server:
        Api(server).ask("GET", f"/api/threads/{thread['id']}", status=404)


def play(api: Api) -> None:
    thread = api.run("agent", "tools: send_mail to=ada")
    assert (thread["status"], list(thread["pending"])) == ("blocked", ["call_2_0"])
    thread = api.answer(thread, approved=True)
    api.resolve(thread["id"], "call_2_0", status=409, approved=False)
    thread = say(api, thread, "bye")
    log = api.events(thread["id"])
    assert [(event["seq"], event["type"]) for event in log] == list(enumerate(PLAYED, 1))
    path = f"/api/threads/{thread['id']}"
    assert api.ask("GET", f"{path}/events?after=4&limit=3")["events"] == log[4:7]
    said = [event["content"]["content"] for event in log if event["type"].endswith("_msg")]
    assert said == ["tools: send_mail to=ada", "on it", "sent to ada", "bye", "you said: bye"]
    (call,) = api.ask("GET", f"/api/workflows/{thread['id']}/tool-calls?status=resolved")["toolCalls"]
    assert (call["args"], call["result"], call["deadline"]) == ({"to": "ada"}, "sent to ada", None)
    assert len(turns_of(api, thread["id"])) == 3
    assert api.ask("DELETE", path)["status"] == "deleted"
    for gone in (path, f"{path}/events", f"{path}/model-calls", f"/api/workflows/{thread['id']}/tool-calls"):
        api.ask("GET", gone, status=404)


@pytest.mark.accept("002-39")
def test_a_deleted_conversation_leaves_no_row_behind(api: Api) -> None:
    gone, kept = (api.run("forgetful_agent", "tools: look_up word=x") for _ in range(2))
    for n in range(3):
        gone = say(api, gone, f"message {n}")
    had = everything(api, gone["id"])
    for table in ("threads", "events", "summaries", "tool_calls", "model_calls", "checkpoints"):
        assert had[table], table
    until(lambda: bool(everything(api, kept["id"])["message_words"]))
    others = everything(api, kept["id"])
    path = f"/api/threads/{gone['id']}"
    assert api.ask("DELETE", path)["status"] == "deleted"
    for _ in range(2):
        assert api.ask("DELETE", path, status=404)["error"]["code"] == "NOT_FOUND"
    until(lambda: not any(everything(api, gone["id"]).values()))
    assert everything(api, kept["id"]) == others
    api.ask("POST", f"/api/workflows/start?id={gone['id']}", status=404, json={"prompt": "hello?"})
    assert not any(everything(api, gone["id"]).values())


@pytest.mark.accept("002-39")
def test_what_is_deleted_for_a_tenant_is_its_own(tmp_path: Path) -> None:
    with api_serving(tmp_path, CLEANUP_API_KEY=KEY) as server:
        api = Api(server)
        nobodys = api.run("agent", "of nobody in particular")["id"]
        made = clew(tmp_path, "keys", "create", "--name", "n", "--tenant", "acme", "--json")
        acme = {"X-API-Key": json.loads(made.stdout)["key"]}
        until(lambda: sent(api, "GET", "/api/threads").status_code == 401)
        for text in ("one", "two"):
            body = {"prompt": text, "graph": "agent"}
            api.ask("POST", "/api/workflows/start?wait=20", json=body, headers=acme)
        tamper(
            database(api),
            f"UPDATE threads SET last_accessed_at = last_accessed_at - {9 * DAY}, expires_at = expires_at - {9 * DAY}",
        )
        deleted: dict[str, list[int]] = {}
        for tenant in ("", "acm", "ACME", "%", "acme", "acme"):
            answer = api.ask(
                "POST", CLEANUP, params={"tenant": tenant, "days_old": 7}, headers={"X-API-Key": KEY}
            )
            deleted.setdefault(tenant, []).append(answer["deleted"])
        assert deleted == {"": [0], "acm": [0], "ACME": [0], "%": [0], "acme": [2, 0]}
        assert rows(api, "SELECT id, tenant FROM threads") == [(nobodys, "default")]
        with closing(sqlite3.connect(database(api), timeout=10)) as db:
            assert acme["X-API-Key"] not in "\n".join(db.iterdump())
        until(lambda: rows(api, "SELECT DISTINCT thread_id FROM events") == [(nobodys,)])


@pytest.mark.accept("002-39")
def test_everything_of_a_tenant_or_of_one_user_is_deleted_and_counted(tmp_path: Path) -> None:
    """Whatever it does, whatever its age; and nothing that belongs to nobody in particular."""
    with api_serving(tmp_path) as server:
        api = Api(server)

        def key(*owner: str, scopes: Sequence[str] = ("read", "write", "admin")) -> dict[str, str]:
            may = [word for scope in scopes for word in ("--scope", scope)]
            made = clew(tmp_path, "keys", "create", "--name", "n", *may, *owner, "--json")
            assert made.returncode == 0, made.stderr
            return {"X-API-Key": json.loads(made.stdout)["key"]}

        acme, rival = key("--tenant", "acme"), key("--tenant", "rival")
        ann, bob = (key("--tenant", "acme", "--user", name) for name in ("ann", "bob"))
        writer = key("--tenant", "acme", scopes=("read", "write"))
        until(lambda: sent(api, "GET", "/api/threads").status_code == 401)

        def start(headers: dict[str, str], prompt: str, graph: str = "agent") -> str:
            body = {"prompt": prompt, "graph": graph, "ttlDays": None}
            return str(api.ask("POST", "/api/workflows/start?wait=20", json=body, headers=headers)["id"])

        def delete(headers: dict[str, str], query: str, status: int = 200) -> Any:
            return api.ask("DELETE", f"/api/threads{query}", status=status, headers=headers)

        anns = {start(ann, "hello"), start(ann, "tools: send_mail to=ada")}
        binned = start(ann, "binned")
        api.ask("DELETE", f"/api/threads/{binned}?soft=true", headers=ann)
        bobs, theirs, nobodys = start(bob, "hello"), start(rival, "hello"), start(acme, "no user")
        body = {"prompt": f"until: {tmp_path / 'never'}", "graph": "wilful_agent"}
        running = api.ask("POST", "/api/workflows/start", json=body, headers=acme)["id"]

        assert delete(writer, "?user_id=ann", status=403)["error"]["code"] == "FORBIDDEN"
        assert delete(acme, "", status=400)["error"]["field"] == "tenant"
        assert delete(acme, "?user_id=", status=400)["error"]["field"] == "user_id"
        assert delete(acme, "?user_id=%20", status=400)["error"]["field"] == "user_id"
        for headers, query in ((acme, "?tenant=rival"), (acme, "?tenant="), (ann, "?tenant=acme")):
            assert delete(headers, query, status=404)["error"]["code"] == "NOT_FOUND"
        assert delete(ann, "?user_id=bob", status=404)["error"]["code"] == "NOT_FOUND"
        assert delete(acme, "?user_id=an_")["deleted"] == 0
        shown = api.ask("GET", f"/api/workflows/{next(iter(anns))}", headers=ann)
        mandate, number = shown["mandateId"], shown["userId"]
        assert delete(acme, f"?userId={number}&user_id=bob", status=400)["error"]["code"] == "INVALID"
        for headers, query in (
            (rival, f"userId={number}"),
            (rival, f"mandateId={mandate}"),
            (acme, "userId=99"),
        ):
            assert delete(headers, f"?{query}", status=404)["error"]["code"] == "NOT_FOUND"
        gone = delete(acme, f"?userId={number}")
        assert (gone["deleted"], gone["errors"], gone["due"], gone["more"]) == (3, 0, 0, False)
        assert set(gone["threadIds"]) == anns | {binned}
        assert delete(acme, "?user_id=ann")["deleted"] == 0
        left = {row[0] for row in rows(api, "SELECT id FROM threads")}
        assert left == {bobs, theirs, nobodys, running}
        # The command does the same on the database itself, beside a server.
        for wrong in (("--tenant", ""), ("--tenant", "acme", "--user", "")):
            refused = clew(tmp_path, "threads", "delete-all", *wrong)
            assert (refused.returncode != 0, "is needed" in refused.stderr) == (True, True)
        would = clew(tmp_path, "threads", "delete-all", "--tenant", "acme", "--dry-run")
        assert would.stdout == "3 would be deleted.\n"
        told = clew(tmp_path, "threads", "delete-all", "--tenant", "acme", "--user", "bob", "--json", "--yes")
        assert (json.loads(told.stdout)["deleted"], json.loads(told.stdout)["threadIds"]) == (1, [bobs])
        gone = delete(acme, f"?mandateId={mandate}")
        assert (gone["deleted"], set(gone["threadIds"])) == (2, {nobodys, running})
        assert rows(api, "SELECT id FROM threads") == [(theirs,)]
        until(lambda: rows(api, "SELECT DISTINCT thread_id FROM events") == [(theirs,)])
        assert delete(acme, "?tenant=acme")["deleted"] == 0


def cleanup(api: Api, headers: dict[str, str], method: str = "POST") -> int:
    return sent(api, method, CLEANUP, headers=headers).status_code


def signed(method: str, *, secret: str = SECRET, seconds: int = 0) -> dict[str, str]:
    at = int(datetime.now(UTC).timestamp()) + seconds
    digest = hmac.new(secret.encode(), f"{at}.{method}.{CLEANUP}".encode(), sha256).hexdigest()
    return {"x-vercel-cron-signature": f"t={at},v1={digest}"}


def cleanups(api: Api) -> int:
    return int(rows(api, "SELECT count(*) FROM cleanups")[0][0])


@pytest.mark.accept("003-13")
def test_cleaning_up_needs_the_key(api: Api) -> None:
    before = cleanups(api)
    for wrong in (
        {},
        {"X-API-Key": ""},
        {"X-API-Key": "no"},
        {"X-API-Key": KEY[:-1]},
        {"X-API-Key": f"{KEY}x"},
    ):
        assert cleanup(api, wrong) == 401, wrong
    assert cleanups(api) == before
    assert cleanup(api, {"X-API-Key": KEY}) == 200
    assert cleanups(api) == before + 1


@pytest.mark.accept("003-14")
def test_without_a_key_of_its_own_nobody_cleans_up(neighbour: Api, api: Api) -> None:
    before = cleanups(api)
    for proof in (
        *({}, {"X-API-Key": ""}, {"X-API-Key": "None"}, {"X-API-Key": KEY}),
        *({"Authorization": f"Bearer {SECRET}"}, {"Authorization": "Bearer None"}),
        *(signed("POST"), signed("POST", secret="")),
    ):
        for method in ("GET", "POST"):
            assert cleanup(neighbour, proof, method) == 503, proof
    assert cleanups(api) == before


@pytest.mark.accept("003-15")
def test_a_cron_service_proves_itself_with_its_secret(api: Api) -> None:
    before = cleanups(api)
    for wrong in (
        *({"x-vercel-cron-signature": "1"}, {"x-vercel-cron-signature": SECRET}),
        *(
            signed("POST", secret=KEY),
            signed("GET"),
            signed("POST", seconds=-600),
            signed("POST", seconds=600),
        ),
        *({"Authorization": f"Bearer {KEY}"}, {"Authorization": f"Basic {SECRET}"}),
        {"User-Agent": "vercel-cron/1.0", "x-vercel-cron-schedule": "0 0 * * *"},
    ):
        assert cleanup(api, wrong) == 401, wrong
    assert cleanups(api) == before
    for method in ("GET", "POST"):
        assert cleanup(api, {"Authorization": f"Bearer {SECRET}"}, method) == 200
        once = signed(method)
        assert (cleanup(api, once, method), cleanup(api, once, method)) == (200, 401)
    assert cleanups(api) == before + 4


@pytest.mark.accept("003-31")
def test_thread_metadata_is_there_for_whoever_reads_the_file(api: Api) -> None:
    thread = api.run("agent", "tools: send_mail to=ada")
    columns = [name for (name,) in rows(api, "SELECT name FROM pragma_table_info('thread_metadata')")]
    assert columns == [
        *("thread_id", "created_at", "last_accessed_at", "expires_at"),
        *("user_id", "status", "workflow_step", "metadata"),
    ]

    def metadata() -> dict[str, Any]:
        (row,) = rows(api, "SELECT * FROM thread_metadata WHERE thread_id = ?", thread["id"])
        return dict(zip(columns, row, strict=True))

    seen = metadata()
    assert (seen["user_id"], seen["status"], seen["workflow_step"]) == (None, "active", "tools")
    assert "api_key" not in json.loads(seen["metadata"])
    created, accessed, expires = (
        datetime.fromisoformat(seen[name]) for name in ("created_at", "last_accessed_at", "expires_at")
    )
    assert (created <= accessed, expires - accessed) == (True, timedelta(days=30))
    api.answer(thread, approved=True)
    assert metadata()["status"] == "completed"
    indexed = rows(
        api, "SELECT c.name FROM pragma_index_list('threads') AS i JOIN pragma_index_info(i.name) AS c"
    )
    assert {("expires_at",), ("last_accessed_at",)} <= set(indexed)
    schema = rows(api, "SELECT name, sql FROM sqlite_schema ORDER BY name")
    again = clew(database(api).parents[1], "migrate")
    assert again.returncode == 0, again.stderr
    assert rows(api, "SELECT name, sql FROM sqlite_schema ORDER BY name") == schema
    assert metadata()["status"] == "completed"
