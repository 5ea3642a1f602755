"""Errors as HTTP answers: {"error": {"code", "message", "field"?}}, or as the API that was called words them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, TypeAlias

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from clew.api.schemas import ErrorOut
from clew.domain.errors import (
    AlreadyDone,
    AtCapacity,
    BudgetSpent,
    ClewError,
    ConfigError,
    Conflict,
    Corrupt,
    Drained,
    Duplicate,
    Forbidden,
    Invalid,
    InvalidState,
    NotFound,
    Permanent,
    QuotaExceeded,
    SchemaMismatch,
    StorageFull,
    Transient,
    Unauthenticated,
    Unavailable,
)


class MethodNotAllowed(ClewError):
    """The route does not take this method."""

    code = "METHOD_NOT_ALLOWED"

    def __init__(self, allowed: str) -> None:
        super().__init__()
        self.allowed = allowed


class TooSlow(ClewError):
    """The body did not arrive in time."""

    code = "REQUEST_TIMEOUT"


class TooLarge(ClewError):
    """The body is larger than allowed."""

    code = "TOO_LARGE"


class TooMany(Unavailable):
    """One caller asks for more than it may have."""

    code = "TOO_MANY"

    def __init__(self, message: str | None = None, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class TooManyBodies(TooMany):
    """Other requests' bodies take the memory there is for them."""


class SlowHandler(Unavailable):
    """A handler of the project did not answer in time. The database is not the reason."""


class RefusedCaller(Unauthenticated):
    """The project's authentication handler refused the caller."""

    def __init__(self, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = 401
        self.headers = dict(headers or {})


class RefusedRequest(Forbidden):
    """A handler of the project refused the request, with a status of its own."""

    def __init__(self, message: str, *, status: int = 403, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class OutOfRange(Invalid):
    """A number is smaller or larger than allowed."""

    code = "OUT_OF_RANGE"


class Internal(ClewError):
    """Something went wrong on our side."""

    code = "INTERNAL"


STATUS: Mapping[type[ClewError], int] = {
    Invalid: 400,
    SchemaMismatch: 400,
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    MethodNotAllowed: 405,
    TooSlow: 408,
    InvalidState: 409,
    Conflict: 409,
    Duplicate: 409,
    TooLarge: 413,
    OutOfRange: 422,
    TooMany: 429,
    AtCapacity: 429,
    Internal: 500,
    Corrupt: 500,
    ConfigError: 500,
    Permanent: 502,
    Transient: 503,
    Drained: 503,
    Unavailable: 503,
    StorageFull: 507,
}

Refusal: TypeAlias = ClewError | RequestValidationError | WebSocketRequestValidationError | HTTPException

# A guess: when one of the other runs ends is unknown.
CROWDED_SECONDS = 10

# Under this key a request's scope says which refusal it met, for the log and the counters.
CODE = "clew.code"
# Under this key: how the API that was called words its errors.
WORDING = "clew.wording"

# What the framework itself refuses, in our words. Anything else it says is a bad request.
_FRAMEWORK: Mapping[int, str] = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "TOO_LARGE"}

# Messages in which the validator names Python types; the client sent JSON.
_PLAINLY: Mapping[str, str] = {
    "model_attributes_type": "expected a JSON object",
    "tuple_type": "Input should be a valid list",
}


def error_body(code: str, message: str, field: str | None = None) -> dict[str, Any]:
    error = {"code": code, "message": message}
    return {"error": error if field is None else error | {"field": field}}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # by identity, so that it has a hash
class Wording:
    """How one API words its errors: the status of each, the body, and that body's schema for the description."""

    statuses: Mapping[type[ClewError], int]
    body: Callable[[str, str, str | None], dict[str, Any]]
    model: type[BaseModel]

    def status_of(self, error: type[ClewError]) -> int:
        return next(self.statuses[base] for base in error.__mro__ if base in self.statuses)

    def response(self, exc: ClewError) -> Response:
        if isinstance(exc, AlreadyDone):
            return JSONResponse(exc.answer)
        body = self.body(exc.code, str(exc), exc.field if isinstance(exc, Invalid) else None)
        status = self.status_of(type(exc))
        if isinstance(exc, RefusedCaller | RefusedRequest):
            status = exc.status
        return JSONResponse(body, status, _headers(exc))


OURS = Wording(statuses=STATUS, body=error_body, model=ErrorOut)
status_of = OURS.status_of
error_response = OURS.response


async def refuse(scope: Scope, receive: Receive, send: Send, exc: ClewError) -> None:
    """Answer a request or a WebSocket handshake from a middleware."""
    scope[CODE] = exc.code
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await _wording(scope).response(exc)(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": exc.code})


def _wording(scope: Scope) -> Wording:
    """Of the API that was called; Clew's own while the request is not matched to one."""
    wording: Wording = scope.get(WORDING, OURS)
    return wording


async def answer_error(scope: Scope, receive: Receive, send: Send, exc: Refusal) -> None:
    """Answer a request that was refused by Clew or by the framework."""
    match exc:
        case ClewError():
            await refuse(scope, receive, send, exc)
        case HTTPException():
            code = scope[CODE] = _FRAMEWORK.get(exc.status_code, "INVALID")
            answer = JSONResponse(_wording(scope).body(code, exc.detail, None), exc.status_code, exc.headers)
            await answer(scope, receive, send)
        case _:
            await refuse(scope, receive, send, invalid_of(exc))


def invalid_of(exc: RequestValidationError | WebSocketRequestValidationError) -> Invalid:
    """The first thing that is wrong, and where. The validator's message does not repeat the value."""
    first = exc.errors()[0]
    source, *inside = (str(part) for part in first["loc"])
    message = _PLAINLY.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "model_attributes_type" and not inside:
        # A body of another type is not parsed; the validator reports it as JSON of the wrong kind.
        message += ", sent with Content-Type: application/json"
    if first["type"] == "unknown_key":
        inside.append(first["ctx"]["field"])
    return Invalid(message, field=".".join(inside) or source)


def _headers(exc: ClewError) -> dict[str, str]:
    match exc:
        case RefusedCaller() | RefusedRequest():
            return exc.headers
        case Unauthenticated():
            return {"WWW-Authenticate": 'Bearer realm="clew"'}
        case MethodNotAllowed():
            return {"Allow": exc.allowed}
        case TooLarge() | TooSlow():
            # The rest of the body may still be arriving, and the server does not read it.
            return {"Connection": "close"}
        case TooManyBodies():
            return {"Retry-After": str(ceil(exc.retry_after)), "Connection": "close"}
        case TooMany():
            return {"Retry-After": str(ceil(exc.retry_after))}
        case QuotaExceeded() | BudgetSpent():
            return {}  # waiting a moment does not help
        case AtCapacity():
            return {"Retry-After": str(CROWDED_SECONDS)}
        case Transient(retry_after=float(seconds)):
            return {"Retry-After": str(max(1, round(seconds)))}
        case StorageFull():
            return {}
        case Unavailable() | Transient() | Drained():
            return {"Retry-After": "1"}
        case _:
            return {}
