"""Errors of the SDK API: {"detail": "..."}; 422 for an invalid value, 400 where two values contradict."""

from typing import Any, Literal

from fastapi import params
from pydantic import BaseModel

from clew.api import access, openapi
from clew.api.errors import STATUS, Wording
from clew.domain.errors import ClewError, Contradictory, Invalid, NotFound


class DetailOut(BaseModel):
    detail: str
    """For people. The status is for programs."""


def _detail(code: str, message: str, field: str | None) -> dict[str, Any]:
    if code == NotFound.code and "not found" not in message.lower():
        message = f"not found: {message}"  # some clients look for these words
    return {"detail": message if field is None else f"{field}: {message}"}


LANGGRAPH = Wording(statuses={**STATUS, Invalid: 422, Contradictory: 400}, body=_detail, model=DetailOut)


def needs(
    scope: str, *, body: Literal["whole", "stream"] = "whole", seconds: float | None = None
) -> params.Depends:
    """A dependency of routes of the SDK API: they are for callers with this scope."""
    return access.needs(scope, body=body, wording=LANGGRAPH, seconds=seconds)


def errors(*refusals: type[ClewError]) -> dict[int | str, dict[str, Any]]:
    return openapi.errors(*refusals, wording=LANGGRAPH)
