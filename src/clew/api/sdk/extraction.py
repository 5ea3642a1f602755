"""`extract` of a thread search: single values out of threads, by paths such as `values.messages[-1].content`."""

import re
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from clew.domain.thread import Json

MOST = 10
ROOTS = ("values", "metadata", "config", "interrupts")

_SEPARATOR = re.compile(r"[.\[]")
_INDEX = re.compile(r"-?[0-9]{1,9}\]", re.ASCII)


def _rooted(path: str) -> str:
    if _SEPARATOR.split(path, maxsplit=1)[0] not in ROOTS:
        raise ValueError(f"a path begins with one of {', '.join(ROOTS)}")
    return path


Path: TypeAlias = Annotated[str, Field(max_length=1000), AfterValidator(_rooted)]
Paths: TypeAlias = Annotated[dict[Annotated[str, Field(max_length=64)], Path], Field(max_length=MOST)]


def extracted(thread: Json, path: str) -> Json:
    """What the thread has there; None if nothing."""
    found = thread
    for part in filter(None, _SEPARATOR.split(path)):
        match found:
            case dict() if not part.endswith("]"):
                found = found.get(part)
            case list() if _INDEX.fullmatch(part) and -len(found) <= int(part[:-1]) < len(found):
                found = found[int(part[:-1])]
            case _:
                return None
    return found
