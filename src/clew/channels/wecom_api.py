"""WeCom API: the access token, sending of messages, and fetching of customers' messages."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from clew.channels.http import HttpClient, check_status
from clew.channels.message import Button, ChatMessage, cut, split, utf8_bytes
from clew.domain.errors import Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

BASE_URL = "https://qyapi.weixin.qq.com"
MAX_BYTES = 2048
# A customer who wrote may be sent so many messages, and no more until the next one.
CUSTOMER_PARTS = 5
# An AI bot has one answer, and a longer one.
BOT_BYTES = 20_480
# Asked for anew a while before it ends, so that it does not end on the way.
MARGIN_SECONDS = 300.0

STALE_TOKEN = (40001, 40014, 42001)
STALE_SYNC = 95007
_BUSY = (-1, 6000)
_TOO_OFTEN = (45009, 45033)


class AccessToken:
    """The access token. Each process requests it once and caches it; it is valid for two hours."""

    def __init__(
        self,
        outside: HttpClient,
        base_url: str,
        corp_id: str,
        secret: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._outside = outside
        self._url = f"{base_url}/cgi-bin/gettoken"
        self._query = {"corpid": corp_id, "corpsecret": secret}
        self._monotonic = monotonic
        self._token = ""
        self._until = 0.0
        self._asking = asyncio.Lock()

    async def get(self) -> str:
        async with self._asking:  # concurrent callers that find it expired request one token
            if not self._token or self._monotonic() >= self._until:
                answer = await self._outside.ask("GET", self._url, query=self._query)
                check_status(answer)
                said = checked(answer.body)
                seconds = said.get("expires_in")
                self._token = str(said.get("access_token", ""))
                lasts = float(seconds) if isinstance(seconds, int | float) else 0.0
                self._until = self._monotonic() + max(0.0, lasts - MARGIN_SECONDS)
                if not self._token:
                    raise Permanent("WeCom gave no access token", ErrorClass.AUTH)
            return self._token

    def drop(self, token: str) -> None:
        """Drop a refused token. A newer one that another caller got meanwhile stays."""
        if token == self._token:
            self._token = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComApi:
    outside: HttpClient
    base_url: str
    access: AccessToken

    async def call(self, path: str, body: Json) -> Mapping[str, Json]:
        """The API's answer; retried once with a new token if the old one was refused."""
        token = await self.access.get()
        said = await self._call(path, token, body)
        if said.get("errcode") in STALE_TOKEN:
            self.access.drop(token)
            said = await self._call(path, await self.access.get(), body)
        return checked(said)

    async def media(self, media_id: str, *, most: int) -> bytes:
        """A file that a user sent within the last three days."""
        token = await self.access.get()
        content, refused = await self._media(token, media_id, most)
        if isinstance(refused, dict) and refused.get("errcode") in STALE_TOKEN:
            self.access.drop(token)
            content, refused = await self._media(await self.access.get(), media_id, most)
        if refused is not None:
            checked(refused)
            raise Permanent("WeCom gave no file", ErrorClass.NOT_FOUND)
        return content

    async def _media(self, token: str, media_id: str, most: int) -> tuple[bytes, Json]:
        query = {"access_token": token, "media_id": media_id}
        return await self.outside.download(f"{self.base_url}/cgi-bin/media/get", query=query, most=most)

    async def _call(self, path: str, token: str, body: Json) -> Mapping[str, Json]:
        answer = await self.outside.ask(
            "POST", f"{self.base_url}/cgi-bin/{path}", query={"access_token": token}, body=body
        )
        check_status(answer)
        return answer.body if isinstance(answer.body, dict) else {"errcode": -1}


class Refused(Permanent):
    """WeCom said no, and with which number."""

    def __init__(self, errcode: int) -> None:
        super().__init__(f"WeCom answered with errcode {errcode}", ErrorClass.VALIDATION)
        self.errcode = errcode


