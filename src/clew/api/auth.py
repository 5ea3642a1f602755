"""Authentication: turns the credential of an HTTP request or a WebSocket into a principal."""

import hmac
import ipaddress
import time
from collections.abc import Awaitable, Callable, Container
from functools import lru_cache

from starlette.datastructures import Headers
from starlette.types import Scope

from clew.api.credentials import SCOPES, Principal, fingerprint, is_key
from clew.domain.errors import Forbidden, Unauthenticated, Unavailable
from clew.domain.records import ApiKey
from clew.ports.api_keys import Keys
from clew.ports.clock import Clock

# A caller on this machine while no API key exists.
LOCAL = Principal(tenant="default", user_id="", scopes=frozenset(SCOPES), key_id="")

# Under this key the scope of a request from inside of the server says who calls. No server writes it for a client.
WITHIN = "clew.within"

# A key is cached this long without asking the database again: the delay of a revocation.
FRESH_SECONDS = 2.0
# It is cached this long while the database does not answer: no data can be read then, and the caller gets the error of
# its request rather than an authentication error.
OUTAGE_SECONDS = 60.0
_REMEMBERED = 4096
KEY_PREFIX = "clew_"

# A proxy on this machine would make the whole world look local.
_FORWARDED = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})


class Authenticator:
    """Knows the keys. With `open_locally`, no key is asked of this machine until the first one is made."""

    def __init__(
        self,
        keys: Keys,
        *,
        clock: Clock,
        open_locally: bool,
        allowed_origins: Container[str] = (),
        tokens: Callable[[str], Awaitable[Principal]] | None = None,
        custom: Callable[[Scope], Awaitable[Principal]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`tokens` verifies what is no API key: access tokens of an identity provider. `custom` is the project's own
        handler: it is asked about every request without an API key of ours."""
        self._keys = keys
        self._tokens = tokens
        self._custom = custom
        self._clock = clock
        self._allowed_origins = allowed_origins
        self._monotonic = monotonic
        self._is_open = open_locally and tokens is None and custom is None
        self._looked_at = float("-inf")
        self._believed: dict[str, tuple[ApiKey, float]] = {}

    async def caller(self, scope: Scope) -> Principal:
        """Of a request, or of a WebSocket. Raises Unauthenticated, or Forbidden for a page of another origin."""
        within: Principal | None = scope.get(WITHIN)
        if within is not None:
            return within
        headers = Headers(scope=scope)
        is_ours = shows_our_key(headers)
        if scope["type"] == "websocket":
            # A page anywhere can open one, and no browser asks first.
            self._require_own_origin(headers)
        # LangGraph's clients send the key for LangSmith that is in their environment: where none is needed, a key
        # that cannot be ours is no attempt at anything.
        if not is_ours and self._custom is not None:
            return await self._custom(scope)
        if not is_ours and await self.is_open():
            self._require_own_origin(headers)
            require_this_machine(headers)
            return LOCAL
        token = credential(headers)
        if token is None:
            raise Unauthenticated("an API key is needed: Authorization: Bearer <key>, or X-API-Key: <key>")
        if self._tokens is not None and not token.startswith(KEY_PREFIX):
            return await self._tokens(token)
        return _principal(await self._valid_key(token))

    async def is_open(self) -> bool:
        """Whether callers need no key, and so are at this machine.

        Open until the first key. It stays closed when keys expire or are revoked: time must not open the server."""
        if self._is_open and self._monotonic() - self._looked_at >= FRESH_SECONDS:
            try:
                self._is_open = not await self._keys.find()
            except Unavailable:
                if self._monotonic() - self._looked_at >= OUTAGE_SECONDS:
                    raise
            else:
                self._looked_at = self._monotonic()
        return self._is_open

    async def _valid_key(self, token: str) -> ApiKey:
        if not is_key(token):
            raise Unauthenticated("this is not a valid API key")
        digest = fingerprint(token)
        key, since = self._believed.get(digest, (None, 0.0))
        if key is None or self._monotonic() - since >= FRESH_SECONDS:
            try:
                key = await self._keys.by_hash(digest)
            except Unavailable:
                if key is None or self._monotonic() - since >= OUTAGE_SECONDS:
                    raise
            else:
                self._believe(digest, key)
        if key is None or not hmac.compare_digest(key.hash, digest) or not key.is_valid(now=self._clock()):
            raise Unauthenticated("this is not a valid API key")
        return key

    def _believe(self, digest: str, key: ApiKey | None) -> None:
        if len(self._believed) >= _REMEMBERED:
            self._believed.clear()
        if key is None:
            self._believed.pop(digest, None)
        else:
            self._believed[digest] = (key, self._monotonic())

    def _require_own_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None or origin.lower() in self._allowed_origins:
            return
        _, _, host = origin.lower().partition("://")
        if host != headers.get("host", "").lower():
            raise Forbidden("pages of another origin may not call this server; see CLEW_ALLOWED_ORIGINS")


def credential(headers: Headers) -> str | None:
    """The key a request sends. Query strings end up in logs and histories, so a key there is ignored."""
    tokens: set[str] = set()
    for name, value in headers.raw:
        if name == b"x-api-key":
            tokens.add(value.decode("latin-1").strip())
        elif name == b"authorization":
            scheme, _, token = value.decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise Unauthenticated("expected Authorization: Bearer <key>")
            tokens.add(token.strip())
    tokens.discard("")
    if len(tokens) > 1:
        raise Unauthenticated("two different keys were sent")
    return tokens.pop() if tokens else None


def shows_our_key(headers: Headers) -> bool:
    return any(
        name in (b"x-api-key", b"authorization") and KEY_PREFIX.encode() in value
        for name, value in headers.raw
    )


def require_this_machine(headers: Headers) -> None:
    """Refuse requests that only appear local: DNS rebinding, and requests forwarded by a proxy."""
    if not is_loopback(_host_name(headers.get("host", ""))):
        raise Forbidden(
            "without API keys only http://127.0.0.1 and http://localhost are served: clew keys create"
        )
    if any(name in _FORWARDED for name, _ in headers.raw):
        raise Forbidden("requests through a proxy need an API key: clew keys create")


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _host_name(host: str) -> str:
    """`localhost` of `localhost:8124`, `::1` of `[::1]:8124`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _principal(key: ApiKey) -> Principal:
    return Principal(tenant=key.owner.tenant, user_id=key.owner.user_id, scopes=key.scopes, key_id=key.id)
