"""Chats of Telegram and WeCom in this process, with a provider that does as it is told."""

import asyncio
import base64
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from clew.channels.http import open_outside
from clew.channels.wecom_api import WeComBotClient
from clew.channels.wecom_crypto import Envelope, read_key, sign
from clew.config import load_settings
from clew.domain.errors import ConfigError, Permanent
from clew.domain.thread import Owner, Status, Thread
from clew.ports.histories import HistoryId
from clew.server.app import Server, open_app
from clew.server.database import open_histories
from tests.databases import SHARED, locate, query
from tests.http_client import client_of
from tests.providers import (
    HEADER,
    SECRET,
    TOKEN,
    Provider,
    Reply,
    Sent,
    press,
    provider,
    says_yes,
    text_of,
    update,
)
from tests.waiting import until

pytestmark = pytest.mark.anyio

# Far more than anything here takes.
SECONDS = 60.0
# One white pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+ip1sAAAAASUVORK5CYII="
)

GRAPHS = """
graphs:
  agent: tests.graphs:agent
  remembering: tests.channel_graphs:remembering
  verbose: tests.channel_graphs:verbose
  curious: tests.channel_graphs:curious
  filing: tests.channel_graphs:filing
"""


def telegram_bot(url: str, **options: str) -> str:
    options = {
        "token": TOKEN,
        "secret_token": SECRET,
        "graph": "agent",
        "base_url": url,
        **options,
    }
    return "{" + ", ".join(f"{name}: {value!r}" for name, value in options.items()) + "}"


@dataclass(frozen=True, slots=True)
class Bots:
    """The open app, and what a provider does to it."""

    app: Server
    client: httpx.AsyncClient
    provider: Provider

    async def deliver(self, body: Any, *, bot: str = "bot", status: int = 200, **headers: str) -> Any:
        answer = await self.client.post(f"/channels/telegram/{bot}", json=body, headers={**HEADER, **headers})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def said(self, count: int) -> list[str]:
        """What chats were told, once it is so much."""
        await until(lambda: len(self.provider.texts()) >= count)
        return self.provider.texts()

    async def threads(self) -> list[Thread]:
        return list(await self.app.stores.threads.find())

    async def at_rest(self) -> None:
        """When nothing waits in the inbox, and no chat is owed anything."""
        async with asyncio.timeout(SECONDS):
            while await query(self.app.stores.db, OWED):
                await asyncio.sleep(0.01)

    async def blocked(self) -> Thread:
        """The one thread there is, once it waits for somebody."""
        async with asyncio.timeout(SECONDS):
            while not (threads := await self.threads()) or threads[0].status is not Status.BLOCKED:
                await asyncio.sleep(0.01)
        return threads[0]


OWED = (
    "SELECT 1 FROM conversations c LEFT JOIN threads t ON t.id = c.thread_id WHERE c.lease_owner IS NOT NULL"
    " OR c.wakes > c.seen_wakes OR c.is_active = 1 AND (t.status = 'running' OR t.last_seq > c.seen_seq)"
    " UNION ALL SELECT 1 FROM inbox WHERE status = 'queued'"
)


@asynccontextmanager
async def opened_bots(
    folder: Path, channels: str, known: Provider, where: str = "memory", **environ: str
) -> AsyncGenerator[Bots]:
    url = (
        "memory://" if where == "memory" else where if where.startswith("postgres") else f"sqlite:///{where}"
    )
    config = folder / "clew.yaml"
    config.write_text(f"{GRAPHS}channels:\n{channels}")
    given = {"CLEW_DATABASE_URL": url, "CLEW_RUNNER_POLL_SECONDS": "0.1", **environ}
    settings = load_settings(given, cwd=folder, config=config)
    async with open_app(settings) as app, client_of(app.http) as client:
        yield Bots(app, client, known)


@pytest.fixture
async def bots(tmp_path: Path) -> AsyncGenerator[Bots]:
    with provider() as known:
        bot = telegram_bot(known.url)
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}, other: {bot}}}\n", known) as opened:
            yield opened


@pytest.mark.parametrize("shown", ["", "another", SECRET[:-1], SECRET + "x"])
async def test_without_the_secret_nobody_speaks_for_telegram(bots: Bots, shown: str) -> None:
    for bot in ("bot", "nobody"):
        refused = await bots.deliver(
            update(1, "hi"), bot=bot, status=401, **{"X-Telegram-Bot-Api-Secret-Token": shown}
        )
        assert refused["error"]["code"] == "UNAUTHENTICATED"
    assert await query(bots.app.stores.db, "SELECT 1 FROM inbox") == []
    assert await bots.threads() == []


