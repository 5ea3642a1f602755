"""Telegram: parsing of updates, the secret check, and the API client."""

import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clew.channels.http import HttpClient, HttpReply, check_status
from clew.channels.message import (
    Attachment,
    Button,
    ChannelMessage,
    ChatMessage,
    fingerprint,
    split,
    utf16_units,
)
from clew.channels.phrases import language_of
from clew.domain.errors import Invalid, Permanent, Transient, Unauthenticated
from clew.domain.items import storable
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json
from clew.history import keys

SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
BASE_URL = "https://api.telegram.org"
MAX_UNITS = 4096
MAX_UPDATES = 100
# So much longer than a long poll lasts its answer may take.
SLACK_SECONDS = 15
# What setWebhook accepts; Telegram would not send any other secret back.
SECRET_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,256}")

# Those that have a chat and may have a text come first; all are what Telegram may send.
MESSAGES = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_message",
    "edited_business_message",
)
PRESS = "callback_query"
UPDATE_TYPES = (
    *MESSAGES,
    PRESS,
    "business_connection",
    "deleted_business_messages",
    "message_reaction",
    "message_reaction_count",
    "inline_query",
    "chosen_inline_result",
    "shipping_query",
    "pre_checkout_query",
    "purchased_paid_media",
    "poll",
    "poll_answer",
    "my_chat_member",
    "chat_member",
    "chat_join_request",
    "chat_boost",
    "removed_chat_boost",
)
CHAT_TYPES = ("private", "group", "supergroup", "channel")
KEY = "telegram:{{results.telegram_events_parser.chat_id}}"
# Each topic of a forum is a conversation of its own.
TOPIC = "telegram:{{results.telegram_events_parser.chat_id}}:{{results.telegram_events_parser.topic_id}}"

# What a message may bring instead of a text. Anything else without a text is a notice of Telegram's own.
FILES = ("document", "voice", "audio", "video", "video_note", "animation", "sticker")
OTHERS = ("location", "venue", "contact", "poll", "dice", "game", "story", "paid_media")
ENDINGS = {
    "photo": "jpg",
    "voice": "ogg",
    "audio": "mp3",
    "video": "mp4",
    "video_note": "mp4",
    "animation": "mp4",
}
# Telegram hands out no larger ones.
MAX_FILE = 20 * 2**20
_FILE_PATH = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")


def verify(shown: str | None, secret: str) -> None:
    """Raises Unauthenticated. Compares in constant time, so that timing does not reveal the secret."""
    if shown is None or not hmac.compare_digest(shown.encode(), secret.encode()):
        raise Unauthenticated("this needs the secret token of the bot")


def parse(update: Json, *, update_types: Collection[str], chat_types: Collection[str]) -> dict[str, Json]:
    """What an update says, as a graph finds it under `results.telegram_events_parser`. Ids are texts."""
    given = _dict(update)
    update_type = next((name for name in UPDATE_TYPES if name in given), "")
    content = _dict(given.get(update_type))
    message = _dict(content.get("message")) if update_type == PRESS else content
    text = content.get("data") if update_type == PRESS else content.get("text", content.get("caption"))
    chat, sender = _dict(message.get("chat")), _dict(content.get("from"))
    topic = _id(message.get("message_thread_id")) if message.get("is_topic_message") is True else ""
    parsed: dict[str, Json] = {
        "update_type": update_type,
        "chat_id": _id(chat.get("id")),
        "chat_type": _text(chat.get("type")),
        "username": _text(sender.get("username")),
        "user_id": _id(sender.get("id")),
        "text": _text(text),
        "message_id": _id(message.get("message_id")),
        **({"topic_id": topic} if topic else {}),
    }
    brings = update_type in MESSAGES and bool(attachments(content))
    parsed["should_process"] = (
        update_type in update_types
        and update_type in (*MESSAGES, PRESS)
        and parsed["chat_type"] in chat_types
        and bool(parsed["chat_id"])
        and (bool(parsed["text"].strip()) or brings)
    )
    return parsed


def attachments(message: Mapping[str, Json]) -> tuple[Attachment, ...]:
    """What a message brings besides its text. An animation is listed as a document too; it is one file."""
    sizes = message.get("photo")
    if isinstance(sizes, list) and sizes:
        fits = [size for size in map(_dict, sizes) if _size(size) <= MAX_FILE] or [_dict(sizes[0])]
        return (_attachment("photo", max(fits, key=_size), message),)
    kind = next((name for name in ("animation", *FILES) if name in message), "")
    if kind:
        return (_attachment(kind, _dict(message[kind]), message),)
    return tuple(Attachment(kind=name) for name in OTHERS if name in message)[:1]


def _attachment(kind: str, file: Mapping[str, Json], message: Mapping[str, Json]) -> Attachment:
    usual = f"{kind}-{_id(message.get('message_id')) or 0}.{ENDINGS.get(kind, 'bin')}"
    name = storable(_text(file.get("file_name"))).strip() or usual
    return Attachment(kind=kind, file=_text(file.get("file_id")), name=name, size=_size(file))


