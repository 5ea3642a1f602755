"""Direct calls: the one fast path. Polled endpoints get their parameters without FastAPI's dependency resolution.

FastAPI takes longer to bind the parameters of a poll than the poll takes in all: see docs/why.md for the figures.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl

from fastapi import params
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.credentials import PRINCIPAL, Principal

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_DECLARED = "__clew_direct__"
# No parameter in a path may be longer than this; FastAPI refuses longer ones.
_SHORT = 256


def direct(endpoint: Endpoint) -> Endpoint:
    """The endpoint takes the caller, the request, texts in its path and single values in its query, and returns a
    response."""
    setattr(endpoint, _DECLARED, True)
    return endpoint


def is_direct(endpoint: object) -> bool:
    return getattr(endpoint, _DECLARED, False)


class Direct:
    """Calls the endpoint. A request that does not fit goes through FastAPI, which refuses it as on any route."""

    def __init__(
        self, endpoint: Callable[..., Any], path_names: Mapping[str, Any], long_way: ASGIApp
    ) -> None:
        """Raises TypeError for an endpoint that takes something else."""
        self._endpoint = endpoint
        self._long_way = long_way
        self._caller = self._request = ""
        self._query: dict[str, tuple[str, TypeAdapter[Any]]] = {}
        for name, hint in get_type_hints(endpoint, include_extras=True).items():
            kind, *more = get_args(hint) or (hint,)
            if name == "return" or name in path_names:
                continue
            if kind is Principal:
                self._caller = name
            elif kind is Request:
                self._request = name
            elif more and isinstance(more[0], params.Query):
                self._query[more[0].alias or name] = name, TypeAdapter(hint)
            else:
                raise TypeError(f"{endpoint.__name__} cannot be called directly: what is {name}?")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = self._given(scope)
        if given is None:
            await self._long_way(scope, receive, send)
            return
        if self._caller:
            given[self._caller] = scope[PRINCIPAL]
        if self._request:
            given[self._request] = Request(scope, receive)
        answer = await self._endpoint(**given)
        await answer(scope, receive, send)

    def _given(self, scope: Scope) -> dict[str, Any] | None:
        """The parameters in the path and the query, None if one is invalid. Of a value that is there twice the last
        one counts."""
        if len(scope["path"]) > _SHORT:
            return None
        given = dict(scope["path_params"])
        if scope["query_string"]:
            for alias, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
                if alias in self._query:
                    name, kind = self._query[alias]
                    try:
                        given[name] = kind.validate_python(value)
                    except ValueError:
                        return None
        return given
