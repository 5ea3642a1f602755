"""Conversations that are claimed and seen to, with a process that stands still for longer than its leases."""

import asyncio
from datetime import timedelta

import pytest

from clew.domain.records import Conversation, Incoming
from clew.engine.leased_loop import LeasedLoop
from clew.engine.notifier import LocalNotifier
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.inbox import InboxRows
from tests.databases import open_database
from tests.samples import NOW, new_id

pytestmark = pytest.mark.anyio


async def test_a_visit_whose_lease_ran_out_is_not_begun_beside_itself() -> None:
    begun: list[Conversation] = []
    go_on = asyncio.Event()

    async with open_database("memory") as db:
        conversations = ConversationRows(db)

        async def visit(held: Conversation) -> None:
            begun.append(held)
            if held.key == "slow":
                await go_on.wait()
            await conversations.rest(held, seen_seq=0, is_idle=True)

        visits = LeasedLoop(
            visit,
            sources=("bot",),
            conversations=conversations,
            notifier=LocalNotifier(),
            new_id=new_id,
            stopping=asyncio.Event(),
            poll_seconds=0.01,
            lease=timedelta(microseconds=-1),  # as after a standstill: run out as soon as it is looked at
            concurrency=4,
        )
        inbox = InboxRows(db)
        async with visits.going_on():
            for key in ("slow", "late"):
                await inbox.admit(
                    Incoming(
                        source="bot",
                        source_id=key,
                        fingerprint=key,
                        payload={},
                        conversation=key,
                        thread_id=key,
                    ),
                    now=NOW,
                )
                visits.wake()
                async with asyncio.timeout(30):
                    while key not in [held.key for held in begun]:
                        await asyncio.sleep(0.001)
            # Whoever came later was claimed by a look that met the slow one with its lease run out.
            go_on.set()
    assert [held.key for held in begun] == ["slow", "late"]
