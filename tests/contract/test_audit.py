"""What every store of the audit trail must do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.ports.audit import AuditEntry, AuditQuery, AuditTrail
from clew.stores.sql.audit import AuditRows
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture
def trail(database: Database) -> AuditTrail:
    return AuditRows(database)


def entry(number: int, **more: object) -> AuditEntry:
    one = AuditEntry(
        id=f"{number:04}",
        at=NOW + timedelta(seconds=number),
        tenant="acme",
        user_id="ann",
        actor="key_1",
        action="approve",
        method="POST",
        path="/api/workflows/t1/approve",
        thread_id="t1",
        status=200,
        request_id="r1",
    )
    return replace(one, **more)  # type: ignore[arg-type]


async def test_the_newest_entries_of_one_tenant_come_first(trail: AuditTrail) -> None:
    mine, others = [entry(1), entry(3)], [entry(2, tenant="other"), entry(4, tenant="")]
    await trail.add([*mine, *others])
    assert await trail.find(AuditQuery(tenant="acme")) == mine[::-1]
    assert await trail.find(AuditQuery(tenant="")) == others[1:]
    assert [one.id for one in await trail.find(AuditQuery(tenant=None))] == ["0004", "0003", "0002", "0001"]


async def test_entries_are_found_by_user_thread_and_action_page_by_page(trail: AuditTrail) -> None:
    await trail.add([entry(n, user_id="bob" if n % 2 else "ann", thread_id=f"t{n % 3}") for n in range(9)])
    await trail.add([entry(9, action="stop_workflow")])
    bob = AuditQuery(tenant="acme", user_id="bob", limit=2)
    assert [one.id for one in await trail.find(bob)] == ["0007", "0005"]
    assert [one.id for one in await trail.find(replace(bob, before="0005"))] == ["0003", "0001"]
    assert [one.id for one in await trail.find(AuditQuery(tenant="acme", thread_id="t2"))] == [
        "0008",
        "0005",
        "0002",
    ]
    assert [one.id for one in await trail.find(AuditQuery(tenant="acme", action="stop_workflow"))] == ["0009"]


async def test_an_entry_is_never_changed(trail: AuditTrail) -> None:
    await trail.add([entry(1)])
    await trail.add([entry(1, status=500), entry(2)])
    assert await trail.find(AuditQuery(tenant="acme")) == [entry(2), entry(1)]


async def test_old_entries_are_deleted_a_bounded_number_at_a_time(trail: AuditTrail) -> None:
    await trail.add([entry(n) for n in range(5)])
    limit = NOW + timedelta(seconds=3)
    assert [await trail.trim(older_than=limit, limit=2) for _ in range(3)] == [2, 1, 0]
    assert [one.id for one in await trail.find(AuditQuery(tenant=None))] == ["0004", "0003"]


async def test_a_row_that_cannot_be_read_hides_no_other(trail: AuditTrail, database: Database) -> None:
    await trail.add([entry(1), entry(2)])
    await query(database, "UPDATE audit SET at = 9223372036854775807 WHERE id = '0001'")
    assert await trail.find(AuditQuery(tenant="acme")) == [entry(2)]
