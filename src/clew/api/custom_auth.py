"""Custom authentication: the handlers of a project's `langgraph_sdk.Auth` object, each called with a deadline."""

import asyncio
import inspect
import logging
import re
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass, is_dataclass
from hashlib import sha256
from typing import Any, Final

from langgraph_sdk import Auth
from pydantic_core import to_json, to_jsonable_python
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from clew.api.credentials import TENANT, USUAL_SCOPES, Principal, is_user
from clew.api.errors import RefusedCaller, RefusedRequest, SlowHandler
from clew.domain.errors import ClewError, ConfigError, Invalid
from clew.domain.thread import Json
from clew.ports.authorization import EVERYTHING, MetadataFilter, read_filter
from clew.ports.users import BASIC, AuthUser

logger = logging.getLogger(__name__)

PARAMETERS: Final = (
    *("request", "path", "method", "path_params", "query_params", "headers", "authorization", "scope"),
    *("user", "scopes"),
)
# Synchronous handlers at work at once. One that hangs keeps its thread.
MOST_THREADS: Final = 64
# Of what a user's fields take in each run.
LARGEST_USER: Final = 16_384
# A field of the user with such a name is not stored with runs.
_SECRET = re.compile(r"token|secret|passw|api_?key|credential|authorization|cookie", re.IGNORECASE)
_CREDENTIALS: Final = (b"authorization", b"x-api-key", b"cookie")
_OWN_HEADERS: Final = frozenset({"content-length", "content-type", "transfer-encoding", "connection"})
# A permission with this prefix names one of our scopes, and limits the user to those it has.
_PREFIX: Final = "clew:"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthCache:
    """How long an authenticated caller is remembered, by the values of these headers."""

    headers: tuple[str, ...]
    seconds: float
    most: int


