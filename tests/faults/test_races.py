"""Several processes at once: one decision counts, one round begins, and nothing is done twice."""

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.faults.forkserver import ForkServer
from tests.faults.report import Trials
from tests.processes import until


def together(
    forks: ForkServer, where: str, folder: Path, names: list[str], clients: list[list[str]], pace: float
) -> dict[str, list[tuple[str, str]]]:
    """What each client of each process was told, by thread."""
    begin = folder / f"begin-{clients[0][0]}"
    children = [
        forks.spawn(
            "tests.faults.crowds:decide",
            reports=begin.with_suffix(f".reports-{n}"),
            where=where,
            folder=str(folder),
            names=names,
            clients=some,
            begin=str(begin),
            pace=pace,
        )
        for n, some in enumerate(clients)
    ]
    until(lambda: all(child.reports for child in children))
    # Whole at once, for they look. On this system all processes read the same clock.
    written = begin.with_suffix(".new")
    written.write_text(str(time.monotonic() + 0.2))
    written.rename(begin)
    told: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for child in children:
        ended = child.wait(90)
        assert ended.code == 0, ended.reports[-3:]
        _open, *outcomes = ended.reports
        for name, verb, _, outcome in outcomes:
            told[name].append((verb, outcome))
    return told


@pytest.mark.fault("C1", "C3")
@pytest.mark.accept("001-9", "002-18")
@pytest.mark.parametrize("threads", [30, pytest.param(100, marks=pytest.mark.long)])
def test_one_of_three_clients_in_two_processes_decides(
    forks: ForkServer, where: str, tmp_path: Path, trials: Trials, threads: int
) -> None:
    names = [f"t{n:03}" for n in trials.run(threads)]
    made = forks.run(
        "tests.faults.crowds:bring_to_gates", where=where, folder=str(tmp_path), names=names, timeout=90
    )
    assert made.code == 0, made.reports
    told = together(forks, where, tmp_path, names, [["yes", "no"], ["yes"]], pace=0.02)
    found = {seen["id"]: seen for seen in _look(forks, where, tmp_path)}
    for name in names:
        won = [verb for verb, outcome in told[name] if outcome == "ok"]
        assert len(told[name]) == 3
        assert len(won) == 1, (name, told[name])
        assert {outcome for _, outcome in told[name]} == {"ok", "INVALID_STATE"}, (name, told[name])
        marks = (tmp_path / f"{name}.marks").read_text().split()
        assert marks.count("danger") == (won == ["yes"]), (name, told[name], marks)
        seen = found[name]
        assert seen["status"] == ("completed" if won == ["yes"] else "failed"), seen
        assert seen["dense"], seen
        assert seen["types"].count("resolution") == 1, seen

    # And whoever says something next: one round begins.
    told = together(
        forks, where, tmp_path, names[: len(names) // 2], [["again", "again"], ["again"]], pace=0.02
    )
    found = {seen["id"]: seen for seen in _look(forks, where, tmp_path)}
    for name in names[: len(names) // 2]:
        assert [outcome for _, outcome in told[name]].count("ok") == 1, (name, told[name])
        assert found[name]["round"] == 2
        assert found[name]["rounds"] == sorted(found[name]["rounds"]), "rounds are mixed up"
        assert found[name]["dense"]


def _look(forks: ForkServer, where: str, folder: Path) -> list[dict[str, Any]]:
    ended = forks.run("tests.faults.crowds:look", where=where, folder=str(folder))
    assert ended.code == 0, ended.reports
    return ended.reports