def _size(file: Mapping[str, Json]) -> int:
    size = file.get("file_size")
    return size if type(size) is int and size >= 0 else 0


def read(
    update: Json, *, update_types: Collection[str], chat_types: Collection[str]
) -> ChannelMessage | None:
    """The message in an update, None if it is not one to answer. Raises Invalid for what is no update."""
    update_id = _id(_dict(update).get("update_id"))
    if not update_id:
        raise Invalid("an update of Telegram has an `update_id`", field="update_id")
    parsed = parse(update, update_types=update_types, chat_types=chat_types)
    results = {"telegram_events_parser": parsed}
    key = keys.resolve(keys.KeyScope(results=results, webhook=True), (TOPIC, KEY))
    if not parsed["should_process"] or key is None:
        return None
    is_press = parsed["update_type"] == PRESS
    content = _dict(update[parsed["update_type"]])
    topic = parsed.get("topic_id")
    said = ChatMessage(
        text=parsed["text"],
        user=parsed["user_id"],
        to={"chat_id": parsed["chat_id"], **({"message_thread_id": topic} if topic else {})},
        results=results,
        attachments=() if is_press else attachments(content),
        language=language_of(_text(_dict(content.get("from")).get("language_code"))),
        is_press=is_press,
        press_id=_id(_dict(update[PRESS]).get("id")) if is_press else "",
    )
    return ChannelMessage(id=update_id, conversation=key, said=said, fingerprint=fingerprint(update))


class UpdatesTaken(Permanent):
    """Telegram delivers the bot's updates to a webhook, or to another process that polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramClient:
    outside: HttpClient
    base_url: str
    token: str

    def parts(self, text: str) -> list[str]:
        return split(text, MAX_UNITS, utf16_units)

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None:
        body: dict[str, Json] = {"chat_id": to["chat_id"], "text": text}
        if "message_thread_id" in to:
            body["message_thread_id"] = int(to["message_thread_id"])
        if buttons:
            row = [{"text": button.label, "callback_data": button.data} for button in buttons]
            body["reply_markup"] = {"inline_keyboard": [row]}
        await self._call("sendMessage", body)

    async def notice(self, said: ChatMessage) -> None:
        if said.press_id:
            await self._call("answerCallbackQuery", {"callback_query_id": said.press_id})

    async def download(self, file: str, *, most: int) -> bytes:
        result = _dict((await self._call("getFile", {"file_id": file})).get("result"))
        path = _text(result.get("file_path"))
        if not _FILE_PATH.fullmatch(path):
            raise Permanent("Telegram gave no path to the file", ErrorClass.NOT_FOUND)
        content, refused = await self.outside.download(
            f"{self.base_url}/file/bot{self.token}/{path}", most=most
        )
        if refused is not None:
            raise Permanent("Telegram gave no file", ErrorClass.NOT_FOUND)
        return content

    async def updates(self, offset: int, *, types: Collection[str], seconds: int) -> list[Json]:
        """The updates from this one on, oldest first; Telegram drops earlier ones. Waits so long for the first."""
        body = {"offset": offset, "timeout": seconds, "limit": MAX_UPDATES, "allowed_updates": list(types)}
        said = await self._call("getUpdates", body, seconds=seconds + SLACK_SECONDS, explain=True)
        found = said.get("result")
        return found if isinstance(found, list) else []

    async def set_webhook(self, url: str, secret: str, *, types: Collection[str]) -> None:
        """Make Telegram deliver updates to this URL."""
        await self._call(
            "setWebhook",
            {"url": url, "secret_token": secret, "allowed_updates": list(types)},
            explain=True,
        )

    async def remove_webhook(self) -> None:
        await self._call("deleteWebhook", {}, explain=True)

    async def _call(
        self, method: str, body: Json, *, seconds: float | None = None, explain: bool = False
    ) -> dict[str, Json]:
        """With `explain` an error quotes Telegram's description: only for calls without chat content."""
        answer = await self.outside.ask(
            "POST", f"{self.base_url}/bot{self.token}/{method}", body=body, seconds=seconds
        )
        if answer.status == 429:
            raise Transient("Telegram asks to slow down", ErrorClass.RATE_LIMIT, _wait(answer))
        if answer.status == 409:
            raise UpdatesTaken("a webhook is set, or another process polls", ErrorClass.VALIDATION)
        if explain and answer.status in (400, 401, 404):
            why = _text(_dict(answer.body).get("description")) or "no reason given"
            raise Permanent(f"Telegram answered {answer.status}: {why}", ErrorClass.VALIDATION)
        check_status(answer)
        return _dict(answer.body)


def _wait(answer: HttpReply) -> float | None:
    """The retry delay: Telegram sends it in the body, a proxy before it in a header."""
    said = _dict(_dict(answer.body).get("parameters")).get("retry_after")
    return float(said) if type(said) is int and 0 <= said < 10**9 else answer.retry_after


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _id(value: Json) -> str:
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else ""


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
