"""JSON bodies: bounded in depth and size, with texts that every database can store."""

import json
import math
import re
from typing import Any, NoReturn

from clew.domain.documents import clean_json
from clew.domain.errors import Invalid

# The key of the parsed body in the scope of its request.
JSON = "clew.json"

MAX_DEPTH = 64
MAX_VALUES = 100_000

# Only an escape can bring a NUL or half a surrogate pair into valid UTF-8.
_SUSPICIOUS = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_INT64 = range(-(2**63), 2**63)


def check_json(body: bytes) -> Any:
    """The parsed body, with U+FFFD for characters no database can store: a NUL, or half of a surrogate pair.

    Raises Invalid, with the field `body`. An empty body is none.
    """
    return storable_json(body)[0]


def storable_json(body: bytes) -> tuple[Any, bytes]:
    """The same, and the body with the replacements."""
    if not body:
        return None, body
    try:
        value = json.loads(
            body.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_not_json, parse_float=_finite
        )
    except UnicodeDecodeError:
        raise _wrong("not UTF-8") from None
    except RecursionError:
        raise _wrong(f"deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        raise _wrong("not JSON") from None
    _check_values(value)
    if _SUSPICIOUS.search(body) is None:
        return value, body
    # Text that comes out of PDFs is known to hold such characters.
    cleaned = clean_json(value)
    if cleaned == value:
        return value, body
    if _names(cleaned) < _names(value):
        raise _wrong("the same key stands twice in one object")
    return cleaned, json.dumps(cleaned).encode()


def _names(value: Any) -> int:
    """How many there are in all objects."""
    match value:
        case dict():
            return len(value) + sum(map(_names, value.values()))
        case list():
            return sum(map(_names, value))
        case _:
            return 0


def _check_values(value: Any) -> None:
    """Level by level, so that neither depth nor width can cost more than their limits."""
    level: list[Any] = [value]
    seen = depth = 0
    while level:
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is dict:
                below += item.values()
            elif kind is list:
                below += item
            elif kind is int and item not in _INT64:
                raise _wrong("a number does not fit into 64 bits")
            if depth == MAX_DEPTH and kind in (dict, list):
                raise _wrong(f"deeper than {MAX_DEPTH} levels")
        seen += len(below)
        if seen > MAX_VALUES:
            raise _wrong(f"more than {MAX_VALUES} values")
        level = below
        depth += 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise _wrong("the same key stands twice in one object")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _wrong("a number is too large")
    return value


def _not_json(constant: str) -> NoReturn:
    raise _wrong(f"{constant} is not JSON")


def _wrong(what: str) -> Invalid:
    return Invalid(f"the body is not acceptable: {what}", field="body")