async def test_a_message_is_answered_in_its_chat(bots: Bots) -> None:
    assert await bots.deliver(update(1, "hello")) == {"status": "admitted"}
    assert await bots.said(1) == ["you said: hello"]
    (sent,) = bots.provider.sent("sendMessage")
    assert sent.path == f"/bot{TOKEN}/sendMessage"
    assert sent.body == {"chat_id": "42", "text": "you said: hello"}
    (thread,) = await bots.threads()
    assert (thread.graph, thread.owner.tenant, thread.status) == ("agent", "default", Status.COMPLETED)
    (message,) = await bots.app.stores.threads.read(thread.id, types=("user_msg",))
    assert message.body.source == "telegram:bot/1"  # type: ignore[union-attr]


async def test_a_chat_comes_back_to_its_thread_and_bots_do_not_meet(bots: Bots) -> None:
    await bots.deliver(update(1, "one"))
    await bots.said(1)
    await bots.deliver(update(2, "two"))
    await bots.said(2)
    await bots.deliver(update(1, "three"), bot="other")
    await bots.said(3)
    await bots.deliver(update(3, "four", chat=43))
    assert await bots.said(4) == [f"you said: {word}" for word in ("one", "two", "three", "four")]
    threads = await bots.threads()
    assert sorted(thread.round for thread in threads) == [1, 1, 2]


async def test_a_delivery_that_comes_again_is_answered_once(bots: Bots) -> None:
    became = await asyncio.gather(*(bots.deliver(update(1, "hello")) for _ in range(20)))
    assert sorted(one["status"] for one in became) == ["admitted"] + ["duplicate"] * 19
    await bots.said(1)
    assert await bots.deliver(update(1, "hello")) == {"status": "duplicate"}
    await bots.at_rest()
    assert bots.provider.texts() == ["you said: hello"]
    (thread,) = await bots.threads()
    assert thread.round == 1


async def test_the_same_id_with_another_content_is_refused_and_logged(
    bots: Bots, caplog: pytest.LogCaptureFixture
) -> None:
    await bots.deliver(update(1, "hello"))
    refused = await bots.deliver(update(1, "attack at dawn"), status=409)
    assert refused["error"]["code"] == "DUPLICATE"
    await bots.at_rest()
    assert bots.provider.texts() == ["you said: hello"]
    (line,) = [record for record in caplog.records if record.name == "clew.channels.admission"]
    assert (line.source, line.source_id) == ("telegram:bot", "1")  # type: ignore[attr-defined]
    assert "dawn" not in caplog.text


async def test_while_a_round_runs_messages_wait_and_are_answered_in_order(bots: Bots) -> None:
    await bots.deliver(update(1, "slowly: one two three"))
    for number in range(2, 7):
        await bots.deliver(update(number, f"m{number}"))
    assert await bots.said(6) == [
        "you said: slowly: one two three",
        *(f"you said: m{number}" for number in range(2, 7)),
    ]
    (thread,) = await bots.threads()
    assert thread.round == 6


async def test_what_is_not_for_the_bot_is_passed_over(bots: Bots) -> None:
    group = update(1, "hi")
    group["message"]["chat"] = {"id": -100123, "type": "supergroup"}
    photo = update(2, "")
    edited = {"update_id": 3, "edited_message": update(3, "hi")["message"]}
    for one in (group, photo, edited, {"update_id": 4, "poll": {"id": "1"}}, {"update_id": 5}):
        assert await bots.deliver(one) == {"status": "ignored"}
    assert await query(bots.app.stores.db, "SELECT 1 FROM inbox") == []
    odd: list[Any] = [{}, [1], {"message": {}}, "text"]
    for wrong in odd:
        assert (await bots.deliver(wrong, status=400))["error"]["field"] == "update_id"


async def test_an_approval_is_asked_with_its_arguments_and_answered_by_a_button(bots: Bots) -> None:
    await bots.deliver(update(1, "tools: send_mail to=bob"))
    (asked,) = await bots.said(1)
    assert "send_mail" in asked
    assert json.dumps({"to": "bob"}, indent=1) in asked
    (row,) = bots.provider.sent("sendMessage")[0].body["reply_markup"]["inline_keyboard"]
    assert [button["text"] for button in row] == ["Approve", "Reject"]
    await bots.deliver(press(2, row[0]["callback_data"]))
    assert (await bots.said(2))[1] == "sent to bob"
    await until(lambda: bool(bots.provider.sent("answerCallbackQuery")))
    (thread,) = await bots.threads()
    (answer,) = await bots.app.stores.threads.read(thread.id, types=("resolution",))
    assert answer.body.by == "telegram:bot:42"  # type: ignore[union-attr]
    # Pressed once more it is an old button, and nobody's message.
    await bots.deliver(press(3, row[1]["callback_data"]))
    await bots.at_rest()
    assert len(bots.provider.texts()) == 2
    assert (await bots.threads())[0].round == 1


