"""Telegram: its updates read, its secret checked, its way back."""

import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clew.channels.http import Answer, Outside, check_status
from clew.channels.message import Button, Message, Said, fingerprint, split, utf16_units
from clew.domain import keys
from clew.domain.errors import Invalid, Transient, Unauthenticated
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

SECRET = "x-telegram-bot-api-secret-token"  # noqa: S105 - the name of a header
BASE_URL = "https://api.telegram.org"
MAX_UNITS = 4096
# What setWebhook takes; another one would never come back to us.
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


def verify(shown: str | None, secret: str) -> None:
    """Raises Unauthenticated. In constant time, so that nobody can feel the way to the secret."""
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
    parsed: dict[str, Json] = {
        "update_type": update_type,
        "chat_id": _id(chat.get("id")),
        "chat_type": _text(chat.get("type")),
        "username": _text(sender.get("username")),
        "user_id": _id(sender.get("id")),
        "text": _text(text),
        "message_id": _id(message.get("message_id")),
    }
    parsed["should_process"] = (
        update_type in update_types
        and update_type in (*MESSAGES, PRESS)
        and parsed["chat_type"] in chat_types
        and bool(parsed["chat_id"])
        and bool(parsed["text"].strip())
    )
    return parsed


def read(update: Json, *, update_types: Collection[str], chat_types: Collection[str]) -> Message | None:
    """The message in an update, None if it is not one to answer. Raises Invalid for what is no update."""
    update_id = _id(_dict(update).get("update_id"))
    if not update_id:
        raise Invalid("an update of Telegram has an `update_id`", field="update_id")
    parsed = parse(update, update_types=update_types, chat_types=chat_types)
    results = {"telegram_events_parser": parsed}
    key = keys.resolve(keys.Scope(results=results, webhook=True), (KEY,))
    if not parsed["should_process"] or key is None:
        return None
    is_press = parsed["update_type"] == PRESS
    said = Said(
        text=parsed["text"],
        user=parsed["user_id"],
        to={"chat_id": parsed["chat_id"]},
        results=results,
        is_press=is_press,
        press_id=_id(_dict(update[PRESS]).get("id")) if is_press else "",
    )
    return Message(id=update_id, conversation=key, said=said, fingerprint=fingerprint(update))


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramWire:
    outside: Outside
    base_url: str
    token: str

    def parts(self, text: str) -> list[str]:
        return split(text, MAX_UNITS, utf16_units)

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None:
        body: dict[str, Json] = {"chat_id": to["chat_id"], "text": text}
        if buttons:
            row = [{"text": button.label, "callback_data": button.data} for button in buttons]
            body["reply_markup"] = {"inline_keyboard": [row]}
        await self._call("sendMessage", body)

    async def notice(self, said: Said) -> None:
        if said.press_id:
            await self._call("answerCallbackQuery", {"callback_query_id": said.press_id})

    async def _call(self, method: str, body: Json) -> None:
        answer = await self.outside.ask("POST", f"{self.base_url}/bot{self.token}/{method}", body=body)
        if answer.status == 429:
            raise Transient("Telegram asks to slow down", ErrorClass.RATE_LIMIT, _wait(answer))
        check_status(answer)


def _wait(answer: Answer) -> float | None:
    """Telegram says it in the body, whoever stands before it in a header."""
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
