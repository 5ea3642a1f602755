"""Keys over their life, and the machine that needs none: what opens the door and what only looks as if it should."""

import json
from collections.abc import AsyncGenerator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from fastapi import APIRouter
from starlette.datastructures import Headers

from clew.api.access import needs
from clew.api.auth import FRESH_SECONDS, Authenticator, credential
from clew.api.credentials import fingerprint, is_key, mint
from clew.api.guard import Caller
from clew.domain.errors import ConfigError, Unauthenticated, Unavailable
from clew.domain.records import ApiKey
from clew.domain.thread import Owner
from clew.stores.sqlite import connect
from clew.telemetry.scrub import Scrubber
from tests.http_client import EVERYTHING, SmallApi, client_of, new_key, opened_app, small_api
from tests.samples import ANN, NOW

pytestmark = pytest.mark.anyio


class Time:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds


def who() -> APIRouter:
    router = APIRouter()

    @router.get("/who", dependencies=[needs("read")])
    async def answer(caller: Caller) -> dict[str, str]:
        return {"tenant": caller.tenant, "user": caller.user_id, "key": caller.key_id}

    @router.post("/who", dependencies=[needs("write")])
    async def change() -> None: ...

    return router


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def api(time: Time) -> AsyncGenerator[SmallApi]:
    async with small_api(
        who(), clock=time.now, monotonic=time.monotonic, allowed_origins=["https://chat.example.com"]
    ) as api:
        yield api


async def ask(api: SmallApi, key: str | None = None, method: str = "GET", **headers: str) -> int:
    async with client_of(api.http, key) as client:
        answer = await client.request(
            method, "/who", headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
    return answer.status_code


async def test_without_keys_this_machine_is_the_local_principal(api: SmallApi) -> None:
    async with client_of(api.http) as client:
        assert (await client.get("/who")).json() == {"tenant": "default", "user": "", "key": ""}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "LOCALHOST:8124"}, 200),
        ({"host": "127.0.0.1"}, 200),
        ({"host": "127.8.9.1:80"}, 200),
        ({"host": "[::1]:8124"}, 200),
        ({"host": "clew.example.com"}, 403),
        ({"host": "localhost.example.com"}, 403),
        ({"host": "127.0.0.1.nip.io"}, 403),
        ({"host": "192.168.1.7:8124"}, 403),
        ({"host": "0.0.0.0:8124"}, 403),
        ({"host": ""}, 403),
        ({"x_forwarded_for": "203.0.113.9"}, 403),
        ({"forwarded": "for=203.0.113.9"}, 403),
        ({"x_real_ip": "203.0.113.9"}, 403),
        ({"via": "1.1 proxy"}, 403),
        ({"origin": "http://127.0.0.1:8124"}, 200),
        ({"origin": "http://127.0.0.1:8125"}, 403),
        ({"origin": "http://localhost:8124"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "https://chat.example.com"}, 200),
        ({"origin": "https://chat.example.com.evil.example"}, 403),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_open_to_this_machine_and_to_no_page_of_another_origin(
    api: SmallApi, headers: dict[str, str], status: int, method: str
) -> None:
    assert await ask(api, method=method, **headers) == status


async def test_the_first_key_closes_the_door_within_seconds(api: SmallApi, time: Time) -> None:
    assert await ask(api) == 200
    key = await new_key(api.keys, now=NOW)
    assert await ask(api, key) == 200
    time.seconds += FRESH_SECONDS
    assert await ask(api) == 401


async def test_a_wrong_key_is_refused_even_where_none_is_needed(api: SmallApi) -> None:
    assert await ask(api, "clew_aaaaaaaa_" + "a" * 32) == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": ""},
        {"x-api-key": "lsv2_pt_0123456789abcdef"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer lsv2_pt_0123456789abcdef"},
        {"authorization": "Basic a2V5", "x-api-key": "lsv2_pt_0123456789abcdef"},
    ],
)
async def test_a_key_of_another_service_is_ignored_as_long_as_none_is_needed(
    api: SmallApi, time: Time, headers: dict[str, str]
) -> None:
    assert await ask(api, **headers) == 200
    assert await ask(api, **headers, host="192.168.1.7:8124") == 403
    assert await ask(api, **headers, origin="http://evil.example") == 403
    key = await new_key(api.keys, now=NOW)
    time.seconds += FRESH_SECONDS
    assert await ask(api, **headers) == 401
    assert await ask(api, key, **{"x-api-key": ""}) == 200