async def test_an_approval_is_answered_in_words_and_plainly(bots: Bots) -> None:
    await bots.deliver(update(1, "tools: send_mail to=bob"))
    await bots.said(1)
    await bots.deliver(update(2, "yes, but to ann"))
    assert (await bots.said(2))[1] == "Please answer yes or no."
    assert (await bots.threads())[0].status is Status.BLOCKED
    await bots.deliver(update(3, "No, too late"))
    assert (await bots.said(3))[2] == "refused by telegram:bot:42: too late"


async def test_what_was_said_before_the_question_is_no_answer_to_it(bots: Bots) -> None:
    """It waits its turn, and is answered after."""
    await bots.deliver(update(1, "tools: read_clipboard"))
    thread = await bots.blocked()
    await bots.deliver(update(2, "tools: send_mail to=bob"))
    await bots.deliver(update(3, "and hello"))
    (call_id,) = thread.pending
    await bots.app.execution.commands.resolve(thread.id, None, call_id, "a text")
    assert (await bots.said(2))[0] == "a text"
    await bots.deliver(update(4, "yes"))
    assert (await bots.said(4))[2:] == ["sent to bob", "you said: and hello"]


@pytest.mark.parametrize("status", [429, 403], ids=["for now", "for good"])
async def test_a_question_that_nobody_has_seen_is_answered_by_nothing(tmp_path: Path, status: int) -> None:
    """It is asked once more, at the latest when something comes; and that was not said to it."""
    is_open = False
    seen: list[str] = []

    def answer(sent: Sent) -> Reply:
        if not is_open:
            return Reply({"ok": False, "parameters": {"retry_after": 1}}, status)
        seen.append(text_of(sent.body))
        return says_yes(sent)

    with provider(answer) as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known) as bots:
            await bots.deliver(update(1, "tools: send_mail to=bob"))
            (question,) = await bots.said(1)
            if status == 429:
                await bots.deliver(update(2, "yes"))
            else:
                await eventually_let_go(bots)
            is_open = True
            if status == 403:
                await bots.deliver(update(2, "yes"))
            await until(lambda: bool(seen))
            await eventually_let_go(bots)
            assert seen == [question]
            assert (await bots.threads())[0].status is Status.BLOCKED
            await bots.deliver(update(3, "yes"))
            await until(lambda: len(seen) == 3)
            assert seen[1:] == ["sent to bob", "you said: yes"]


async def eventually_let_go(bots: Bots) -> None:
    async with asyncio.timeout(SECONDS):
        while await query(bots.app.stores.db, "SELECT 1 FROM conversations WHERE lease_owner IS NOT NULL"):
            await asyncio.sleep(0.01)


async def test_a_question_is_asked_once_and_answered_after_a_restart(tmp_path: Path) -> None:
    where = str(tmp_path / "clew.db")
    with provider() as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known, where) as bots:
            await bots.deliver(update(1, "tools: send_mail to=bob"))
            await bots.said(1)
            await eventually_let_go(bots)
        async with opened_bots(tmp_path, channels, known, where) as bots:
            await bots.deliver(update(2, "yes"))
            said = await bots.said(2)
            assert (len(said), said[1]) == (2, "sent to bob")


async def test_several_questions_are_answered_in_their_order(bots: Bots) -> None:
    await bots.deliver(update(1, "tools: ask_person question=one; ask_person question=two"))
    asked = await bots.said(2)
    assert ["one" in asked[0], "two" in asked[1]] == [True, True]
    await bots.deliver(update(2, "first"))
    await bots.deliver(update(3, "second"))
    assert (await bots.said(3))[2] == "first | second"


async def test_a_question_is_answered_with_the_next_message(bots: Bots) -> None:
    await bots.deliver(update(1, "tools: ask_person question=who"))
    assert '"question": "who"' in (await bots.said(1))[0]
    await bots.deliver(update(2, "it was Bob"))
    assert (await bots.said(2))[1] == "it was Bob"
    assert (await bots.threads())[0].round == 1


async def test_approvals_may_be_kept_for_the_dashboard(tmp_path: Path) -> None:
    with provider() as known:
        bot = telegram_bot(known.url, approvals="dashboard")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(update(1, "tools: send_mail to=bob"))
            (told,) = await bots.said(1)
            assert "bob" not in told
            await bots.deliver(update(2, "yes"))
            (thread,) = await bots.threads()
            await bots.app.execution.commands.approve(thread.id, None, approved=True)
            assert (await bots.said(3))[1:] == ["sent to bob", "you said: yes"]


