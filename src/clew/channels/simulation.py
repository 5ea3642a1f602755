"""Simulated provider inside this process: delivers messages like Telegram or WeCom, and records what Clew sends."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from clew.channels import telegram
from clew.domain.thread import Json

USER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedMessage:
    """One message as the chat would show it."""

    text: str
    buttons: tuple[str, ...] = ()


@dataclass(slots=True)
class SimulatedProvider(httpx.AsyncBaseTransport):
    """Answers every outgoing request, so that none leaves the process."""

    shown: list[SimulatedMessage] = field(default_factory=list)
    customers: list[Json] = field(default_factory=list)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        content = await request.aread()
        return httpx.Response(200, json=self._answer(request.url.path, json.loads(content or b"{}")))

    def _answer(self, path: str, body: Json) -> Json:
        match path.rpartition("/")[2]:
            case "gettoken":
                return {"errcode": 0, "access_token": "simulated", "expires_in": 7200}
            case "sync_msg":
                begin = int(body["cursor"] or 0)
                return {
                    "errcode": 0,
                    "msg_list": self.customers[begin:],
                    "next_cursor": str(len(self.customers)),
                    "has_more": 0,
                }
            case "sendMessage":
                rows = body.get("reply_markup", {}).get("inline_keyboard", [])
                buttons = tuple(button["text"] for row in rows for button in row)
                self.shown.append(SimulatedMessage(text=body["text"], buttons=buttons))
            case "send" | "send_msg":
                self.shown.append(SimulatedMessage(text=body["text"]["content"]))
            case "response_url":
                self.shown.append(SimulatedMessage(text=body["markdown"]["content"]))
            case _:
                pass
        return {"ok": True, "errcode": 0, "result": {}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The provider's request and its path."""

    path: str
    content: bytes
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


def telegram_webhook(name: str, secret: str, number: int, text: str) -> Webhook:
    person = {"id": USER, "is_bot": False, "first_name": "Simulated"}
    message = {
        "message_id": number,
        "date": 0,
        "from": person,
        "chat": {"id": USER, "type": "private"},
        "text": text,
    }
    return Webhook(
        path=f"/channels/telegram/{name}",
        content=json.dumps({"update_id": number, "message": message}).encode(),
        headers={telegram.SECRET: secret, "content-type": "application/json"},
    )


def wecom_webhook(
    name: str,
    kind: str,
    number: int,
    text: str,
    *,
    provider: SimulatedProvider,
    base_url: str,
    account: str,
    seconds: int,
    seal: Callable[[bytes, bytes], str],
    sign: Callable[[str, str, str], str],
) -> Webhook:
    """Sealed and signed as the app's, customer service's or AI bot's own callback would be."""
    if kind == "ai_bot":
        given = {
            "msgid": str(number),
            "chattype": "single",
            "from": {"userid": "simulated"},
            "msgtype": "text",
            "text": {"content": text},
            "response_url": f"{base_url}/response_url",
        }
        content = json.dumps(given)
    elif kind == "customer_service":
        provider.customers.append(
            {
                "msgid": str(number),
                "open_kfid": account,
                "external_userid": "simulated",
                "origin": 3,
                "msgtype": "text",
                "text": {"content": text},
            }
        )
        content = _xml(
            MsgType="event",
            Event="kf_msg_or_event",
            OpenKfId=account,
            Token=f"token-{number}",
            CreateTime=str(seconds),
        )
    else:
        content = _xml(FromUserName="simulated", MsgType="text", Content=text, MsgId=str(number))
    sealed = seal(content.encode(), os.urandom(16))
    timestamp, nonce = str(seconds), f"nonce-{number}"
    body = json.dumps({"encrypt": sealed}) if kind == "ai_bot" else _xml(Encrypt=sealed)
    query = {"timestamp": timestamp, "nonce": nonce, "msg_signature": sign(timestamp, nonce, sealed)}
    return Webhook(path=f"/channels/wecom/{name}", content=body.encode(), query=query)


def _xml(**fields: str) -> str:
    quoted = (f"<{name}><![CDATA[{text.replace(']]>', ']] >')}]]></{name}>" for name, text in fields.items())
    return f"<xml>{''.join(quoted)}</xml>"
