"""Access tokens of an identity provider: what a server accepts, and what only looks like it."""

import json
import time
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from clew.api.access_tokens import ClaimNames, TokenVerifier
from clew.api.credentials import Principal
from clew.config import load_settings
from clew.domain.errors import ConfigError, Unauthenticated, Unavailable
from clew.server.app import require_keys
from tests.http_client import client_of, new_key, opened_app
from tests.samples import NOW

pytestmark = pytest.mark.anyio

ISSUER, AUDIENCE = "https://id.example.com", "clew"
KEY = RSAKey.generate_key(2048, {"kid": "one", "alg": "RS256", "use": "sig"})
OTHER = RSAKey.generate_key(2048, {"kid": "one"})
NAMES = ClaimNames(tenant="org", user="sub", scope="scope")


def claims(**more: Any) -> dict[str, Any]:
    known = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "org": "acme", "scope": "read clew:write email"}
    given = {**known, "exp": int(NOW.timestamp()) + 60, **more}
    return {name: value for name, value in given.items() if value is not None}


def token(key: Any = KEY, alg: str = "RS256", kid: str | None = "one", **more: Any) -> str:
    header = {"alg": alg} | ({"kid": kid} if kid else {})
    return jwt.encode(header, claims(**more), key, algorithms=[alg])


class Provider:
    """Publishes keys, and can be away."""

    def __init__(self, *keys: Any) -> None:
        self.keys = list(keys)
        self.asked = 0
        self.is_away = False
        self.seconds = 0.0

    async def fetch(self) -> Mapping[str, Any]:
        self.asked += 1
        if self.is_away:
            raise Unavailable("away")
        return KeySet(self.keys).as_dict(private=False)

    def verifier(self, names: ClaimNames = NAMES) -> TokenVerifier:
        return TokenVerifier(
            issuer=ISSUER,
            audience=AUDIENCE,
            claims=names,
            fetch=self.fetch,
            clock=lambda: NOW,
            monotonic=lambda: self.seconds,
        )


async def test_a_token_becomes_the_principal_its_claims_name() -> None:
    caller = await Provider(KEY).verifier().principal(token())
    assert caller == Principal(
        tenant="acme", user_id="ann", scopes=frozenset({"read", "write"}), key_id="token:acme:ann"
    )


async def test_scopes_may_be_a_list_and_the_tenant_the_default_one() -> None:
    verifier = Provider(KEY).verifier(ClaimNames(tenant=None, user="sub", scope="roles"))
    caller = await verifier.principal(token(roles=["approve", "nonsense", 3]))
    assert (caller.tenant, caller.scopes) == ("default", frozenset({"approve"}))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: token(OTHER), "not signed"),
        (lambda: token(OctKey.generate_key(256), "HS256"), "not signed"),
        (lambda: token(exp=int(NOW.timestamp()) - 31), "expired"),
        (lambda: token(exp=None), "exp"),
        (lambda: token(nbf=int(NOW.timestamp()) + 31), "nbf"),
        (lambda: token(aud="another"), "aud"),
        (lambda: token(aud=None), "aud"),
        (lambda: token(iss="https://evil.example.com"), "iss"),
        (lambda: token(sub=None), "no user"),
        (lambda: token(sub=""), "no user"),
        (lambda: token(sub="a\nb"), "no user"),
        (lambda: token(org=None), "no tenant"),
        (lambda: token(org=["acme"]), "no tenant"),
        (lambda: token(org="../x"), "no tenant"),
        (lambda: token()[:-4] + "AAAA", "not signed"),
        (lambda: "e30." + token().split(".", 1)[1], "not signed"),
        (lambda: "a.b.c", "not signed"),
        (lambda: "lsv2_pt_abc", "neither"),
        (lambda: "x" * 20_000, "neither"),
    ],
)
async def test_a_token_that_is_not_for_us_is_refused(made: Any, why: str) -> None:
    with pytest.raises(Unauthenticated, match=why):
        await Provider(KEY).verifier().principal(made())