async def test_a_failed_round_says_so_and_no_more(bots: Bots) -> None:
    await bots.deliver(update(1, "tools: ask_person question=who"))
    await bots.said(1)
    (thread,) = await bots.threads()
    await bots.app.execution.commands.stop(thread.id, None)
    assert (await bots.said(2))[1] == "This was stopped."


async def test_a_long_answer_comes_in_parts_and_goes_on_with_the_one_that_is_missing(tmp_path: Path) -> None:
    def stumbling(sent: Sent) -> Reply:
        return Reply({}, 502) if len(known.requests) == 3 else says_yes(sent)

    with provider(stumbling) as known:
        bot = telegram_bot(known.url, graph="verbose")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(update(1, "😀 5000"))
            parts = await bots.said(5)
            assert parts[2] == parts[3]
            del parts[2]
            assert all(len(part.encode("utf-16-le")) <= 2 * 4096 for part in parts)
            assert " ".join(parts) == " ".join(["😀"] * 5000)


async def test_a_graphs_own_question_takes_any_answer(tmp_path: Path) -> None:
    with provider() as known:
        bot = telegram_bot(known.url, graph="curious")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(update(1, "go"))
            assert await bots.said(1) == ["which colour?"]
            await bots.deliver(update(2, "no idea"))
            assert (await bots.said(2))[1] == "so it is no idea"


# Topics, files and recordings


def in_topic(number: int, text: str, topic: int | None) -> dict[str, Any]:
    """A message in a forum: without a topic it is in the general one."""
    message = update(number, text)
    message["message"]["chat"] = {"id": -100500, "type": "supergroup", "is_forum": True}
    if topic is not None:
        message["message"] |= {"message_thread_id": topic, "is_topic_message": True}
    return message


async def test_each_topic_of_a_forum_is_answered_there_and_is_a_thread_of_its_own(tmp_path: Path) -> None:
    with provider() as known:
        bot = telegram_bot(known.url, chat_types="supergroup")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            for number, topic in ((1, 7), (2, 8), (3, None), (4, 7)):
                await bots.deliver(in_topic(number, f"m{number}", topic))
            await bots.said(4)
            sent = {one.body["text"]: one.body for one in known.sent("sendMessage")}
            assert {text: body.get("message_thread_id") for text, body in sent.items()} == {
                "you said: m1": 7,
                "you said: m2": 8,
                "you said: m3": None,
                "you said: m4": 7,
            }
            assert {body["chat_id"] for body in sent.values()} == {"-100500"}
            assert sorted(thread.round for thread in await bots.threads()) == [1, 1, 2]
            # A reply outside of a forum has such a number too, and is no topic.
            reply = update(5, "m5", message_thread_id=3)
            reply["message"]["chat"] = {"id": -100501, "type": "supergroup"}
            await bots.deliver(reply)
            await bots.said(5)
            assert "message_thread_id" not in known.sent("sendMessage")[-1].body


async def test_a_button_pressed_in_a_topic_is_answered_there(tmp_path: Path) -> None:
    with provider() as known:
        bot = telegram_bot(known.url, chat_types="supergroup")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(in_topic(1, "tools: send_mail to=bob", 7))
            await bots.said(1)
            (asked,) = known.sent("sendMessage")
            data = asked.body["reply_markup"]["inline_keyboard"][0][0]["callback_data"]
            pressed = press(2, data)
            pressed["callback_query"]["message"] = {
                "message_id": 7,
                "message_thread_id": 7,
                "is_topic_message": True,
                "chat": {"id": -100500, "type": "supergroup"},
            }
            await bots.deliver(pressed)
            await bots.said(2)
            assert [one.body["message_thread_id"] for one in known.sent("sendMessage")] == [7, 7]


def without_text(number: int, **brought: Any) -> dict[str, Any]:
    message = update(number, "", **brought)
    del message["message"]["text"]
    return message


def gives_files(**files: bytes | Reply) -> Callable[[Sent], Reply]:
    """Telegram with these files, by their ids."""

    def answer(sent: Sent) -> Reply:
        if sent.method == "getFile":
            return Reply({"ok": True, "result": {"file_path": f"documents/{sent.body['file_id']}"}})
        if sent.path.startswith(f"/file/bot{TOKEN}/documents/"):
            found = files[sent.method]
            return found if isinstance(found, Reply) else Reply(found)
        return says_yes(sent)

    return answer


PHOTOS = [
    {"file_id": "small", "file_unique_id": "s", "width": 1, "height": 1, "file_size": 68},
    {"file_id": "large", "file_unique_id": "l", "width": 2, "height": 2, "file_size": 70},
]


