"""Authentication composition: access tokens of the identity provider, and the handlers of the project's Auth object."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from clew.api.credentials import Principal
from clew.config import Settings
from clew.config.settings import AuthSettings
from clew.domain.errors import ConfigError, Unavailable
from clew.ports.clock import Clock

if TYPE_CHECKING:
    from clew.api.custom_auth import CustomAuth

logger = logging.getLogger(__name__)

FETCH_SECONDS = 5.0
LARGEST_BYTES = 2**20


def open_tokens(auth: AuthSettings, clock: Clock) -> Callable[[str], Awaitable[Principal]] | None:
    """None if the settings name no provider. Raises ConfigError where a package is missing."""
    if auth.issuer is None or auth.audience is None:
        return None
    try:
        from clew.api.access_tokens import ClaimNames, TokenVerifier  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        raise ConfigError("access tokens need another package: pip install 'clew-server[oidc]'") from exc
    issuer = auth.issuer
    verifier = TokenVerifier(
        issuer=issuer,
        audience=auth.audience,
        claims=ClaimNames(tenant=auth.tenant_claim, user=auth.user_claim, scope=auth.scope_claim),
        fetch=lambda: _jwks(issuer, auth.jwks),
        clock=clock,
    )
    return verifier.principal


def open_custom_auth(settings: Settings) -> "CustomAuth | None":
    """Import the project's Auth object. Raises ConfigError where it cannot protect the server."""
    own = settings.custom_auth
    if own is None:
        return None
    source = own.source
    if settings.auth.issuer is not None:
        raise ConfigError(f"{source.where}: callers are authenticated by it or by auth.issuer, not by both")
    from langgraph_sdk import Auth  # noqa: PLC0415 - LangGraph takes seconds

    from clew.api.custom_auth import AuthCache, CustomAuth  # noqa: PLC0415 - the same
    from clew.graph.registry import find_object, import_from, reason  # noqa: PLC0415 - the same

    import_from(settings.import_paths)
    try:
        found = find_object(source)
    except (Exception, SystemExit) as exc:
        raise ConfigError(f"{source.where}: {reason(source, exc)}") from exc
    if not isinstance(found, Auth):
        raise ConfigError(
            f"{source.where}: {source.written} is no langgraph_sdk.Auth but {type(found).__name__}"
        )
    cache = AuthCache(headers=own.cached_headers, seconds=own.cached_seconds, most=own.most_cached)
    try:
        custom = CustomAuth(
            found, seconds=settings.auth.handler_seconds, cache=cache if own.cached_headers else None
        )
    except ConfigError as exc:
        raise ConfigError(f"{source.where}: {exc}") from exc
    if uncovered := custom.uncovered():
        logger.warning(
            "custom authentication has no authorization handler for %s: every authenticated user may do this to all"
            " data of its tenant; add @auth.on",
            ", ".join(uncovered),
        )
    return custom


async def _jwks(issuer: str, place: str | None) -> Mapping[str, Any]:
    """The provider's keys. Raises Unavailable."""
    if place is not None and not place.startswith(("http://", "https://")):
        try:
            return _object(await asyncio.to_thread(Path(place).read_bytes))
        except OSError as exc:
            raise Unavailable("the file with the identity provider's keys cannot be read") from exc
    async with httpx.AsyncClient(timeout=FETCH_SECONDS, follow_redirects=False) as client:
        if place is None:
            known = await _fetched(client, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            place = str(known.get("jwks_uri"))
        return await _fetched(client, place)


async def _fetched(client: httpx.AsyncClient, url: str) -> Mapping[str, Any]:
    try:
        answer = await client.get(url)
        answer.raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise Unavailable("the identity provider does not answer") from exc
    return _object(answer.content)


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content[:LARGEST_BYTES])
    except ValueError as exc:
        raise Unavailable("the identity provider's answer is no JSON") from exc
    if not isinstance(found, dict):
        raise Unavailable("the identity provider's answer is no object")
    return found
