"""Messages between processes: JSON whose long texts and bytes are sent beside it, unencoded.

JSON of tens of megabytes takes seconds to write, and nothing else runs meanwhile; bytes are copied.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

LENGTH = struct.Struct("!Q")
_LONG = 1024


def packed(value: Any) -> Iterator[bytes]:
    """A message in pieces. `value` is JSON, and may hold bytes."""
    parts: list[bytes] = []
    plain = _apart(value, parts)
    head = json.dumps([plain, [len(part) for part in parts]]).encode()
    yield LENGTH.pack(len(head))
    yield head
    yield from parts


def sizes(head: bytes) -> list[int]:
    """How long the parts are that come after this head. Raises ValueError for what is no head."""
    found = json.loads(head)
    if not isinstance(found, list) or len(found) != 2 or not isinstance(found[1], list):
        raise ValueError("not a message")
    if not all(type(size) is int and size >= 0 for size in found[1]):
        raise ValueError("not a message")
    return list(found[1])


def unpacked(head: bytes, parts: Sequence[bytes]) -> Any:
    """The value again. Raises ValueError."""
    return _together(json.loads(head)[0], parts)


def _apart(value: Any, parts: list[bytes]) -> Any:
    match value:
        case bytes():
            parts.append(value)
            return {"": ["bytes", len(parts) - 1]}
        case str() if len(value) > _LONG:
            parts.append(value.encode(errors="surrogatepass"))
            return {"": ["text", len(parts) - 1]}
        case dict():
            return {key: _apart(inner, parts) for key, inner in value.items()}
        case list() | tuple():
            return [_apart(inner, parts) for inner in value]
        case _:
            return value


def _together(value: Any, parts: Sequence[bytes]) -> Any:
    match value:
        case {"": ["bytes", int(number)]} if 0 <= number < len(parts):
            return parts[number]
        case {"": ["text", int(number)]} if 0 <= number < len(parts):
            return parts[number].decode(errors="surrogatepass")
        case dict():
            return {key: _together(inner, parts) for key, inner in value.items()}
        case list():
            return [_together(inner, parts) for inner in value]
        case _:
            return value
