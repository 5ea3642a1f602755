"""Telegram and WeCom as far as bots meet them: an HTTP server on loopback that notes what it is sent."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.processes import until


@dataclass(frozen=True, slots=True)
class Sent:
    """One request to the provider."""

    path: str
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict, compare=False)  # in lower case
    raw: bytes = field(default=b"", compare=False)

    @property
    def method(self) -> str:
        """The last word of its path: what was asked for."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Reply:
    body: Any = field(default_factory=lambda: {"ok": True})  # bytes are a file, anything else is JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Provider:
    url: str
    answer: Callable[[Sent], Reply]
    requests: list[Sent] = field(default_factory=list)

    def sent(self, method: str) -> list[Sent]:
        return [one for one in list(self.requests) if one.method == method]

    def texts(self) -> list[str]:
        """What was said in chats, in order."""
        said = ("sendMessage", "send", "send_msg")
        return [text_of(one.body) for one in list(self.requests) if one.method in said]

    def wait_for(self, count: int) -> list[str]:
        """The texts, once there are so many."""
        until(lambda: len(self.texts()) >= count)
        return self.texts()


def text_of(body: Any) -> str:
    text = body["text"]
    return str(text["content"] if isinstance(text, dict) else text)


def says_yes(sent: Sent) -> Reply:
    """As both providers do when all is well."""
    if sent.method == "gettoken":
        return Reply({"errcode": 0, "access_token": "an-access-token", "expires_in": 7200})
    return Reply({"ok": True, "errcode": 0, "result": {}})


@contextmanager
def provider(answer: Callable[[Sent], Reply] = says_yes) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("content-length", "0"))
            raw = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            sent = Sent(
                parts.path, dict(parse_qsl(parts.query)), json.loads(raw) if raw else None, headers, raw
            )
            known.requests.append(sent)
            reply = known.answer(sent)
            is_file = isinstance(reply.body, bytes)
            content = reply.body if is_file else json.dumps(reply.body).encode()
            kind = {"content-type": "application/octet-stream" if is_file else "application/json"}
            self.send_response(reply.status)
            for name, value in {**kind, **reply.headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(BrokenPipeError):  # the client has hung up
                self.wfile.write(content)

        do_GET = do_POST = _handle  # noqa: N815 - names of the library

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    known = Provider(f"http://127.0.0.1:{server.server_address[1]}", answer)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


SECRET = "a-secret-of-telegram"
TOKEN = "a-bot-token"
HEADER = {"X-Telegram-Bot-Api-Secret-Token": SECRET}


def update(number: int, text: str, *, chat: int = 42, **message: Any) -> dict[str, Any]:
    """A private message as Telegram delivers it."""
    return {
        "update_id": number,
        "message": {
            "message_id": number + 1000,
            "date": 1_700_000_000,
            "from": {"id": chat, "is_bot": False, "first_name": "Ann", "username": "ann"},
            "chat": {"id": chat, "type": "private", "first_name": "Ann"},
            "text": text,
            **message,
        },
    }


def press(number: int, data: str, *, chat: int = 42) -> dict[str, Any]:
    """A button that was pressed."""
    return {
        "update_id": number,
        "callback_query": {
            "id": f"press-{number}",
            "from": {"id": chat, "is_bot": False, "first_name": "Ann"},
            "message": {"message_id": 7, "chat": {"id": chat, "type": "private"}},
            "data": data,
        },
    }
