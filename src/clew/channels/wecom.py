"""WeCom deliveries: messages to an app and events come as XML, those to an AI bot as JSON."""

import json
import re
from collections.abc import Mapping
from xml.etree import ElementTree

from clew.channels.message import Attachment, ChannelMessage, ChatMessage, fingerprint
from clew.domain.errors import Invalid
from clew.domain.items import storable
from clew.domain.thread import Json
from clew.history import keys

DIRECT = "wecom_dm:{{results.wecom_events_parser.user}}"
CUSTOMER = "wecom_cs:{{results.wecom_cs_sync.open_kf_id}}:{{results.wecom_cs_sync.external_userid}}"
AI_BOT = (
    "wecom_aibot:{{results.wecom_ai_bot_events_parser.chat_type}}:{{results.wecom_ai_bot_events_parser.user}}"
)
# The key of an account whose customers' messages are fetched. No chat has it.
ACCOUNT = "wecom_kf:{{results.wecom_events_parser.open_kf_id}}"

# Who sent a message of customer service: the customer. Others are the people and programs that answer.
FROM_CUSTOMER = 3
# What a message may bring instead of a text: how we call it, and the ending of a file that comes without a name.
KINDS = {
    "image": ("photo", "jpg"),
    "file": ("document", "bin"),
    "voice": ("voice", "amr"),
    "video": ("video", "mp4"),
    "location": ("location", ""),
    "link": ("link", ""),
    "business_card": ("contact", ""),
    "miniprogram": ("miniprogram", ""),
}
BOT_KINDS = ("image", "file", "video", "mixed")
# WeCom does not say which language a user reads.
LANGUAGE = "zh"
# Far more than WeCom sends. The body is read before the signature is checked.
MAX_BYTES = 256 * 1024
# Anything declared, a doctype or an entity: a message of WeCom has none.
_DECLARED = re.compile(r"<!(?!\[CDATA\[)")


def read_xml(body: bytes) -> dict[str, str]:
    """The fields of a flat document. Raises Invalid."""
    _check_length(body)
    try:
        text = body.decode("utf-8")
        if _DECLARED.search(text):
            raise Invalid("expected no declarations", field="body")
        root = ElementTree.fromstring(text)  # noqa: S314 - nothing declared, so nothing to expand
    except (UnicodeDecodeError, ElementTree.ParseError, ValueError):
        raise Invalid("expected XML", field="body") from None
    return {child.tag: child.text or "" for child in root}


def read_json(body: bytes) -> Json:
    """Raises Invalid."""
    _check_length(body)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Invalid("expected JSON", field="body") from None


def _check_length(body: bytes) -> None:
    if len(body) > MAX_BYTES:
        raise Invalid(f"expected at most {MAX_BYTES} bytes", field="body")


def parse(fields: Mapping[str, str]) -> dict[str, Json]:
    """A message to an app, as a graph finds it under `results.wecom_events_parser`."""
    chat_id = fields.get("ChatId", "")
    text = fields.get("Content", "") if fields.get("MsgType") == "text" else ""
    user = fields.get("FromUserName", "")
    brings = bool(text.strip() or _sent_to_app(fields))
    return {
        "msg_type": fields.get("MsgType", ""),
        "chat_type": "group" if chat_id else "single",
        "chat_id": chat_id,
        "user": user,
        "text": text,
        "message_id": fields.get("MsgId", ""),
        "should_process": not chat_id and brings and bool(user and fields.get("MsgId")),
    }


def read_direct(fields: Mapping[str, str]) -> ChannelMessage | None:
    """A member's message to an app, None if it needs no answer."""
    parsed = parse(fields)
    results = {"wecom_events_parser": parsed}
    said = ChatMessage(
        text=parsed["text"],
        user=parsed["user"],
        to={"touser": parsed["user"]},
        results=results,
        attachments=_sent_to_app(fields),
        language=LANGUAGE,
    )
    return _message(parsed, DIRECT, parsed["message_id"], said, fingerprint(dict(fields)))


def read_event(fields: Mapping[str, str]) -> ChannelMessage | None:
    """The event that customers wrote. Its token fetches their messages. None for any other event."""
    account, token = fields.get("OpenKfId", ""), fields.get("Token", "")
    if fields.get("Event") != "kf_msg_or_event" or not account:
        return None
    mark = fingerprint(dict(fields))
    parsed: dict[str, Json] = {"open_kf_id": account, "should_process": True}
    # An event has no id. Two within a second differ in their token.
    event_id = f"{account}:{fields.get('CreateTime', '')}:{mark[:16]}"
    said = ChatMessage(
        text=token, user="", to={"open_kfid": account}, results={"wecom_events_parser": parsed}
    )
    return _message(parsed, ACCOUNT, event_id, said, mark)


