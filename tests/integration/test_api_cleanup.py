"""Who may clean up: a key, a cron service's secret, or a signature that fits; never the mere presence of a header."""

import configparser
import json
import re
import shlex
import shutil
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
import yaml
from typer.main import get_command

from clew.api.cleanup_auth import SIGNATURE, sign
from clew.cli import app as cli
from clew.domain.crons import Schedule
from clew.server.app import Server
from tests.databases import APP_DATABASES, SHARED, locate, query
from tests.http_client import ADDRESS, client_of, new_key, opened_app
from tests.processes import ROOT

pytestmark = pytest.mark.anyio

KEY = "a-key-for-cleaning-up"
SECRET = "a-secret-of-the-cron-service"
PATH = "/api/optimize/cleanup"
BOTH = {"CLEANUP_API_KEY": KEY, "CRON_SECRET": SECRET}


def now() -> int:
    return int(datetime.now(UTC).timestamp())


def signed(at: int, method: str = "POST", target: str = PATH, secret: str = SECRET) -> dict[str, str]:
    return {SIGNATURE: sign(secret, at=at, method=method, target=target)}


async def ask(
    app: Server, headers: dict[str, str], method: str = "POST", target: str = PATH
) -> httpx.Response:
    async with client_of(app.http) as client:
        return await client.request(method, target, headers=headers)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncGenerator[Server]:
    async with opened_app(tmp_path, **BOTH) as app:
        yield app


@pytest.fixture(params=APP_DATABASES)
def url(request: pytest.FixtureRequest) -> str:
    where = locate(request.param, request)
    return {"memory": "memory://", "sqlite": f"sqlite:///{where}"}.get(request.param, where)


@pytest.mark.fault("G5")
@pytest.mark.accept("003-13", "003-15")
async def test_good_proofs(app: Server) -> None:
    for headers in (
        {"X-API-Key": KEY},
        {"Authorization": f"Bearer {SECRET}"},
        {"authorization": f"bearer {SECRET}"},
        {"X-API-Key": KEY, "Authorization": f"Bearer {SECRET}"},
    ):
        for method in ("GET", "POST"):
            answer = await ask(app, headers, method)
            assert (answer.status_code, answer.json()["deleted"]) == (200, 0), headers
    for method in ("GET", "POST"):
        assert (await ask(app, signed(now(), method), method)).status_code == 200
    target = f"{PATH}?days_old=30"
    assert (await ask(app, signed(now(), target=target), target=target)).status_code == 200


@pytest.mark.fault("G5")
@pytest.mark.accept("003-13", "003-15")
async def test_bad_proofs(app: Server) -> None:
    at = now()
    refused: dict[str, dict[str, str]] = {
        "nothing": {},
        "an empty key": {"X-API-Key": ""},
        "a wrong key": {"X-API-Key": KEY[::-1]},
        "a part of the key": {"X-API-Key": KEY[:-1]},
        "the other secret as the key": {"X-API-Key": SECRET},
        "the key as the other secret": {"Authorization": f"Bearer {KEY}"},
        "no scheme": {"Authorization": SECRET},
        "another scheme": {"Authorization": f"Basic {SECRET}"},
        "an empty secret": {"Authorization": "Bearer "},
        "not ASCII": {"X-API-Key": "k\u00e9y"},
        "a good one and a bad one": {"X-API-Key": KEY, "Authorization": "Bearer no"},
        "a bad one and a good one": {"X-API-Key": "no", "Authorization": f"Bearer {SECRET}"},
        "a header that is only there": {SIGNATURE: "1"},
        "an empty signature": {SIGNATURE: ""},
        "the secret itself as the signature": {SIGNATURE: SECRET},
        "a signature of nothing": {SIGNATURE: f"t={at},v1={'0' * 64}"},
        "another secret": signed(at, secret=KEY),
        "another method": signed(at, "GET"),
        "another path": signed(at, target="/api/optimize/start"),
        "another query": signed(at, target=f"{PATH}?days_old=1"),
        "six minutes old": signed(at - 360),
        "from the future": signed(at + 360),
        "a good key and a bad signature": {"X-API-Key": KEY, SIGNATURE: "1"},
        "what Vercel also sends": {"User-Agent": "vercel-cron/1.0", "x-vercel-cron-schedule": "0 0 * * *"},
    }
    for name, headers in refused.items():
        raw = [(key.encode(), value.encode("utf-8")) for key, value in headers.items()]
        async with client_of(app.http) as client:
            answer = await client.post(PATH, headers=httpx.Headers(raw))
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED"), name
        assert KEY not in answer.text
        assert SECRET not in answer.text
    assert await query(app.stores.db, "SELECT 1 FROM cleanups") == []


@pytest.mark.fault("G5")
@pytest.mark.accept("003-13", "003-15")
async def test_a_signature_serves_once(url: str, tmp_path: Path) -> None:
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url, **BOTH) as app:
        at = now()
        assert (await ask(app, {})).status_code == 401
        assert (await ask(app, signed(at))).status_code == 200
        for _ in range(2):
            assert (await ask(app, signed(at))).status_code == 401
        assert (await ask(app, signed(at - 1))).status_code == 200, "another one does"
        assert (await ask(app, {"X-API-Key": KEY})).status_code == 200


@pytest.mark.fault("G5")
@pytest.mark.parametrize("url", SHARED, indirect=True)
async def test_a_signature_serves_once_in_all_processes_and_after_a_restart(url: str, tmp_path: Path) -> None:
    used = signed(now())
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url, **BOTH) as app:
        async with opened_app(tmp_path, CLEW_DATABASE_URL=url, **BOTH) as other:
            assert (await ask(other, used)).status_code == 200
        assert (await ask(app, used)).status_code == 401
    async with opened_app(tmp_path, CLEW_DATABASE_URL=url, **BOTH) as again:
        assert (await ask(again, used)).status_code == 401


@pytest.mark.fault("D5", "G5")
async def test_the_edges_of_the_window(app: Server) -> None:
    for seconds, status in ((-270, 200), (270, 200), (-330, 401), (330, 401)):
        assert (await ask(app, signed(now() + seconds))).status_code == status, seconds


@pytest.mark.fault("G5")
@pytest.mark.accept("003-14")
@pytest.mark.parametrize("environ", [{}, dict.fromkeys(BOTH, "")], ids=["unset", "empty"])
async def test_without_a_secret_it_is_closed(tmp_path: Path, environ: dict[str, str]) -> None:
    async with opened_app(tmp_path, **environ) as app:
        key = await new_key(app.stores.keys)
        for headers in (
            {},
            {"X-API-Key": ""},
            {"X-API-Key": "None"},
            {"Authorization": "Bearer None"},
            {"X-API-Key": key},
            {SIGNATURE: "1"},
            signed(now(), secret=""),
        ):
            for method in ("GET", "POST"):
                assert (await ask(app, headers, method)).status_code == 503, headers


@pytest.mark.accept("003-14")
async def test_each_secret_opens_its_own_door_only(tmp_path: Path) -> None:
    good = {
        "key": {"X-API-Key": KEY},
        "secret": {"Authorization": f"Bearer {SECRET}"},
        "signed": signed(now()),
    }
    for environ, opens in (
        ({"CLEANUP_API_KEY": KEY}, {"key"}),
        ({"CRON_SECRET": SECRET}, {"secret", "signed"}),
    ):
        async with opened_app(tmp_path, **environ) as app:
            for name, headers in good.items():
                expected = 200 if name in opens else 401
                assert (await ask(app, headers)).status_code == expected, (environ, name)


@pytest.mark.fault("G5")
async def test_other_methods_never_run_it(app: Server) -> None:
    for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"):
        answer = await ask(app, {"X-API-Key": KEY}, method)
        assert answer.status_code in (401, 404, 405), method
    assert await query(app.stores.db, "SELECT 1 FROM cleanups") == []


async def test_a_proof_of_cleanup_opens_nothing_else(app: Server) -> None:
    await new_key(app.stores.keys)
    for headers in ({"X-API-Key": KEY}, {"Authorization": f"Bearer {SECRET}"}):
        for method, path in (
            ("GET", "/api/threads"),
            ("POST", "/api/threads/cleanup"),
            ("POST", "/api/optimize/start"),
        ):
            assert (await ask(app, headers, method, path)).status_code == 401


def example(heading: str, number: int = 0) -> str:
    """A block of code under a heading of the guide."""
    guide = (ROOT / "docs" / "howto" / "cleanup.md").read_text("utf-8")
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#+ [A-Z]|\Z)", guide, flags=re.DOTALL | re.MULTILINE)
    return str(re.findall(r"^```\w*\n(.*?)^```", section, flags=re.DOTALL | re.MULTILINE)[number])


class TestExamples:
    """What the guide tells people to copy does what it says."""

    async def test_vercel(self, app: Server) -> None:
        (cron,) = json.loads(example("Vercel"))["crons"]
        Schedule.parse(cron["schedule"])
        answer = await ask(app, {"Authorization": f"Bearer {SECRET}"}, "GET", cron["path"])
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")

    async def test_crontab_by_http(self, app: Server) -> None:
        *schedule, command = example("Crontab").strip().split(maxsplit=5)
        Schedule.parse(" ".join(schedule))
        words = shlex.split(command.replace("$(cat /etc/clew/cleanup-key)", KEY))
        name, _, value = words[words.index("-H") + 1].partition(": ")
        address = urlsplit(words[-1])
        assert (words[0], f"{address.scheme}://{address.netloc}") == ("curl", ADDRESS)
        answer = await ask(app, {name: value}, words[words.index("-X") + 1], address.path)
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")

    def test_crontab_by_command(self) -> None:
        *schedule, command = example("Crontab", 1).strip().split(maxsplit=5)
        Schedule.parse(" ".join(schedule))
        assert_cleans_up(command.partition(" && ")[2])

    def test_systemd(self) -> None:
        units = configparser.ConfigParser()
        units.read_string(example("systemd"))
        assert_cleans_up(units["Service"]["ExecStart"])
        assert units["Service"]["Type"] == "oneshot"
        assert re.fullmatch(r"\*-\*-\* \d\d:\d\d:\d\d", units["Timer"]["OnCalendar"])
        assert units["Install"]["WantedBy"] == "timers.target"

    def test_kubernetes(self) -> None:
        job = yaml.safe_load(example("Kubernetes"))
        assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
        Schedule.parse(job["spec"]["schedule"])
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        assert_cleans_up(shlex.join(container["command"]))

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="the example is openssl's")
    async def test_a_signed_request(self, app: Server) -> None:
        t = now()
        given = {"t": str(t), "path": PATH, "CRON_SECRET": SECRET}
        lines = example("Signed requests").replace("$ t=$(date +%s);", "$").splitlines()
        script = "; ".join(line.removeprefix("$ ") for line in lines[:2]) + '; printf %s "$v1"'
        ended = await anyio.run_process(script, env={"PATH": "/usr/bin:/bin", **given})
        assert (await ask(app, {SIGNATURE: f"t={t},v1={ended.stdout.decode()}"})).status_code == 200


def assert_cleans_up(command: str) -> None:
    program, name, *options = shlex.split(command)
    assert Path(program).name == "clew"
    get_command(cli).commands[name].make_context(name, options)  # type: ignore[attr-defined]
    assert name == "cleanup"
