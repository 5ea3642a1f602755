"""Authorization: asks the project's handlers whether a user of custom authentication may do what a request asks for.

One layer between the body and the route, for every route. What the handlers answer becomes the owner that the route
reads and writes for: the stores apply it to each query. A route that names no action reads nothing.
"""

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qs
from uuid import UUID

from pydantic_core import to_json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.access import RouteRule
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.guard import RULE
from clew.api.strict_json import JSON
from clew.domain.errors import Forbidden, Unauthenticated
from clew.domain.thread import Json
from clew.ports.authorization import NOTHING, AllOf, FilteredOwner, MetadataFilter

THREADS: Final = ("thread_id", "workflow_id")
METADATA: Final = "metadata"


class AuthorizationHandlers(Protocol):
    async def filter_for(
        self, caller: Principal, resource: str, action: str, value: dict[str, Any]
    ) -> MetadataFilter:
        """Which of the resource the caller may see in this action. Raises Forbidden, Unauthenticated, Unavailable."""
        ...


@dataclass(slots=True, kw_only=True)
class AuthorizationCheck:
    """One question to the handlers, with the value they may change."""

    resource: str
    action: str
    value: dict[str, Any] = field(default_factory=dict)
    # Writes what they changed back to the request; it is given their filter too.
    write_back: Callable[[dict[str, Any], MetadataFilter], None] | None = None
    # Its metadata is that of the thread which the request opens.
    opens: bool = False
    # A refusal hides the resource and lets the request pass: it may not need it.
    hides: bool = False
    # The filter is about what there is, and the request makes something new.
    is_new: bool = False


@dataclass(slots=True)
class AskedRequest:
    """What a request asks for: the parameters in its path and query, and its body."""

    scope: Scope
    is_changed: bool = False

    @property
    def params(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.scope.get("path_params", {})
        return found

    @property
    def query(self) -> Mapping[str, str]:
        asked = parse_qs(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        return {name: values[-1] for name, values in asked.items()}

    @property
    def body(self) -> dict[str, Any]:
        found = self.scope.get(JSON)
        return found if isinstance(found, dict) else {}

    @property
    def bodies(self) -> list[dict[str, Any]]:
        found = self.scope.get(JSON)
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    @property
    def thread_id(self) -> Json:
        return as_id(next((self.params[name] for name in THREADS if name in self.params), None))

    def change(self, body: MutableMapping[str, Any], name: str, value: Json) -> None:
        if name not in body or body[name] != value:
            body[name] = value
            self.is_changed = JSON in self.scope

    def replayed(self, receive: Receive) -> Receive:
        """The changed body, then the client's own messages."""
        given = [to_json(self.scope.get(JSON), fallback=str)]

        async def replay() -> Message:
            if given:
                await receive()  # the body as it was sent
                return {"type": "http.request", "body": given.pop(), "more_body": False}
            return await receive()

        return replay


ChecksOf: TypeAlias = Callable[[RouteRule, AskedRequest], Sequence[AuthorizationCheck]]


class Authorization:
    """Without handlers, and for callers with a key of ours, every request passes unchanged."""

    def __init__(
        self, handlers: AuthorizationHandlers | None = None, checks_of: "ChecksOf | None" = None
    ) -> None:
        """`checks_of` says what is asked about a request of a route; nothing, if it is not given."""
        self._handlers = handlers
        self._checks_of = checks_of or (lambda *_: [])

    def around(self, app: ASGIApp) -> ASGIApp:
        async def authorize(scope: Scope, receive: Receive, send: Send) -> None:
            caller: Principal | None = scope.get(PRINCIPAL)
            if caller is not None and caller.user is not None:
                asked = AskedRequest(scope)
                scope[PRINCIPAL] = await self.allowed(caller, self._checks_of(scope[RULE], asked))
                if asked.is_changed and scope["type"] == "http":
                    receive = asked.replayed(receive)
            await app(scope, receive, send)

        return authorize if self._handlers is not None else app

    async def allowed(self, caller: Principal, checks: Sequence[AuthorizationCheck]) -> Principal:
        """The caller with what it may see. Raises what the handlers raise."""
        if caller.user is None or self._handlers is None:
            return caller
        filters: dict[str, list[MetadataFilter]] = {}
        metadata: dict[str, Json] = {}
        for check in checks:
            try:
                found = await self._handlers.filter_for(caller, check.resource, check.action, check.value)
            except (Forbidden, Unauthenticated):
                if not check.hides:
                    raise
                found = NOTHING
            filters.setdefault(check.resource, []).extend(() if check.is_new else (found,))
            if check.write_back is not None:
                check.write_back(check.value, found)
            if check.opens and isinstance(given := check.value.get(METADATA), dict):
                metadata |= given
        seen = {name: AllOf(found) for name, found in filters.items()}
        owner = FilteredOwner(
            tenant=caller.tenant,
            threads=seen.get("threads", NOTHING),
            assistants=seen.get("assistants", NOTHING),
            crons=seen.get("crons", NOTHING),
            metadata=metadata,
        )
        return replace(caller, filtered=owner)


def watching() -> list[AuthorizationCheck]:
    """Of a client that is sent the events of all threads it may see."""
    return [AuthorizationCheck(resource="threads", action=action) for action in ("search", "read")]


def as_id(text: Json) -> Json:
    """LangGraph hands ids to handlers as UUIDs."""
    try:
        return UUID(text) if isinstance(text, str) else text
    except ValueError:
        return text
