"""What every store of audited model calls must do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.records import ModelCall
from clew.ports import Audit, Store
from tests.samples import NOW, new_id, opened

pytestmark = pytest.mark.anyio

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
async def _threads(store: Store) -> None:
    for thread_id in ("t1", "t2"):
        await store.commit(opened(thread_id))


def model_call(turn_ref: int, *, thread_id: str = "t1", age: timedelta = timedelta()) -> ModelCall:
    return ModelCall(
        id=new_id(),
        thread_id=thread_id,
        turn_ref=turn_ref,
        model="some-model",
        rendered_context=[{"role": "system", "content": "the time is \0 noon"}],
        created_at=NOW - age,
        usage={"in": 10, "out": 2},
        latency_ms=1234,
        summary_version="v1",
        evictions=[{"seq": 3}],
    )


async def test_a_model_call_comes_back_as_it_was(audit: Audit) -> None:
    sent = model_call(1)
    failed = replace(model_call(2), status="failed", usage={}, summary_version=None, evictions=[])
    await audit.add(sent)
    await audit.add(failed)
    assert await audit.find("t1") == [failed, sent]


async def test_the_newest_of_one_thread_come_first(audit: Audit) -> None:
    for turn in (2, 1, 3):
        await audit.add(model_call(turn))
        await audit.add(model_call(turn * 10, thread_id="t2"))
    assert [call.turn_ref for call in await audit.find("t1")] == [3, 2, 1]
    assert [call.turn_ref for call in await audit.find("t2", limit=2)] == [30, 20]
    assert await audit.find("nobody") == []


@pytest.mark.accept("002-29")
async def test_without_a_bound_nothing_is_forgotten(audit: Audit) -> None:
    for turn in range(5):
        await audit.add(model_call(turn, age=1000 * DAY))
    assert len(await audit.find("t1")) == 5


@pytest.mark.accept("002-29")
async def test_a_row_cap_is_a_threads_own(audit: Audit) -> None:
    await audit.add(model_call(1, thread_id="t2"))
    for turn in range(1, 8):
        await audit.add(model_call(turn), keep=3)
        assert len(await audit.find("t1")) == min(turn, 3)
    assert [call.turn_ref for call in await audit.find("t1")] == [7, 6, 5]
    assert len(await audit.find("t2")) == 1


@pytest.mark.accept("002-29")
async def test_what_is_too_old_goes_and_what_is_younger_stays(audit: Audit) -> None:
    for turn, days in ((1, 40), (2, 31), (3, 30), (4, 29)):
        await audit.add(model_call(turn, age=days * DAY))
    await audit.add(model_call(9, thread_id="t2", age=50 * DAY))
    assert await audit.trim(older_than=NOW - 30 * DAY) == 3
    assert [call.turn_ref for call in await audit.find("t1")] == [4, 3]
    assert await audit.find("t2") == []
    assert await audit.trim(older_than=NOW - 30 * DAY) == 0


async def test_forgetting_goes_in_bounded_steps_the_oldest_first(audit: Audit) -> None:
    for turn in range(1, 6):
        await audit.add(model_call(turn, age=(10 - turn) * DAY))
    assert await audit.trim(older_than=NOW, limit=2) == 2
    assert [call.turn_ref for call in await audit.find("t1")] == [5, 4, 3]
