"""Free slots are shared between the tenants that wait."""

import pytest

from clew.runners.tenant_turns import TenantTurns


@pytest.mark.parametrize(
    ("running", "free", "shares"),
    [
        ({}, 4, {}),
        ({"a": 0}, 4, {"a": 4}),
        ({"a": 8, "b": 0}, 1, {"b": 1}),
        ({"a": 8, "b": 0}, 9, {"b": 8, "a": 1}),
        ({"a": 0, "b": 0, "c": 0}, 4, {"a": 2, "b": 1, "c": 1}),
        ({"a": 3, "b": 1, "c": 0}, 3, {"c": 2, "b": 1}),
        ({"a": 1, "b": 1}, 0, {}),
    ],
)
def test_each_slot_goes_to_the_tenant_with_fewest_running(
    running: dict[str, int], free: int, shares: dict[str, int]
) -> None:
    assert dict(TenantTurns().share(running, free)) == shares


def test_with_one_slot_tenants_take_turns_and_a_new_one_comes_first() -> None:
    turns = TenantTurns()
    one, two, three = {"a": 0}, {"a": 0, "b": 0}, {"a": 0, "b": 0, "c": 0}
    taken = [next(iter(turns.share(running, 1))) for running in (one, two, two, two, three, two, one, two)]
    assert taken == ["a", "b", "a", "b", "c", "a", "a", "b"]
