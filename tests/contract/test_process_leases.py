"""The leases of a dead process end at once: those of chats, run hooks and crons as those of threads."""

from datetime import timedelta

import pytest

from clew.domain.errors import LostLease
from clew.ports.inbox import Inbox
from clew.ports.threads import Store
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.crons import CronRows
from clew.stores.sql.run_hooks import RunHookRows, add_hook
from clew.stores.sql.work import Database
from tests.contract.test_conversations import BOT, message
from tests.contract.test_crons import job
from tests.contract.test_run_hooks import hook
from tests.samples import NOW

pytestmark = pytest.mark.anyio

LEASE = timedelta(minutes=5)
LATER = NOW + timedelta(minutes=2)


async def test_what_a_dead_process_had_is_due_at_once(database: Database, store: Store, inbox: Inbox) -> None:
    dead = RunHookRows(database, "dead"), CronRows(database, "dead"), ConversationRows(database, "dead")
    other = RunHookRows(database, "other"), CronRows(database, "other"), ConversationRows(database, "other")
    await database.write(lambda: add_hook(hook()))
    await dead[1].add(job(), most=10)
    await inbox.admit(message(1), now=NOW)

    async def claim(hooks: RunHookRows, crons: CronRows, conversations: ConversationRows) -> list[int]:
        return [
            len(await hooks.claim(lease=LEASE, limit=10)),
            len(await crons.claim(now=LATER, lease=LEASE, limit=10)),
            len(await conversations.claim("me", (BOT,), lease=LEASE, limit=10)),
        ]

    assert await store.lease_owners() == []
    assert await claim(*dead) == [1, 1, 1]
    assert await store.lease_owners() == ["dead"]
    assert await claim(*other) == [0, 0, 0]
    assert await store.end_leases("another") == 0
    assert await store.end_leases("dead") == 3
    assert await claim(*other) == [1, 1, 1]
    assert await store.lease_owners() == ["other"]


async def test_what_waits_for_its_next_turn_is_no_lease(
    database: Database, store: Store, inbox: Inbox
) -> None:
    """Or the death of a process would end the pause of a webhook that failed."""
    hooks, crons, conversations = (
        RunHookRows(database, "dead"),
        CronRows(database, "dead"),
        ConversationRows(database, "dead"),
    )
    await database.write(lambda: add_hook(hook()))
    await crons.add(job(), most=10)
    await inbox.admit(message(1), now=NOW)
    (one,) = await hooks.claim(lease=LEASE, limit=10)
    (cron,) = await crons.claim(now=LATER, lease=LEASE, limit=10)
    (held,) = await conversations.claim("me", (BOT,), lease=LEASE, limit=10)
    await hooks.heartbeat(one, lease=LEASE)
    await crons.heartbeat(cron, lease=LEASE)
    assert await store.lease_owners() == ["dead"]
    await hooks.snooze(one, wait=LEASE)
    await crons.snooze(cron, wait=LEASE)
    await conversations.snooze(held, wait=LEASE)
    assert await store.lease_owners() == []
    assert await store.end_leases("dead") == 0
    with pytest.raises(LostLease):
        await conversations.heartbeat(held, lease=LEASE)
