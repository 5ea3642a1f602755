"""Seed 000, where the keys come from: bots of a real server, with a provider on loopback, killed between any two steps."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import httpx
import pytest

from clew import create_graph_store
from clew.channels.phrases import Phrase, phrase
from clew.channels.wecom_crypto import Envelope, read_key, sign
from clew.history.chat_history import ChatHistory
from tests.acceptance.conftest import Api
from tests.processes import ROOT, clew, filled, serving, until
from tests.providers import HEADER, SECRET, TOKEN, Provider, Reply, Sent, provider, says_yes, text_of, update

AES_KEY = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"
WECOM_TOKEN, CORP, CORP_SECRET = "a-token-of-wecom", "ww0123456789abcdef", "a-secret-of-the-corporation"
SECRETS = (TOKEN, SECRET, AES_KEY, WECOM_TOKEN, CORP_SECRET, "an-access-token")
CANARY = "a-canary-in-a-message"


def config(url: str) -> str:
    telegram = f"token: {TOKEN}, secret_token: {SECRET}, base_url: '{url}'"
    envelope = f"token: {WECOM_TOKEN}, encoding_aes_key: {AES_KEY}, base_url: '{url}', graph: agent"
    corp = f"{envelope}, corp_id: {CORP}, secret: {CORP_SECRET}"
    return f"""
graphs:
  agent: tests.acceptance.graphs:wilful_agent
  remembering: tests.channel_graphs:remembering
  recounting: tests.channel_graphs:recounting
channels:
  telegram:
    bot: {{{telegram}, graph: agent}}
    rememberer: {{{telegram}, graph: remembering}}
    recounter: {{{telegram}, graph: recounting}}
    guest: {{{telegram}, graph: recounting, tenant: acme.example}}
    plain: {{{telegram}}}
  wecom:
    desk: {{{corp}, agent_id: 1000002}}
    service: {{{corp}, kind: customer_service}}
    helper: {{{envelope}, kind: ai_bot}}
"""


@dataclass(slots=True)
class Bots:
    """A server with bots, and what providers do to it."""

    api: Api
    provider: Provider
    folder: Path

    def post(self, path: str, **request: Any) -> httpx.Response:
        return httpx.post(f"{self.api.server.address}{path}", timeout=20, verify=False, **request)

    def deliver(self, body: Any, bot: str = "bot") -> Any:
        answer = self.post(f"/channels/telegram/{bot}", json=body, headers=HEADER)
        assert answer.status_code == 200, answer.text
        return answer.json()["status"]

    def seal(
        self, app: str, content: str, *, at: float | None = None, receiver: str = CORP
    ) -> tuple[dict[str, str], str]:
        envelope = Envelope(WECOM_TOKEN, read_key(AES_KEY), "" if app == "helper" else receiver)
        encrypted = envelope.seal(content.encode(), noise=os.urandom(16))
        timestamp = str(int(time.time() if at is None else at))
        query = {
            "msg_signature": sign(WECOM_TOKEN, timestamp, "n1", encrypted),
            "timestamp": timestamp,
            "nonce": "n1",
        }
        return query, encrypted

    def callback(self, app: str, content: str, status: int = 200, **sealing: Any) -> str:
        query, encrypted = self.seal(app, content, **sealing)
        answer = self.post(f"/channels/wecom/{app}", params=query, content=wrapped(app, encrypted))
        assert answer.status_code == status, answer.text
        return answer.text

    def threads(self, graph: str = "agent") -> list[Any]:
        found = self.api.ask("GET", "/api/threads?limit=200")["threads"]
        return [thread for thread in found if thread["graph"] == graph]


def wrapped(app: str, encrypted: str) -> bytes:
    if app == "helper":
        return f'{{"encrypt": "{encrypted}"}}'.encode()
    return f"<xml><ToUserName>{CORP}</ToUserName><Encrypt><![CDATA[{encrypted}]]></Encrypt></xml>".encode()


def xml(**fields: str) -> str:
    return "<xml>" + "".join(f"<{name}>{escape(text)}</{name}>" for name, text in fields.items()) + "</xml>"


def direct(number: int, text: str, **fields: str) -> str:
    return xml(FromUserName="zhang.san", MsgType="text", Content=text, MsgId=str(number), **fields)


@contextmanager
def bots_serving(folder: Path, known: Provider, **environ: str) -> Iterator[Bots]:
    (folder / "clew.yaml").write_text(config(known.url))
    settings: dict[str, Any] = {
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "CLEW_RUNNER_POLL_SECONDS": "0.1",
        **environ,
    }
    with serving(folder, **settings) as server:
        yield Bots(Api(server), known, folder)


def time_goes_by(folder: Path) -> None:
    """Until nothing is held any more by those who died. A lease as short as a test would be lost by the living too."""
    with closing(sqlite3.connect(folder / ".clew" / "clew.db")) as db, db:
        for table in ("threads", "conversations"):
            db.execute(f"UPDATE {table} SET lease_until = 0 WHERE lease_until IS NOT NULL")


@dataclass(slots=True)
class Customers:
    """What WeCom keeps of its customers' messages, in pages of two."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, sent: Sent) -> Reply:
        if sent.method != "sync_msg":
            return says_yes(sent)
        begin = int(sent.body["cursor"] or 0)
        page = self.messages[begin : begin + 2]
        end = begin + len(page)
        return Reply(
            {
                "errcode": 0,
                "msg_list": page,
                "next_cursor": str(end),
                "has_more": int(end < len(self.messages)),
            }
        )


