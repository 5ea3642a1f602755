"""Crons as LangGraph's own client orders them, of real servers on either database."""

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError, UnprocessableEntityError

from tests.acceptance.sdk import Clients, SdkServer, clients_of
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.waiting import until

pytestmark = pytest.mark.anyio

DAILY = "0 9 * * *"
WEST, EAST = timezone(timedelta(hours=-12)), timezone(timedelta(hours=14))
ECHO = "046b5dc7-2108-582c-9c6c-31d556d138f0"
HELLO = {"words": ["hello"]}
SAID = ["hello", "you said hello"]
SECONDS = 30.0


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def stage(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with stage_on(
        kind,
        request,
        tmp_path_factory.mktemp("crons"),
        CLEW_LANGGRAPH_CRONS="20",
        CLEW_LANGGRAPH_TEMPORARY_SECONDS="0",
    ) as stage:
        yield stage


@pytest.fixture
def lonely(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Where nobody is but those whom the test brings."""
    with stage_on(kind, request, tmp_path, CLEW_RUNNER_LEASE_SECONDS="2") as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving() as served:
        yield served


@pytest.fixture
async def clients(served: SdkServer) -> AsyncIterator[Clients]:
    async with clients_of(served) as clients:
        yield clients
        for client in (clients.acme, clients.rival):
            for one in await client.crons.search(limit=100):
                await client.crons.delete(one["cron_id"])


def miss(stage: Stage, *cron_ids: str, since: timedelta = timedelta(days=3)) -> None:
    """As if nobody had been there at their time, so long ago."""
    ago = int((datetime.now(UTC) - since).timestamp() * 1_000_000)
    named = ", ".join(f"'{one}'" for one in cron_ids)
    stage.sql(f"UPDATE crons SET next_at = {ago}, counted_at = {ago} WHERE id IN ({named})")


def free(stage: Stage) -> None:
    """What a server held that was killed, before its lease has run out."""
    stage.sql("UPDATE crons SET claimed_until = 0")


async def taken(clients: Clients, cron_id: str) -> Any:
    """The cron, once a time that was missed is behind it."""

    async def found() -> Any:
        (one,) = [one for one in await clients.acme.crons.search(limit=100) if one["cron_id"] == cron_id]
        return one if one["next_run_date"] > datetime.now(UTC).isoformat() else None

    return await until(found)


async def ended(client: Any, thread_id: str) -> list[Any]:
    """The runs of a thread, once they are over."""

    async def found() -> Any:
        runs = await client.runs.list(thread_id)
        return runs if runs and all(run["status"] not in ("pending", "running") for run in runs) else None

    return list(await until(found))


async def test_a_cron_is_made_found_changed_and_deleted(clients: Clients) -> None:
    end = datetime(2099, 1, 1, tzinfo=UTC)
    made = await clients.ann.crons.create(
        "echo",
        schedule=DAILY,
        timezone="Europe/Berlin",
        input=HELLO,
        metadata={"team": {"name": "x"}},
        config={"tags": ["t"]},
        interrupt_before=["say"],
        end_time=end,
        on_run_completed="keep",
    )
    due = datetime.fromisoformat(made["next_run_date"])
    assert due > datetime.now(UTC)
    assert due.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "09:00"
    fields = ("assistant_id", "thread_id", "user_id", "schedule", "timezone", "on_run_completed", "enabled")
    assert {name: made[name] for name in fields} == {
        "assistant_id": ECHO,
        "thread_id": None,
        "user_id": "ann",
        "schedule": DAILY,
        "timezone": "Europe/Berlin",
        "on_run_completed": "keep",
        "enabled": True,
    }
    assert datetime.fromisoformat(made["end_time"]) == end
    assert made["metadata"] == {"team": {"name": "x"}}
    assert made["payload"]["input"] == HELLO
    assert made["payload"]["interrupt_before"] == ["say"]
    assert await clients.ann.crons.search() == [made]

    changed = await clients.ann.crons.update(
        made["cron_id"],
        schedule="30 7 * * *",
        timezone="Asia/Tokyo",
        input={"words": ["bye"]},
        metadata={"more": 1},
        enabled=False,
        end_time=None,
        on_run_completed="delete",
    )
    due = datetime.fromisoformat(changed["next_run_date"])
    assert due.astimezone(ZoneInfo("Asia/Tokyo")).strftime("%H:%M") == "07:30"
    assert changed["metadata"] == {"team": {"name": "x"}, "more": 1}
    assert changed["payload"]["input"] == {"words": ["bye"]}
    assert (changed["end_time"], changed["enabled"], changed["on_run_completed"]) == (None, False, "delete")
    assert changed["payload"]["interrupt_before"] == ["say"]
    assert changed["updated_at"] > made["updated_at"]
    assert await clients.ann.crons.search() == [changed]

    await clients.ann.crons.delete(made["cron_id"])
    assert await clients.ann.crons.search() == []
    with pytest.raises(NotFoundError):
        await clients.ann.crons.delete(made["cron_id"])
    with pytest.raises(NotFoundError):
        await clients.ann.crons.update(made["cron_id"], enabled=True)


async def test_crons_are_searched_and_counted(clients: Clients) -> None:
    thread = await clients.ann.threads.create()
    one = await clients.ann.crons.create("echo", schedule=DAILY, metadata={"n": {"a": 1}})
    two = await clients.ann.crons.create(
        "nested", schedule="0 8 * * *", enabled=False, metadata={"n": {"a": 2}}
    )
    three = await clients.ann.crons.create_for_thread(thread["thread_id"], "echo", schedule="* * * * *")
    ids = [made["cron_id"] for made in (one, two, three)]

    async def found(**wanted: Any) -> list[int]:
        return [ids.index(cron["cron_id"]) for cron in await clients.ann.crons.search(**wanted)]

    assert await found() == [2, 1, 0]
    assert await found(sort_by="created_at", sort_order="asc") == [0, 1, 2]
    assert (await found(sort_by="next_run_date", sort_order="asc"))[0] == 2
    assert await found(limit=1, offset=1) == [1]
    assert await found(assistant_id="echo") == [2, 0] == await found(assistant_id=ECHO)
    assert await found(thread_id=thread["thread_id"]) == [2]
    assert await found(enabled=False) == [1]
    assert await found(metadata={"n": {"a": 1}}) == [0]
    assert await found(metadata={"n": {"a": 3}}) == []
    (part,) = await clients.ann.crons.search(enabled=False, select=["cron_id", "schedule"])
    assert part == {"cron_id": ids[1], "schedule": "0 8 * * *"}
    assert await clients.ann.crons.count() == 3
    assert await clients.ann.crons.count(assistant_id="echo", metadata={"n": {"a": 1}}) == 1
    assert three["on_run_completed"] is None


async def test_what_is_no_cron_is_refused_by_name(clients: Clients) -> None:
    for wrong, word in (
        ({"schedule": "61 * * * *"}, "61 * * * *"),
        ({"schedule": "0 0 30 2 *"}, "never comes"),
        ({"schedule": ""}, "schedule"),
        ({"schedule": DAILY, "timezone": "Mars/Olympus"}, "Mars/Olympus"),
        ({"schedule": DAILY, "timezone": "../../etc/passwd"}, "timezone"),
        ({"schedule": DAILY, "webhook": "ftp://example.com"}, "webhook"),
        ({"schedule": DAILY, "on_run_completed": "never"}, "on_run_completed"),
        ({"schedule": DAILY, "end_time": datetime.max.replace(tzinfo=WEST)}, "between the years"),
        ({"schedule": DAILY, "end_time": datetime.min.replace(tzinfo=EAST)}, "between the years"),
    ):
        with pytest.raises(UnprocessableEntityError) as refused:
            await clients.ann.crons.create("echo", **wrong)
        assert word in refused.value.response.text
    with pytest.raises(NotFoundError):
        await clients.ann.crons.create(str(uuid4()), schedule=DAILY)
    with pytest.raises(NotFoundError):
        await clients.ann.crons.create_for_thread(str(uuid4()), "echo", schedule=DAILY)
    made = await clients.ann.crons.create("echo", schedule=DAILY)
    for patch in ({"schedule": "often"}, {"timezone": "Mars"}, {"webhook": "nowhere"}, {}):
        with pytest.raises(UnprocessableEntityError):
            await clients.ann.crons.update(made["cron_id"], **patch)
    assert await clients.ann.crons.search() == [made]


async def test_another_owners_cron_is_not_found(clients: Clients) -> None:
    thread = await clients.ann.threads.create()
    made = await clients.ann.crons.create_for_thread(thread["thread_id"], "echo", schedule=DAILY)
    for other in (clients.bob, clients.rival):
        with pytest.raises(NotFoundError):
            await other.crons.update(made["cron_id"], enabled=False)
        with pytest.raises(NotFoundError):
            await other.crons.delete(made["cron_id"])
        with pytest.raises(NotFoundError):
            await other.crons.create_for_thread(thread["thread_id"], "echo", schedule=DAILY)
        assert await other.crons.search() == []
        assert await other.crons.count() == 0
    assert await clients.acme.crons.search() == [made]


async def test_one_user_has_only_so_many(clients: Clients) -> None:
    for _ in range(20):
        await clients.bob.crons.create("echo", schedule=DAILY)
    with pytest.raises(ConflictError):
        await clients.bob.crons.create("echo", schedule=DAILY)
    await clients.ann.crons.create("echo", schedule=DAILY)


async def test_times_that_were_missed_are_made_up_for_once(clients: Clients, stage: Stage) -> None:
    thread = await clients.ann.threads.create()
    made = await clients.ann.crons.create_for_thread(
        thread["thread_id"], "echo", schedule="*/5 * * * *", input=HELLO, metadata={"who": "cron"}
    )
    miss(stage, made["cron_id"])
    after = await taken(clients, made["cron_id"])
    assert after["updated_at"] == made["updated_at"]
    (run,) = await ended(clients.ann, thread["thread_id"])
    assert (run["status"], run["metadata"]) == ("success", {"who": "cron"})
    assert run["kwargs"]["config"]["configurable"]["cron_id"] == made["cron_id"]
    state = await clients.ann.threads.get_state(thread["thread_id"])
    assert state["values"] == {"words": SAID}


async def test_without_a_thread_each_time_has_one_of_its_own(clients: Clients, stage: Stage) -> None:
    made = await clients.ann.crons.create(
        "echo", schedule=DAILY, input=HELLO, on_run_completed="keep", metadata={"kept": True}
    )
    for count in (1, 2):
        miss(stage, made["cron_id"], since=timedelta(days=count))
        await taken(clients, made["cron_id"])
        threads = await clients.ann.threads.search(metadata={"assistant_id": ECHO}, limit=100)
        own = [
            one["thread_id"]
            for one in threads
            if (await ended(clients.ann, one["thread_id"]))[0]["metadata"] == {"kept": True}
        ]
        assert len(own) == count


async def test_a_thread_that_is_not_kept_goes_with_its_run(clients: Clients, stage: Stage) -> None:
    made = await clients.ann.crons.create("echo", schedule=DAILY, input=HELLO)
    before = stage.sql("SELECT count(*) FROM tombstones")[0][0]
    miss(stage, made["cron_id"])
    await taken(clients, made["cron_id"])

    async def is_gone() -> bool:
        return stage.sql("SELECT count(*) FROM tombstones")[0][0] > before and not stage.sql(
            "SELECT 1 FROM run_hooks"
        )

    await until(is_gone)


async def test_what_is_disabled_or_over_is_not_begun(clients: Clients, stage: Stage) -> None:
    threads = [(await clients.ann.threads.create())["thread_id"] for _ in range(3)]
    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    kinds: list[dict[str, Any]] = [{"enabled": False}, {"end_time": hour_ago}, {}]
    off, over, on = [
        await clients.ann.crons.create_for_thread(thread_id, "echo", schedule=DAILY, input=HELLO, **more)
        for thread_id, more in zip(threads, kinds, strict=True)
    ]
    assert over["next_run_date"] is None
    miss(stage, off["cron_id"], over["cron_id"], on["cron_id"])
    await taken(clients, on["cron_id"])

    async def is_seen_to_be_over() -> bool:
        (over,) = await clients.ann.crons.search(thread_id=threads[1])
        return over["next_run_date"] is None

    await until(is_seen_to_be_over)  # each of those that are due is moved on by itself
    assert [len(await clients.ann.runs.list(one)) for one in threads] == [0, 0, 1]
    # Enabled again, it does not make up for what it was not to do.
    back = await clients.ann.crons.update(off["cron_id"], enabled=True)
    assert back["next_run_date"] > datetime.now(UTC).isoformat()


async def test_a_cron_that_cannot_begin_waits_for_its_next_time(clients: Clients, stage: Stage) -> None:
    assistant = await clients.ann.assistants.create("echo")
    made = await clients.ann.crons.create(assistant["assistant_id"], schedule=DAILY, input=HELLO)
    await clients.ann.assistants.delete(assistant["assistant_id"])
    miss(stage, made["cron_id"])
    await taken(clients, made["cron_id"])
    assert [one["cron_id"] for one in await clients.ann.crons.search()] == [made["cron_id"]]


async def test_a_clock_that_was_wrong_does_not_put_off_a_cron_for_years(
    clients: Clients, stage: Stage
) -> None:
    thread = await clients.ann.threads.create()
    made = await clients.ann.crons.create_for_thread(
        thread["thread_id"], "echo", schedule="*/5 * * * *", input=HELLO
    )
    miss(stage, made["cron_id"], since=timedelta(days=-900))

    async def is_back() -> bool:
        (one,) = await clients.ann.crons.search()
        return bool(one["next_run_date"] < (datetime.now(UTC) + timedelta(minutes=6)).isoformat())

    await until(is_back)
    assert await clients.ann.runs.list(thread["thread_id"]) == []


async def test_the_crons_of_a_thread_go_with_it(clients: Clients) -> None:
    thread = await clients.ann.threads.create()
    await clients.ann.crons.create_for_thread(thread["thread_id"], "echo", schedule=DAILY)
    await clients.ann.threads.delete(thread["thread_id"])
    assert await clients.ann.crons.search() == []


@pytest.mark.fault("C10")
async def test_of_several_servers_one_begins_it(clients: Clients, stage: Stage) -> None:
    threads, crons = [], []
    for _ in range(20):
        threads.append((await clients.ann.threads.create())["thread_id"])
        made = await clients.ann.crons.create_for_thread(
            threads[-1], "echo", schedule=DAILY, input=HELLO, multitask_strategy="interrupt"
        )
        crons.append(made["cron_id"])
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(stage.serving())
        for count in range(1, 4):
            miss(stage, *crons, since=timedelta(days=count))
            for cron_id in crons:
                await taken(clients, cron_id)
            for thread_id in threads:
                runs = await ended(clients.ann, thread_id)
                assert [run["status"] for run in runs] == ["success"] * count


@pytest.mark.fault("C10")
@pytest.mark.parametrize("strategy", ["enqueue", "interrupt", pytest.param("reject", marks=pytest.mark.long)])
async def test_a_kill_neither_loses_a_time_nor_doubles_it(lonely: Stage, strategy: str) -> None:
    with lonely.serving(CLEW_FAILPOINTS="cron_begun_before_advance:kill") as dying:
        async with clients_of(dying) as clients:
            thread = await clients.ann.threads.create()
            made = await clients.ann.crons.create_for_thread(
                thread["thread_id"], "echo", schedule=DAILY, input=HELLO, multitask_strategy=strategy
            )
            own = await clients.ann.crons.create("echo", schedule=DAILY, input=HELLO, on_run_completed="keep")
            crons = made["cron_id"], own["cron_id"]
            miss(lonely, *crons)
        dying.server.wait()
    # One of them has begun and does not know it. The next server gets as far as that with the other one.
    with lonely.serving(CLEW_FAILPOINTS="cron_begun_before_advance:kill@2") as dying:
        free(lonely)
        dying.server.wait()
    with lonely.serving() as served:
        free(lonely)
        async with clients_of(served) as clients:
            for cron_id in crons:
                await taken(clients, cron_id)
            (run,) = await ended(clients.ann, thread["thread_id"])
            assert run["status"] == "success"
            (other,) = [
                one["thread_id"]
                for one in await clients.ann.threads.search()
                if one["thread_id"] != thread["thread_id"]
            ]
            (run,) = await ended(clients.ann, other)
            assert run["status"] == "success"


async def test_a_kill_before_it_has_begun_loses_nothing(lonely: Stage) -> None:
    # The first commit of that server makes the thread, the second would begin the run.
    with lonely.serving(CLEW_FAILPOINTS="accept_before_commit:kill@2") as dying:
        async with clients_of(dying) as clients:
            thread = await clients.ann.threads.create()
            made = await clients.ann.crons.create_for_thread(
                thread["thread_id"], "echo", schedule=DAILY, input=HELLO
            )
            miss(lonely, made["cron_id"])
        dying.server.wait()
    with lonely.serving() as served:
        free(lonely)
        async with clients_of(served) as clients:
            await taken(clients, made["cron_id"])
            (run,) = await ended(clients.ann, thread["thread_id"])
            assert run["status"] == "success"
