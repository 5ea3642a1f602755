"""What every keeper of assistants must do."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from clew.domain.assistants import Assistant, Search
from clew.domain.errors import NotFound
from clew.domain.thread import Owner
from clew.ports.assistants import Assistants
from clew.stores.sql.assistants import PAGE, AssistantRows
from clew.stores.sql.work import Database
from tests.samples import ANN, NOW

pytestmark = pytest.mark.anyio

BOB = Owner(tenant=ANN.tenant, user_id="bob")
ACME = Owner(tenant=ANN.tenant)
RIVAL = Owner(tenant="rival", user_id=ANN.user_id)
LATER = NOW + timedelta(hours=1)
ALL = Search()


@pytest.fixture
def assistants(database: Database) -> Assistants:
    return AssistantRows(database)


def assistant(given: str = "a", /, **changes: Any) -> Assistant:
    made = Assistant(
        id=given,
        graph="echo",
        name="Parrot",
        description="says it again",
        config={"tags": ["t"], "configurable": {"é": 1}},
        context={"é": 1},
        metadata={"team": {"x": [1, None]}},
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(made, **changes)


async def ids(assistants: Assistants, owner: Owner = ANN, **wanted: Any) -> list[str]:
    return sorted(one.id for one in await assistants.find(owner, Search(**wanted), graphs=["echo", "nested"]))


async def test_what_was_added_is_found_as_it_was(assistants: Assistants) -> None:
    assert await assistants.add(assistant(), ANN)
    assert await assistants.get("a", ANN) == assistant()
    assert await assistants.find(ANN, ALL, graphs=["echo"]) == [assistant()]
    assert await assistants.versions("a", ANN, metadata={}, limit=10, offset=0) == [assistant()]


async def test_what_is_a_whole_tenants_is_found_by_its_ids(assistants: Assistants) -> None:
    await assistants.add(assistant("a"), ACME)
    await assistants.add(assistant("b"), ANN)
    await assistants.add(assistant("c"), ACME)
    await assistants.add(assistant("a", name="Rival's"), Owner(tenant="rival"))
    assert await assistants.of_tenant(ACME.tenant, ["a", "b", "nothing"]) == {"a": assistant("a")}
    assert await assistants.of_tenant(ACME.tenant, []) == {}


async def test_an_id_is_given_once_in_a_tenant(assistants: Assistants) -> None:
    assert await assistants.add(assistant(), ANN)
    assert not await assistants.add(assistant(description=None), ANN)
    assert not await assistants.add(assistant(description=None), BOB)
    assert await assistants.add(assistant(description="theirs"), RIVAL)
    assert await assistants.get("a", ANN) == assistant()
    assert await assistants.get("a", RIVAL) == assistant(description="theirs")


async def test_another_owners_assistant_does_not_exist(assistants: Assistants) -> None:
    await assistants.add(assistant(), ANN)
    for other in (BOB, RIVAL, Owner(tenant="")):
        with pytest.raises(NotFound):
            await assistants.get("a", other)
        with pytest.raises(NotFound):
            await assistants.revise("a", other, lambda one: one)
        with pytest.raises(NotFound):
            await assistants.versions("a", other, metadata={}, limit=10, offset=0)
        with pytest.raises(NotFound):
            await assistants.set_latest("a", other, 1, now=NOW)
        with pytest.raises(NotFound):
            await assistants.delete("a", other)
        assert await ids(assistants, other) == []
    assert await assistants.get("a", ACME) == assistant()
    assert await ids(assistants, ACME) == ["a"]


async def test_a_change_makes_a_version_that_counts(assistants: Assistants) -> None:
    await assistants.add(assistant(), ANN)
    changed = await assistants.revise(
        "a", ANN, lambda one: replace(one, name="New", description=None, graph="nested", updated_at=LATER)
    )
    assert changed == assistant(name="New", description=None, graph="nested", updated_at=LATER, version=2)
    assert await assistants.get("a", ANN) == changed
    assert await assistants.versions("a", ANN, metadata={}, limit=10, offset=0) == [
        replace(changed, created_at=LATER),
        assistant(),
    ]


async def test_a_change_that_fails_changes_nothing(assistants: Assistants) -> None:
    def fail(_: Assistant) -> Assistant:
        raise NotFound("no such thing")

    await assistants.add(assistant(), ANN)
    with pytest.raises(NotFound, match="no such thing"):
        await assistants.revise("a", ANN, fail)
    assert await assistants.versions("a", ANN, metadata={}, limit=10, offset=0) == [assistant()]


async def test_of_changes_at_once_none_is_lost(assistants: Assistants) -> None:
    def with_key(one: Assistant, key: str) -> Assistant:
        return replace(one, metadata={**one.metadata, key: 1})

    await assistants.add(assistant(metadata={}), ANN)
    made = await asyncio.gather(
        *(assistants.revise("a", ANN, lambda one, n=n: with_key(one, f"k{n}")) for n in range(20))  # type: ignore[misc]
    )
    assert sorted(one.version for one in made) == list(range(2, 22))
    assert (await assistants.get("a", ANN)).metadata == {f"k{n}": 1 for n in range(20)}


async def test_an_older_version_counts_again_and_the_next_number_is_new(assistants: Assistants) -> None:
    await assistants.add(assistant(), ANN)
    await assistants.revise("a", ANN, lambda one: replace(one, name="two"))
    back = await assistants.set_latest("a", ANN, 1, now=LATER)
    assert back == await assistants.get("a", ANN) == assistant(updated_at=LATER)
    with pytest.raises(NotFound):
        await assistants.set_latest("a", ANN, 3, now=LATER)
    assert (await assistants.revise("a", ANN, lambda one: one)).version == 3


async def test_versions_are_shown_in_pages_and_by_metadata(assistants: Assistants) -> None:
    await assistants.add(assistant(metadata={"n": 1}), ANN)
    for n in range(2, 6):
        await assistants.revise("a", ANN, lambda one, n=n: replace(one, metadata={"n": n, "odd": n % 2 == 1}))  # type: ignore[misc]

    async def numbers(limit: int = 10, offset: int = 0, **metadata: Any) -> list[int]:
        found = await assistants.versions("a", ANN, metadata=metadata, limit=limit, offset=offset)
        return [one.version for one in found]

    assert await numbers() == [5, 4, 3, 2, 1]
    assert await numbers(limit=2, offset=1) == [4, 3]
    assert await numbers(odd=True) == [5, 3]
    assert await numbers(odd=True, limit=1, offset=1) == [3]


async def test_a_search_finds_what_it_wants_of_graphs_that_are_there(assistants: Assistants) -> None:
    await assistants.add(assistant("a", metadata={"team": {"x": 1, "y": 2}}), ANN)
    await assistants.add(assistant("b", graph="nested", name="Owl"), ANN)
    await assistants.add(assistant("c", graph="unplugged"), ANN)
    assert await ids(assistants) == ["a", "b"]
    assert await ids(assistants, graph="nested") == ["b"]
    assert await ids(assistants, name="OW") == ["b"]
    assert await ids(assistants, metadata={"team": {"x": 1}}) == ["a"]
    assert await ids(assistants, metadata={"team": {"x": True}}) == []


async def test_a_search_looks_at_all_there_are(assistants: Assistants) -> None:
    names = [f"{n:04}" for n in range(PAGE + 1)]
    await asyncio.gather(*(assistants.add(assistant(name), ANN) for name in names))
    assert await ids(assistants) == names


async def test_what_was_deleted_is_gone_with_its_versions(assistants: Assistants) -> None:
    await assistants.add(assistant(), ANN)
    await assistants.add(assistant(), RIVAL)
    await assistants.revise("a", ANN, lambda one: one)
    await assistants.delete("a", ANN)
    with pytest.raises(NotFound):
        await assistants.get("a", ANN)
    with pytest.raises(NotFound):
        await assistants.delete("a", ANN)
    assert await assistants.add(assistant(), ANN)
    assert await assistants.versions("a", ANN, metadata={}, limit=10, offset=0) == [assistant()]
    assert await assistants.get("a", RIVAL) == assistant()