@pytest.fixture(scope="module")
def customers() -> Customers:
    return Customers()


@pytest.fixture(scope="module")
def bots(tmp_path_factory: pytest.TempPathFactory, customers: Customers) -> Iterator[Bots]:
    with provider(customers.answer) as known, bots_serving(tmp_path_factory.mktemp("bots"), known) as opened:
        yield opened


def answers_to(known: Provider, **address: Any) -> list[str]:
    """What was said to one chat."""
    return [
        text_of(sent.body)
        for sent in list(known.requests)
        if sent.method in ("sendMessage", "send", "send_msg") and address.items() <= sent.body.items()
    ]


@pytest.mark.accept("000-35")
def test_a_wrong_secret_is_a_401_and_leaves_nothing(bots: Bots) -> None:
    for headers in ({}, {"X-Telegram-Bot-Api-Secret-Token": "wrong"}):
        refused = bots.post("/channels/telegram/bot", json=update(3500, "x", chat=35), headers=headers)
        assert refused.status_code == 401
    # It is new when it comes with the right one.
    assert bots.deliver(update(3500, "hello", chat=35)) == "admitted"
    until(lambda: answers_to(bots.provider, chat_id="35") == ["you said: hello"])


@pytest.mark.accept("000-36")
def test_what_is_not_to_be_answered_is_a_200(bots: Bots) -> None:
    group = update(3600, "hi")
    group["message"]["chat"] = {"id": -36, "type": "group"}
    ignored = [
        group,
        update(3601, "", chat=36),
        {"update_id": 3602, "edited_message": update(1, "hi")["message"]},
        {"update_id": 3603, "my_chat_member": {}},
    ]
    assert [bots.deliver(one) for one in ignored] == ["ignored"] * 4


@pytest.mark.accept("000-9")
def test_the_graph_finds_the_parsed_update_and_its_history_key(bots: Bots) -> None:
    for number, text in ((900, "one"), (901, "two")):
        bots.deliver(update(number, text, chat=900), "rememberer")
        until(lambda text=text: f"you said: {text}" in answers_to(bots.provider, chat_id="900"))  # type: ignore[misc]
    (thread,) = bots.threads("remembering")
    state = bots.api.state(thread["id"])
    assert state["results"]["telegram_events_parser"] == {
        "update_type": "message",
        "chat_id": "900",
        "chat_type": "private",
        "username": "ann",
        "user_id": "900",
        "text": "two",
        "message_id": "1901",
        "should_process": True,
    }
    metrics = bots.api.server.get("/metrics").text
    written = "agent_history_store_write_latency_ms_count"
    assert f'{written}{{backend="sqlite",channel="telegram",outcome="ok"}} 2.0' in metrics


