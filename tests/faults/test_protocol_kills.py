"""Events of the thread protocol when the server is killed under the run."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from clew.api.sdk.protocol.events import EVENTS_PER_PART
from tests.acceptance import run_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_protocol import command, events, until_over
from tests.acceptance.sdk_runs import Door
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# A server that was killed is missed soon.
QUICK = {"CLEW_RUNNER_LEASE_SECONDS": "1", "CLEW_RUNNER_POLL_SECONDS": "0.05"}
THREAD = "11111111-2222-4333-8444-555555555555"


@pytest.fixture(params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path, run_graphs, **QUICK) as stage:
        yield stage


def client(served: SdkServer) -> httpx.AsyncClient:
    headers = {"X-API-Key": served.keys["ann"]}
    return httpx.AsyncClient(base_url=served.server.address, headers=headers, timeout=60)


@pytest.mark.fault("A5", "E3")
async def test_a_stream_goes_on_where_it_was_after_a_kill(stage: Stage, tmp_path: Path) -> None:
    folder = tmp_path / "door"
    folder.mkdir()
    door = Door(folder)
    seen = []
    with stage.serving() as served:
        async with client(served) as http:
            await command(http, THREAD, "run.start", assistant_id="waiter", input=door.input("x"))
            await door.entered("x")
            async with asyncio.timeout(30):
                async for event in events(http, THREAD):
                    seen.append(event)
                    if event["method"] == "tasks":
                        break
            # Parts are stored some milliseconds after they were sent.
            number = seen[-1]["seq"] // EVENTS_PER_PART
            await until(lambda: stage.sql(f"SELECT 1 FROM chunks WHERE number >= {number}"))
        served.server.signal(signal.SIGKILL)
        served.server.wait()
    door.open()
    with stage.serving() as served:
        async with client(served) as http:
            rest = await until_over(http, THREAD, since=seen[-1]["seq"])
            everything = await until_over(http, THREAD)
    assert everything == seen + rest
    assert [event["params"]["data"]["event"] for event in everything if event["method"] == "lifecycle"] == [
        "running",
        "completed",
    ]
    assert len({event["event_id"] for event in everything}) == len(everything)
