"""Channels without a wire: what is read of a delivery, which envelopes open, what a chat is owed."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.channels import replies, telegram, wecom
from clew.channels.message import (
    Attachment,
    ChatClient,
    ChatMessage,
    cut,
    fingerprint,
    said_from,
    split,
    utf8_bytes,
    utf16_units,
)
from clew.channels.polling import Poller
from clew.channels.replies import Approvers, answerable, owed, pressed
from clew.channels.wecom_api import WeComAppClient, WeComBotClient, WeComCustomerClient
from clew.channels.wecom_crypto import Envelope, read_key, sign
from clew.domain import lifecycle
from clew.domain.errors import ConfigError, Invalid, Unauthenticated
from clew.domain.events import (
    AssistantMessage,
    Body,
    Event,
    Opening,
    RoundFinished,
    RoundStarted,
    Suspension,
    UserMessage,
)
from clew.domain.items import decode_part
from clew.domain.questions import decision
from clew.domain.thread import Executor, Owner, Pending, Status, SuspensionKind, Thread
from tests.providers import press, update
from tests.samples import stamp

PRIVATE = {"update_types": ("message", "callback_query"), "chat_types": ("private",)}


def parsed(given: Any, **options: Any) -> dict[str, Any]:
    return telegram.parse(given, **{**PRIVATE, **options})


class TestTelegram:
    @pytest.mark.accept("000-36")
    def test_a_message_is_read_with_its_ids_as_texts(self) -> None:
        assert parsed(update(7, "hello")) == {
            "update_type": "message",
            "chat_id": "42",
            "chat_type": "private",
            "username": "ann",
            "user_id": "42",
            "text": "hello",
            "message_id": "1007",
            "should_process": True,
        }

    @pytest.mark.accept("000-36")
    def test_a_press_has_its_chat_in_the_message_and_its_text_in_the_data(self) -> None:
        read = parsed(press(7, "choice-1"))
        assert (read["update_type"], read["chat_id"], read["text"]) == ("callback_query", "42", "choice-1")
        assert (read["message_id"], read["user_id"], read["should_process"]) == ("7", "42", True)

    @pytest.mark.accept("000-36")
    @pytest.mark.parametrize(
        "kind", ["message", "edited_message", "channel_post", "edited_channel_post", "business_message"]
    )
    def test_every_kind_of_message_is_known_and_taken_where_allowed(self, kind: str) -> None:
        one = {"update_id": 1, kind: update(1, "x")["message"]}
        assert parsed(one)["update_type"] == kind
        assert parsed(one)["should_process"] == (kind == "message")
        assert parsed(one, update_types=(kind,))["should_process"]

    @pytest.mark.accept("000-36")
    @pytest.mark.parametrize("kind", ["my_chat_member", "inline_query", "poll", "message_reaction"])
    def test_what_has_no_text_is_known_and_never_taken(self, kind: str) -> None:
        read = parsed({"update_id": 1, kind: {"chat": {"id": 1, "type": "private"}}}, update_types=(kind,))
        assert (read["update_type"], read["should_process"]) == (kind, False)

    @pytest.mark.accept("000-36")
    @pytest.mark.parametrize(
        "change",
        [
            {"text": ""},
            {"text": " \n"},
            {"text": None},
            {"text": 7},
            {"chat": {"id": -100123, "type": "supergroup"}},
            {"chat": {"type": "private"}},
            {"chat": {"id": True, "type": "private"}},
            {"chat": None},
        ],
    )
    def test_what_cannot_be_answered_is_not_taken(self, change: dict[str, Any]) -> None:
        one = update(1, "x")
        one["message"].update(change)
        assert parsed(one)["should_process"] is False

    def test_a_caption_is_a_text(self) -> None:
        photo = update(1, "x")
        del photo["message"]["text"]
        photo["message"]["caption"] = "look"
        assert parsed(photo)["text"] == "look"

    @pytest.mark.parametrize(
        "odd", [None, [], "x", 7, {}, {"message": []}, {"callback_query": {"message": 1}}]
    )
    def test_nothing_odd_is_taken(self, odd: Any) -> None:
        assert parsed(odd)["should_process"] is False
        with pytest.raises(Invalid):
            telegram.read(odd, **PRIVATE)

    @pytest.mark.accept("000-9")
    def test_the_key_is_the_chat(self) -> None:
        private = telegram.read(update(1, "x", chat=123456789), **PRIVATE)
        assert private is not None
        assert private.conversation == "telegram:123456789"
        assert private.said.to == {"chat_id": "123456789"}
        supergroup = update(1, "x")
        supergroup["message"]["chat"] = {"id": -100123, "type": "supergroup"}
        read = telegram.read(supergroup, update_types=("message",), chat_types=("supergroup",))
        assert read is not None
        assert (read.conversation, read.said.user) == ("telegram:-100123", "42")

    @pytest.mark.accept("000-35")
    @pytest.mark.parametrize("shown", [None, "", "wrong", "secret ", "SECRET", "sécret"])
    def test_only_the_secret_opens(self, shown: str | None) -> None:
        telegram.verify("secret", "secret")
        with pytest.raises(Unauthenticated):
            telegram.verify(shown, "secret")

    def test_a_fingerprint_is_of_the_content_not_of_how_it_is_written(self) -> None:
        one, other = update(1, "x"), dict(reversed(update(1, "x").items()))
        assert fingerprint(one) == fingerprint(other)
        assert fingerprint(one) != fingerprint(update(1, "y"))


# The example in WeCom's own documentation.
TOKEN, KEY, CORP = "QDG6eK", "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C", "wx5823bf96d3bd56c7"
ECHO = "P9nAzCzyDtyTWESHep1vC5X9xho/qYX3Zpb4yKa9SKld1DsH3Iyt3tP3zNdtp+4RPcs8TgAE7OaBO+FZXvnaqQ=="
SIGNED = {
    "signature": "5c45ff5e21c57e6ad56bac8758b79b1d9ac89fd3",
    "timestamp": "1409659589",
    "nonce": "263014780",
}
AT = datetime.fromtimestamp(1409659589, UTC)
ENVELOPE = Envelope(TOKEN, read_key(KEY), CORP)


def sealed(content: bytes, envelope: Envelope = ENVELOPE, *, timestamp: str = "1409659589") -> dict[str, Any]:
    encrypted = envelope.seal(content, noise=b"0123456789abcdef")
    signature = sign(envelope.token, timestamp, "n", encrypted)
    return {"encrypted": encrypted, "signature": signature, "timestamp": timestamp, "nonce": "n"}


class TestEnvelope:
    @pytest.mark.accept("000-37")
    def test_the_example_of_the_documentation_opens(self) -> None:
        assert ENVELOPE.open(ECHO, **SIGNED, now=AT) == b"1616140317555161061"

    @given(st.binary(max_size=200))
    def test_what_is_sealed_opens(self, content: bytes) -> None:
        assert ENVELOPE.open(**sealed(content), now=AT) == content

    @pytest.mark.fault("D5")
    @pytest.mark.accept("000-37")
    @pytest.mark.parametrize(
        ("seconds", "opens"),
        [(-301, False), (-300, True), (-299, True), (0, True), (299, True), (300, True), (301, False)],
    )
    def test_it_is_believed_for_five_minutes_either_way(self, seconds: int, opens: bool) -> None:
        now = AT + timedelta(seconds=seconds)
        if opens:
            assert ENVELOPE.open(ECHO, **SIGNED, now=now)
        else:
            with pytest.raises(Unauthenticated):
                ENVELOPE.open(ECHO, **SIGNED, now=now)

    @pytest.mark.fault("G6")
    @pytest.mark.accept("000-37")
    def test_whatever_was_changed_does_not_open(self) -> None:
        for name in SIGNED:
            for position in range(len(SIGNED[name])):
                text = SIGNED[name]
                changed = text[:position] + ("1" if text[position] != "1" else "2") + text[position + 1 :]
                with pytest.raises(Unauthenticated):
                    ENVELOPE.open(ECHO, **{**SIGNED, name: changed}, now=AT)
        with pytest.raises(Unauthenticated):
            ENVELOPE.open(ECHO[:-4] + "aaa=", **SIGNED, now=AT)

    @pytest.mark.accept("000-37")
    def test_what_is_for_another_corporation_does_not_open(self) -> None:
        others = Envelope(TOKEN, read_key(KEY), "wx0000000000000000")
        with pytest.raises(Unauthenticated):
            ENVELOPE.open(**sealed(b"hi", others), now=AT)
        assert Envelope(TOKEN, read_key(KEY), "").open(
            **sealed(b"hi", Envelope(TOKEN, read_key(KEY), "")), now=AT
        )

    @given(st.binary(max_size=160))
    def test_signed_nonsense_does_not_open(self, nonsense: bytes) -> None:
        encrypted = base64.b64encode(nonsense).decode()
        signature = sign(TOKEN, "1409659589", "n", encrypted)
        with pytest.raises(Unauthenticated):
            ENVELOPE.open(encrypted, signature=signature, timestamp="1409659589", nonce="n", now=AT)

    @pytest.mark.parametrize("name", ["encrypted", "signature", "nonce", "timestamp"])
    def test_half_a_letter_is_refused_like_anything_else(self, name: str) -> None:
        with pytest.raises(Unauthenticated):
            ENVELOPE.open(**{**sealed(b"hi"), name: "\ud800"}, now=AT)

    @pytest.mark.parametrize("time", ["", "-5", "1e9", "٣", "9" * 30])
    def test_a_time_that_is_none_is_refused(self, time: str) -> None:
        with pytest.raises(Unauthenticated):
            ENVELOPE.open(**sealed(b"hi", timestamp=time), now=AT)

    @pytest.mark.parametrize("key", ["", "short", KEY + "x", KEY[:-1] + "*"])
    def test_a_key_that_is_none_is_refused_without_saying_it(self, key: str) -> None:
        with pytest.raises(ConfigError) as refused:
            read_key(key)
        assert not key or key not in str(refused.value)


def direct(**fields: str) -> dict[str, str]:
    return {
        "ToUserName": CORP,
        "FromUserName": "zhang.san@corp",
        "CreateTime": "1409659589",
        "MsgType": "text",
        "Content": "hello",
        "MsgId": "1234567890123456",
        "AgentID": "1",
        **fields,
    }


def customer(**fields: Any) -> dict[str, Any]:
    return {
        "msgid": "m1",
        "open_kfid": "wk1",
        "external_userid": "wm.1",
        "send_time": 1_700_000_000,
        "origin": 3,
        "msgtype": "text",
        "text": {"content": "hello"},
        **fields,
    }


def to_bot(**fields: Any) -> dict[str, Any]:
    return {
        "msgid": "m1",
        "aibotid": "b1",
        "chattype": "single",
        "from": {"userid": "zs"},
        "response_url": "https://qyapi.weixin.qq.com/cgi-bin/aibot/response?code=1",
        "msgtype": "text",
        "text": {"content": "hello"},
        **fields,
    }


class TestWeCom:
    @pytest.mark.accept("000-10", "000-16")
    def test_a_member_has_a_key_that_can_be_read_back(self) -> None:
        read = wecom.read_direct(direct())
        assert read is not None
        prefix, _, part = read.conversation.partition(":")
        assert (prefix, decode_part(part)) == ("wecom_dm", "zhang.san@corp")
        assert (read.id, read.said.text, read.said.to) == (
            "1234567890123456",
            "hello",
            {"touser": "zhang.san@corp"},
        )

    @pytest.mark.accept("000-38")
    @pytest.mark.parametrize(
        "change",
        [{"ChatId": "g1"}, {"MsgType": "event"}, {"Content": " "}, {"FromUserName": ""}, {"MsgId": ""}],
    )
    def test_groups_and_what_says_nothing_are_passed_over(self, change: dict[str, str]) -> None:
        assert wecom.read_direct(direct(**change)) is None

    def test_pictures_files_and_recordings_are_read_as_attachments(self) -> None:
        picture = wecom.read_direct(direct(MsgType="image", MediaId="media1", Content=""))
        assert picture is not None
        assert picture.said.attachments == (
            Attachment(kind="photo", file="media1", name="image-1234567890123456.jpg"),
        )
        spoken = wecom.read_customer(customer(msgtype="voice", voice={"media_id": "media2"}, text=None))
        assert spoken is not None
        assert (spoken.said.text, spoken.said.attachments) == (
            "",
            (Attachment(kind="voice", file="media2", name="voice-m1.amr"),),
        )
        # An AI bot is given a recording as text, and its pictures are sealed.
        heard = wecom.read_ai_bot(to_bot(msgtype="voice", voice={"content": "hello"}, text=None))
        assert heard is not None
        assert (heard.said.text, heard.said.attachments) == ("hello", ())
        seen = wecom.read_ai_bot(to_bot(msgtype="mixed", mixed={}, text=None))
        assert seen is not None
        assert seen.said.attachments == (Attachment(kind="mixed"),)

    @pytest.mark.accept("000-38")
    def test_an_event_names_the_account_and_brings_the_token(self) -> None:
        fields = {"MsgType": "event", "Event": "kf_msg_or_event", "Token": "T", "OpenKfId": "wk1"}
        read = wecom.read_event({**fields, "CreateTime": "1"})
        assert read is not None
        assert (read.conversation, read.said.to, read.said.text) == (
            "wecom_kf:wk1",
            {"open_kfid": "wk1"},
            "T",
        )
        assert wecom.read_event({**fields, "CreateTime": "1", "Token": "U"}).id != read.id  # type: ignore[union-attr]
        assert wecom.read_event({**fields, "Event": "enter_agent"}) is None
        assert wecom.read_event({**fields, "OpenKfId": ""}) is None

    @pytest.mark.accept("000-10", "000-38")
    def test_a_customers_text_is_read(self) -> None:
        read = wecom.read_customer(customer())
        assert read is not None
        assert (read.id, read.conversation) == ("m1", "wecom_cs:wk1:wm_x2e1")
        assert read.said.to == {"touser": "wm.1", "open_kfid": "wk1"}

    @pytest.mark.accept("000-38")
    @pytest.mark.parametrize(
        "change",
        [
            {"origin": 4},
            {"origin": 5},
            {"origin": "3"},
            {"msgtype": "event"},
            {"text": {}},
            {"text": None},
            {"msgid": ""},
            {"external_userid": None},
        ],
    )
    def test_what_is_not_said_by_a_customer_is_passed_over(self, change: dict[str, Any]) -> None:
        assert wecom.read_customer(customer(**change)) is None

    @pytest.mark.parametrize("odd", [None, [], 7, "x"])
    def test_nothing_odd_is_read(self, odd: Any) -> None:
        assert wecom.read_customer(odd) is None
        assert wecom.read_ai_bot(odd) is None

    @pytest.mark.accept("000-10")
    def test_an_ai_bot_is_spoken_to_by_users(self) -> None:
        read = wecom.read_ai_bot(to_bot())
        assert read is not None
        assert (read.id, read.conversation) == ("m1", "wecom_aibot:single:zs")
        again = wecom.read_ai_bot(to_bot(response_url="https://elsewhere"))
        assert again is not None
        assert again.fingerprint == read.fingerprint
        assert wecom.read_ai_bot(to_bot(chattype="group", chatid="g")) is None

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<xml>",
            b"\xff",
            b"not xml",
            b"<xml><Encrypt>" + b"x" * 2**18 + b"</Encrypt></xml>",
            b'<!DOCTYPE x [<!ENTITY a "b">]><xml><Encrypt>&a;</Encrypt></xml>',
            "<xml><Encrypt>x</Encrypt></xml>".encode("utf-16"),
        ],
    )
    def test_what_is_no_plain_xml_is_refused(self, body: bytes) -> None:
        with pytest.raises(Invalid):
            wecom.read_xml(body)

    def test_xml_is_read_flat(self) -> None:
        body = b"<xml><A><![CDATA[a<b]]></A><B>1</B><C/></xml>"
        assert wecom.read_xml(body) == {"A": "a<b", "B": "1", "C": ""}

    @pytest.mark.parametrize("body", [b"", b"{", b"[" * 100_000])
    def test_what_is_no_json_is_refused(self, body: bytes) -> None:
        with pytest.raises(Invalid):
            wecom.read_json(body)


class TestTexts:
    @given(st.text(), st.integers(min_value=4, max_value=50), st.sampled_from([utf16_units, utf8_bytes]))
    def test_parts_fit_and_nothing_but_space_is_lost(self, text: str, limit: int, size: Any) -> None:
        parts = split(text, limit, size)
        assert all(part and part == part.strip() and size(part) <= limit for part in parts)
        assert "".join("".join(parts).split()) == "".join(text.split())

    @given(st.text(), st.integers(min_value=8, max_value=50))
    def test_what_is_cut_fits(self, text: str, limit: int) -> None:
        short = cut(text, limit, utf8_bytes)
        assert utf8_bytes(short) <= limit
        assert short == text or (short.endswith("…") and text.startswith(short[:-1]))

    def test_paragraphs_come_before_lines_and_lines_before_words(self) -> None:
        assert split("aaaa bb\n\ncc dd ee", 12, len) == ["aaaa bb", "cc dd ee"]
        assert split("aaaa bb\ncc dd ee", 12, len) == ["aaaa bb", "cc dd ee"]
        assert split("aaaa bbbb cccc", 12, len) == ["aaaa bbbb", "cccc"]
        assert split("a" * 25, 12, len) == ["a" * 12, "a" * 12, "a"]

    def test_every_channel_has_its_limit(self) -> None:
        text = "多" * 10_000
        app = WeComAppClient(api=None, agent_id=1).parts(text)  # type: ignore[arg-type]
        assert max(map(utf8_bytes, app)) <= 2048
        assert "".join(app) == text
        customers = WeComCustomerClient(api=None).parts(text)  # type: ignore[arg-type]
        assert len(customers) == 5
        assert customers[-1].endswith("…")
        assert max(map(utf8_bytes, customers)) <= 2048
        (bot,) = WeComBotClient(outside=None, base_url="").parts(text)  # type: ignore[arg-type]
        assert utf8_bytes(bot) <= 20_480

    def test_what_was_said_is_the_same_after_it_waited(self) -> None:
        said = ChatMessage(
            text="é\0", user="1", to={"a": "b"}, results={"x": {"y": 1}}, is_press=True, press_id="2"
        )
        assert said_from(json.loads(json.dumps(said.as_json()))) == said


DECISIONS = {
    "yes": (True, ""),
    " Yes! ": (True, ""),
    "OK": (True, ""),
    "同意": (True, ""),
    "yes but later": None,
    "no": (False, ""),
    "No, too dear": (False, "too dear"),
    "拒绝": (False, ""),
    "nope": None,
    "why?": None,
    "": None,
    "...": None,
    "y\nn": None,
}


@pytest.mark.parametrize("text", DECISIONS)
def test_a_decision_is_plain_or_none(text: str) -> None:
    assert decision(text) == DECISIONS[text]


def pending(kind: SuspensionKind, prompt: Any, executor: Executor = Executor.HUMAN) -> Pending:
    return Pending(executor=executor, kind=kind, prompt=prompt)


ANSWERABLE: dict[str, tuple[str, Pending, Mapping[Approvers, str | None]]] = {
    "a tool": (
        "c1",
        pending(SuspensionKind.APPROVAL, {"tool": "x", "args": {}}, Executor.SERVER),
        {"chat": "approval", "dashboard": None},
    ),
    "a tool with more than a chat can show": (
        "c1",
        pending(SuspensionKind.APPROVAL, {"tool": "send", "args": {"text": "x" * replies.MAX_SHOWN}}),
        {"chat": None, "dashboard": None},
    ),
    "a gate": (
        "gate_1",
        pending(SuspensionKind.APPROVAL, {"before": ["x"]}),
        {"chat": "approval", "dashboard": None},
    ),
    "an approval by name": (
        "c1",
        pending(SuspensionKind.APPROVAL, {"kind": "approval", "text": "go?"}),
        {"chat": "approval", "dashboard": None},
    ),
    "a graph's own question": (
        "c1",
        pending(SuspensionKind.APPROVAL, "name?"),
        {"chat": "text", "dashboard": "text"},
    ),
    "a question": ("c1", pending(SuspensionKind.ELICITATION, "name?"), {"chat": "text", "dashboard": "text"}),
    "a client's": ("c1", pending(SuspensionKind.CLIENT_EXEC, {}), {"chat": None, "dashboard": None}),
    "in doubt": ("c1", pending(SuspensionKind.IN_DOUBT, {}), {"chat": None, "dashboard": None}),
}


@pytest.mark.parametrize("name", ANSWERABLE)
def test_how_a_chat_may_answer(name: str) -> None:
    call_id, asked, expected = ANSWERABLE[name]
    for approvers, how in expected.items():
        assert answerable(call_id, asked, approvers) == how


@pytest.mark.parametrize("letter", ["x", "x ", "字\n"])
def test_what_can_be_approved_in_a_chat_is_shown_whole_in_every_channel(letter: str) -> None:
    longest = (letter * replies.MAX_SHOWN).encode()[: replies.MAX_SHOWN].decode(errors="ignore")
    question = f"{longest}\n\n{replies.YES_OR_NO}"
    nobody: Any = None
    wires: list[ChatClient] = [
        WeComCustomerClient(api=nobody),
        WeComAppClient(api=nobody, agent_id=1),
        WeComBotClient(outside=nobody, base_url=""),
        telegram.TelegramClient(outside=nobody, base_url="", token=""),
    ]
    for wire in wires:
        assert "".join("".join(wire.parts(question)).split()) == "".join(question.split())


def test_a_button_answers_its_own_question_alone() -> None:
    event = Event(
        thread_id="t",
        seq=1,
        id="e",
        round=1,
        at=AT,
        body=Suspension(
            call_id="c1",
            executor=Executor.SERVER,
            kind=SuspensionKind.APPROVAL,
            prompt={"tool": "x", "args": {}},
        ),
    )
    thread = blocked("c1")
    (question,) = owed(thread, [event], source="s", known_round=1, approvers="chat")
    yes, no = question.buttons
    assert max(len(button.data) for button in question.buttons) <= 64
    assert pressed(yes.data, ["c0", "c1"]) == ("c1", True)
    assert pressed(no.data, ["c1"]) == ("c1", False)
    assert pressed(yes.data, ["c2"]) is None
    assert replies.is_button(yes.data)
    assert not replies.is_button("approve: it")


SOURCE = "telegram:bot"


def opened(*bodies: Body, source: str = f"{SOURCE}/1") -> tuple[Thread, list[Event]]:
    """A thread that began in the chat, and all that happened in it."""
    opening = Opening(owner=Owner(), graph="g")
    change = lifecycle.open_thread("t", opening, "hi", stamp=stamp(), source=source)
    thread, events = change.thread, list(change.events)
    for body in bodies:
        more = lifecycle.record(thread, [body], stamp=stamp())
        thread = more.thread
        events += more.events
    return thread, events


def blocked(call_id: str) -> Thread:
    return opened(
        Suspension(
            call_id=call_id, executor=Executor.SERVER, kind=SuspensionKind.APPROVAL, prompt={"tool": "x"}
        )
    )[0]


def texts(thread: Thread, events: list[Event], known_round: int = 0) -> list[str]:
    found = owed(thread, events, source=SOURCE, known_round=known_round, approvers="chat")
    return [outgoing.text for outgoing in found]


DONE = RoundFinished(status=Status.COMPLETED)


class TestOwed:
    def test_the_last_word_of_a_round_and_nothing_before_it(self) -> None:
        said = opened(AssistantMessage(content="wait"), AssistantMessage(content="done"), DONE)
        assert texts(*said) == ["done"]
        assert texts(*opened(AssistantMessage(content="wait"))) == []

    def test_a_closing_message_comes_with_what_it_closes(self) -> None:
        """As in the built-in chat, whose last word is that it is done."""
        closing = AssistantMessage(content="Done.", marker="last")
        assert texts(*opened(AssistantMessage(content="It is 42."), closing, DONE)) == ["It is 42.\n\nDone."]

    def test_parts_are_told_as_text(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "image", "url": "x"}, {"type": "text", "text": "b"}]
        assert texts(*opened(AssistantMessage(content=parts), DONE)) == ["a\n\nb"]

    @pytest.mark.parametrize(
        ("status", "text"), [(Status.FAILED, replies.FAILED), (Status.STOPPED, replies.STOPPED)]
    )
    def test_how_it_ended_badly_is_told_without_the_reason(self, status: Status, text: str) -> None:
        ended = RoundFinished(status=status, reason="a secret reason")
        assert texts(*opened(AssistantMessage(content="wait"), ended)) == [text]
        closing = AssistantMessage(content="it went wrong", marker="last")
        assert texts(*opened(closing, ended)) == ["it went wrong"]

    def test_a_round_that_said_nothing_owes_nothing(self) -> None:
        assert texts(*opened(DONE)) == []

    def test_rounds_that_began_elsewhere_are_not_told(self) -> None:
        elsewhere = RoundStarted(round=2), UserMessage(content="x"), AssistantMessage(content="y"), DONE
        assert texts(*opened(AssistantMessage(content="a"), DONE, *elsewhere)) == ["a"]
        assert texts(*opened(AssistantMessage(content="a"), DONE, source="telegram:other/1")) == []

    def test_a_round_that_is_taken_up_again_is_told_though_its_beginning_was_read_before(self) -> None:
        failed = RoundFinished(status=Status.FAILED, reason="x")
        thread, events = opened(failed, RoundStarted(round=1), AssistantMessage(content="done"), DONE)
        assert texts(thread, events[3:], known_round=1) == ["done"]
        assert texts(thread, events[3:]) == []

    def test_what_was_taken_back_is_not_told(self) -> None:
        thread, events = opened(AssistantMessage(content="oops"), DONE)
        change = lifecycle.redact(thread, events[2].id, stamp=stamp())
        assert texts(change.thread, events) == []

    def test_a_question_that_was_answered_elsewhere_is_not_asked(self) -> None:
        asks = Suspension(
            call_id="c", executor=Executor.HUMAN, kind=SuspensionKind.ELICITATION, prompt="name?"
        )
        thread, events = opened(asks)
        assert texts(thread, events) == ["name?"]
        stopped = lifecycle.stop(thread, [], stamp=stamp())
        assert texts(stopped.thread, [*events, *stopped.events]) == [replies.STOPPED]

    @pytest.mark.parametrize(
        ("prompt", "text"),
        [
            ({"tool": "rm", "args": {"path": "/é"}}, 'rm\n{\n "path": "/é"\n}'),
            ({"before": ["deploy"]}, "deploy"),
            ({"kind": "approval", "question": "go?", "cost": 3}, 'go?\n\n{\n "cost": 3\n}'),
            ([1, 2], "[\n 1,\n 2\n]"),
        ],
    )
    def test_what_is_asked_is_shown_exactly(self, prompt: Any, text: str) -> None:
        asks = Suspension(
            call_id="gate_c", executor=Executor.HUMAN, kind=SuspensionKind.APPROVAL, prompt=prompt
        )
        (told,) = texts(*opened(asks))
        assert text in told


class Positions:
    """Where a poller stood."""

    def __init__(self, position: Any) -> None:
        self.kept = position

    async def position(self, source: str) -> Any:
        return self.kept

    async def set_position(self, source: str, position: Any) -> None:
        self.kept = position


class Offsets:
    """A Telegram that notes from where it was asked, and has nothing."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def updates(self, offset: int, *, types: Any, seconds: int) -> list[Any]:
        self.asked.append(offset)
        return []


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("position", "offset"),
    [
        (None, 0),
        ({"offset": 900, "at": "2026-01-05T00:00:00+00:00"}, 900),
        # Numbers begin anew at random after a week without one: an old one might skip what came since.
        ({"offset": 900, "at": "2026-01-01T00:00:00+00:00"}, 0),
    ],
)
async def test_a_poller_goes_on_where_it_stood_as_long_as_numbers_last(position: Any, offset: int) -> None:
    wire: Any = Offsets()
    conversations: Any = Positions(position)
    admission: Any = None
    poller = Poller(
        source="telegram:bot",
        wire=wire,
        update_types=("message",),
        chat_types=("private",),
        admission=admission,
        conversations=conversations,
        clock=lambda: datetime(2026, 1, 8, tzinfo=UTC),
        report=lambda _: None,
    )
    assert await poller.poll(seconds=0) == 0
    assert wire.asked == [offset]
