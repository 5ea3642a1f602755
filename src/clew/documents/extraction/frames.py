"""Frames between the processes for one file: its name and bytes, and the items the child found in it."""

import json
import struct
from dataclasses import dataclass

from clew.domain.documents import clean_path, clean_text, is_text_type
from clew.domain.records import ContentItem
from clew.domain.thread import Json

NAME_LENGTH = struct.Struct("!H")  # before the name of the file, which comes before its bytes

LENGTHS = struct.Struct("!II")  # of a frame's head, which is JSON, and of the data after it
MAX_HEAD = 64 * 1024

_MAX_SUMMARY = 2000
_MAX_WARNING = 500
_WORD_CHARACTERS = 40
_BINARY = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


@dataclass(frozen=True, slots=True)
class Progress:
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Warned:
    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The child's last frame. If it is missing, the child died early."""


Frame = ContentItem | Warned | Progress | End


def pack(frame: Frame) -> bytes:
    head: Json
    data = b""
    match frame:
        case ContentItem():
            data = frame.data.encode()
            head = {
                "item": [
                    frame.name,
                    frame.ext,
                    frame.content_type,
                    frame.metadata,
                    frame.summary[:_MAX_SUMMARY],
                ]
            }
        case Warned():
            head = {"warning": frame.text[:_MAX_WARNING]}
        case Progress():
            head = {"progress": [frame.done, frame.total]}
        case End():
            head = {"end": True}
    text = json.dumps(head).encode()
    return LENGTHS.pack(len(text), len(data)) + text + data


def unpack(head: bytes, data: str, *, number: int) -> Frame:
    """Raises ValueError for a malformed frame: the file may have taken over the child."""
    match json.loads(head):
        case {"item": [str(name), str(ext), str(media), dict(metadata), str(summary)]}:
            if not (is_text_type(media) or media in _BINARY) or len(ext) > _WORD_CHARACTERS:
                raise ValueError("an item of an unknown type")
            return ContentItem(
                sequence_nr=number,
                name=clean_path(name),
                ext=clean_text(ext),
                content_type=media,
                data=data,
                metadata=_clean(metadata),
                summary=clean_text(summary),
            )
        case {"warning": str(text)}:
            return Warned(clean_text(text[:_MAX_WARNING]))
        case {"progress": [int(done), int(total)]}:
            return Progress(done, total)
        case {"end": True}:
            return End()
        case _:
            raise ValueError("not a frame")


def _clean(value: Json) -> Json:
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(str(key)): _clean(inner) for key, inner in value.items()}
        case list():
            return [_clean(inner) for inner in value]
        case _:
            return value
