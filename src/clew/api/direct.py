"""Direct calls: the one fast path. Polled endpoints, and those that start runs, get their parameters without FastAPI's
dependency resolution.

FastAPI takes longer to bind the parameters of a poll than the poll takes in all: see docs/why.md for the figures.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl

from fastapi import params
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.credentials import PRINCIPAL, Principal
from clew.api.strict_json import JSON

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_DECLARED = "__clew_direct__"
# No parameter in a path may be longer than this; FastAPI refuses longer ones.
_SHORT = 256


def direct(endpoint: Endpoint) -> Endpoint:
    """The endpoint takes the caller, the request, texts in its path, single values in its query and a model as its body,
    and returns a response."""
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
        self._path: dict[str, TypeAdapter[Any]] = {}
        self._body: tuple[str, type[BaseModel]] | None = None
        for name, hint in get_type_hints(endpoint, include_extras=True).items():
            kind, *more = get_args(hint) or (hint,)
            if name == "return":
                continue
            if name in path_names:
                self._path[name] = TypeAdapter(hint)
            elif kind is Principal:
                self._caller = name
            elif kind is Request:
                self._request = name
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                self._body = name, kind
            elif more and isinstance(more[0], params.Query):
                self._query[more[0].alias or name] = name, TypeAdapter(hint)
            else:
                raise TypeError(f"{endpoint.__name__} cannot be called directly: what is {name}?")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = self._given(scope)
        if given is not None and self._body is not None:
            # Read here, not taken from the scope: a project's own middleware may have changed it.
            sent = _Body(await receive(), receive)
            given = self._with_body(given, scope, sent)
            receive = sent.receive
        if given is None:
            await self._long_way(scope, receive, send)
            return
        if self._caller:
            given[self._caller] = scope[PRINCIPAL]
        if self._request:
            given[self._request] = Request(scope, receive)
        answer = await self._endpoint(**given)
        await answer(scope, receive, send)

    def _with_body(self, given: dict[str, Any], scope: Scope, sent: "_Body") -> dict[str, Any] | None:
        """None if it is no JSON, or does not fit."""
        if self._body is None or JSON not in scope or not sent.is_whole:
            return None
        name, kind = self._body
        try:
            return {**given, name: kind.model_validate(json.loads(sent.content))}
        except ValueError:
            return None

    def _given(self, scope: Scope) -> dict[str, Any] | None:
        """The parameters in the path and the query, None if one is invalid. Of a value that is there twice the last
        one counts."""
        if len(scope["path"]) > _SHORT:
            return None
        given: dict[str, Any] = {}
        for name, kind in self._path.items():
            try:
                given[name] = kind.validate_python(scope["path_params"][name])
            except ValueError:
                return None
        if scope["query_string"]:
            for alias, value in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
                if alias in self._query:
                    name, kind = self._query[alias]
                    try:
                        given[name] = kind.validate_python(value)
                    except ValueError:
                        return None
        return given


class _Body:
    """A request whose first message was taken, and is given once more to who reads it from its beginning."""

    def __init__(self, first: Message, rest: Receive) -> None:
        self._first: Message | None = first
        self._rest = rest
        self.content: bytes = first.get("body", b"")
        self.is_whole = first["type"] == "http.request" and not first.get("more_body", False)

    async def receive(self) -> Message:
        first, self._first = self._first, None
        return await self._rest() if first is None else first
