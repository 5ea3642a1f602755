"""Killed before any of its commits, a thread ends with the same story as one that was left alone."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import ForkServer
from tests.faults.report import Trials

# With what they are told, if they are told anything; {} stands for a file of their own.
GRAPHS = {
    "gated": None,
    "plain_gate": None,
    "gate_after": None,
    "nested_gates": None,
    "nested_decision": None,
    "two_gates_after_inside": None,
    "two_gates_collected": None,
    "asking": None,
    "branching": None,
    "nested_question": None,
    "say_and_ask": None,
    "ask_and_fail": None,
    "langchain_agent": "tools: wire_money file={},n=5; count upto=3",
}


@pytest.fixture
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.mark.fault("A1", "C12")
@pytest.mark.accept("001-10", "001-18", "002-14", "002-15")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("where", ["sqlite"], indirect=True)
@pytest.mark.parametrize("graph", ["gated", "nested_decision", "langchain_agent"])
def test_killed_before_a_commit(forks: ForkServer, where: str, graph: str, tmp_path: Path, seed: int) -> None:
    """Before every third one, beginning with one of the first three."""
    kill_everywhere(
        forks, where, graph, tmp_path, points=("commit_begun",), commits=range(1 + seed % 3, 100, 3)
    )


@pytest.mark.fault("A1", "C12")
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("where", SHARED, indirect=True)
@pytest.mark.parametrize("graph", GRAPHS)
def test_killed_before_within_and_after_a_commit(
    forks: ForkServer, where: str, graph: str, tmp_path: Path, trials: Trials
) -> None:
    points = ("commit_begun", "commit_written", "commit_done")
    commits = trials.some(range(1, 100))
    trials.made = kill_everywhere(forks, where, graph, tmp_path, points=points, commits=commits)


def kill_everywhere(
    forks: ForkServer,
    where: str,
    graph: str,
    folder: Path,
    *,
    points: tuple[str, ...],
    commits: Sequence[int] = range(1, 100),
) -> int:
    """How often it was killed."""

    def walk(thread_id: str, failpoint: str) -> Any:
        said = GRAPHS[graph]
        effects = folder / f"{thread_id}.effects"
        return forks.run(
            "tests.faults.walks:walk",
            where=where,
            folder=str(folder),
            thread_id=thread_id,
            graph=graph,
            message=said and said.format(effects),
            failpoint=failpoint,
        )

    def told(thread_id: str, seen: dict[str, Any]) -> Counter[str]:
        told = (str(event[:2] if event[1] == "approval" else event) for event in seen["story"])
        return Counter(event.replace(thread_id, "the thread") for event in told)

    undisturbed = walk("undisturbed", "").reports[-1]
    assert undisturbed["status"] == "completed", undisturbed
    wanted = told("undisturbed", undisturbed)
    killed = 0
    for point in points:
        for n in commits:
            thread_id = f"{point}-{n}"
            ended = walk(thread_id, f"{point}:kill@{n}")
            if not ended.was_killed:
                assert ended.code == 0, (thread_id, ended.reports)
                break
            killed += 1
            ended = walk(thread_id, "")
            assert ended.code == 0, (thread_id, ended.reports)
            seen = ended.reports[-1]
            assert seen["dense"], thread_id
            if _waits_for_a_person(seen):
                continue
            story = told(thread_id, seen)
            assert story == wanted, (thread_id, "more:", story - wanted, "less:", wanted - story)
            assert seen["notes"] == undisturbed["notes"], thread_id
            assert seen["messages"][1:] == undisturbed["messages"][1:], thread_id
            assert _done(folder, thread_id) == _done(folder, "undisturbed"), thread_id
        assert n > 5 or len(commits) < 20, "it was hardly ever killed"
    return killed


def _waits_for_a_person(seen: dict[str, Any]) -> bool:
    """What may have happened and must not happen twice is asked about, and this is right."""
    return bool(seen["status"] == "blocked" and seen["story"][-1][:2] == ["asked", "in_doubt"])


def _done(folder: Path, thread_id: str) -> list[str]:
    effects = folder / f"{thread_id}.effects"
    return effects.read_text().split("\n") if effects.exists() else []