async def test_the_last_key_to_go_does_not_open_the_door(api: SmallApi, time: Time) -> None:
    key = await new_key(api.keys, now=NOW, lifetime=timedelta(hours=1))
    assert await ask(api, key) == 200
    time.seconds = 3600
    assert await ask(api, key) == 401
    assert await ask(api) == 401


async def test_revocation_is_noticed_within_seconds(api: SmallApi, time: Time) -> None:
    key = await new_key(api.keys, now=NOW)
    assert await ask(api, key) == 200
    await api.keys.revoke(f"key_{key.split('_')[1]}", now=NOW)
    time.seconds += FRESH_SECONDS
    assert await ask(api, key) == 401


async def test_a_key_that_is_believed_still_expires_to_the_second(api: SmallApi, time: Time) -> None:
    key = await new_key(api.keys, now=NOW, lifetime=timedelta(seconds=1))
    assert await ask(api, key) == 200
    time.seconds = 1
    assert await ask(api, key) == 401


async def test_keys_carry_tenant_and_user(api: SmallApi) -> None:
    key = await new_key(api.keys, now=NOW, owner=ANN)
    async with client_of(api.http, key) as client:
        assert (await client.get("/who")).json() == {
            "tenant": "acme",
            "user": "ann",
            "key": f"key_{key.split('_')[1]}",
        }


async def test_always_asking_for_keys_is_a_setting(tmp_path: Path) -> None:
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app, client_of(app.http) as client:
        assert (await client.get("/api/threads")).status_code == 401
        assert (await client.get("/health")).status_code == 200


async def test_an_address_that_is_not_loopback_asks_for_keys(tmp_path: Path) -> None:
    database = {"CLEW_DATABASE_URL": f"sqlite:///{tmp_path}/clew.db"}
    for _ in ("no key", "an expired one"):
        with pytest.raises(ConfigError, match=r"^0\.0\.0\.0 .*`clew keys create`"):
            async with opened_app(tmp_path, CLEW_HOST="0.0.0.0", **database):
                pass
        async with opened_app(tmp_path, **database) as app:
            await new_key(app.stores.keys, lifetime=timedelta(seconds=-1))
    async with opened_app(tmp_path, **database) as app:
        key = await new_key(app.stores.keys)
    async with opened_app(tmp_path, CLEW_HOST="0.0.0.0", **database) as app, client_of(app.http) as client:
        assert (await client.get("/api/threads")).status_code == 401
        assert (await client.get("/api/threads", headers={"X-API-Key": key})).status_code == 200


class NoKeys:
    """A database that does not answer."""

    async def find(self, owner: Owner | None = None) -> list[ApiKey]:
        raise Unavailable

    async def by_hash(self, hash: str) -> ApiKey | None:
        raise Unavailable

    async def add(self, key: ApiKey) -> None: ...

    async def revoke(self, key_id: str, *, now: datetime, owner: Owner | None = None) -> ApiKey:
        raise Unavailable


async def test_when_the_database_is_away_nobody_is_let_in() -> None:
    authenticator = Authenticator(NoKeys(), clock=lambda: NOW, open_locally=True)
    for headers in ({"host": "localhost"}, {"x-api-key": "clew_aaaaaaaa_" + "a" * 32}):
        with pytest.raises(Unavailable):
            await authenticator.caller({"type": "http", "headers": Headers(headers).raw})


def test_a_key_is_random_long_and_known_by_its_shape() -> None:
    made = {mint_text() for _ in range(100)}
    assert len(made) == len({key.rsplit("_", 1)[1] for key in made}) == 100
    for key in made:
        assert is_key(key)
        assert len(key.rsplit("_", 1)[1]) * 5 == 160
        assert not is_key(key + "\n")


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.mark.fault("G4")
def test_no_key_passes_into_a_log() -> None:
    scrub = Scrubber()
    for key in ("clew_abcdefgh_" + "a" * 32, *(mint_text() for _ in range(200))):
        assert key.rsplit("_", 1)[1] not in scrub(f"somebody wrote {key}, in the wrong place")


