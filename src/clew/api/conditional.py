"""Conditional requests: a client that polls with the current ETag gets a 304, and the answer is not built again."""

from collections.abc import AsyncIterator, Callable
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

# The client revalidates each time, unchanged answers are not sent again, and shared caches store nothing.
CACHING = {"Cache-Control": "private, no-cache"}

# For the description of a route that answers like this.
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Nothing has happened since the answer whose ETag was sent as If-None-Match."}
}


def is_known(request: Request, last_seq: int) -> bool:
    """Whether the client has the current answer. A log only grows, so its last seq is the version of its content."""
    known = request.headers.get("if-none-match", "")
    return any(tag.strip() in (_tag(last_seq), "*") for tag in known.split(","))


def answer(model: BaseModel, last_seq: int, *, exclude_none: bool = False) -> Response:
    body = model.model_dump_json(by_alias=True, exclude_none=exclude_none)
    return Response(body, media_type="application/json", headers=CACHING | {"ETag": _tag(last_seq)})


def stream(pieces: AsyncIterator[bytes], last_seq: int) -> Response:
    headers = CACHING | {"ETag": _tag(last_seq)}
    return StreamingResponse(pieces, media_type="application/json", headers=headers)


def not_modified(last_seq: int) -> Response:
    return Response(status_code=304, headers=CACHING | {"ETag": _tag(last_seq)})


def answer_unless_known(
    request: Request, last_seq: int, make: Callable[[], BaseModel], *, exclude_none: bool = False
) -> Response:
    if is_known(request, last_seq):
        return not_modified(last_seq)
    return answer(make(), last_seq, exclude_none=exclude_none)


def _tag(last_seq: int) -> str:
    return f'W/"{last_seq}"'