async def test_files_and_pictures_become_documents(tmp_path: Path) -> None:
    notes = b"The tram to Zurich leaves at nine. It was built in 1990.\n" * 20
    with provider(gives_files(notes=notes, large=PNG)) as known:
        bot, plain = telegram_bot(known.url, graph="filing"), telegram_bot(known.url, graph="chat")
        channels = f"  telegram: {{bot: {bot}, plain: {plain}}}\n"
        async with opened_bots(tmp_path, channels, known) as bots:
            document = {"file_id": "notes", "file_name": "../notes.txt", "file_size": len(notes)}
            await bots.deliver(without_text(1, document=document, caption="Summarize notes.txt"), bot="plain")
            told = (await bots.said(1))[0]
            assert "tram" in told, told
            # It came with a path in its name; what the agent made of it is a file too.
            file = (await bots.app.stores.files.find_files(Owner()))[-1]
            assert (file.name, file.mime, file.size) == ("notes.txt", "text/plain", len(notes))
            await bots.deliver(without_text(2, photo=PHOTOS))
            assert (await bots.said(2))[1] == f"photo-1002.jpg image/png {len(PNG)}"
            assert [sent.body["file_id"] for sent in known.sent("getFile")] == ["notes", "large"]


async def test_a_graph_of_ones_own_is_given_recordings_too(tmp_path: Path) -> None:
    with provider(gives_files(spoken=b"OggS" + bytes(100))) as known:
        bot = telegram_bot(known.url, graph="filing")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(without_text(1, voice={"file_id": "spoken", "duration": 2, "file_size": 104}))
            (told,) = await bots.said(1)
            assert told.startswith("voice-1001.ogg ")
            assert told.endswith(" 104")


@pytest.mark.parametrize(
    ("brought", "language", "remark"),
    [
        (
            {"voice": {"file_id": "v"}},
            "de",
            "Aufnahmen kann ich nicht anhören. Bitte schreiben Sie es als Text.",
        ),
        ({"voice": {"file_id": "v"}}, "xx", "I cannot listen to recordings. Please write it as text."),
        ({"sticker": {"file_id": "s"}}, "zh-hans", "我无法读取这种消息。请用文字发送，或以文件形式发送。"),  # noqa: RUF001
        ({"location": {"latitude": 1, "longitude": 2}}, "en", "I cannot read this kind of message."),
        (
            {"document": {"file_id": "d", "file_name": "big.iso", "file_size": 10**9}},
            "fr",
            "big.iso est trop volumineux. J\u2019accepte des fichiers jusqu\u2019à 20 Mo.",
        ),
        ({"document": {"file_id": "gone", "file_name": "gone.txt"}}, "en", "I could not get gone.txt."),
        (
            {"document": {"file_id": "liar", "file_name": "l.txt", "file_size": 1}},
            "en",
            "l.txt is too large.",
        ),
    ],
)
async def test_the_person_is_told_what_the_built_in_chat_cannot_take(
    tmp_path: Path, brought: dict[str, Any], language: str, remark: str
) -> None:
    with provider(gives_files(gone=Reply({"ok": False}, 404), liar=bytes(22 * 2**20))) as known:
        bot = telegram_bot(known.url, graph="chat")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            message = without_text(1, **brought)
            message["message"]["from"]["language_code"] = language
            assert await bots.deliver(message) == {"status": "admitted"}
            (told,) = await bots.said(1)
            assert told.startswith(remark)
            await bots.at_rest()
            assert await bots.threads() == []
            assert await bots.app.stores.files.find_files(Owner()) == []


async def test_what_telegram_itself_says_in_a_chat_is_passed_over(bots: Bots) -> None:
    notices: list[dict[str, Any]] = [{"new_chat_title": "x"}, {"pinned_message": {}}, {}]
    for number, brought in enumerate(notices, 1):
        assert await bots.deliver(without_text(number, **brought)) == {"status": "ignored"}


async def test_a_file_that_cannot_be_fetched_now_is_fetched_later_and_kept_once(tmp_path: Path) -> None:
    moves = [Reply({"ok": False}, 502), Reply(b"hello")]

    def stumbling(sent: Sent) -> Reply:
        if sent.path.startswith("/file/"):
            return moves.pop(0)
        return gives_files()(sent)

    with provider(stumbling) as known:
        bot = telegram_bot(known.url, graph="filing")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(without_text(1, document={"file_id": "f", "file_name": "f.txt"}))
            assert await bots.said(1) == ["f.txt text/plain 5"]
            assert len(await bots.app.stores.files.find_files(Owner())) == 1