def checked(said: Json) -> Mapping[str, Json]:
    """Raises what an errcode means. 0 is a yes, and so is none."""
    given: Mapping[str, Json] = said if isinstance(said, dict) else {"errcode": -1}
    errcode = given.get("errcode", 0)
    if errcode == 0:
        return given
    if errcode in _TOO_OFTEN:
        raise Transient(f"WeCom answered with errcode {errcode}", ErrorClass.RATE_LIMIT)
    if errcode in _BUSY or type(errcode) is not int:
        raise Transient("WeCom is busy", ErrorClass.LLM_OVERLOAD)
    raise Refused(errcode)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plain:
    """WeCom shows no buttons in a text: people answer in words."""

    async def notice(self, said: ChatMessage) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComAppClient(_Plain):
    """To a member, from the app."""

    api: WeComApi
    agent_id: int

    def parts(self, text: str) -> list[str]:
        return split(text, MAX_BYTES, utf8_bytes)

    async def download(self, file: str, *, most: int) -> bytes:
        return await self.api.media(file, most=most)

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None:  # noqa: ARG002
        message = {"touser": to["touser"], "agentid": self.agent_id, **_text(text)}
        said = await self.api.call("message/send", message)
        if said.get("invaliduser"):
            raise Permanent("WeCom knows no such member", ErrorClass.NOT_FOUND)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComCustomerClient(_Plain):
    """To a customer, and the customers' messages."""

    api: WeComApi

    def parts(self, text: str) -> list[str]:
        parts = split(text, MAX_BYTES, utf8_bytes)
        if len(parts) > CUSTOMER_PARTS:
            parts[CUSTOMER_PARTS - 1 :] = [cut(parts[CUSTOMER_PARTS - 1] + "…", MAX_BYTES, utf8_bytes)]
        return parts

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None:  # noqa: ARG002
        message = {"touser": to["touser"], "open_kfid": to["open_kfid"], **_text(text)}
        await self.api.call("kf/send_msg", message)

    async def download(self, file: str, *, most: int) -> bytes:
        return await self.api.media(file, most=most)

    async def fetch(self, account: str, cursor: str, token: str) -> "Page":
        """One page of what customers and others wrote, after the cursor."""
        body = {"cursor": cursor, "token": token, "limit": 1000, "open_kfid": account}
        try:
            said = await self.api.call("kf/sync_msg", body)
        except Refused as exc:
            if exc.errcode != STALE_SYNC or not token:
                raise
            # It is good for ten minutes; without one the page is the same, and may be asked for less often.
            said = await self.api.call("kf/sync_msg", body | {"token": ""})
        items, after = said.get("msg_list"), said.get("next_cursor")
        return Page(
            items=items if isinstance(items, list) else [],
            cursor=after if isinstance(after, str) and after else cursor,
            has_more=said.get("has_more") == 1 and isinstance(after, str) and after not in ("", cursor),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    items: Sequence[Json] = field(default_factory=list)
    cursor: str
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WeComBotClient(_Plain):
    """To the user who wrote to an AI bot: once, at a URL that came with the message and is valid for an hour."""

    outside: HttpClient
    base_url: str

    def parts(self, text: str) -> list[str]:
        return [cut(text.strip(), BOT_BYTES, utf8_bytes)] if text.strip() else []

    async def download(self, file: str, *, most: int) -> bytes:  # noqa: ARG002 - a method of the protocol
        raise Permanent("files sent to an AI bot cannot be read", ErrorClass.VALIDATION)

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None:  # noqa: ARG002
        url = to["response_url"]
        if _origin(url) != _origin(self.base_url):
            raise Permanent(
                "the message came without an address of WeCom to answer at", ErrorClass.VALIDATION
            )
        answer = await self.outside.ask(
            "POST", url, body={"msgtype": "markdown", "markdown": {"content": text}}
        )
        check_status(answer)
        if answer.body is not None:
            checked(answer.body)


def _origin(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.scheme, parts.netloc


def _text(text: str) -> dict[str, Json]:
    return {"msgtype": "text", "text": {"content": text}}