def read_customer(item: Json) -> ChannelMessage | None:
    """One message of a customer out of those fetched. None for what has nothing to answer, or is not a customer's."""
    given = item if isinstance(item, dict) else {}
    kind = _text(given.get("msgtype"))
    content = given.get("text")
    text = _text(content.get("content")) if isinstance(content, dict) and kind == "text" else ""
    account, customer, message_id = (
        _text(given.get(name)) for name in ("open_kfid", "external_userid", "msgid")
    )
    parsed: dict[str, Json] = {
        "open_kf_id": account,
        "external_userid": customer,
        "text": text,
        "message_id": message_id,
        "should_process": given.get("origin") == FROM_CUSTOMER
        and bool(account and customer and message_id)
        and bool(text.strip() or _sent(kind, given)),
    }
    said = ChatMessage(
        text=text,
        user=customer,
        to={"touser": customer, "open_kfid": account},
        results={"wecom_cs_sync": parsed},
        attachments=_sent(kind, given),
        language=LANGUAGE,
    )
    return _message(parsed, CUSTOMER, message_id, said, fingerprint(given))


def parse_ai_bot(given: Json) -> dict[str, Json]:
    """A message to an AI bot, as a graph finds it under `results.wecom_ai_bot_events_parser`."""
    fields = given if isinstance(given, dict) else {}
    # What was spoken to a bot comes as text already.
    kind = _text(fields.get("msgtype"))
    sender, content = fields.get("from"), fields.get("voice" if kind == "voice" else "text")
    parsed: dict[str, Json] = {
        "msg_type": _text(fields.get("msgtype")),
        "chat_type": _text(fields.get("chattype")),
        "chat_id": _text(fields.get("chatid")),
        "user": _text(sender.get("userid")) if isinstance(sender, dict) else "",
        "text": _text(content.get("content")) if isinstance(content, dict) else "",
        "message_id": _text(fields.get("msgid")),
    }
    brings = bool(parsed["text"].strip()) if kind in ("text", "voice") else kind in BOT_KINDS
    parsed["should_process"] = (
        brings and parsed["chat_type"] == "single" and bool(parsed["user"] and parsed["message_id"])
    )
    return parsed


def read_ai_bot(given: Json) -> ChannelMessage | None:
    parsed = parse_ai_bot(given)
    if not parsed["should_process"]:
        return None
    results = {"wecom_ai_bot_events_parser": parsed}
    to = {"response_url": _text(given.get("response_url"))}
    # Its files are sealed once more, each with a key of the bot's.
    kind = parsed["msg_type"]
    said = ChatMessage(
        text=parsed["text"],
        user=parsed["user"],
        to=to,
        results=results,
        attachments=(Attachment(kind=kind),) if kind in BOT_KINDS else (),
        language=LANGUAGE,
    )
    # The response URL may differ when the message is delivered again.
    mark = fingerprint({name: value for name, value in given.items() if name != "response_url"})
    return _message(parsed, AI_BOT, parsed["message_id"], said, mark)


def _sent_to_app(fields: Mapping[str, str]) -> tuple[Attachment, ...]:
    kind, media, number = fields.get("MsgType", ""), fields.get("MediaId", ""), fields.get("MsgId", "")
    if kind not in KINDS:
        return ()
    ending = (fields.get("Format") if kind == "voice" else "") or KINDS[kind][1]
    name = storable(fields.get("FileName", "")).strip() or f"{kind}-{number}.{ending}"
    return (Attachment(kind=KINDS[kind][0], file=media, name=name),)


def _sent(kind: str, item: Mapping[str, Json]) -> tuple[Attachment, ...]:
    if kind not in KINDS:
        return ()
    about = item.get(kind)
    media = _text(about.get("media_id")) if isinstance(about, dict) else ""
    given = _text(about.get("file_name")) if isinstance(about, dict) else ""
    name = given.strip() or f"{kind}-{_text(item.get('msgid'))}.{KINDS[kind][1]}"
    return (Attachment(kind=KINDS[kind][0], file=media, name=name),)


def _message(
    parsed: Mapping[str, Json], template: str, id: str, said: ChatMessage, mark: str
) -> ChannelMessage | None:
    key = keys.resolve(keys.KeyScope(results=dict(said.results), webhook=True), (template,))
    if not parsed["should_process"] or key is None:
        return None
    return ChannelMessage(id=id, conversation=key, said=said, fingerprint=mark)


def _text(value: Json) -> str:
    """JSON can contain lone surrogates and NUL, which no database stores."""
    return value.encode("utf-8", "replace").decode().replace("\0", "") if isinstance(value, str) else ""