class CustomAuth:
    """Authenticates callers, and asks whether they may do something. Handlers that fail refuse."""

    def __init__(
        self,
        auth: Auth,
        *,
        seconds: float,
        cache: AuthCache | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ConfigError for an object without an authentication handler, or with one that asks for too much."""
        handler: Any = auth._authenticate_handler
        if handler is None:
            raise ConfigError("the Auth object has no handler for callers: add one with @auth.authenticate")
        self._auth = auth
        self._handler = handler
        self._names = _parameters(handler)
        self._seconds = seconds
        self._cache = cache
        self._monotonic = monotonic
        self._remembered: dict[str, tuple[Principal, float]] = {}  # the oldest first
        self._threads = 0
        self._warned: set[str] = set()

    async def principal(self, scope: Scope) -> Principal:
        """Raises RefusedCaller, RefusedRequest with the handler's own status, and SlowHandler."""
        key = self._cache_key(scope)
        known = self._remembered.get(key)
        if known is not None and self._monotonic() < known[1]:
            return known[0]
        with _refusing(RefusedCaller("the authentication handler failed; the server's log says why")):
            result = await self._in_time(self._authenticated(scope))
            principal = self._principal(result, scope)
        if key and self._cache is not None:
            self._remember(key, principal, self._cache)
        return principal

    async def filter_for(
        self, caller: Principal, resource: str, action: str, value: dict[str, Any]
    ) -> MetadataFilter:
        """What of a resource the caller may see in this action. The handler may change the value.

        Raises RefusedRequest, RefusedCaller and SlowHandler.
        """
        handler = self._handler_of(resource, action)
        user: Any = caller.user
        if handler is None or user is None:
            return EVERYTHING
        context = Auth.types.AuthContext(
            permissions=user.permissions,
            user=user,
            resource=resource,  # type: ignore[arg-type]
            action=action,  # type: ignore[arg-type]
        )
        with _refusing(RefusedRequest("the authorization handler failed; the server's log says why")):
            result = await self._in_time(handler(ctx=context, value=value))
            if result is None or result is True:
                return EVERYTHING
            if result is False:
                raise RefusedRequest("Forbidden")
            if not isinstance(result, Mapping):
                raise TypeError(f"it returned {type(result).__name__}, not None, a bool or a filter")
            return read_filter(result)

    def uncovered(self) -> Sequence[str]:
        """The actions that no authorization handler is asked about."""
        actions = {
            "threads": ("create", "read", "update", "delete", "search", "create_run"),
            "assistants": ("create", "read", "update", "delete", "search"),
            "crons": ("create", "read", "update", "delete", "search"),
            "store": ("put", "get", "search", "delete", "list_namespaces"),
        }
        return [
            f"{resource}.{action}"
            for resource, some in actions.items()
            for action in some
            if self._handler_of(resource, action) is None
        ]

    def _handler_of(self, resource: str, action: str) -> Callable[..., Awaitable[Any]] | None:
        """The most specific one, as LangGraph's server chooses it."""
        for key in ((resource, action), (resource, "*"), ("*", action), ("*", "*")):
            if found := self._auth._handlers.get(key):
                return found[-1]
        return self._auth._global_handlers[-1] if self._auth._global_handlers else None

    async def _authenticated(self, scope: Scope) -> Any:
        call = _Call(self._handler, _arguments(scope, self._names))
        result = await call() if inspect.iscoroutinefunction(self._handler) else await self._in_thread(call)
        return await result if inspect.isawaitable(result) else result

    async def _in_time(self, work: Awaitable[Any]) -> Any:
        deadline = asyncio.timeout(self._seconds)
        try:
            async with deadline:
                return await work
        except TimeoutError:
            if not deadline.expired():
                raise
            logger.error("a handler of custom authentication did not answer within %g seconds", self._seconds)  # noqa: TRY400 - the traceback is ours
            raise SlowHandler("the authentication handler did not answer in time") from None

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Not in a pool: its threads would keep a process from ending while a handler hangs."""
        if self._threads >= MOST_THREADS:
            raise SlowHandler("too many authentication handlers are at work")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def finish(result: Any, error: BaseException | None) -> None:
            self._threads -= 1
            if done.done():
                return
            if error is None:
                done.set_result(result)
            else:
                done.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))

        def work() -> None:
            result: Any = None
            failed: BaseException | None = None
            try:
                result = call()
            except BaseException as exc:  # noqa: BLE001 - it is raised where the handler is awaited
                failed = exc
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, result, failed)

        self._threads += 1
        threading.Thread(target=copy_context().run, args=(work,), daemon=True, name="clew-auth").start()
        return await done

    def _principal(self, result: Any, scope: Scope) -> Principal:
        fields, original = _fields(result)
        if not fields["is_authenticated"]:
            raise RefusedCaller("the caller is not authenticated")
        identity, tenant = fields["identity"], fields.get("clew_tenant", "default")
        if not identity or not is_user(identity):
            raise ValueError("the identity of a user is 1 to 256 printable characters")
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise ValueError("clew_tenant of a user is not the name of a tenant")
        stored, left_out = _stored(fields, scope)
        for name in left_out - self._warned:
            self._warned.add(name)
            logger.warning("a field of authenticated users is not kept with their runs: %s", name)
        return Principal(
            tenant=tenant,
            user_id=identity,
            scopes=_scopes(fields["permissions"]),
            key_id=f"user:{tenant}:{identity}",
            user=AuthUser(fields, original),
            stored_user=stored,
        )

    def _cache_key(self, scope: Scope) -> str:
        """Empty where nothing is to be remembered."""
        if self._cache is None:
            return ""
        # Each value of a header that is sent twice: a handler may read either.
        headers = sorted(one for one in scope["headers"] if one[0].decode("latin-1") in self._cache.headers)
        return sha256(repr(headers).encode()).hexdigest() if headers else ""

    def _remember(self, key: str, principal: Principal, cache: AuthCache) -> None:
        self._remembered.pop(key, None)
        self._remembered[key] = principal, self._monotonic() + cache.seconds
        while len(self._remembered) > cache.most:
            del self._remembered[next(iter(self._remembered))]


@dataclass(frozen=True, slots=True)
class _Call:
    handler: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self) -> Any:
        return self.handler(**self.arguments)


@contextmanager
def _refusing(instead: ClewError) -> Iterator[None]:
    """Turns what a handler raises into a refusal. Its message may quote a credential, so that the log has the place only."""
    try:
        yield
    except ClewError as exc:
        if isinstance(exc, Invalid):
            logger.error("a handler of custom authentication returned an invalid filter: %s", exc)  # noqa: TRY400 - it says all
            raise instead from None
        raise
    except (Auth.exceptions.HTTPException, HTTPException) as exc:
        raise _refusal(exc.status_code, str(exc.detail), exc.headers) from None
    except AssertionError as exc:
        raise RefusedRequest(str(exc) or "Forbidden") from None
    except Exception as exc:  # noqa: BLE001 - a handler may raise anything
        place = traceback.extract_tb(exc.__traceback__)[-1]
        logger.error(  # noqa: TRY400 - see above
            "a handler of custom authentication failed: %s",
            type(exc).__name__,
            extra={"file": place.filename, "line": place.lineno, "function": place.name},
        )
        raise instead from None


def _refusal(status: int, detail: str, headers: Mapping[str, str] | None) -> ClewError:
    kept = {
        str(name): str(value)
        for name, value in (headers or {}).items()
        if str(name).lower() not in _OWN_HEADERS and str(value).isprintable() and str(value).isascii()
    }
    if status == 401:
        return RefusedCaller(detail, headers=kept)
    return RefusedRequest(detail, status=status if 400 <= status <= 599 else 403, headers=kept)


def _parameters(handler: Callable[..., Any]) -> frozenset[str]:
    """The parameters it is given, by name. Raises ConfigError for one that it is not."""
    wanted = [
        one
        for one in inspect.signature(handler).parameters.values()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    unknown = [one.name for one in wanted if one.name not in PARAMETERS and one.default is one.empty]
    if unknown:
        why = " (the body is read after the caller is known)" if "body" in unknown else ""
        raise ConfigError(
            f"the authentication handler asks for {', '.join(unknown)}{why}; it can have {', '.join(PARAMETERS)}"
        )
    return frozenset(one.name for one in wanted if one.name in PARAMETERS)


def _arguments(scope: Scope, names: frozenset[str]) -> dict[str, Any]:
    headers = dict(scope["headers"])
    is_http = scope["type"] == "http"
    makers: Mapping[str, Callable[[], Any]] = {
        "request": lambda: Request(scope) if is_http else HTTPConnection(scope),
        "path": lambda: scope["path"],
        "method": lambda: scope["method"] if is_http else "GET",
        "path_params": lambda: dict(scope.get("path_params", {})),
        "query_params": lambda: QueryParams(scope.get("query_string", b"")),
        "headers": lambda: headers,
        "authorization": lambda: (
            headers[b"authorization"].decode("latin-1") if b"authorization" in headers else None
        ),
        "scope": lambda: dict(scope),
        "user": lambda: None,
        "scopes": list,
    }
    return {name: makers[name]() for name in names}


def _fields(result: Any) -> tuple[dict[str, Json], object]:
    """The fields of the user that a handler returned; and the object itself, if it was one. Raises ValueError."""
    permissions: Any = None
    if isinstance(result, tuple) and len(result) == 2:
        permissions, result = result
    if isinstance(result, str):
        result = {"identity": result}
    given = _mapping(result)
    named = {name: given[name] if name in given else getattr(result, name, None) for name in BASIC}
    if named["identity"] is None:
        raise ValueError("an authentication handler returns a user: a text, or an object with an identity")
    identity = str(named["identity"])
    told = permissions if permissions is not None else named["permissions"]
    basic = {
        "identity": identity,
        "display_name": str(named["display_name"] or identity),
        "is_authenticated": named["is_authenticated"] is not False,
        "permissions": [str(one) for one in told or ()],
    }
    return {**given, **basic}, None if isinstance(result, Mapping) else result


def _mapping(user: Any) -> dict[str, Json]:
    if isinstance(user, Mapping):
        return {str(name): value for name, value in user.items()}
    for method in ("model_dump", "dict"):
        if callable(make := getattr(user, method, None)):
            return dict(make())
    return asdict(user) if is_dataclass(user) and not isinstance(user, type) else {}


def _stored(fields: Mapping[str, Json], scope: Scope) -> tuple[Mapping[str, Json], set[str]]:
    """The fields that runs keep, as JSON; and the names of those they do not: credentials, and what is no JSON."""
    sent = b"\n".join(value for name, value in scope["headers"] if name in _CREDENTIALS).decode("latin-1")
    stored = {name: fields[name] for name in BASIC}
    left_out = set()
    for name, value in fields.items():
        if name in BASIC:
            continue
        try:
            plain = to_jsonable_python(value)
        except ValueError:
            left_out.add(name)
            continue
        if _SECRET.search(name) or (isinstance(plain, str) and len(plain) >= 8 and plain in sent):
            left_out.add(name)
        else:
            stored[name] = plain
    if len(to_json(stored)) > LARGEST_USER:
        left_out |= stored.keys() - set(BASIC)
        stored = {name: fields[name] for name in BASIC}
    return stored, left_out


def _scopes(permissions: Sequence[str]) -> frozenset[str]:
    """What everyone has, or those that permissions name; never those of an administrator."""
    named = {one.removeprefix(_PREFIX) for one in permissions if one.startswith(_PREFIX)}
    return frozenset(USUAL_SCOPES) & named if named else frozenset(USUAL_SCOPES)