async def test_a_question_is_answered_in_words_not_with_a_file(tmp_path: Path) -> None:
    with provider(gives_files(f=b"blue")) as known:
        bot = telegram_bot(known.url, graph="curious")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(update(1, "go"))
            await bots.said(1)
            await bots.deliver(without_text(2, document={"file_id": "f", "file_name": "f.txt"}))
            assert (await bots.said(2))[1].startswith("I cannot read this kind of message.")
            await bots.deliver(update(3, "blue"))
            assert (await bots.said(3))[2] == "so it is blue"


async def test_an_agent_remembers_the_chat_by_its_key_across_threads(tmp_path: Path) -> None:
    with provider() as known:
        bot = telegram_bot(known.url, graph="remembering")
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known) as bots:
            await bots.deliver(update(1, "one"))
            await bots.said(1)
            await bots.at_rest()
            (thread,) = await bots.threads()
            await bots.app.execution.commands.delete(thread.id, None)
            await bots.deliver(update(2, "two"))
            await bots.said(2)
            (fresh,) = await bots.threads()
            assert fresh.id != thread.id
            place = HistoryId(tenant="default", namespace=("agent_chat_history",), key="telegram:42")
            kept = await open_histories(bots.app.stores.db).tail(place, limit=10)
            assert [message.content for message in kept] == [
                *("one", "you said: one", "two", "you said: two"),
            ]


async def test_a_provider_that_stumbles_is_asked_again_when_it_wants(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "clew.channels")
    moves = [
        Reply({"ok": False, "parameters": {"retry_after": 1}}, 429),
        Reply({"ok": False}, 502),
        Reply({"ok": True}),
    ]

    def stumbling(sent: Sent) -> Reply:
        return moves[min(len(known.requests), 3) - 1]

    with provider(stumbling) as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known) as bots:
            await bots.deliver(update(1, "hello"))
            assert await bots.said(3) == ["you said: hello"] * 3
            waits = [vars(one)["retry_seconds"] for one in caplog.records if "retry_seconds" in vars(one)]
            assert waits[0] == 1.0  # its own wish; ours would have been shorter
            assert 1.0 <= waits[1] <= 2.0
            await bots.at_rest()
            await bots.deliver(update(2, "again"))
            assert (await bots.said(4))[3] == "you said: again"


async def test_a_chat_that_is_closed_to_us_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with provider(lambda _: Reply({"ok": False, "description": "bot was blocked"}, 403)) as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known) as bots:
            await bots.deliver(update(1, "hello"))
            await bots.at_rest()
            assert len(bots.provider.requests) == 1
            (thread,) = await bots.threads()
            assert thread.status is Status.COMPLETED
            assert "could not be delivered" in caplog.text
            known.answer = says_yes
            await bots.deliver(update(2, "more"))
            assert (await bots.said(2))[1] == "you said: more"


async def test_redirects_are_not_followed_and_no_token_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def elsewhere(sent: Sent) -> Reply:
        return Reply({}, 302, {"location": f"{known.url}/elsewhere"})

    with provider(elsewhere) as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known) as bots:
            await bots.deliver(update(1, "hello"))
            await bots.at_rest()
            assert [sent.method for sent in known.requests] == ["sendMessage"]
        ours = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("clew"))
        assert TOKEN not in ours


