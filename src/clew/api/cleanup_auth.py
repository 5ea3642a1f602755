"""Cleanup authentication: a key, a cron service's secret, or a signature made with it. Closed if none is configured."""

import hmac
import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256

from starlette.datastructures import Headers

from clew.domain.errors import Unauthenticated, Unavailable
from clew.ports.clock import Clock
from clew.ports.retention import ClusterState

SIGNATURE = "x-vercel-cron-signature"
# How far the clocks of the two sides may be apart.
SKEW = timedelta(minutes=5)
# Twice that: a signature from the future is valid for longer.
REMEMBERED = timedelta(minutes=10)

_SHAPE = re.compile(r"t=([0-9]{1,11}),v1=([0-9a-f]{64})", re.ASCII)


class CleanupAuth:
    """Every credential sent must be valid. The presence of a header proves nothing."""

    def __init__(
        self, cluster_state: ClusterState, *, clock: Clock, api_key: str | None, cron_secret: str | None
    ) -> None:
        self._cluster_state = cluster_state
        self._clock = clock
        self._api_key = api_key
        self._cron_secret = cron_secret

    async def admit(self, headers: Headers, method: str, target: str) -> None:
        """Raises Unavailable when no credential is configured, Unauthenticated for a wrong one."""
        if self._api_key is None and self._cron_secret is None:
            raise Unavailable("cleanup is closed: set CLEANUP_API_KEY or CRON_SECRET")
        proofs = [
            *(self._is(key, self._api_key) for key in headers.getlist("x-api-key")),
            *(self._is_bearer(value) for value in headers.getlist("authorization")),
        ]
        signatures = headers.getlist(SIGNATURE)
        if not all(proofs) or not (proofs or signatures):
            raise Unauthenticated(
                "cleanup needs X-API-Key: <CLEANUP_API_KEY> or Authorization: Bearer <CRON_SECRET>"
            )
        for signature in signatures:
            await self._verify(signature, method, target)

    def _is(self, shown: str, secret: str | None) -> bool:
        return secret is not None and hmac.compare_digest(shown.encode(), secret.encode())

    def _is_bearer(self, value: str) -> bool:
        scheme, _, token = value.partition(" ")
        return scheme.lower() == "bearer" and self._is(token.strip(), self._cron_secret)

    async def _verify(self, signature: str, method: str, target: str) -> None:
        now = self._clock()
        found = _SHAPE.fullmatch(signature)
        if found is None or self._cron_secret is None:
            raise Unauthenticated(f"{SIGNATURE} is not a valid signature")
        expected = sign(self._cron_secret, at=int(found[1]), method=method, target=target)
        if not hmac.compare_digest(signature.encode(), expected.encode()):
            raise Unauthenticated(f"{SIGNATURE} does not fit this request")
        if abs(now - datetime.fromtimestamp(int(found[1]), UTC)) > SKEW:
            raise Unauthenticated(f"{SIGNATURE} is too old, or from the future")
        if not await self._cluster_state.use_up(signature, now=now, believed=REMEMBERED):
            raise Unauthenticated(f"{SIGNATURE} was used before")


def sign(secret: str, *, at: int, method: str, target: str) -> str:
    """`target` is the path, with its query if it has one."""
    digest = hmac.new(secret.encode(), f"{at}.{method}.{target}".encode(), sha256).hexdigest()
    return f"t={at},v1={digest}"
