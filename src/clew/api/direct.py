"""Direct calls: frequently called endpoints get their parameters without FastAPI's dependency resolution."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import parse_qsl

from fastapi import params
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.credentials import PRINCIPAL, Principal
from clew.api.strict_json import JSON

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])

_DECLARED = "__clew_direct__"
# No parameter in a path may be longer than this; FastAPI refuses longer ones.
_SHORT = 256


def direct(endpoint: Endpoint) -> Endpoint:
    """The endpoint takes the caller, the request, texts in its path, single values in its query and in headers, and a
    model as its body: nothing else."""
    setattr(endpoint, _DECLARED, True)
    return endpoint


def is_direct(endpoint: Callable[..., Any]) -> bool:
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
        self._body: tuple[str, type[BaseModel]] | None = None
        self._headers: dict[bytes, tuple[str, TypeAdapter[Any]]] = {}
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
            elif more and isinstance(more[0], params.Header) and more[0].alias:
                self._headers[more[0].alias.lower().encode()] = name, TypeAdapter(hint)
            elif isinstance(kind, type) and issubclass(kind, BaseModel) and self._body is None:
                self._body = name, kind
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
        if not isinstance(answer, Response):
            answer = Response(_written(answer), media_type="application/json")
        await answer(scope, receive, send)

    def _given(self, scope: Scope) -> dict[str, Any] | None:
        """The arguments from the request, None if one is invalid."""
        if len(scope["path"]) > _SHORT:
            return None
        given = dict(scope["path_params"])
        try:
            if scope["query_string"]:
                given |= self._asked(scope["query_string"])
            if self._headers:
                given |= self._shown(scope["headers"])
            if self._body is not None:
                name, model = self._body
                given[name] = model.model_validate(scope.get(JSON))
        except ValueError:
            return None
        return given

    def _asked(self, query: bytes) -> dict[str, Any]:
        """Raises ValueError, as pydantic does. Of a value that is there twice the last one counts."""
        asked = {}
        for alias, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            if alias in self._query:
                name, kind = self._query[alias]
                asked[name] = kind.validate_python(value)
        return asked

    def _shown(self, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
        """Raises ValueError. Of a header that is there twice the first one counts."""
        shown: dict[str, Any] = {}
        for header, value in headers:
            if header in self._headers:
                name, kind = self._headers[header]
                shown.setdefault(name, kind.validate_python(value.decode("latin-1")))
        return shown


def _written(answer: Any) -> str | bytes:
    return answer.model_dump_json(by_alias=True) if isinstance(answer, BaseModel) else to_json(answer)