WRONG = {
    "no secret token": ("{token: x}", "channels.telegram.bot.secret_token: expected to be set"),
    "a graph that is not there": ("{token: x, secret_token: y, graph: nope}", "channels.telegram.bot.graph"),
    "a secret Telegram does not take": (
        "{token: x, secret_token: 'canary!'}",
        "bot.secret_token: expected 1 to 256",
    ),
    "a secret that is too long": (
        f"{{token: x, secret_token: {'y' * 257}}}",
        "bot.secret_token: expected 1 to",
    ),
    "an unknown update": ("{token: x, secret_token: y, update_types: [mesage]}", "bot.update_types"),
    "an unknown chat": ("{token: x, secret_token: y, chat_types: dm}", "bot.chat_types"),
    "an odd approver": ("{token: x, secret_token: y, approvals: me}", "bot.approvals: expected chat or"),
    "an odd address": ("{token: x, secret_token: y, base_url: 'ftp://x'}", "bot.base_url"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_bot_that_cannot_work_is_refused_at_the_start(name: str, tmp_path: Path) -> None:
    bot, expected = WRONG[name]
    with provider() as known, pytest.raises(ConfigError, match=expected.replace(".", r"\.")) as refused:
        async with opened_bots(tmp_path, f"  telegram: {{bot: {bot}}}\n", known):
            pass
    assert "canary" not in str(refused.value)


async def test_whoever_guesses_is_made_to_wait_and_so_is_a_flood(tmp_path: Path) -> None:
    with provider() as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        limits = {"CLEW_LIMITS_WRONG_KEYS_PER_MINUTE": "3", "CLEW_LIMITS_REQUESTS_PER_SECOND": "1"}
        async with opened_bots(tmp_path, channels, known, **limits) as bots:
            wrong = {"X-Telegram-Bot-Api-Secret-Token": "guess"}
            for status in (401, 401, 401, 429):
                await bots.deliver(update(1, "hi"), status=status, **wrong)
            admitted = 0
            async with asyncio.timeout(SECONDS):
                while (
                    answer := await bots.client.post(
                        "/channels/telegram/bot", json=update(admitted, "hi"), headers=HEADER
                    )
                ).status_code == 200:
                    admitted += 1
            assert admitted >= 2
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            # What was turned away was not admitted: brought again, it is new.
            assert len(await query(bots.app.stores.db, "SELECT 1 FROM inbox")) == admitted


async def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with provider() as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        async with opened_bots(tmp_path, channels, known, CLEW_LIMITS_BODY_BYTES="2000") as bots:
            await bots.deliver(update(1, "x" * 3000), status=413)
            assert list(await query(bots.app.stores.db, "SELECT 1 FROM inbox")) == []


async def test_a_bot_with_another_graph_begins_another_thread(tmp_path: Path) -> None:
    where = str(tmp_path / "clew.db")
    with provider() as known:
        threads: list[Thread] = []
        for number, graph in enumerate(("agent", "remembering", "remembering"), 1):
            channels = f"  telegram: {{bot: {telegram_bot(known.url, graph=graph)}}}\n"
            async with opened_bots(tmp_path, channels, known, where) as bots:
                await bots.deliver(update(number, f"m{number}"))
                await bots.said(number)
                await bots.at_rest()
                threads = await bots.threads()
        assert sorted((thread.graph, thread.round) for thread in threads) == [
            ("agent", 1),
            ("remembering", 2),
        ]


@pytest.mark.parametrize("kind", SHARED)
async def test_two_servers_on_one_database_say_everything_once_and_in_order(
    kind: str, where: str, tmp_path: Path
) -> None:
    """Each message is delivered to both, at once."""
    with provider() as known:
        channels = f"  telegram: {{bot: {telegram_bot(known.url)}}}\n"
        (tmp_path / "two").mkdir()
        async with (
            opened_bots(tmp_path, channels, known, where) as one,
            opened_bots(tmp_path / "two", channels, known, where) as two,
        ):
            for number in range(1, 25):
                message = update(number, f"m{number}", chat=number % 4)
                became = await asyncio.gather(*(bots.deliver(message) for bots in (one, two)))
                assert sorted(each["status"] for each in became) == ["admitted", "duplicate"]
            await one.said(24)
            await one.at_rest()
            for chat in range(4):
                said = [text_of(s.body) for s in known.requests if s.body["chat_id"] == str(chat)]
                assert said == [f"you said: m{n}" for n in range(1, 25) if n % 4 == chat]
            assert sorted(thread.round for thread in await two.threads()) == [6] * 4


@pytest.fixture
def where(kind: str, request: pytest.FixtureRequest) -> str:
    return locate(kind, request)


async def test_the_access_token_of_wecom_is_asked_for_again_when_it_is_refused(tmp_path: Path) -> None:
    """And what is asked too often is asked again later."""
    moves = iter([40014, 0, 45009, 0, 81013])

    def fussy(sent: Sent) -> Reply:
        return Reply({"errcode": next(moves)}) if sent.method == "send" else says_yes(sent)

    with provider(fussy) as known:
        app = "{corp_id: ww1, agent_id: 7, secret: a-corp-secret, token: t, graph: agent,"
        channels = f"  wecom: {{desk: {app} encoding_aes_key: {AES_KEY}, base_url: '{known.url}'}}}}\n"
        limits = {"CLEW_LIMITS_WRONG_KEYS_PER_MINUTE": "2"}
        async with opened_bots(tmp_path, channels, known, **limits) as bots:
            forged = {"msg_signature": "0" * 40, "timestamp": "1", "nonce": "n", "echostr": "x"}
            guesses = [await bots.client.get("/channels/wecom/desk", params=forged) for _ in range(3)]
            assert [guess.status_code for guess in guesses] == [401, 401, 429]
            for number in (1, 2, 3):
                await sealed_text(bots, number, f"m{number}")
                await bots.at_rest()
            sent = known.sent("send")
            assert [text_of(one.body) for one in sent] == [
                f"you said: m{number}" for number in (1, 1, 2, 2, 3)
            ]
            assert sent[0].body["agentid"] == 7
            assert {one.query["access_token"] for one in sent} == {"an-access-token"}
            assert len(known.sent("gettoken")) == 2
            assert (await bots.threads())[0].status is Status.COMPLETED


AES_KEY = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"


async def test_files_sent_to_an_app_of_wecom_become_documents_or_the_person_is_told(tmp_path: Path) -> None:
    stale = [Reply({"errcode": 42001, "errmsg": "access_token expired"})]

    def keeps_files(sent: Sent) -> Reply:
        if sent.path != "/cgi-bin/media/get":
            return says_yes(sent)
        if stale:
            return stale.pop()
        if sent.query["media_id"] == "gone":
            return Reply({"errcode": 40007, "errmsg": "invalid media_id"})
        return Reply(PNG, headers={"content-disposition": 'attachment; filename="x.png"'})

    with provider(keeps_files) as known:
        app = "{corp_id: ww1, agent_id: 7, secret: a-corp-secret, token: t, "
        ends = f"encoding_aes_key: {AES_KEY}, base_url: '{known.url}'}}"
        for graph, expected in (("filing", f"image-1.jpg image/png {len(PNG)}"), ("chat", None)):
            (tmp_path / graph).mkdir()
            channels = f"  wecom: {{desk: {app} graph: {graph}, {ends}}}\n"
            async with opened_bots(tmp_path / graph, channels, known) as bots:
                known.requests.clear()
                if expected:
                    await sealed(bots, 1, MsgType="image", MediaId="here", PicUrl="https://elsewhere/x.jpg")
                    assert await bots.said(1) == [expected]
                else:
                    await sealed(bots, 2, MsgType="voice", MediaId="here", Format="amr")
                    assert await bots.said(1) == ["我无法收听录音。请用文字发送。"]
                    await sealed(bots, 3, MsgType="image", MediaId="gone")
                    assert (await bots.said(2))[1] == "我无法获取 image-3.jpg。请再发送一次。"
                    await sealed(bots, 4, MsgType="location", Location_X="1")
                    assert (await bots.said(3))[2].startswith("我无法读取这种消息")
                    await bots.at_rest()
                    assert await bots.threads() == []


async def sealed_text(bots: Bots, number: int, text: str) -> None:
    await sealed(bots, number, MsgType="text", Content=text)


async def sealed(bots: Bots, number: int, **fields: str) -> None:
    envelope = Envelope("t", read_key(AES_KEY), "ww1")
    told = {"FromUserName": "ann", "MsgId": str(number), **fields}
    inside = f"<xml>{''.join(f'<{name}>{text}</{name}>' for name, text in told.items())}</xml>"
    encrypted = envelope.seal(inside.encode(), noise=b"0" * 16)
    now = str(int(time.time()))
    query = {"timestamp": now, "nonce": "n", "msg_signature": sign("t", now, "n", encrypted)}
    body = f"<xml><Encrypt>{encrypted}</Encrypt></xml>"
    answer = await bots.client.post("/channels/wecom/desk", params=query, content=body)
    assert (answer.status_code, answer.text) == (200, "success")


@pytest.mark.parametrize(
    "rest",
    ["\\@elsewhere", ":0/", "@elsewhere/", ".elsewhere/", "/\x01", "\t/x", "/" + "x" * 70_000, "[", ""],
)
async def test_an_ai_bot_is_answered_at_no_address_but_wecoms(rest: str) -> None:
    """And what is no address at all is given up, or the chat would wait for it for ever."""
    base_url = "https://wecom.example"
    url = base_url + rest if rest else ""
    async with open_outside(seconds=5) as outside:
        with pytest.raises(Permanent):
            await WeComBotClient(outside=outside, base_url=base_url).send({"response_url": url}, "hi")


async def test_a_bot_of_wecom_that_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    needed = {"token": "t", "encoding_aes_key": AES_KEY, "corp_id": "ww1", "secret": "s", "agent_id": "7"}
    for key, value in (
        *((name, None) for name in ("corp_id", "secret", "agent_id")),
        ("encoding_aes_key", "canary"),
        ("kind", "aibot"),
        ("agent_id", "seven"),
    ):
        given = {**needed, key: value}
        bot = ", ".join(f"{name}: '{text}'" for name, text in given.items() if text is not None)
        with (
            provider() as known,
            pytest.raises(ConfigError, match=rf"channels\.wecom\.desk\.{key}: ") as refused,
        ):
            async with opened_bots(tmp_path, f"  wecom: {{desk: {{{bot}}}}}\n", known):
                pass
        assert "canary" not in str(refused.value)