async def test_an_unsigned_token_is_refused() -> None:
    head = jwt.encode({"alg": "RS256", "kid": "one"}, claims(), KEY).split(".")
    unsigned = f"eyJhbGciOiJub25lIiwia2lkIjoib25lIn0.{head[1]}."
    with pytest.raises(Unauthenticated):
        await Provider(KEY).verifier().principal(unsigned)


async def test_a_rotated_key_is_found_and_made_up_key_ids_do_not_flood_the_provider() -> None:
    provider = Provider(KEY)
    verifier = provider.verifier()
    await verifier.principal(token())
    new = ECKey.generate_key("P-256", {"kid": "two", "alg": "ES256"})
    provider.keys.append(new)
    provider.seconds = 11.0
    assert (await verifier.principal(token(new, "ES256", "two"))).user_id == "ann"
    asked = provider.asked
    for _ in range(20):
        with pytest.raises(Unauthenticated):
            await verifier.principal(token(kid="made-up"))
    assert provider.asked == asked


async def test_known_keys_stay_valid_while_the_provider_is_away() -> None:
    provider = Provider(KEY)
    verifier = provider.verifier()
    provider.is_away = True
    with pytest.raises(Unavailable):
        await verifier.principal(token())
    provider.is_away, provider.seconds = False, 11.0
    await verifier.principal(token())
    provider.is_away, provider.seconds = True, 10_000.0
    assert (await verifier.principal(token())).user_id == "ann"


@pytest.fixture
async def issuer(tmp_path: Path) -> AsyncGenerator[FastAPI]:
    """A server that accepts tokens of a provider whose keys are in a file."""
    keys = tmp_path / "jwks.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    async with opened_app(
        tmp_path,
        CLEW_AUTH_ISSUER=ISSUER,
        CLEW_AUTH_AUDIENCE=AUDIENCE,
        CLEW_AUTH_TENANT_CLAIM="org",
        CLEW_AUTH_JWKS=str(keys),
    ) as server:
        await new_key(server.stores.keys)
        yield server.http


def fresh(**more: Any) -> str:
    return token(exp=int(time.time()) + 60, **more)


async def test_callers_with_tokens_see_their_own_tenant_and_user_only(issuer: FastAPI) -> None:
    body = {"prompt": "2 + 2", "hold": True}
    async with client_of(issuer, fresh()) as ann, client_of(issuer, fresh(sub="bob")) as bob:
        started = (await ann.post("/api/workflows/start", json=body)).json()["id"]
        assert (await ann.get(f"/api/workflows/{started}")).status_code == 200
        assert (await bob.get(f"/api/workflows/{started}")).status_code == 404
        assert (await bob.get("/api/threads")).json()["threads"] == []
    async with client_of(issuer, fresh(org="other")) as other:
        assert (await other.get(f"/api/workflows/{started}")).status_code == 404


async def test_loopback_is_not_open_where_tokens_are_accepted(issuer: FastAPI) -> None:
    async with client_of(issuer) as stranger:
        assert (await stranger.get("/api/threads")).status_code == 401
    async with client_of(issuer, fresh(scope="read")) as reader:
        assert (await reader.get("/api/threads")).status_code == 200
        refused = await reader.post("/api/workflows/start", json={"prompt": "x"})
        assert refused.status_code == 403
        assert "write" in refused.json()["error"]["message"]


def test_settings_for_tokens_are_complete_or_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="CLEW_AUTH_AUDIENCE"):
        load_settings({"CLEW_AUTH_ISSUER": ISSUER}, cwd=tmp_path)
    with pytest.raises(ConfigError, match="CLEW_AUTH_ISSUER"):
        load_settings({"CLEW_AUTH_TENANT_CLAIM": "org"}, cwd=tmp_path)
    whole = {"CLEW_AUTH_ISSUER": ISSUER, "CLEW_AUTH_AUDIENCE": AUDIENCE, "CLEW_HOST": "0.0.0.0"}
    require_keys(load_settings(whole, cwd=tmp_path), [])
    with pytest.raises(ConfigError, match="API keys"):
        require_keys(load_settings({"CLEW_HOST": "0.0.0.0"}, cwd=tmp_path), [])
