"""Run hooks on every database: written with their runs, claimed once, snoozed, discarded."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from clew.domain.errors import Conflict, Duplicate, NotFound
from clew.domain.events import RoundFinished
from clew.domain.records import Incoming, RunHook
from clew.domain.thread import Owner, Status
from clew.ports.inbox import Inbox
from clew.ports.run_hooks import PER_TENANT, FailedWebhooks, RunHookStore
from clew.ports.thread_metadata import ThreadSearch
from clew.ports.threads import Store
from clew.stores.sql.inbox import InboxRows
from clew.stores.sql.run_hooks import RunHookRows, add_hook
from clew.stores.sql.thread_metadata import ThreadMetadataRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import ANN, NOW, opened, recorded

pytestmark = pytest.mark.anyio

LEASE = timedelta(seconds=30)
AT_ONCE = timedelta()
LONG = timedelta(days=1)


@pytest.fixture
def hooks(database: Database) -> RunHookStore:
    return RunHookRows(database)


@pytest.fixture
def failed(database: Database) -> FailedWebhooks:
    return RunHookRows(database)


@pytest.fixture
def inbox(database: Database) -> Inbox:
    return InboxRows(database)


def hook(given: str = "r", /, **changes: Any) -> RunHook:
    made = RunHook(run_id=given, thread_id="t", webhook="https://example.com/é", is_temporary=True)
    return replace(made, **changes)


async def add(database: Database, *hooks: RunHook) -> None:
    for one in hooks:
        await database.write(partial(add_hook, one))


async def claimed(hooks: RunHookStore, lease: timedelta = LEASE) -> list[RunHook]:
    are_due = await hooks.are_due()
    found = await hooks.claim(lease=lease, limit=100)
    assert are_due == bool(found)
    return sorted(found, key=lambda one: one.run_id)


async def test_a_due_hook_is_claimed_once(hooks: RunHookStore, database: Database) -> None:
    plain = hook("r2", webhook="", is_temporary=False)
    await add(database, hook(), plain, hook("later", wait=LONG))
    found = await asyncio.gather(*(hooks.claim(lease=LEASE, limit=100) for _ in range(10)))
    assert sorted((one for some in found for one in some), key=lambda one: one.run_id) == [hook(), plain]
    assert await claimed(hooks) == []


async def test_a_lease_that_has_run_out_frees_it(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook())
    assert await claimed(hooks, lease=AT_ONCE) == [hook()]
    assert await claimed(hooks) == [hook()]
    assert await claimed(hooks) == []


async def test_a_heartbeat_prolongs_the_lease(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook())
    (held,) = await claimed(hooks, lease=AT_ONCE)
    await hooks.heartbeat(held, lease=LEASE)
    assert await claimed(hooks) == []


async def test_a_hook_that_is_worked_on_is_not_claimed_again(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook(), hook("other"))
    held = await claimed(hooks, lease=AT_ONCE)
    assert await hooks.claim(lease=LEASE, limit=100, alive=held[:1]) == held[1:]


async def test_a_snoozed_hook_comes_back_as_it_was_left(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook())
    (held,) = await claimed(hooks)
    await hooks.snooze(left := replace(held, webhook="", attempts=3), wait=AT_ONCE)
    assert await claimed(hooks) == [left]
    await hooks.snooze(left, wait=LONG)
    assert await claimed(hooks) == []


async def test_a_discarded_hook_is_gone(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook())
    await hooks.discard(hook())
    await hooks.discard(hook())
    await hooks.snooze(hook(), wait=AT_ONCE)
    assert await claimed(hooks) == []


async def test_a_webhook_that_is_given_up_is_listed_for_its_owner_and_claimed_no_more(
    hooks: RunHookStore, failed: FailedWebhooks, store: Store, database: Database
) -> None:
    change = opened("t")
    await store.commit(change)
    await store.commit(recorded(change.thread, RoundFinished(status=Status.COMPLETED)))
    await add(database, hook())
    (held,) = await claimed(hooks)
    await hooks.give_up(replace(held, attempts=11), reason="answered 500")
    await hooks.heartbeat(held, lease=AT_ONCE)
    assert await claimed(hooks) == []
    for owner in (None, ANN):
        (one,) = await failed.failed(owner)
        assert (one.run_id, one.url, one.attempts, one.reason) == ("r", hook().webhook, 11, "answered 500")
        assert one.owner == ANN
    stranger = Owner(tenant="another")
    assert await failed.failed(stranger) == []
    for act in (failed.call_again, failed.dismiss):
        with pytest.raises(NotFound):
            await act("r", stranger)
    await failed.call_again("r", ANN)
    assert await failed.failed(ANN) == []
    assert await claimed(hooks) == [hook()], "with all its attempts"


async def test_a_webhook_that_was_given_up_is_dismissed_once(
    hooks: RunHookStore, failed: FailedWebhooks, store: Store, database: Database
) -> None:
    await store.commit(opened("t"))
    await add(database, hook(), hook("due"))
    await hooks.give_up(hook(), reason="not reached")
    with pytest.raises(NotFound):
        await failed.dismiss("due", ANN)
    await failed.dismiss("r", ANN)
    assert await failed.failed() == []
    with pytest.raises(NotFound):
        await failed.dismiss("r", ANN)


async def test_a_hook_that_is_written_again_only_waits_anew(hooks: RunHookStore, database: Database) -> None:
    await add(database, hook(wait=LONG), hook(webhook="https://other.example/"))
    assert await claimed(hooks) == [hook()]


async def test_a_hook_is_written_with_the_commit_that_starts_its_run(
    hooks: RunHookStore, store: Store
) -> None:
    change = opened("t")
    assert change.thread.status is Status.RUNNING
    await store.commit(change, hook())
    assert await claimed(hooks) == [], "while its thread runs there is nothing to do"
    with pytest.raises(Conflict):
        await store.commit(change, hook("refused"))
    ended = recorded(change.thread, RoundFinished(status=Status.COMPLETED))
    await store.commit(ended, hook("also"))
    assert await claimed(hooks) == [hook("also"), hook()]


async def test_a_hook_is_written_with_the_run_that_is_queued(
    hooks: RunHookStore, inbox: Inbox, store: Store
) -> None:
    await store.commit(opened("t"))
    queued = Incoming(source="s", source_id="r", fingerprint="r", payload={}, thread_id="t")
    later = hook(thread_id="elsewhere")
    assert await inbox.admit(queued, now=NOW, is_opened=True, hook=later)
    assert await claimed(hooks) == [later]
    assert not await inbox.admit(queued, now=NOW, is_opened=True, hook=replace(later, run_id="again"))
    with pytest.raises(Duplicate):
        await inbox.admit(replace(queued, fingerprint="x"), now=NOW, hook=replace(later, run_id="other"))
    assert await claimed(hooks) == []


async def test_hooks_are_deleted_with_their_thread(
    hooks: RunHookStore, store: Store, database: Database
) -> None:
    change = opened()
    await store.commit(change, hook(thread_id=change.thread.id))
    await add(database, hook("other"))
    await store.tombstone(change.thread.id, now=NOW)
    while await store.purge():
        pass
    assert [tuple(row) for row in await query(database, "SELECT run_id FROM run_hooks")] == [("other",)]


async def test_a_temporary_thread_is_in_no_list(store: Store, database: Database) -> None:
    metadata = ThreadMetadataRows(database)
    change = opened()
    await store.commit(change)
    wanted = ThreadSearch(owner=ANN)
    await add(database, hook(thread_id=change.thread.id, is_temporary=False))
    assert (await metadata.find(wanted), await metadata.count(wanted)) == ([change.thread.id], 1)
    await add(database, hook("r2", thread_id=change.thread.id))
    assert (await metadata.find(wanted), await metadata.count(wanted)) == ([], 0)


async def test_hooks_of_a_tenant_leave_room_for_those_of_another(
    hooks: RunHookStore, store: Store, database: Database
) -> None:
    for tenant in ("many", "single"):
        change = opened(tenant, owner=Owner(tenant=tenant))
        await store.commit(change)
        ended = recorded(change.thread, RoundFinished(status=Status.COMPLETED))
        await store.commit(ended)
    await add(database, *(hook(f"m{number:03}", thread_id="many") for number in range(2 * PER_TENANT)))
    await add(database, hook("s1", thread_id="single"))
    first = await hooks.claim(lease=LEASE, limit=2)
    assert {one.thread_id for one in first} == {"many", "single"}
    rest = await hooks.claim(lease=LEASE, limit=100, alive=first)
    assert len(rest) == PER_TENANT - 1
    assert await hooks.claim(lease=LEASE, limit=100, alive=[*first, *rest]) == []
    await add(database, hook("s2", thread_id="single"))
    assert [one.run_id for one in await hooks.claim(lease=LEASE, limit=100, alive=[*first, *rest])] == ["s2"]