def mint_text() -> str:
    return mint(name="n", owner=ANN, scopes=EVERYTHING, now=NOW, lifetime=None)[0]


@pytest.mark.fault("G4")
async def test_the_database_holds_no_usable_key(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/clew.db"
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url) as app:
        key = await new_key(app.stores.keys, owner=Owner(tenant="acme"))
        async with client_of(app.http, key) as client:
            assert (await client.get("/api/threads")).status_code == 200
    written = everything_in(tmp_path)
    secret = key.rsplit("_", 1)[1]
    assert fingerprint(key).encode() in written
    assert secret.encode() not in written
    with closing(connect(f"file:{tmp_path}/clew.db")) as opened:
        dump = "\n".join(opened.iterdump())
    assert secret not in dump


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ([], None),
        ([("authorization", "bearer k")], "k"),
        ([("authorization", "Bearer  k ")], "k"),
        ([("authorization", "Bearer k"), ("x-api-key", "k")], "k"),
        ([("x-api-key", "")], None),
        ([("x-api-key", ""), ("authorization", "Bearer k")], "k"),
    ],
)
def test_what_is_taken_for_a_credential(headers: list[tuple[str, str]], shown: str | None) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    assert credential(Headers(raw=raw)) == shown


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Basic a2V5")],
        [("authorization", "k")],
        [("authorization", "Bearer a"), ("authorization", "Bearer b")],
        [("x-api-key", "a"), ("x-api-key", "b")],
        [("authorization", "Bearer a"), ("x-api-key", "b")],
    ],
)
def test_what_is_not_one_credential_is_refused(headers: list[tuple[str, str]]) -> None:
    with pytest.raises(Unauthenticated):
        credential(Headers(raw=[(name.encode(), value.encode()) for name, value in headers]))


async def preflight(api: SmallApi, origin: str, asked: str = "") -> dict[str, str]:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    if asked:
        headers["Access-Control-Request-Headers"] = asked
    async with client_of(api.http) as client:
        answer = await client.options("/who", headers=headers)
    return {name: value for name, value in answer.headers.items() if name.startswith("access-control-")}


@pytest.mark.fault("G8")
async def test_by_default_no_other_origin_may_read_anything() -> None:
    async with small_api(who()) as api:
        assert await preflight(api, "https://chat.example.com") == {}
        async with client_of(api.http) as client:
            answer = await client.get("/health")
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "set-cookie" not in answer.headers


@pytest.mark.fault("G8")
async def test_an_allowed_origin_may_call_and_never_with_credentials(api: SmallApi) -> None:
    allowed = await preflight(api, "https://chat.example.com")
    assert allowed["access-control-allow-origin"] == "https://chat.example.com"
    assert "access-control-allow-credentials" not in allowed
    assert "access-control-allow-origin" not in await preflight(api, "https://evil.example")


async def test_an_allowed_origin_may_send_headers_of_its_own(api: SmallApi) -> None:
    asked = "authorization,content-type,x-api-key,x-auth-scheme,x-of-a-proxy"
    allowed = await preflight(api, "https://chat.example.com", asked)
    assert allowed["access-control-allow-headers"] == asked
    assert "access-control-allow-origin" not in await preflight(api, "https://evil.example", asked)


async def test_an_allowed_origin_may_read_where_a_run_is_and_where_a_list_goes_on(api: SmallApi) -> None:
    async with client_of(api.http, Origin="https://chat.example.com") as client:
        shown = (await client.get("/who")).headers["access-control-expose-headers"]
    exposed = {name.strip().lower() for name in shown.split(",")}
    assert exposed >= {"content-location", "location", "x-pagination-total", "x-pagination-next"}
    assert exposed >= {"x-request-id", "retry-after"}


@pytest.mark.fault("G8")
async def test_every_answer_has_the_safe_headers(api: SmallApi) -> None:
    async with client_of(api.http) as client:
        for answer in (
            await client.get("/who"),
            await client.get("/nothing"),
            await client.post("/openapi.json"),
        ):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["content-security-policy"].startswith("default-src 'self';")
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert "server" not in answer.headers
            assert json.loads(answer.text) is not None
