"""What every keeper of chat histories must do."""

import asyncio

import pytest

from clew.domain.errors import NotFound
from clew.domain.thread import Owner
from clew.ports.histories import Histories, HistoryId, NewMessage, Shape
from clew.ports.threads import Store
from clew.stores.postgres_histories import open_histories
from clew.stores.sql.work import Database
from tests.databases import query
from tests.samples import NOW, opened

pytestmark = pytest.mark.anyio

PLACE = HistoryId(namespace=("agent_chat_history",), key="telegram:1")
SHAPE = Shape(chunk_size=4)


@pytest.fixture
def histories(database: Database) -> Histories:
    return open_histories(database)


def turn(number: int) -> list[NewMessage]:
    return [
        NewMessage(role="user", content=f"q{number}", id=f"u{number}"),
        NewMessage(role="assistant", content=f"a{number}", id=f"a{number}"),
    ]


async def contents(histories: Histories, place: HistoryId = PLACE) -> list[str]:
    return [message.content for message in await histories.read(place)]


async def test_what_was_appended_is_read_in_order_without_a_gap(histories: Histories) -> None:
    assert await histories.append(PLACE, turn(1), shape=SHAPE) == 2
    assert await histories.append(PLACE, turn(2), shape=SHAPE) == 4
    stored = await histories.read(PLACE)
    assert [(m.seq, m.role, m.content, m.id) for m in stored] == [
        (1, "user", "q1", "u1"),
        (2, "assistant", "a1", "a1"),
        (3, "user", "q2", "u2"),
        (4, "assistant", "a2", "a2"),
    ]


async def test_nothing_is_known_of_a_conversation_that_never_was(histories: Histories) -> None:
    assert list(await histories.tail(PLACE, limit=5)) == []
    assert list(await histories.read(PLACE)) == []
    assert await histories.summary(PLACE) is None
    assert not await histories.delete(PLACE)


async def test_the_tail_is_the_newest_in_order(histories: Histories) -> None:
    for number in range(1, 6):
        await histories.append(PLACE, turn(number), shape=SHAPE)
    assert [m.content for m in await histories.tail(PLACE, limit=3)] == ["a4", "q5", "a5"]
    assert [m.seq for m in await histories.tail(PLACE, limit=100)] == list(range(1, 11))
    assert [m.seq for m in await histories.read(PLACE, after=3, limit=2)] == [4, 5]


async def test_the_summary_counts_messages_and_writes(histories: Histories) -> None:
    for number in range(3):
        await histories.append(PLACE, turn(number), shape=SHAPE)
    await histories.append(PLACE, turn(9), shape=Shape(chunk_size=7, value_field="other"))
    summary = await histories.summary(PLACE)
    assert summary is not None
    assert (summary.key, summary.last_seq, summary.version) == ("telegram:1", 8, 4)
    assert summary.shape == SHAPE, "the first message settles the shape"
    assert summary.created_at <= summary.updated_at


async def test_conversations_namespaces_and_tenants_are_apart(histories: Histories) -> None:
    places = [
        PLACE,
        HistoryId(namespace=("agent_chat_history",), key="telegram:12"),
        HistoryId(namespace=("agent_chat_history", "telegram:1"), key="x"),
        HistoryId(namespace=("other",), key="telegram:1"),
        HistoryId(namespace=("agent_chat_history",), key="telegram:1", tenant="acme"),
    ]
    for number, place in enumerate(places):
        await histories.append(place, turn(number), shape=SHAPE)
    for number, place in enumerate(places):
        assert await contents(histories, place) == [f"q{number}", f"a{number}"]
    assert await histories.delete(PLACE)
    assert [len(await histories.read(place)) for place in places] == [0, 2, 2, 2, 2]


async def test_a_message_delivered_again_is_not_stored_again(histories: Histories) -> None:
    await histories.append(PLACE, turn(1), shape=SHAPE)
    assert await histories.append(PLACE, turn(1), shape=SHAPE) == 2
    assert await histories.append(PLACE, [*turn(1), *turn(2), *turn(2)], shape=SHAPE) == 4
    assert await contents(histories) == ["q1", "a1", "q2", "a2"]


async def test_the_same_words_twice_are_two_messages(histories: Histories) -> None:
    said = [NewMessage(role="user", content="ok"), NewMessage(role="assistant", content="ok")]
    await histories.append(PLACE, said, shape=SHAPE)
    assert await histories.append(PLACE, said, shape=SHAPE) == 4


async def test_work_that_runs_again_puts_its_answer_where_the_first_was(histories: Histories) -> None:
    await histories.append(PLACE, turn(1), shape=SHAPE, origin="task-1")
    await histories.append(PLACE, turn(2), shape=SHAPE, origin="task-2")
    again = [turn(1)[0], NewMessage(role="assistant", content="better", id="a1-again")]
    assert await histories.append(PLACE, again, shape=SHAPE, origin="task-1") == 4
    assert await contents(histories) == ["q1", "better", "q2", "a2"]
    assert [m.id for m in await histories.read(PLACE)] == ["u1", "a1-again", "u2", "a2"]
    summary = await histories.summary(PLACE)
    assert summary is not None
    assert summary.version == 3


