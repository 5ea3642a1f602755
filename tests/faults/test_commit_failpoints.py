"""A commit that fails at any of its named places: its callers are told, and the store goes on."""

import asyncio

import pytest

from clew.failpoints import installed
from tests.databases import DATABASES, locate, open_database, open_store
from tests.samples import asks, opened, recorded, said

pytestmark = pytest.mark.anyio

POINTS = ("commit_begun", "commit_written", "commit_done")


@pytest.fixture(params=DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.mark.parametrize("callers", [1, 8])
@pytest.mark.parametrize("action", ["raise", "cancel", "io_error"])
@pytest.mark.parametrize("point", POINTS)
async def test_whoever_is_not_told_of_a_failure_was_saved(
    where: str, point: str, action: str, callers: int
) -> None:
    async with open_database(where) as db, asyncio.timeout(20):
        store = open_store(db)
        before = [opened(f"t{n}") for n in range(callers)]
        for change in before:
            await store.commit(change)
        # Half of them as plain messages, half with tool calls: on Postgres they go different ways.
        changes = [
            recorded(change.thread, said(), *([] if n % 2 else [asks()])) for n, change in enumerate(before)
        ]
        with installed(f"{point}:{action}"):
            tasks = [asyncio.create_task(store.commit(change)) for change in changes]
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if not where.startswith("postgres"):  # which tries again, and has one way without a place between
            assert all(outcome is not None for outcome in outcomes[:1]), "the failpoint was passed by"
        assert not any(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes), "nobody has"
        for change, first, outcome in zip(changes, before, outcomes, strict=True):
            stored = await store.get(change.thread.id)
            log = await store.read(change.thread.id)
            if outcome is None or stored.last_seq == change.thread.last_seq:
                assert (stored, log[-1]) == (change.thread, change.events[-1])
            else:
                assert (stored, log) == (first.thread, list(first.events))
            if (
                point != "commit_done" and action != "cancel"
            ):  # whoever is cancelled is told nothing either way
                assert outcome is None or stored == first.thread, "not written, and not said to be"
            await store.commit(recorded(stored, said("the next one")))