@pytest.mark.accept("000-34")
def test_a_message_pushed_by_a_node_a_program_http_or_cli_is_seen_by_the_next_turn(bots: Bots) -> None:
    folder = bots.folder

    def turn(number: int, text: str, bot: str = "recounter") -> str:
        before = len(answers_to(bots.provider, chat_id="340"))
        bots.deliver(update(number, text, chat=340), bot)
        until(lambda: len(answers_to(bots.provider, chat_id="340")) > before)
        return answers_to(bots.provider, chat_id="340")[-1]

    async def push_from_outside() -> None:
        async with create_graph_store(f"sqlite:///{folder / '.clew' / 'clew.db'}") as store:
            assert await ChatHistory(store).append("telegram:340", "from a program", id="p1") is True
            guests = ChatHistory(store, tenant="acme.example")
            assert await guests.append("telegram:340", "for a guest") is True

    assert turn(3400, "hi") == "hi"
    assert (
        turn(3401, "push telegram:340 from_a_node") == "hi | hi | from_a_node | push telegram:340 from_a_node"
    )
    asyncio.run(push_from_outside())
    path = "/api/histories/telegram:340"
    for _ in range(2):  # the same id is the same message
        pushed = bots.api.ask("POST", f"{path}/messages", json={"content": "over HTTP", "id": "h1"})
        assert pushed["written"] is True
    path_of_graphs = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    typed = clew(folder, "histories", "push", "telegram:340", "by hand", "--id", "c1", **path_of_graphs)
    assert typed.returncode == 0, typed.stderr
    assert turn(3402, "and now?").split(" | ")[-4:] == ["from a program", "over HTTP", "by hand", "and now?"]
    assert turn(3403, "hi", "guest") == "for a guest | hi"

    shown = bots.api.ask("GET", f"{path}?limit=1000")
    assert [message["seq"] for message in shown["messages"]] == list(range(1, shown["lastSeq"] + 1))
    query = "namespace=agent_chat_history.telegram:340&key=__meta__"
    meta = bots.api.ask("GET", f"/store/items?{query}")["value"]
    assert (meta["conversation_key"], meta["last_seq"]) == ("telegram:340", shown["lastSeq"])

    assert bots.api.ask("DELETE", path) == {"key": "telegram:340", "status": "deleted"}
    bots.api.ask("DELETE", path, 404)
    bots.api.ask("GET", path, 404)
    bots.api.ask("POST", f"{path}/messages", 400, json={"content": "x", "rool": "user"})
    bots.api.ask(
        "PUT",
        "/store/items",
        409,
        json={
            "namespace": ["agent_chat_history", "telegram:340"],
            "key": "__meta__",
            "value": {},
        },
    )
    typed = clew(
        folder, "histories", "erase", "telegram:340", "--tenant", "acme.example", "--yes", **path_of_graphs
    )
    assert (typed.returncode, typed.stdout) == (0, "1 deleted.\n"), typed.stderr
    assert clew(folder, "histories", "show", "telegram:340", **path_of_graphs).returncode == 1


def test_without_a_graph_of_its_own_a_bot_is_the_built_in_chat(bots: Bots) -> None:
    bots.deliver(update(100, "what can you do?", chat=100), "plain")
    until(lambda: bool(answers_to(bots.provider, chat_id="100")))
    (told,) = answers_to(bots.provider, chat_id="100")
    assert "No language model is configured" in told
    assert "I can summarize, search, chart" in told
    assert "Done" not in told


@pytest.mark.fault("C8")
@pytest.mark.accept("000-39", "000-40")
def test_a_redelivered_update_makes_one_turn(bots: Bots, tmp_path: Path) -> None:
    """Twenty at once, and once more when it is answered: the model is asked once."""
    asked = tmp_path / "asked"
    again = update(3900, f"[{asked}] hello", chat=39)
    with ThreadPoolExecutor(20) as crowd:
        became = sorted(crowd.map(bots.deliver, [again] * 20))
    assert became == ["admitted"] + ["duplicate"] * 19
    until(lambda: len(answers_to(bots.provider, chat_id="39")) == 1)
    assert bots.deliver(again) == "duplicate"
    bots.deliver(update(3901, "the end", chat=39))
    until(lambda: "you said: the end" in answers_to(bots.provider, chat_id="39"))
    assert len(answers_to(bots.provider, chat_id="39")) == 2
    # One thread with two rounds, and none beside it that was made for an answer on the spot.
    (thread,) = [one for one in bots.threads() if one["name"].startswith(f"[{asked}]"[:80])]
    assert thread["round"] == 2
    assert asked.read_text().splitlines() == ["model"] * 2


