"""Table of `make faults`: how often each row of rows.toml was tried, on what, and with which result."""

import json
import math
import re
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
ROWS_FILE = Path(__file__).with_name("rows.toml")
Z95 = 1.959964
# What a parameter or a fixture of a test says about the database it is on.
DATABASES = ("memory", "sqlite", "postgres")
WORD = re.compile("[a-z]+")


@dataclass(frozen=True, slots=True)
class FaultRow:
    """One kind of fault, and what holds under it."""

    id: str
    fault: str
    holds: str
    tier: str
    untested: str = ""


def rows() -> dict[str, FaultRow]:
    found = tomllib.loads(ROWS_FILE.read_text("utf-8"))
    return {name: FaultRow(id=name, **fields) for name, fields in found.items()}


def upper_bound(failures: int, trials: int) -> float:
    """The rate of failures is below this with 95 % confidence: exact for none, else Wilson's."""
    if trials == 0:
        return 1.0
    if failures == 0:
        return float(1 - 0.05 ** (1 / trials))
    rate, z2 = failures / trials, Z95**2
    middle = rate + z2 / (2 * trials)
    spread = Z95 * math.sqrt(rate * (1 - rate) / trials + z2 / (4 * trials**2))
    return min(1.0, (middle + spread) / (1 + z2 / trials))


class Trials:
    """How often a random test tries. `--trials 0.05` makes every number and every budget a twentieth."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.made = 0
        self.notes: list[str] = []

    def run(self, wanted: int, *, seconds: float = math.inf) -> Iterator[int]:
        """The number of each trial, until all were made or the time is over; at least one."""
        deadline = time.monotonic() + max(seconds * self._scale, 1.0)
        for number in range(self.scaled(wanted)):
            if number and time.monotonic() > deadline:
                return
            self.made += 1
            yield number

    def some(self, everything: Sequence[T]) -> Sequence[T]:
        """Every n-th of them where the scale is an n-th; each counts as a trial."""
        chosen = everything[:: max(1, round(1 / self._scale))]
        self.made += len(chosen)
        return chosen

    def note(self, text: str) -> None:
        """A figure that was measured on the way, for the table."""
        self.notes.append(text)

    def scaled(self, wanted: int) -> int:
        return max(1, round(wanted * self._scale))

    def seconds(self, wanted: float) -> float:
        return max(1.0, wanted * self._scale)


@dataclass(slots=True)
class Tally:
    """What came of the trials of one row on one database and runner."""

    trials: int = 0
    failures: int = 0
    skipped: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def result(self) -> str:
        if self.failures:
            return f"{self.failures} failed"
        return "held" if self.trials else "not run"

    @property
    def bound(self) -> str:
        return f"{upper_bound(self.failures, self.trials):.2%}" if self.trials else "-"


def place_of(item: pytest.Item, marker: pytest.Mark) -> str:
    """`sqlite`, `postgres`, `postgres, workers` or `-`: the marker says it, or else parameters and fixtures do."""
    if "on" in marker.kwargs:
        return str(marker.kwargs["on"])
    called = getattr(item, "callspec", None)
    texts = [value for value in called.params.values() if isinstance(value, str)] if called else []
    texts += [name for name in getattr(item, "fixturenames", ()) if name in ("postgres_url", "own_postgres")]
    words = {word for text in texts for word in WORD.findall(text)}
    if "workers" in words:
        return "postgres, workers"
    return next((one for one in reversed(DATABASES) if one in words), "-")


@dataclass(slots=True, eq=False)
class FaultReport:
    """The plugin: it counts while the tests run, and prints the table at their end."""

    budget: float
    save_to: Path | None = None
    begun: float = field(default_factory=time.monotonic)
    tallies: dict[tuple[str, str], Tally] = field(default_factory=dict)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        marks = list(item.iter_markers("fault"))
        told = [
            (name, place_of(item, mark), mark.kwargs.get("trials", 1)) for mark in marks for name in mark.args
        ]
        item.user_properties.append(("faults", told))
        if marks and time.monotonic() - self.begun > self.budget:
            pytest.skip("the time of this run is over (--budget)")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        trials = getattr(item, "funcargs", {}).get("trials")
        if call.when == "call" and isinstance(trials, Trials):
            item.user_properties += [("trials", trials.made), ("notes", trials.notes)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told: dict[str, Any] = dict(report.user_properties)
        if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
            return
        for name, place, trials in told.get("faults", ()):
            tally = self.tallies.setdefault((str(name), str(place)), Tally())
            tally.seconds += report.duration
            tally.notes += told.get("notes", ())
            if report.outcome == "skipped":
                tally.skipped += 1
            else:
                tally.trials += int(told.get("trials", trials))
                tally.failures += report.outcome == "failed"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self.tallies:
            return
        terminalreporter.section("faults")
        for line in lines(self.tallies):
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{(time.monotonic() - self.begun) / 60:.0f} minutes")
        if self.save_to is not None:
            self.save_to.parent.mkdir(parents=True, exist_ok=True)
            self.save_to.write_text(json.dumps(as_json(self.tallies), indent=1) + "\n")


def lines(tallies: dict[tuple[str, str], Tally]) -> Iterator[str]:
    """Every row there is; what was not run says so."""
    yield f"{'id':4} {'tier':8} {'on':18} {'trials':>8} {'result':>10} {'95 % bound':>11}  fault"
    for name, row in rows().items():
        found = sorted((place, tally) for (one, place), tally in tallies.items() if one == name)
        for place, tally in found or [("-", Tally())]:
            yield (
                f"{name:4} {row.tier:8} {place:18} {tally.trials:>8} {tally.result:>10} {tally.bound:>11}"
                f"  {row.fault}"
            )
            for note in tally.notes:
                yield f"{'':4} {place}: {note}"
        if row.untested:
            yield f"{'':4} untested: {row.untested}"


def as_json(tallies: dict[tuple[str, str], Tally]) -> list[dict[str, Any]]:
    return [
        {
            "id": name,
            "on": place,
            "trials": tally.trials,
            "failures": tally.failures,
            "skipped": tally.skipped,
            "seconds": round(tally.seconds, 1),
            "notes": tally.notes,
        }
        for (name, place), tally in sorted(tallies.items())
    ]
