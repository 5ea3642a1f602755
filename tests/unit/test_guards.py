"""Guards of a commit: the order in which they lock rows, and which commits can share a statement."""

import random
from collections.abc import Iterable
from datetime import timedelta

import pytest

from clew.domain.records import Incoming, RunHook
from clew.ports.guards import Admits, Claim, Fence, Guard, Once, Overdue, Reservation, Unseen
from clew.stores.sql.guards import work_of
from clew.stores.sql.work import Work
from tests.samples import NOW, opened

LOCKING: list[Guard] = [
    Once(tenant="acme", key="k", fingerprint="f", response=None),
    Admits(Incoming(source="s", source_id="1", fingerprint="f", payload=None)),
    Reservation(kind="a", key="1"),
    Reservation(kind="b", key="0"),
    Overdue("c1"),
    Unseen(NOW),
    RunHook(run_id="r1", thread_id="t1"),
]


def first_statements(works: Iterable[Work[None]]) -> list[tuple[str, object]]:
    return [(each.sql, each.args) for each in map(next, works)]  # type: ignore[union-attr] # none is a script


def test_rows_are_locked_in_one_order_however_the_guards_are_given() -> None:
    made = work_of(opened(), LOCKING)
    ordered = first_statements(made.before), first_statements(made.after)
    assert [len(each) for each in ordered] == [4, 3]
    for seed in range(20):
        shuffled = random.Random(seed).sample(LOCKING, len(LOCKING))
        made = work_of(opened(), shuffled)
        assert (first_statements(made.before), first_statements(made.after)) == ordered


@pytest.mark.parametrize("guard", LOCKING)
def test_a_guard_that_needs_a_statement_keeps_its_commit_alone(guard: Guard) -> None:
    assert not work_of(opened(), [Fence(3), guard]).is_only_fenced


def test_a_fence_and_a_claim_are_columns_of_the_thread_s_row() -> None:
    claim = Claim(runner="r1", lease=timedelta(minutes=1))
    made = work_of(opened(), [claim, Fence(3)])
    assert (made.fence, made.claim, made.is_only_fenced) == (3, claim, True)


def test_only_a_change_of_an_unseen_thread_is_no_access() -> None:
    assert [work_of(opened(), [one]).is_access for one in LOCKING] == [
        not isinstance(one, Unseen) for one in LOCKING
    ]