@pytest.mark.fault("C8")
@pytest.mark.accept("000-39")
def test_the_same_id_with_another_body_is_a_409(bots: Bots) -> None:
    bots.deliver(update(3950, "hello", chat=395))
    other = bots.post("/channels/telegram/bot", json=update(3950, CANARY, chat=395), headers=HEADER)
    assert (other.status_code, other.json()["error"]["code"]) == (409, "DUPLICATE")
    assert '"source_id":"3950"' in bots.api.server.log.replace(" ", "")


@pytest.mark.fault("G6")
@pytest.mark.accept("000-37")
def test_only_what_wecom_sealed_now_and_for_us_is_taken(bots: Bots) -> None:
    # Five minutes are allowed; the machine may take some of them.
    for late in (-310, 400):
        bots.callback("desk", direct(3700, "x"), 401, at=time.time() + late)
    bots.callback("desk", direct(3700, "x"), 401, receiver="ww-another")
    query, encrypted = bots.seal("desk", direct(3700, "x"))
    for change in (
        {"msg_signature": "0" * 40},
        {"nonce": "n2"},
        {"timestamp": str(int(query["timestamp"]) - 1)},
    ):
        answer = bots.post(
            "/channels/wecom/desk", params={**query, **change}, content=wrapped("desk", encrypted)
        )
        assert answer.status_code == 401
    assert bots.post("/channels/wecom/desk", content=wrapped("desk", encrypted)).status_code == 401
    assert bots.callback("desk", direct(3700, "hello"), at=time.time() - 200) == "success"
    until(lambda: answers_to(bots.provider, touser="zhang.san", agentid=1000002) == ["you said: hello"])


def test_a_stranger_does_not_learn_which_bots_there_are(bots: Bots) -> None:
    query, _ = bots.seal("desk", "x")
    told = set()
    for name in ("bot", "nobody", "desk", "helper"):
        for kind in ("telegram", "wecom"):
            for content in (b"", b"<xml>", b"{}", b'{"encrypt": "\\ud800"}', wrapped("desk", "AAAA")):
                refused = bots.post(f"/channels/{kind}/{name}", params=query, content=content)
                told.add((refused.status_code, refused.text))
    assert [status for status, _ in told] == [401]


@pytest.mark.accept("000-38", "000-39")
def test_wecom_makes_sure_of_us_and_is_answered_success(bots: Bots) -> None:
    query, encrypted = bots.seal("desk", "1616140317555161061")
    echo = bots.api.server.address + "/channels/wecom/desk"
    answer = httpx.get(echo, params={**query, "echostr": encrypted}, timeout=20, verify=False)
    assert (answer.status_code, answer.text) == (200, "1616140317555161061")
    assert answer.headers["content-type"].startswith("text/plain")
    before = len(bots.threads())
    assert bots.callback("desk", direct(3800, "hi", ChatId="a-group")) == "success"
    assert bots.callback("desk", xml(MsgType="event", Event="enter_agent")) == "success"
    for _ in range(2):
        assert bots.callback("desk", direct(3801, "twice")) == "success"
    until(lambda: "you said: twice" in answers_to(bots.provider, touser="zhang.san"))
    assert len(bots.threads()) <= before + 1
    assert answers_to(bots.provider, touser="zhang.san").count("you said: twice") == 1
    # One access token is asked for, and used until it ends.
    assert len(bots.provider.sent("gettoken")) <= 2


def wrote(number: int, text: str, **fields: Any) -> dict[str, Any]:
    return {
        "msgid": f"kf-{number}",
        "open_kfid": "wk1",
        "external_userid": "wm1",
        "origin": 3,
        "msgtype": "text",
        "text": {"content": text},
        **fields,
    }


def announced(token: str) -> str:
    return xml(MsgType="event", Event="kf_msg_or_event", CreateTime="1", Token=token, OpenKfId="wk1")


@pytest.mark.accept("000-38")
def test_customers_messages_are_fetched_page_by_page_and_answered(bots: Bots, customers: Customers) -> None:
    customers.messages += [
        wrote(1, "one"),
        wrote(2, "from the staff", origin=5),
        wrote(3, "", msgtype="location"),
        wrote(4, "two"),
        wrote(5, "three"),
    ]
    assert bots.callback("service", announced("t1")) == "success"
    told = phrase(Phrase.UNREADABLE, "zh")
    expected = ["you said: one", told, "you said: two", "you said: three"]
    until(lambda: answers_to(bots.provider, touser="wm1", open_kfid="wk1") == expected)
    assert [sent.body["cursor"] for sent in bots.provider.sent("sync_msg")] == ["", "2", "4"]
    customers.messages.append(wrote(6, "four"))
    bots.callback("service", announced("t2"))
    until(lambda: len(answers_to(bots.provider, touser="wm1")) == 5)
    last = bots.provider.sent("sync_msg")[-1]
    assert (last.body["cursor"], last.body["token"]) == ("5", "t2")


