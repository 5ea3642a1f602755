"""Errors of the OpenAI-compatible API: {"error": {"message", "type", "param", "code"}}."""

from collections.abc import Mapping
from typing import Any

from fastapi import params
from pydantic import BaseModel

from clew.api import access, openapi
from clew.api.errors import STATUS, TooMany, Wording
from clew.domain.errors import AtCapacity, BudgetSpent, ClewError, NotFound, QuotaExceeded, Unauthenticated


class UnknownModel(NotFound):
    """The caller has no model of this name."""

    code = "MODEL_NOT_FOUND"


class OpenAIErrorDetailOut(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIErrorOut(BaseModel):
    error: OpenAIErrorDetailOut


INVALID_REQUEST = "invalid_request_error"
SERVER = "server_error"
_LIMITS = (TooMany.code, AtCapacity.code, QuotaExceeded.code, BudgetSpent.code)
_STATUSES: Mapping[str, int] = {error.code: status for error, status in STATUS.items()}
# Codes that OpenAI's clients know by another name.
_CODES: Mapping[str, str] = {Unauthenticated.code: "invalid_api_key"}


def openai_error(code: str, message: str, field: str | None) -> dict[str, Any]:
    if code in _LIMITS:
        kind = "rate_limit_error"
    else:
        kind = SERVER if _STATUSES.get(code, 400) >= 500 else INVALID_REQUEST
    shown = _CODES.get(code, code.lower())
    return {"error": {"message": message, "type": kind, "param": field, "code": shown}}


OPENAI = Wording(statuses=STATUS, body=openai_error, model=OpenAIErrorOut)


def needs(scope: str) -> params.Depends:
    """A dependency of routes of the OpenAI-compatible API: they are for callers with this scope."""
    return access.needs(scope, wording=OPENAI)


def errors(*refusals: type[ClewError]) -> dict[int | str, dict[str, Any]]:
    return openapi.errors(*refusals, wording=OPENAI)
