"""Access tokens: JWTs of an OpenID provider, verified with the provider's published keys, become principals."""

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from joserfc.errors import ClaimError, ExpiredTokenError, InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import JWTClaimsRegistry, Token, decode

from clew.api.credentials import SCOPES, TENANT, Principal, is_user
from clew.domain.errors import ClewError, Unauthenticated, Unavailable
from clew.domain.thread import Json
from clew.ports.clock import Clock

logger = logging.getLogger(__name__)

# Signatures with a public key only: with a shared secret or `none`, a caller could sign its own token.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
# The provider's keys are read again after this time, and earlier for a key id they do not have, but not more often
# than this: made-up key ids must not flood the provider.
KEYS_SECONDS = 600.0
RETRY_SECONDS = 10.0
LEEWAY_SECONDS = 30
LONGEST = 16_384
_SHAPE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
# A provider may put its own prefix before the scopes of one service.
_PREFIX = "clew:"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimNames:
    """The claims that hold the tenant, the user and the scopes. Without `tenant` every caller is in `default`."""

    tenant: str | None
    user: str
    scope: str


class TokenVerifier:
    """`fetch` reads the provider's JWKS. Raises Unavailable where it cannot."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        claims: ClaimNames,
        fetch: Callable[[], Awaitable[Mapping[str, Json]]],
        clock: Clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._claims = claims
        self._fetch = fetch
        self._monotonic = monotonic
        self._registry = JWTClaimsRegistry(
            now=lambda: int(clock().timestamp()),
            leeway=LEEWAY_SECONDS,
            iss={"essential": True, "value": issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
        )
        self._keys: KeySet | None = None
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def principal(self, token: str) -> Principal:
        """Raises Unauthenticated, and Unavailable while the provider's keys were never read."""
        if len(token) > LONGEST or not _SHAPE.fullmatch(token):
            raise Unauthenticated("this is neither an API key nor an access token")
        keys = await self._known_keys(KEYS_SECONDS)
        try:
            verified = decode(token, keys, algorithms=ALGORITHMS)
        except InvalidKeyIdError:
            verified = _decoded(token, await self._known_keys(RETRY_SECONDS))
        except (JoseError, ValueError):
            raise _refused() from None
        try:
            self._registry.validate(verified.claims)
        except ExpiredTokenError:
            raise Unauthenticated("this access token has expired") from None
        except ClaimError as exc:
            raise Unauthenticated(f"this access token is not for this server: {exc.claim}") from None
        return self._caller(verified.claims)

    async def _known_keys(self, seconds: float) -> KeySet:
        """The provider's keys, no older than this if the provider answers."""
        async with self._fetching:
            now = self._monotonic()
            if now - self._fetched_at >= seconds and now - self._tried_at >= RETRY_SECONDS:
                self._tried_at = now
                await self._read_keys()
        if self._keys is None:
            raise Unavailable("the keys of the identity provider cannot be read")
        return self._keys

    async def _read_keys(self) -> None:
        """Keys that were read before stay valid while the provider does not answer."""
        try:
            self._keys = KeySet.import_key_set(await self._fetch())  # type: ignore[arg-type]
        except (ClewError, JoseError, ValueError, KeyError, TypeError) as exc:
            logger.warning("the keys of the identity provider cannot be read: %s", type(exc).__name__)
        else:
            self._fetched_at = self._monotonic()

    def _caller(self, claims: Mapping[str, Json]) -> Principal:
        names = self._claims
        tenant = "default" if names.tenant is None else claims.get(names.tenant)
        if not isinstance(tenant, str) or not TENANT.fullmatch(tenant):
            raise Unauthenticated(f"this access token names no tenant in its claim {names.tenant!r}")
        user = claims.get(names.user)
        if not isinstance(user, str) or not user or not is_user(user):
            raise Unauthenticated(f"this access token names no user in its claim {names.user!r}")
        return Principal(
            tenant=tenant,
            user_id=user,
            scopes=_scopes(claims.get(names.scope)),
            key_id=f"token:{tenant}:{user}",
        )


def _decoded(token: str, keys: KeySet) -> Token:
    try:
        return decode(token, keys, algorithms=ALGORITHMS)
    except (JoseError, ValueError):
        raise _refused() from None


def _refused() -> Unauthenticated:
    return Unauthenticated("this access token is not signed by the identity provider")


def _scopes(claim: Json) -> frozenset[str]:
    """Words or a list of them. Scopes of other services are not for us."""
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
    return frozenset(SCOPES).intersection(str(word).removeprefix(_PREFIX) for word in words)
