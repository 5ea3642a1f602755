"""What is done when a run is over, by real servers on either database, killed and revived: who left an address is told,
threads of stateless runs go, and what was streamed is forgotten."""

import asyncio
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import NotFoundError, UnprocessableEntityError
from standardwebhooks import Webhook, WebhookVerificationError

from tests.acceptance import sdk_graphs
from tests.acceptance.sdk import Clients, SdkServer, clients_of
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.processes import ROOT, clew, serving
from tests.providers import Provider, Reply, provider
from tests.waiting import until

pytestmark = pytest.mark.anyio

HELLO: dict[str, Any] = {"words": ["hello"]}
SAID = {"words": ["hello", "you said hello"]}
SECONDS = 60.0
NEW, OLD = (f"whsec_{b64encode(one * 32).decode()}" for one in (b"n", b"o"))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def stage(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    # Its callers have keys, and its receivers are on this machine.
    place = tmp_path_factory.mktemp("hooks")
    with stage_on(kind, request, place, CLEW_LANGGRAPH_WEBHOOKS="private") as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    secrets: dict[str, Any] = {"CLEW_LANGGRAPH_WEBHOOK_SECRET": NEW, "CLEW_LANGGRAPH_WEBHOOK_OLD_SECRET": OLD}
    with stage.serving(CLEW_LANGGRAPH_TEMPORARY_SECONDS="2", **secrets) as served:
        yield served


@pytest.fixture
def lonely(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Where nobody is but those whom the test brings."""
    more: dict[str, Any] = {"CLEW_RUNNER_LEASE_SECONDS": "2", "CLEW_LANGGRAPH_WEBHOOKS": "private"}
    with stage_on(kind, request, tmp_path, **more) as stage:
        yield stage


@pytest.fixture
def receiver() -> Iterator[Provider]:
    with provider() as receiver:
        yield receiver


async def told(receiver: Provider, count: int = 1) -> list[Any]:
    """What it was sent, once there is so much."""
    await until(lambda: len(receiver.requests) >= count)
    return [one.body for one in receiver.requests]


def hooks_of(stage: Stage, run_id: str) -> int:
    """Without one that was given up."""
    left = f"SELECT count(*) FROM run_hooks WHERE run_id = '{run_id}' AND failed_at IS NULL"
    return int(stage.sql(left)[0][0])


async def test_it_is_told_the_run_and_what_it_came_to(
    clients: Clients, receiver: Provider, stage: Stage
) -> None:
    thread = await clients.ann.threads.create()
    run = await clients.ann.runs.create(
        thread["thread_id"], "echo", input=HELLO, metadata={"n": 1}, webhook=f"{receiver.url}/hook?x=1"
    )
    (body,) = await told(receiver)
    assert receiver.requests[0].path == "/hook"
    assert receiver.requests[0].query == {"x": "1"}
    now = await clients.ann.runs.get(thread["thread_id"], run["run_id"])
    assert {name: body[name] for name in now} == now
    assert (body["status"], body["values"], body["metadata"]) == ("success", SAID, {"n": 1})
    assert "error" not in body
    assert body["run_started_at"] <= body["run_ended_at"] <= body["webhook_sent_at"]
    await until(lambda: not hooks_of(stage, run["run_id"]))
    assert len(receiver.requests) == 1


async def test_it_is_signed_with_both_secrets_under_an_id_that_stays(
    clients: Clients, receiver: Provider
) -> None:
    replies = iter([Reply(status=503)])
    receiver.answer = lambda _: next(replies, Reply())
    thread = await clients.ann.threads.create()
    run = await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=receiver.url)
    await told(receiver, 2)
    for sent in receiver.requests:
        assert sent.headers["webhook-id"] == run["run_id"]
        for secret in (NEW, OLD):
            assert Webhook(secret).verify(sent.raw, dict(sent.headers))["run_id"] == run["run_id"]
        with pytest.raises(WebhookVerificationError):
            Webhook(NEW).verify(sent.raw + b" ", dict(sent.headers))


async def test_it_is_told_why_a_run_failed(clients: Clients, receiver: Provider) -> None:
    thread = await clients.ann.threads.create()
    await clients.ann.runs.create(thread["thread_id"], "echo", input={"words": []}, webhook=receiver.url)
    (body,) = await told(receiver)
    assert body["status"] == "error"
    assert body["error"]["message"]


async def test_each_run_is_told_with_its_own_values(clients: Clients, receiver: Provider) -> None:
    thread = await clients.ann.threads.create()
    runs = [
        await clients.ann.runs.create(
            thread["thread_id"], "echo", input={"words": [str(n)]}, webhook=receiver.url
        )
        for n in range(4)
    ]
    bodies = {body["run_id"]: body for body in await told(receiver, 4)}
    for n, run in enumerate(runs):
        assert bodies[run["run_id"]]["values"]["words"][-1] == f"you said {n}"
        assert len(bodies[run["run_id"]]["values"]["words"]) == 2 * (n + 1)


async def test_a_run_without_a_thread_is_told_and_its_thread_goes(
    clients: Clients, receiver: Provider, stage: Stage
) -> None:
    run = await clients.ann.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
    (body,) = await told(receiver)
    assert (body["run_id"], body["values"]) == (run["run_id"], SAID)
    await until(lambda: not hooks_of(stage, run["run_id"]))
    with pytest.raises(NotFoundError):
        await clients.ann.threads.get(run["thread_id"])
    assert len(receiver.requests) == 1


async def test_a_receiver_in_trouble_is_told_again(
    clients: Clients, receiver: Provider, stage: Stage
) -> None:
    answers = iter([Reply(status=503), Reply(status=500)])
    receiver.answer = lambda _: next(answers, Reply())
    thread = await clients.ann.threads.create()
    run = await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=receiver.url)
    bodies = await told(receiver, 3)
    assert [body["run_id"] for body in bodies] == [run["run_id"]] * 3
    await until(lambda: not hooks_of(stage, run["run_id"]))
    assert len(receiver.requests) == 3


@pytest.mark.parametrize("status", [302, 404])
async def test_a_receiver_that_says_no_is_left_alone_and_the_log_keeps_quiet(
    clients: Clients, receiver: Provider, stage: Stage, served: SdkServer, status: int
) -> None:
    receiver.answer = lambda _: Reply(status=status, headers={"Location": f"{receiver.url}/elsewhere"})
    thread = await clients.ann.threads.create()
    secret = uuid4().hex
    run = await clients.ann.runs.create(
        thread["thread_id"], "echo", input={"words": [secret]}, webhook=f"{receiver.url}/?token={secret}"
    )
    await until(lambda: not hooks_of(stage, run["run_id"]))
    assert len(receiver.requests) == 1
    (line,) = [line for line in served.server.log.splitlines() if run["run_id"] in line and "webhook" in line]
    assert f"the provider answered {status}" in line
    assert secret not in served.server.log


async def test_a_run_that_was_refused_is_not_told_of(
    clients: Clients, receiver: Provider, stage: Stage
) -> None:
    with pytest.raises(NotFoundError):
        await clients.ann.runs.create(str(uuid4()), "echo", input=HELLO, webhook=receiver.url)
    assert stage.sql("SELECT count(*) FROM run_hooks WHERE attempts > 0 AND failed_at IS NULL") == [(0,)]
    thread = await clients.ann.threads.create()
    await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, after_seconds=3600)
    before = stage.sql("SELECT count(*) FROM run_hooks")
    with pytest.raises(UnprocessableEntityError):
        await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook="nowhere")
    assert stage.sql("SELECT count(*) FROM run_hooks") == before


async def test_a_run_that_was_cancelled_is_over_too(clients: Clients, receiver: Provider) -> None:
    thread = await clients.ann.threads.create()
    run = await clients.ann.runs.create(
        thread["thread_id"], "echo", input=HELLO, webhook=receiver.url, after_seconds=1
    )
    await clients.ann.runs.cancel(thread["thread_id"], run["run_id"])
    (body,) = await told(receiver)
    assert (body["run_id"], body["status"], body["values"]) == (run["run_id"], "interrupted", None)


@pytest.mark.parametrize(
    "webhook",
    [
        *(
            "ftp://example.com/",
            "/relative",
            "http://user:pass@example.com/",
            "http://169.254.169.254/latest",
        ),
        *("http://", "x" * 3000),
    ],
)
async def test_what_is_no_webhook_is_refused(clients: Clients, webhook: str) -> None:
    thread = await clients.ann.threads.create()
    for thread_id in (thread["thread_id"], None):
        with pytest.raises(UnprocessableEntityError) as refused:
            await clients.ann.runs.create(thread_id, "echo", input=HELLO, webhook=webhook)
        assert "webhook" in refused.value.response.text
    assert await clients.ann.runs.list(thread["thread_id"]) == []


async def test_where_private_addresses_are_not_called_no_name_leads_there(
    lonely: Stage, receiver: Provider
) -> None:
    with lonely.serving(CLEW_LANGGRAPH_WEBHOOKS="public") as served:
        async with clients_of(served) as clients:
            thread = await clients.ann.threads.create()
            with pytest.raises(UnprocessableEntityError):
                await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=receiver.url)
            named = receiver.url.replace("127.0.0.1", "localhost")
            run = await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=named)
            await until(lambda: not hooks_of(lonely, run["run_id"]))
            assert receiver.requests == []
            assert "a webhook is given up: the address is private" in served.server.log
    with lonely.serving(CLEW_LANGGRAPH_WEBHOOKS="off") as served:
        async with clients_of(served) as clients:
            with pytest.raises(UnprocessableEntityError):
                await clients.ann.runs.create(None, "echo", input=HELLO, webhook="https://example.com/")


async def test_whose_callers_have_keys_is_not_talked_into_its_own_net_even_on_loopback(
    lonely: Stage, receiver: Provider
) -> None:
    """A proxy on the same machine shows it to others: where it listens says nothing about who calls."""
    with lonely.serving(CLEW_LANGGRAPH_WEBHOOKS="auto") as served:
        async with clients_of(served) as clients:
            thread = await clients.ann.threads.create()
            with pytest.raises(UnprocessableEntityError) as refused:
                await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=receiver.url)
            assert "the address is private" in refused.value.response.text
            with pytest.raises(UnprocessableEntityError):
                await clients.ann.crons.create("echo", schedule="0 0 * * *", webhook=receiver.url)
            named = receiver.url.replace("127.0.0.1", "localhost")
            run = await clients.ann.runs.create(thread["thread_id"], "echo", input=HELLO, webhook=named)
            await until(lambda: not hooks_of(lonely, run["run_id"]))
            assert receiver.requests == []


async def test_without_keys_this_machine_is_told_until_the_first_key_is_made(
    tmp_path: Path, receiver: Provider
) -> None:
    (tmp_path / "clew.yaml").write_text(f"graphs: {{echo: {sdk_graphs.__name__}:echo}}\n")
    environ: dict[str, Any] = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    with serving(tmp_path, **environ) as server:
        async with get_client(url=server.address) as client:
            await client.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
            await told(receiver)
        made = clew(tmp_path, "keys", "create", "--name", "ann", "--json", **environ)
        async with get_client(url=server.address, api_key=json.loads(made.stdout)["key"]) as client:
            deadline = time.monotonic() + SECONDS
            while True:  # a running server hears of it within two seconds
                try:
                    await client.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
                except UnprocessableEntityError:
                    break
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("failpoint", ["webhook_before_send", "webhook_after_send", "delete_mid_tables"])
async def test_a_kill_leaves_nothing_undone(lonely: Stage, receiver: Provider, failpoint: str) -> None:
    with lonely.serving(CLEW_FAILPOINTS=f"{failpoint}:kill", CLEW_LANGGRAPH_TEMPORARY_SECONDS="0") as dying:
        async with clients_of(dying) as clients:
            run = await clients.ann.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
        dying.server.wait()
    lonely.sql("UPDATE run_hooks SET due_at = 0")  # what it held, before its lease has run out
    with lonely.serving(CLEW_LANGGRAPH_TEMPORARY_SECONDS="0") as served:
        async with clients_of(served) as clients:
            bodies = await told(receiver, 2 if failpoint == "webhook_after_send" else 1)
            assert {(body["run_id"], body["status"]) for body in bodies} == {(run["run_id"], "success")}
            await until(lambda: not hooks_of(lonely, run["run_id"]))
            with pytest.raises(NotFoundError):
                await clients.ann.threads.get(run["thread_id"])
            await until(
                lambda: lonely.sql("SELECT count(*) FROM tombstones WHERE purged_at IS NULL") == [(0,)]
            )
    for table in ("threads", "events", "checkpoints", "labels", "chunks", "run_hooks"):
        assert lonely.sql(f"SELECT count(*) FROM {table}") == [(0,)]


@pytest.mark.parametrize("failpoint", ["accept_after_commit_before_reply", "checkpoint_put"])
async def test_a_kill_in_the_middle_of_a_run_without_a_thread(
    lonely: Stage, receiver: Provider, failpoint: str
) -> None:
    with lonely.serving(CLEW_FAILPOINTS=f"{failpoint}:kill", CLEW_LANGGRAPH_TEMPORARY_SECONDS="0") as dying:
        async with clients_of(dying) as clients:
            with suppress(httpx.TransportError):  # it may be gone before it has answered
                await clients.ann.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
        dying.server.wait()
    with lonely.serving(CLEW_LANGGRAPH_TEMPORARY_SECONDS="0") as served:
        (body,) = await told(receiver)
        assert (body["status"], body["values"]) == ("success", SAID)
        await until(lambda: not hooks_of(lonely, body["run_id"]))
        async with clients_of(served) as clients:
            with pytest.raises(NotFoundError):
                await clients.ann.threads.get(body["thread_id"])


async def test_a_kill_before_a_run_is_started_leaves_no_hook(lonely: Stage, receiver: Provider) -> None:
    with lonely.serving(CLEW_FAILPOINTS="accept_before_commit:kill") as dying:
        async with clients_of(dying) as clients:
            with pytest.raises(httpx.TransportError):
                await clients.ann.runs.create(None, "echo", input=HELLO, webhook=receiver.url)
        dying.server.wait()
    assert [lonely.sql(f"SELECT count(*) FROM {table}") for table in ("threads", "run_hooks")] == [[(0,)]] * 2


async def test_a_kill_before_a_run_for_later_is_queued_leaves_no_temporary_thread(lonely: Stage) -> None:
    with lonely.serving(CLEW_FAILPOINTS="thread_created_before_queued:kill") as dying:
        async with clients_of(dying) as clients:
            with pytest.raises(httpx.TransportError):
                await clients.ann.runs.create(None, "echo", input=HELLO, after_seconds=1)
        dying.server.wait()
    ((due_at,),) = lonely.sql("SELECT due_at FROM run_hooks")
    assert due_at > (time.time() + 500) * 1_000_000, "a slow process has time to queue its run"
    lonely.sql("UPDATE run_hooks SET due_at = 0")
    with lonely.serving():
        await until(lambda: lonely.sql("SELECT count(*) FROM run_hooks") == [(0,)])
        await until(lambda: lonely.sql("SELECT count(*) FROM threads") == [(0,)])


async def test_the_outcome_of_a_run_without_a_thread_can_be_read(clients: Clients, stage: Stage) -> None:
    assert await clients.ann.runs.wait(None, "echo", input=HELLO) == SAID
    parts = [part async for part in clients.ann.runs.stream(None, "echo", input=HELLO)]
    assert parts[-2].data == SAID
    run = await clients.ann.runs.create(None, "echo", input=HELLO)
    assert await clients.ann.runs.join(run["thread_id"], run["run_id"]) == SAID
    assert run["kwargs"]["temporary"] is True
    await until(lambda: stage.sql("SELECT count(*) FROM run_hooks WHERE is_temporary = 1") == [(0,)])
    with pytest.raises(NotFoundError):
        await clients.ann.threads.get(run["thread_id"])


async def test_the_hook_of_a_run_that_was_never_queued_ends(
    clients: Clients, stage: Stage, receiver: Provider
) -> None:
    lost = str(uuid4())
    stage.sql(
        "INSERT INTO run_hooks (run_id, thread_id, webhook, is_temporary, due_at, attempts)"
        f" VALUES ('{lost}', '{uuid4()}', '{receiver.url}', 1, 0, 0)"
    )
    await until(lambda: not hooks_of(stage, lost))
    assert receiver.requests == []

    run = await clients.ann.runs.create(None, "echo", input=HELLO, after_seconds=3600)
    await clients.ann.runs.cancel(run["thread_id"], run["run_id"], action="rollback")
    stage.sql(f"UPDATE run_hooks SET due_at = 0 WHERE run_id = '{run['run_id']}'")
    await until(lambda: not hooks_of(stage, run["run_id"]))
    with pytest.raises(NotFoundError):
        await clients.ann.threads.get(run["thread_id"])


async def test_its_thread_is_in_no_list(clients: Clients) -> None:
    kept = await clients.bob.runs.create(None, "echo", input=HELLO, on_completion="keep")
    gone = await clients.bob.runs.create(None, "echo", input=HELLO, after_seconds=3600)
    assert await clients.bob.runs.join(kept["thread_id"], kept["run_id"]) == SAID
    found = await clients.bob.threads.search(limit=100)
    assert [one["thread_id"] for one in found] == [kept["thread_id"]]
    assert await clients.bob.threads.count() == 1
    assert (await clients.bob.threads.get(gone["thread_id"]))["thread_id"] == gone["thread_id"]
    await clients.bob.runs.cancel(gone["thread_id"], gone["run_id"])


async def test_what_was_streamed_is_forgotten_after_an_hour(lonely: Stage) -> None:
    runs = []
    with lonely.serving() as served:
        async with clients_of(served) as clients:
            for _ in range(2):
                thread = await clients.ann.threads.create()
                run = await clients.ann.runs.create(
                    thread["thread_id"], "echo", input=HELLO, stream_resumable=True
                )
                await clients.ann.runs.join(thread["thread_id"], run["run_id"])
                runs.append(run["run_id"])
    kept = "SELECT DISTINCT run_id FROM chunks"
    assert {run_id for (run_id,) in lonely.sql(kept)} == set(runs)
    hour = 3600 * 1_000_000
    lonely.sql(f"UPDATE chunks SET at = at - {hour} WHERE run_id = '{runs[0]}'")
    with lonely.serving():
        await until(lambda: lonely.sql(kept) == [(runs[1],)])
