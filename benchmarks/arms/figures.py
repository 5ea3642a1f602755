"""Figures of a benchmark: one value a round, arm by arm, and the ratios with their spread that goals are held against."""

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "build" / "bench"

Rounds = dict[str, dict[str, list[float]]]
"""Values by metric and arm."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit for the ratio of two figures."""

    text: str
    ours: tuple[str, str]
    """Metric and arm."""
    theirs: tuple[str, str]
    limit: float
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    text: str
    median: float
    low: float
    high: float
    rounds: int
    limit: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.median >= self.limit if self.at_least else self.median <= self.limit

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        spread = f"({shown(self.low)} to {shown(self.high)})"
        verdict = "met" if self.met else "NOT met"
        return (
            f"{self.text:66}{shown(self.median):>7} {spread:17} goal {sign} {shown(self.limit):6} {verdict}"
        )


@dataclass(slots=True)
class Figures:
    """What one benchmark found. Sections may be measured in separate runs, each keeps its time."""

    name: str
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    rounds: Rounds = field(default_factory=dict)
    sections: dict[str, list[str]] = field(default_factory=dict)
    """Metrics by section."""
    series: dict[str, Any] = field(default_factory=dict)
    """Curves for plots."""
    measured: dict[str, str] = field(default_factory=dict)
    """When each section was measured."""
    goals: list[dict[str, Any]] = field(default_factory=list)

    def begin(self, section: str) -> None:
        """Forget what an earlier run found in this section; what is added from here on is part of it."""
        for metric in self.sections.pop(section, []):
            self.rounds.pop(metric, None)
        self.sections[section] = []
        # Other work on the machine shows in the load: figures in milliseconds and seconds are not those of a quiet one.
        load = f"load before {os.getloadavg()[0]:.0f}"
        self.measured[section] = f"{datetime.now(UTC):%Y-%m-%d %H:%M}, {load}"

    def add(self, metric: str, arm: str, value: float) -> None:
        if metric not in self.rounds:
            self.rounds[metric] = {}
            self.sections[next(reversed(self.sections))].append(metric)
        self.rounds[metric].setdefault(arm, []).append(value)

    def ratios(self, goals: Sequence[Goal]) -> list[Ratio]:
        """Round by round, since the machine is not the same all the time; goals of absent arms are left out."""
        found = []
        for goal in goals:
            ours = self.rounds.get(goal.ours[0], {}).get(goal.ours[1], [])
            theirs = self.rounds.get(goal.theirs[0], {}).get(goal.theirs[1], [])
            each = [one / other for one, other in zip(ours, theirs, strict=False) if other]
            if each:
                found.append(
                    Ratio(
                        goal.text,
                        statistics.median(each),
                        min(each),
                        max(each),
                        len(each),
                        goal.limit,
                        goal.at_least,
                    )
                )
        return found

    def save(self, goals: Sequence[Goal]) -> list[Ratio]:
        ratios = self.ratios(goals)
        self.goals = [asdict(ratio) | {"met": ratio.met} for ratio in ratios]
        FOLDER.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self) | {"machine": machine()}, indent=1)
        (FOLDER / f"{self.name}.json").write_text(text + "\n")
        return ratios

    @classmethod
    def load(cls, name: str) -> "Figures":
        """What earlier runs of this benchmark found, for sections that are not measured again."""
        path = FOLDER / f"{name}.json"
        if not path.exists():
            return cls(name)
        found = json.loads(path.read_text())
        found.pop("machine")
        return cls(**found)

    def table(self, section: str) -> str:
        metrics = self.sections[section]
        arms = list(dict.fromkeys(arm for metric in metrics for arm in self.rounds.get(metric, {})))
        lines = [f"{'':34}" + "".join(f"{arm:>17}" for arm in arms)]
        for metric in metrics:
            cells = (self.rounds.get(metric, {}).get(arm) for arm in arms)
            lines.append(f"{metric:34}" + "".join(f"{spread(cell):>17}" for cell in cells))
        return "\n".join(lines)


def spread(values: Sequence[float] | None, form: Callable[[float], str] | None = None) -> str:
    if not values or not any(values):
        return "-"
    form = form or shown
    return f"{form(statistics.median(values))} ({form(min(values))}-{form(max(values))})"


def shown(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def quantile(values: Sequence[float], share: float) -> float:
    found = sorted(values)
    return found[min(len(found) - 1, int(len(found) * share))]


def machine() -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cores": os.cpu_count(),
        "processor": model or platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }
