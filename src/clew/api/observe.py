"""Outermost middleware: gives every request an id, security headers, a log line, metrics, and an answer."""

import logging
import re
import time
from collections.abc import Callable
from functools import cache

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clew.api.access import RouteRule
from clew.api.credentials import PRINCIPAL, Principal
from clew.api.errors import CODE, Internal, refuse
from clew.api.guard import RULE
from clew.api.headers import HeaderFilter, logged
from clew.telemetry import Metrics, log_context
from clew.telemetry.trace_context import calling

logger = logging.getLogger(__name__)

REQUEST_ID = "X-Request-ID"

# What a client or a proxy may call its request; anything else is not repeated in a header or a log.
_ID_SHAPE = re.compile(r"[A-Za-z0-9._-]{1,64}")
# Metric labels must not grow with values that clients make up.
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GONE = 499

SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}

_REQUEST_ID = REQUEST_ID.lower().encode()
_TRACE_PARENT = b"traceparent"
_SAFE = [
    (name.lower().encode(), value.encode())
    for name, value in {**SAFE_HEADERS, "Cache-Control": "no-store"}.items()
]

# Under this key a request's scope has its id.
REQUEST = "clew.request_id"
# Under this key: the path of a project's own route that answers it.
CUSTOM = "clew.custom"


class Observe:
    """An exception of an inner layer reaches no client as a traceback, and the log without its message."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        new_id: Callable[[], str],
        headers: HeaderFilter | None = None,
    ) -> None:
        """`headers` chooses those of a request that its log line shows."""
        self._app = app
        self._headers = headers
        self._metrics = metrics
        self._new_id = new_id
        # There are as many as routes and statuses, and finding one takes longer than counting.
        self._counted = cache(self._counters)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            raise TypeError(f"Clew does not handle {scope['type']!r}: the code that opens the app closes it")
        request_id = self._request_id(scope)
        scope[REQUEST] = request_id
        answer = ObservedResponse(send, request_id, scope)
        started = time.perf_counter()
        with log_context(request_id=request_id), calling(_header(scope, _TRACE_PARENT)):
            try:
                await self._app(scope, receive, answer.send)
            except Exception:
                logger.exception("a request failed")
                # An answer that has begun cannot be replaced; the server sees it unfinished and closes the connection.
                if answer.status is None:
                    error = Internal(f"internal error; the server's log has it under {request_id}")
                    await refuse(scope, receive, answer.send, error)
            finally:
                self._note(scope, answer.status or _GONE, time.perf_counter() - started)

    def _request_id(self, scope: Scope) -> str:
        given = _header(scope, _REQUEST_ID)
        return given if _ID_SHAPE.fullmatch(given) else self._new_id()

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        rule: RouteRule | None = scope.get(RULE)
        principal: Principal | None = scope.get(PRINCIPAL)
        method = scope.get("method", "WEBSOCKET")
        method = method if method in _METHODS or scope["type"] == "websocket" else "OTHER"
        route = rule.path if rule else scope.get(CUSTOM, "none")
        requests, timer = self._counted(method, route, status)
        requests.inc()
        timer.observe(seconds)
        # Polling clients ask every second and get the same answer: only changes and errors get a log line.
        is_quiet = status < 400 and (method == "GET" or (rule is not None and rule.access.scope is None))
        level = logging.DEBUG if is_quiet else logging.INFO
        if not logger.isEnabledFor(level):
            return
        logger.log(
            level,
            "request",
            extra={
                "method": method,
                "route": route,
                "status_code": status,
                "seconds": round(seconds, 6),
                **({"code": scope[CODE]} if CODE in scope else {}),
                **({"headers": logged(self._headers, scope)} if self._headers else {}),
                **({"tenant": principal.tenant, "key_id": principal.key_id} if principal else {}),
            },
        )

    def _counters(self, method: str, route: str, status: int) -> tuple[Counter, Histogram]:
        return self._metrics.http_requests.labels(method, route, status), self._metrics.http_seconds.labels(
            method, route
        )


class ObservedResponse:
    """Passes the answer on with the headers every answer has, and remembers its status."""

    def __init__(self, send: Send, request_id: str, scope: Scope) -> None:
        self._scope = scope
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            self._add_headers(message.setdefault("headers", []))
        elif kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.close":
            self.status = self.status or 403
        await self._send(message)

    def _add_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        if (
            CUSTOM not in self._scope
        ):  # a project's own pages may be framed, cached, and load scripts from elsewhere
            given = {name.lower() for name, _ in headers}
            headers.extend(header for header in _SAFE if header[0] not in given)
        headers.append((_REQUEST_ID, self._request_id.encode()))


def _header(scope: Scope, name: bytes) -> str:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")