async def test_a_second_answer_from_elsewhere_is_one_more_message(histories: Histories) -> None:
    await histories.append(PLACE, turn(1), shape=SHAPE, origin="agent-a")
    also = [turn(1)[0], NewMessage(role="assistant", content="me too", id="b1")]
    await histories.append(PLACE, also, shape=SHAPE, origin="agent-b")
    assert await contents(histories) == ["q1", "a1", "me too"]


async def test_writers_at_once_lose_nothing_and_keep_their_pairs_together(histories: Histories) -> None:
    await asyncio.gather(*(histories.append(PLACE, turn(number), shape=SHAPE) for number in range(40)))
    stored = await histories.read(PLACE)
    assert [m.seq for m in stored] == list(range(1, 81))
    assert {m.content for m in stored} == {f"{who}{number}" for who in "qa" for number in range(40)}
    for question, answer in zip(stored[::2], stored[1::2], strict=True):
        assert question.content[1:] == answer.content[1:]


async def test_the_same_turn_from_many_writers_at_once_is_stored_once(histories: Histories) -> None:
    await asyncio.gather(*(histories.append(PLACE, turn(1), shape=SHAPE, origin="t") for _ in range(10)))
    assert await contents(histories) == ["q1", "a1"]


async def test_a_forgotten_conversation_begins_anew(histories: Histories) -> None:
    await histories.append(PLACE, turn(1), shape=SHAPE)
    assert await histories.delete(PLACE)
    assert await histories.append(PLACE, turn(1), shape=SHAPE) == 2


async def test_any_text_is_kept(histories: Histories) -> None:
    texts = [
        "",
        "'; DROP TABLE histories; --",
        "\u4f60\u597d \U0001f9f6",
        "a\n\tb",
        "x" * 200_000,
        "{{a}}$1?1",
    ]
    await histories.append(PLACE, [NewMessage(role="user", content=text) for text in texts], shape=SHAPE)
    assert await contents(histories) == texts


async def test_thousands_are_appended_in_one_go(histories: Histories) -> None:
    many = [NewMessage(role="user", content=str(n), id=f"m{n}") for n in range(3000)]
    assert await histories.append(PLACE, many, shape=SHAPE) == 3000
    assert await histories.append(PLACE, [*many, *turn(1)], shape=SHAPE) == 3002


@pytest.mark.accept("003-7", "003-9")
async def test_the_memory_of_a_thread_goes_with_it_and_is_not_brought_back(
    store: Store, histories: Histories, database: Database
) -> None:
    own = {
        name: HistoryId(namespace=("agent_chat_history",), key=name) for name in ("t1", "t2", "never-opened")
    }
    for name in ("t1", "t2"):
        await store.commit(opened(name))
    for name, place in own.items():
        await histories.append(place, turn(1), shape=SHAPE, thread_id=name)
        await histories.append(place, turn(1), shape=SHAPE, thread_id=name)  # after a crash
        await histories.append(place, turn(2), shape=SHAPE, thread_id=name)
    # Of a conversation that others began a thread is only a guest.
    await histories.append(PLACE, turn(1), shape=SHAPE)
    await histories.append(PLACE, turn(2), shape=SHAPE, thread_id="t1")

    await store.tombstone("t1", now=NOW)
    while await store.purge(only="t1"):
        pass
    for late in (turn(2), turn(3)):
        with pytest.raises(NotFound):
            await histories.append(own["t1"], late, shape=SHAPE, thread_id="t1")
    assert await histories.summary(own["t1"]) is None
    for place in (own["t2"], own["never-opened"], PLACE):
        assert await contents(histories, place) == ["q1", "a1", "q2", "a2"]
    rows = await query(database, "SELECT count(*) FROM history_messages")
    assert rows[0][0] == 12


async def test_the_histories_of_a_user_or_a_tenant_are_deleted_together(histories: Histories) -> None:
    places = [
        HistoryId(tenant=tenant, namespace=("n",), key=key)
        for tenant, key in (("acme", "a"), ("acme", "b"), ("acme", "c"), ("rival", "a"))
    ]
    for place, user in zip(places, ("ann", "", "ann", "ann"), strict=True):
        await histories.append(place, turn(1), shape=SHAPE, user_id=user)
        await histories.append(place, turn(2), shape=SHAPE, user_id="bob")  # who began it, has it
    assert await histories.delete_all(Owner(tenant="acme", user_id="bob")) == 0
    assert await histories.delete_all(Owner(tenant="acme", user_id="ann"), limit=1) == 1
    assert await histories.delete_all(Owner(tenant="acme", user_id="ann")) == 1
    assert [bool(await contents(histories, place)) for place in places] == [False, True, False, True]
    assert await histories.delete_all(Owner(tenant="acme")) == 1
    assert [bool(await contents(histories, place)) for place in places] == [False, False, False, True]
