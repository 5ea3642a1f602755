"""Chunk arithmetic, the tail window, merging by identity, and the reset command."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.items import storable
from clew.history import chunks, merging
from clew.history.merging import Merged
from clew.ports import histories
from clew.ports.histories import HistoryMessage, HistorySummary, Shape

AT = datetime(2026, 2, 26, 20, 30, tzinfo=UTC)


class Said(NamedTuple):
    id: str | None
    text: str = "ok"
    tool: bool = False


def merge(tail: Sequence[Said], current: Sequence[Said]) -> Merged[Said]:
    return merging.merge(tail, current, identity=lambda said: said.id, is_turn=lambda said: not said.tool)


def test_the_seeds_example_of_a_chunk() -> None:
    assert histories.chunk_key(histories.chunk_of(4231, 200)) == "chunk:000021"
    assert histories.chunk_range(21, 200, 4231) == (4201, 4231)


@pytest.mark.parametrize(("seq", "chunk"), [(0, 0), (1, 0), (200, 0), (201, 1), (400, 1), (401, 2)])
def test_a_full_chunk_is_followed_by_the_next(seq: int, chunk: int) -> None:
    assert histories.chunk_of(seq, 200) == chunk


@pytest.mark.parametrize(
    ("key", "index"),
    [
        ("chunk:000021", 21),
        ("chunk:1234567", 1234567),
        ("chunk:21", None),
        ("chunk:0000021", None),
        ("chunk:", None),
        ("chunk", None),
        ("chunk:-00001", None),
        ("chunk:\u0661\u0661\u0661\u0661\u0661\u0661", None),
        ("chunk:" + "9" * 5000, None),
        ("__meta__", None),
    ],
)
def test_only_the_exact_key_names_a_chunk(key: str, index: int | None) -> None:
    assert histories.chunk_index(key) == index


@given(last_seq=st.integers(0, 10**6), limit=st.integers(0, 1000), size=st.integers(1, 500))
def test_a_tail_touches_only_the_chunks_it_needs(last_seq: int, limit: int, size: int) -> None:
    touched = chunks.tail_chunks(last_seq, limit, size)
    seqs = [histories.chunk_range(index, size, last_seq) for index in touched]
    held = sum(end - start + 1 for start, end in seqs)
    assert held >= min(limit, last_seq)
    assert len(touched) <= -(-limit // size) + 1
    if touched:
        assert seqs[-1][1] == last_seq
        assert held - (seqs[0][1] - seqs[0][0] + 1) < limit


def test_the_items_are_the_seeds() -> None:
    summary = HistorySummary(
        key="telegram:123456789", shape=Shape(), last_seq=4231, version=17, created_at=AT, updated_at=AT
    )
    assert summary.metadata() == {
        "conversation_key": "telegram:123456789",
        "last_seq": 4231,
        "chunk_size": 200,
        "latest_chunk_key": "chunk:000021",
        "updated_at": "2026-02-26T20:30:00Z",
        "version": 17,
    }
    messages = [
        HistoryMessage(seq=4230, role="user", content="Need help"),
        HistoryMessage(seq=4231, role="assistant", content="Sure"),
    ]
    assert summary.chunk(21, messages, AT.astimezone(timezone(timedelta(hours=8)))) == {
        "conversation_key": "telegram:123456789",
        "chunk_key": "chunk:000021",
        "start_seq": 4201,
        "end_seq": 4231,
        "messages": [
            {"seq": 4230, "role": "user", "content": "Need help"},
            {"seq": 4231, "role": "assistant", "content": "Sure"},
        ],
        "updated_at": "2026-02-26T20:30:00Z",
    }


def test_the_value_field_names_the_text() -> None:
    assert histories.message_item(HistoryMessage(seq=1, role="user", content="Hi"), "text") == {
        "seq": 1,
        "role": "user",
        "text": "Hi",
    }


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain", "plain"),
        ("\u4f60\u597d \U0001f9f6", "\u4f60\u597d \U0001f9f6"),
        ("a\x00b", "a\ufffdb"),
        ("\x00\u4f60", "\ufffd\u4f60"),
        ("half \ud83e", "half \ufffd"),
        ("whole \ud83e\uddf6", "whole \U0001f9f6"),
    ],
)
def test_a_text_is_made_fit_for_every_database(text: str, kept: str) -> None:
    assert storable(text) == kept


def test_retries_wait_longer_each_time_and_end() -> None:
    assert [chunks.retry_delay(n, 0.0) for n in (1, 2, 3, 4)] == [0.025, 0.05, 0.1, None]
    assert chunks.retry_delay(1, 1.0) == pytest.approx(0.0375)


def test_a_first_turn_is_new_whatever_it_says() -> None:
    tail = [Said("1", "ok"), Said("2", "ok")]
    assert merge(tail, [Said("3", "ok")]) == Merged([*tail, Said("3", "ok")], [Said("3", "ok")])
    assert merge([], [Said(None)]) == Merged([Said(None)], [Said(None)])


def test_what_the_thread_carries_already_is_not_doubled() -> None:
    tail = [Said("1"), Said("2")]
    assert merge(tail, [Said("1"), Said("2"), Said("3")]) == Merged([*tail, Said("3")], [Said("3")])


def test_the_threads_own_version_brings_its_tool_calls() -> None:
    current = [Said("1", "own"), Said("call", tool=True), Said(None, tool=True), Said("2"), Said("3")]
    assert merge([Said("1"), Said("2")], current) == Merged(current, [Said("3")])


def test_a_turn_without_an_id_before_a_known_one_is_in_the_tail_already() -> None:
    tail = [Said(None, "hi"), Said("2", "hello")]
    current = [Said(None, "hi"), Said("2", "hello"), Said(None, "hi")]
    assert merge(tail, current) == Merged([*tail, Said(None, "hi")], [Said(None, "hi")])


def test_other_threads_keep_their_place() -> None:
    tail = [Said("x1"), Said("1"), Said("2"), Said("x2")]
    merged = merge(tail, [Said("0"), Said("1"), Said("2"), Said("3")])
    assert [said.id for said in merged.messages] == ["0", "x1", "1", "2", "x2", "3"]
    assert [said.id for said in merged.new] == ["3"]


def test_a_thread_that_asks_again_does_not_know_the_answer() -> None:
    tail = [Said("0"), Said("1"), Said("its answer"), Said("later")]
    merged = merge(tail, [Said("1")])
    assert [said.id for said in merged.messages] == ["0", "1"]
    assert merged.new == []


def test_a_turn_that_could_not_be_written_is_still_new() -> None:
    merged = merge([Said("1"), Said("2")], [Said("1"), Said("2"), Said("3"), Said("4"), Said("5")])
    assert [said.id for said in merged.new] == ["3", "4", "5"]


ids = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)


@given(tail=ids, current=ids)
def test_every_message_is_there_once(tail: list[str], current: list[str]) -> None:
    merged = merge([Said(name) for name in tail], [Said(name) for name in current])
    found = [said.id for said in merged.messages]
    assert len(found) == len(set(found))
    assert set(found) <= {*tail, *current}
    assert set(found) == {*tail, *current} or current[-1] in tail
    assert [name for name in found if name in current] == current
    assert not {said.id for said in merged.new} & set(tail)


def test_the_prompt_starts_at_the_latest_reset() -> None:
    said = ["a", "/reset", "b", "/reset", "c"]
    assert merging.since_reset(said, lambda text: text == "/reset") == ["/reset", "c"]
    assert merging.since_reset(said, lambda text: text == "/new") == said
    assert merging.since_reset([], lambda text: True) == []


def test_the_newest_are_kept() -> None:
    assert merging.newest([1, 2, 3], 2) == [2, 3]
    assert merging.newest([1, 2, 3], 5) == [1, 2, 3]
    assert merging.newest([1, 2, 3], 0) == []
