"""What every store of API keys must do."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.errors import Conflict, NotFound
from clew.domain.records import ApiKey
from clew.domain.thread import Owner
from clew.ports.api_keys import Keys
from tests.samples import ANN, NOW

pytestmark = pytest.mark.anyio

LATER = NOW + timedelta(days=1)


def api_key(number: int = 1, **changes: object) -> ApiKey:
    key = ApiKey(
        id=f"key_{number}",
        hash=f"hash-{number}",
        prefix="clew_ab",
        name="deploy",
        owner=ANN,
        scopes=frozenset({"threads:read", "threads:write"}),
        created_at=NOW + timedelta(seconds=number),
        expires_at=LATER,
    )
    return replace(key, **changes)  # type: ignore[arg-type]


async def test_a_key_is_found_by_its_hash_and_nothing_else(keys: Keys) -> None:
    await keys.add(api_key())
    assert await keys.by_hash("hash-1") == api_key()
    for other in ("HASH-1", "hash-", "hash-2", "", "%", "clew_ab", "key_1"):
        assert await keys.by_hash(other) is None


async def test_keys_are_listed_oldest_first(keys: Keys) -> None:
    for number in (3, 1, 2):
        await keys.add(api_key(number))
    assert await keys.find() == [api_key(1), api_key(2), api_key(3)]


async def test_keys_of_another_owner_are_neither_listed_nor_revoked(keys: Keys) -> None:
    whole, other = Owner(tenant=ANN.tenant), Owner(tenant="other")
    for number, owner in enumerate((ANN, whole, other)):
        await keys.add(api_key(number, owner=owner))
    assert [key.id for key in await keys.find(whole)] == ["key_0", "key_1"]
    assert [key.id for key in await keys.find(ANN)] == ["key_0"]
    for owner in (ANN, other):
        with pytest.raises(NotFound):
            await keys.revoke("key_1", now=NOW, owner=owner)
    assert (await keys.revoke("key_1", now=NOW, owner=whole)).revoked_at == NOW


async def test_a_revoked_key_stays_revoked_since_the_first_time(keys: Keys) -> None:
    await keys.add(api_key())
    await keys.revoke("key_1", now=NOW)
    await keys.revoke("key_1", now=LATER)
    revoked = await keys.by_hash("hash-1")
    assert revoked == api_key(revoked_at=NOW)
    assert revoked is not None
    assert not revoked.is_valid(now=NOW)


async def test_an_unknown_key_cannot_be_revoked(keys: Keys) -> None:
    with pytest.raises(NotFound):
        await keys.revoke("key_9", now=NOW)


async def test_two_keys_never_share_a_secret(keys: Keys) -> None:
    await keys.add(api_key(1))
    with pytest.raises(Conflict):
        await keys.add(api_key(2, hash="hash-1"))
    assert await keys.find() == [api_key(1)]
