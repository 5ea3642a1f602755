"""Killed at every named place, with a thread in a model call, in a tool, before and after an approval: it ends right."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.databases import SHARED, locate
from tests.faults.forkserver import ForkServer, fork_server

# Where a run can die, and how often it passes there until it is done.
PLACES = (
    "accept_before_commit",
    "accept_after_commit_before_reply",
    "lease_taken",
    "llm_before@1",
    "llm_before@2",
    "llm_after_before_commit@1",
    "llm_after_before_commit@2",
    "toolcall_logged",
    "tool_before_effect",
    "tool_after_effect",
    "tool_result_logged",
    "interrupt_logged",
    "decision_committed_before_resume",
    *(f"checkpoint_put@{n}" for n in range(1, 5)),
    *(f"commit_begun@{n}" for n in (3, 6, 9)),
    *(f"commit_written@{n}" for n in (4, 7, 10)),
    *(f"commit_done@{n}" for n in (5, 8, 11)),
)
AROUND_A_TOOL = (
    *("lease_taken", "llm_after_before_commit@1", "toolcall_logged"),
    *("tool_before_effect", "tool_after_effect", "tool_result_logged", "checkpoint_put@3"),
)
# Only a model whose answer was not yet durable may be asked again. Of the commits nobody knows whose the n-th is.
ASKED_AGAIN = (
    *("llm_before", "llm_after_before_commit", "checkpoint_put"),
    *("commit_begun", "commit_written", "commit_done"),
)


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with fork_server("tests.faults.plays", "tests.graphs", "clew.execution") as server:
        yield server


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


@pytest.mark.parametrize("tool", ["effect", "effect_once", "effect_approved"])
def test_a_thread_ends_right_wherever_its_process_died(
    forks: ForkServer, where: str, tool: str, tmp_path: Path
) -> None:
    missed: list[str] = []
    # The tool that must be approved and not repeated passes everywhere; with the others it is about the tool.
    places = PLACES if tool == "effect_approved" else AROUND_A_TOOL
    for n, place in enumerate(places):
        marks = tmp_path / f"marks_{n}"
        marks.touch()
        name, _, hit = place.partition("@")
        play: dict[str, Any] = {
            "where": where,
            "folder": str(tmp_path),
            "thread_id": f"{tool}-{n}",
            "graph": "agent",
            "message": f"[{marks}] tools: {tool} file={marks},n=7",
        }
        if not forks.run("tests.faults.plays:play", failpoint=f"{name}:kill@{hit or 1}", **play).was_killed:
            missed.append(name)
        ended = forks.run("tests.faults.plays:finish", **play)
        assert ended.code == 0, (place, ended.reports)
        seen = ended.reports[-1]
        did = Counter(marks.read_text().split("\n"))

        assert seen["seqs"] == list(range(1, len(seen["seqs"]) + 1)), place
        calls = [call_id for type_, call_id in seen["log"] if type_ == "tool_call"]
        results = [call_id for type_, call_id in seen["log"] if type_ == "tool_result"]
        assert len(calls) == len(set(calls)) == 1, (place, seen["log"])
        if name not in ASKED_AGAIN:
            assert did["model"] == 2 or seen["status"] == "blocked", (place, did)
        if tool == "effect":
            assert (seen["status"], results) == ("completed", calls), (place, seen)
            assert did["effect 7"] >= 1, place
        else:
            assert did[f"{tool} 7"] <= 1, (place, "done twice")
            if seen["status"] == "blocked":
                assert seen["calls"] == {calls[0]: "in_doubt"}, (place, seen)
                assert results == [], place
            else:
                assert (seen["status"], results) == ("completed", calls), (place, seen)
                assert did[f"{tool} 7"] == 1, place
        if seen["status"] == "completed":
            assert len(seen["said"]) == 2, (place, seen["said"])
    # How many commits a run makes depends on what waits together; whatever else has a name was met.
    assert len(missed) <= 3
    assert all(name.startswith("commit_") for name in missed), missed
