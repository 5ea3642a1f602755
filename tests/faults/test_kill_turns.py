"""A process that runs a graph is killed: every turn it acknowledged is in the next one's state, whole and once."""

import random
from collections.abc import Iterator

import pytest

from tests.faults.forkserver import Ended, ForkServer, fork_server
from tests.faults.remains import until_gone
from tests.faults.report import Trials


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.turns") as server:
        yield server


def heard(ended: Ended, where: str) -> list[str]:
    """The turns that a process acknowledged before it was killed, once nothing is left of it."""
    assert ended.was_killed, ended.reports[-1:]
    until_gone(where)
    _begun, *turns = ended.reports
    return turns


def check(forks: ForkServer, where: str, thread: str, acknowledged: list[str]) -> None:
    looked = forks.run("tests.faults.turns:look", where=where, thread=thread)
    assert looked.code == 0, looked.reports
    (said,) = looked.reports
    turns = [said[start : start + 3] for start in range(0, len(said), 3)]
    assert all(turn == [turn[0], f"to {turn[0]}", "signed"] for turn in turns)
    asked = [turn[0] for turn in turns]
    assert len(asked) == len(set(asked))
    # A turn may be stored and not yet acknowledged when its process dies; never the other way round.
    assert [text for text in asked if text in set(acknowledged)] == acknowledged


def kill_many(forks: ForkServer, where: str, kills: int, seed: int, trials: Trials) -> int:
    """On one thread after another: each state of a history holds all that was said before it."""
    chance = random.Random(seed)
    acknowledged: dict[str, list[str]] = {}
    for trial in trials.run(kills, seconds=300):
        thread = f"t{trial // 20}"
        ended = forks.run(
            "tests.faults.turns:talk",
            where=where,
            thread=thread,
            name=f"{seed}-{trial}",
            kill_after_report=chance.uniform(0.001, 0.3),
        )
        acknowledged.setdefault(thread, []).extend(heard(ended, where))
        if trial % 5 == 4:
            check(forks, where, thread, acknowledged[thread])
    for thread, turns in acknowledged.items():
        check(forks, where, thread, turns)
    return sum(map(len, acknowledged.values()))


@pytest.mark.fault("A1")
@pytest.mark.timeout(300)
def test_no_acknowledged_turn_is_lost(forks: ForkServer, where: str, seed: int, trials: Trials) -> None:
    assert kill_many(forks, where, 10, seed, trials) > 0


@pytest.mark.fault("A1")
@pytest.mark.long
def test_no_acknowledged_turn_is_lost_by_many_kills(
    forks: ForkServer, where: str, seed: int, trials: Trials
) -> None:
    assert kill_many(forks, where, 200, seed, trials) > 0


@pytest.mark.fault("A2")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", ["checkpoint_put", "commit_begun", "commit_written", "commit_done"])
def test_a_kill_at_each_point_of_a_write(forks: ForkServer, where: str, point: str) -> None:
    acknowledged: list[str] = []
    for passage in (1, 2, 4, 7):
        ended = forks.run(
            "tests.faults.turns:talk",
            where=where,
            thread="t",
            name=str(passage),
            failpoint=f"{point}:kill@{passage}",
        )
        acknowledged += heard(ended, where)
        check(forks, where, "t", acknowledged)