def test_an_ai_bot_is_answered_at_the_address_that_came_with_the_message(bots: Bots) -> None:
    def asked(number: int, url: str) -> str:
        return (
            f'{{"msgid": "ai-{number}", "chattype": "single", "from": {{"userid": "zs"}}, "msgtype": "text",'
            f' "text": {{"content": "hello {number}"}}, "response_url": "{url}"}}'
        )

    assert bots.callback("helper", asked(1, f"{bots.provider.url}/response")) == ""
    until(lambda: len(bots.provider.sent("response")) == 1)
    (sent,) = bots.provider.sent("response")
    assert sent.body == {"msgtype": "markdown", "markdown": {"content": "you said: hello 1"}}
    # An address of anybody else's is none.
    with provider() as stranger:
        bots.callback("helper", asked(2, f"{stranger.url}/response"))
        until(lambda: "could not be delivered" in bots.api.server.log)
        assert stranger.requests == []


@pytest.mark.fault("F11")
def test_no_secret_and_nothing_that_was_said_is_in_the_log(bots: Bots) -> None:
    bots.deliver(update(9900, CANARY, chat=99))
    until(lambda: answers_to(bots.provider, chat_id="99") == [f"you said: {CANARY}"])
    log = bots.api.server.log
    assert log
    assert [word for word in (*SECRETS, CANARY) if word in log] == []


# One server after another is killed: each finishes what the one before left, then dies at its own window. How often
# the message it died of is answered in the end.
WINDOWS = (
    # admitted, and nobody heard of it
    ("delivery_admitted:kill@1", 1),
    # its round has ended, and its answer was not sent
    ("answer_before_send:kill@2", 1),
    # it was sent, and the process died before it could know: said again, as documented
    ("answer_after_send:kill@2", 2),
    # its round was about to begin
    ("accept_before_commit:kill@1", 1),
    # its round has begun, and nothing of it has run
    ("accept_after_commit_before_reply:kill@2", 1),
)


@pytest.mark.fault("C8")
@pytest.mark.accept("002-40", "000-39")
def test_killed_between_a_message_and_its_answer_it_is_one_turn(tmp_path: Path) -> None:
    marks, go = tmp_path / "marks", tmp_path / "go"
    with provider() as known:
        for number, (window, _) in enumerate(WINDOWS, 1):
            with bots_serving(tmp_path, known, CLEW_FAILPOINTS=window) as bots:
                with suppress(httpx.HTTPError):  # it may die before it answers
                    bots.deliver(update(number, f"m{number}"))
                bots.api.server.wait()
            time_goes_by(tmp_path)
        with bots_serving(tmp_path, known) as bots:
            # Providers that heard nothing, or are slow, bring a message once more.
            for number in range(1, len(WINDOWS) + 1):
                assert bots.deliver(update(number, f"m{number}")) == "duplicate"
            expected = [
                f"you said: m{number}" for number, (_, times) in enumerate(WINDOWS, 1) for _ in range(times)
            ]
            until(lambda: len(known.texts()) == len(expected))
            # Killed once more, in the middle of a round, with messages that wait.
            bots.deliver(update(11, f"tools: wait_for go={go},marks={marks}"))
            for number in (12, 13, 14):
                bots.deliver(update(number, f"m{number}"))
            until(filled(marks))
            bots.api.server.signal(signal.SIGKILL)
            bots.api.server.wait()
        time_goes_by(tmp_path)
        go.touch()
        with bots_serving(tmp_path, known) as bots:
            expected += ["too late", *(f"you said: m{number}" for number in (12, 13, 14))]
            until(lambda: len(known.texts()) >= len(expected))
            assert known.texts() == expected
            (thread,) = bots.threads()
            numbers = [*range(1, len(WINDOWS) + 1), 11, 12, 13, 14]
            assert (thread["round"], thread["status"]) == (len(numbers), "completed")
            sources = [content["source"] for content in bots.api.content(thread["id"], "user_msg")]
            assert sources == [f"telegram:bot/{number}" for number in numbers]
