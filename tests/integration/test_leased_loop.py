"""The leased loop: what it does with jobs that end, fail, or outlive their lease."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from clew.domain.errors import LostLease, NotFound, Unavailable
from clew.domain.records import Conversation, Incoming
from clew.engine.leased_loop import ConversationJobs, LeasedLoop, about_conversation
from clew.engine.notifier import LocalNotifier
from clew.stores.sql.conversations import ConversationRows
from clew.stores.sql.inbox import InboxRows
from tests.databases import open_database
from tests.samples import NOW, new_id

pytestmark = pytest.mark.anyio


async def test_a_job_whose_lease_ran_out_is_not_worked_on_beside_itself() -> None:
    begun: list[Conversation] = []
    go_on = asyncio.Event()

    async with open_database("memory") as db:
        conversations = ConversationRows(db)

        async def work(held: Conversation) -> None:
            begun.append(held)
            if held.key == "slow":
                await go_on.wait()
            await conversations.release(held, seen_seq=0, is_idle=True)

        loop = LeasedLoop(
            ConversationJobs(conversations=conversations, sources=("bot",), new_id=new_id),
            work,
            name="chats",
            about=about_conversation,
            lease=timedelta(microseconds=-1),  # as after a standstill: run out as soon as it is claimed
            concurrency=4,
            poll_seconds=0.01,
            notifier=LocalNotifier(),
        )
        inbox = InboxRows(db)
        async with loop.running():
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
                loop.wake()
                async with asyncio.timeout(30):
                    while key not in [held.key for held in begun]:
                        await asyncio.sleep(0.001)
            # The later one was claimed by a poll that met the slow one with its lease run out.
            go_on.set()
    assert [held.key for held in begun] == ["slow", "late"]


@dataclass
class Jobs:
    """Jobs in memory: due until they are claimed, or snoozed for no time."""

    due: list[str]
    beats: list[str] = field(default_factory=list)
    snoozed: list[str] = field(default_factory=list)

    async def are_due(self) -> bool:
        return bool(self.due)

    async def claim(
        self,
        *,
        lease: timedelta,
        limit: int,
        alive: Collection[str],
    ) -> Sequence[str]:
        claimed, self.due = self.due[:limit], self.due[limit:]
        return claimed

    async def heartbeat(self, job: str, *, lease: timedelta) -> None:
        self.beats.append(job)

    async def snooze(self, job: str, *, wait: timedelta) -> None:
        self.snoozed.append(job)


def loop_of(jobs: Jobs, work: "Work", *, lease: float = 60, concurrency: int = 2) -> LeasedLoop[str]:
    return LeasedLoop(
        jobs,
        work,
        name="jobs",
        about=lambda job: {"source": job},
        lease=timedelta(seconds=lease),
        concurrency=concurrency,
        poll_seconds=60,
        grace_seconds=0,
    )


class Work:
    def __init__(self, **errors: Exception) -> None:
        self.done: list[str] = []
        self._errors = errors

    async def __call__(self, job: str) -> None:
        self.done.append(job)
        if job in self._errors:
            raise self._errors[job]


async def test_a_turn_says_whether_more_may_be_due() -> None:
    jobs, work = Jobs(["a", "b", "c"]), Work()
    loop = loop_of(jobs, work)
    assert [await loop.turn() for _ in range(3)] == [True, False, False]
    assert (work.done, jobs.snoozed) == (["a", "b", "c"], [])


async def test_a_turn_in_which_a_job_failed_is_not_repeated_at_once() -> None:
    jobs = Jobs(["a", "b"])
    assert not await loop_of(jobs, Work(b=RuntimeError("ours"))).turn()
    assert jobs.snoozed == ["b"]


@pytest.mark.parametrize("error", [LostLease("gone"), Unavailable("away")])
async def test_a_job_is_left_to_its_lease_when_it_cannot_be_written(error: Exception) -> None:
    jobs = Jobs(["a"])
    assert not await loop_of(jobs, Work(a=error), concurrency=1).turn()
    assert jobs.snoozed == []


async def test_a_failed_job_does_not_stop_the_others() -> None:
    jobs, work = Jobs(["a", "b", "c", "d"]), Work(a=NotFound("no thread"), b=RuntimeError("ours"))
    loop = loop_of(jobs, work)
    async with loop.running(), asyncio.timeout(30):
        while len(work.done) < 4:
            await asyncio.sleep(0.001)
    assert jobs.snoozed == ["a", "b"]


async def test_a_slow_job_has_heartbeats_until_it_ends() -> None:
    jobs, ends = Jobs(["a"]), asyncio.Event()

    async def work(job: str) -> None:
        await ends.wait()

    loop = LeasedLoop(
        jobs,
        work,
        name="jobs",
        about=lambda job: {"source": job},
        lease=timedelta(milliseconds=30),
        concurrency=1,
        poll_seconds=60,
    )
    before = asyncio.all_tasks()
    turn = asyncio.create_task(loop.turn())
    async with asyncio.timeout(30):
        while len(jobs.beats) < 3:
            await asyncio.sleep(0.001)
        ends.set()
        assert await turn
    await asyncio.sleep(0)  # the task of the heartbeats sees that it was cancelled
    assert asyncio.all_tasks() == before


async def test_a_cancelled_turn_cancels_its_jobs() -> None:
    jobs, cancelled = Jobs(["a"]), asyncio.Event()
    begun = asyncio.Event()

    async def work(job: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    loop = LeasedLoop(
        jobs,
        work,
        name="jobs",
        about=lambda job: {"source": job},
        lease=timedelta(seconds=60),
        concurrency=1,
        poll_seconds=60,
    )
    turn = asyncio.create_task(loop.turn())
    await begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert cancelled.is_set()
