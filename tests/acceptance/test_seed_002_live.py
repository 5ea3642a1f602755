"""Seed 002, what is kept and how, seen from outside: a real server over HTTP, and its file opened beside it."""

import json
import sqlite3
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.processes import until

KEY = "a-key-for-cleaning-up"
SECRET = "a-secret-of-the-cron-service"

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
    ) as server:
        yield Api(server)


@pytest.fixture(scope="module")
def neighbour(api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Another server on the same file, which knows no secret for cleaning up."""
    with api_serving(
        tmp_path_factory.mktemp("neighbour"),
        CLEW_MODEL_CALLS_RECORD="true",
        CLEW_DATABASE_URL=f"sqlite:///{database(api)}",
    ) as server:
        yield Api(server)


def database(api: Api) -> Path:
    return api.server.stdout.parent / ".clew" / "clew.db"


def rows(api: Api, sql: str, *args: Any) -> list[Any]:
    """What stands in the server's file."""
    with closing(sqlite3.connect(f"file:{database(api)}?mode=ro", uri=True, timeout=10)) as db:
        return db.execute(sql, args).fetchall()


def tamper(file: Path, sql: str, *args: Any) -> None:
    """Write into a server's file by other hands than its own."""
    with closing(sqlite3.connect(file, timeout=10)) as db, db:
        db.execute(sql, args)


def say(api: Api, thread: Any, text: str) -> Any:
    """The thread after another round."""
    api.ask("POST", f"/api/workflows/start?id={thread['id']}", json={"prompt": text})
    return api.rest(thread["id"], after=thread["lastSeq"])


def seqs(events: list[Any]) -> list[int]:
    return [event["seq"] for event in events]


def told(api: Api, thread_id: str, query: str = "", **headers: str) -> Generator[int]:
    """The sequence numbers an event stream tells, for as long as one asks for the next."""
    url = f"{api.server.address}/api/workflows/{thread_id}/events{query}"
    with httpx.stream("GET", url, headers=headers, timeout=20) as answer:
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
    assert len(api.ask("GET", f"{path}?limit={thread['lastSeq']}")["events"]) == thread["lastSeq"]


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
    assert {tuple(methods) for path, methods in paths.items() if "/events" in path} == {("get",)}
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
    assert read("?limit=2") == [1, 2]
    pages: list[list[int]] = []
    while page := read(f"?limit=7&after={pages[-1][-1] if pages else 0}"):
        pages.append(page)
    assert [seq for page in pages for seq in page] == list(range(1, last + 1))
    assert {len(page) for page in pages[:-1]} == {7}
    for query in ("?limit=0", "?limit=1001", "?after=-1", "?after=x"):
        api.ask("GET", path + query, status=400)
    streams = (told(api, thread["id"], "?since=4"), told(api, thread["id"], **{"Last-Event-ID": "4"}))
    for stream in streams:
        assert [next(stream) for _ in range(4, last)] == list(range(5, last + 1))
        stream.close()


@pytest.mark.accept("002-5")
def test_writers_in_two_processes_never_share_a_number(api: Api, neighbour: Api) -> None:
    thread = api.run("agent", "first")
    servers = [api.server.address, neighbour.server.address]

    def post(n: int, path: str, body: Any) -> tuple[int, str]:
        return httpx.post(servers[n % 2] + path, json=body, timeout=40).status_code, str(n)

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
    calls = api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"]
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
    newest = max(
        api.ask("GET", f"/api/threads/{thread['id']}/model-calls")["modelCalls"],
        key=lambda call: call["turnRef"],
    )
    assert reach[newest["summaryVersion"]] == max(reach.values())


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
    soon = datetime.now(UTC) + timedelta(seconds=2)
    for name in names:
        # The last to come due is the one that is left: then the turn of the others has passed.
        deadline = soon + timedelta(milliseconds=names.index(name))
        api.ask("PUT", f"{paths[name]}/deadline", json={"deadline": deadline.isoformat()})
    assert api.ask("DELETE", f"{paths['lifted']}/deadline")["deadline"] is None
    later = (soon + timedelta(hours=1)).isoformat()
    moved = api.ask("PUT", f"{paths['moved']}/deadline", json={"deadline": later})
    api.ask("POST", f"{paths['met']}/resolve", json={"approved": True})
    api.rest(threads["left"]["id"], "completed")
    assert api.ask("GET", paths["left"])["status"] == "expired"
    for name in ("lifted", "moved"):
        assert api.ask("GET", paths[name])["status"] == "pending"
        assert api.thread(threads[name]["id"])["status"] == "blocked"
        assert api.events(threads[name]["id"], "resolution") == []
    assert datetime.fromisoformat(api.ask("GET", paths["moved"])["deadline"]) == datetime.fromisoformat(
        moved["deadline"]
    )
    api.rest(threads["met"]["id"], "completed")
    met = api.ask("GET", paths["met"])
    assert (met["status"], met["deadline"]) == ("resolved", None)
    assert [result["result"] for result in api.content(threads["met"]["id"], "tool_result")] == [
        "sent to met"
    ]


@pytest.mark.accept("002-35")
def test_a_message_to_a_busy_conversation_is_refused_and_leaves_no_trace(api: Api, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    running = api.start("agent", f"[{marks}] slowly: " + "word " * 200)
    until(marks.exists)
    blocked = api.run("agent", "tools: send_mail to=ada")["id"]
    for thread_id in (running, blocked):
        path = f"/api/workflows/start?id={thread_id}"
        refused = api.ask("POST", path, status=409, json={"prompt": "and another thing"})
        assert refused["error"]["code"] == "INVALID_STATE"
        assert len(api.events(thread_id, "user_msg")) == 1
    assert api.thread(running)["status"] == "running"
    api.ask("POST", f"/api/workflows/{running}/stop")

    thread = api.run("agent", "first")
    url = f"{api.server.address}/api/workflows/start?id={thread['id']}"
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: httpx.post(url, json={"prompt": f"p{n}"}, timeout=40).status_code, range(8))
        )
    assert set(answers) <= {200, 409}
    api.rest(thread["id"], after=thread["lastSeq"])
    log = api.events(thread["id"])
    assert [event["round"] for event in log] == sorted(event["round"] for event in log)
    said = [event for event in log if event["type"] in ("user_msg", "assistant_msg")]
    assert [event["round"] for event in said[::2]] == list(range(1, 2 + answers.count(200)))
    for question, answer in zip(said[::2], said[1::2], strict=True):
        assert answer["content"]["content"] == f"you said: {question['content']['content']}"
