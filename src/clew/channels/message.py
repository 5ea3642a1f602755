"""Chat messages and clients: incoming messages and outgoing replies, the same for every channel."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Protocol

from clew.domain.thread import Json
from clew.texts.catalog import DEFAULT

# Files that extraction reads, whatever graph they are for. Others are for graphs that know what to do with them.
READABLE = ("document", "photo")
SPOKEN = ("voice", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Something sent with a message, or instead of one. `file` is the provider's name of it, empty if it is no file."""

    kind: str
    file: str = ""
    name: str = ""
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """A chat message as it is queued in the inbox.

    `to` is where an answer goes, for the channel alone to read; `results` is what the graph is given beside the text.
    """

    text: str
    user: str
    to: Mapping[str, str]
    results: Mapping[str, Json]
    # A button that was pressed: what it stands for is the text. And the channel's own name of that moment.
    is_press: bool = False
    press_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    language: str = DEFAULT

    def as_json(self) -> Json:
        return asdict(self)


def said_from(payload: Json) -> ChatMessage:
    files = tuple(Attachment(**one) for one in payload.get("attachments", ()))
    return ChatMessage(**{**payload, "attachments": files})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMessage:
    """Something a channel delivered: its own id of it, and the key of the conversation it belongs to."""

    id: str
    conversation: str
    said: ChatMessage
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Button:
    label: str
    data: str


class ChatClient(Protocol):
    """Client of a provider's API. Every method raises Transient or Permanent, with no secret in the message."""

    def parts(self, text: str) -> list[str]:
        """The text in pieces the provider takes, none of them blank."""
        ...

    async def send(self, to: Mapping[str, str], text: str, buttons: tuple[Button, ...] = ()) -> None: ...

    async def notice(self, said: ChatMessage) -> None:
        """Acknowledge a pressed button."""
        ...

    async def download(self, file: str, *, most: int) -> bytes:
        """A file that came with a message. Raises TooLong for more than `most` bytes."""
        ...


def fingerprint(content: Json) -> str:
    """The same for the same content, however it was written."""
    return sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def utf16_units(text: str) -> int:
    return len(text) + sum(letter > "\uffff" for letter in text)


def utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def split(text: str, limit: int, size: Callable[[str], int]) -> list[str]:
    """The text in pieces of at most `limit`, cut where a paragraph, a line or a word ends if one does in the last half."""
    parts = []
    rest = text.strip()
    while rest:
        head = _fitting(rest, limit, size)
        if len(head) < len(rest):
            ends = (head.rfind(gap) for gap in ("\n\n", "\n", " "))
            head = head[: next((end for end in ends if end > len(head) // 2), len(head))]
        parts.append(head.rstrip())
        rest = rest[len(head) :].lstrip()
    return parts


def cut(text: str, limit: int, size: Callable[[str], int]) -> str:
    """The text, or as much of its beginning as fits with a mark that more was there."""
    return text if size(text) <= limit else _fitting(text, limit - size("…"), size) + "…"


def _fitting(text: str, limit: int, size: Callable[[str], int]) -> str:
    """The longest beginning that fits."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if size(text[:middle]) <= limit else (low, middle - 1)
    return text[:low]
