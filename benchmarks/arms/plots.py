"""Plots of the figures that `benchmarks/peers.py` found, as SVG."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.arms.figures import Figures

COLOURS = {
    "Clew SQLite": "#0f766e",
    "Clew Postgres": "#14b8a6",
    "langgraph dev": "#b45309",
    "Aegra": "#7c3aed",
    "bare memory": "#94a3b8",
    "bare SQLite": "#64748b",
}
# The same figures make the same file: no date, no random ids; text stays text.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "clew",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
}
CALLERS = (1, 16, 64)


def draw(figures: Figures, folder: Path) -> list[Path]:
    """The plots there are figures for."""
    drawn = []
    with mpl.rc_context(STYLE):
        for name, make, needs in (
            ("bench-thread.svg", thread, "thread"),
            ("bench-rates.svg", rates, "latencies"),
            ("bench-latencies.svg", latencies, "latencies"),
            ("bench-memory.svg", memory, "memory"),
        ):
            if needs in figures.series:
                figure = make(figures)
                figure.savefig(folder / name, format="svg", metadata={"Date": None, "Creator": None})
                drawn.append(folder / name)
    return drawn


def axes(columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.4 * columns, 3.4), layout="constrained")
    found = [figure.add_subplot(1, columns, column + 1) for column in range(columns)]
    for each in found:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(alpha=0.25)
    return figure, found


def thread(figures: Figures) -> Figure:
    figure, (turn, read, size) = axes(3)
    curves: dict[str, dict[str, list[float]]] = figures.series["thread"]
    for arm, curve in curves.items():
        turn.plot(curve["length"], curve["turn ms"], "o-", ms=3, color=COLOURS[arm], label=arm)
        read.plot(curve["length"], curve["read ms"], "o-", ms=3, color=COLOURS[arm], label=arm)
        if curve["bytes"]:
            kilobytes = [each / 1024 for each in curve["bytes"]]
            size.plot(curve["length"], kilobytes, "o-", ms=3, color=COLOURS[arm], label=arm)
    for each, title in ((turn, "one more turn, ms"), (read, "state read, ms"), (size, "stored a turn, KB")):
        each.set_title(title)
        each.set_xlabel("turns in the thread")
        each.set_yscale("log")
    turn.legend(fontsize=7)
    return figure


def rates(figures: Figures) -> Figure:
    figure, (axis,) = axes(1)
    arms = [arm for arm in COLOURS if arm in figures.rounds["runs/s at 1"] and not arm.startswith("bare")]
    width = 0.8 / len(arms)
    for number, arm in enumerate(arms):
        values = [sorted(figures.rounds[f"runs/s at {callers}"][arm]) for callers in CALLERS]
        middles = [each[len(each) // 2] for each in values]
        spread = [[m - v[0] for m, v in zip(middles, values, strict=True)]]
        spread.append([v[-1] - m for m, v in zip(middles, values, strict=True)])
        at = [place + (number - (len(arms) - 1) / 2) * width for place in range(len(CALLERS))]
        axis.bar(at, middles, width * 0.9, yerr=spread, color=COLOURS[arm], label=arm, error_kw={"lw": 0.8})
    axis.set_xticks(range(len(CALLERS)), [str(callers) for callers in CALLERS])
    axis.set_xlabel("callers at once")
    axis.set_title("runs a second")
    axis.legend(fontsize=7)
    return figure


def latencies(figures: Figures) -> Figure:
    figure, panels = axes(2)
    found: dict[str, dict[str, list[float]]] = figures.series["latencies"]
    shares = [share * 100 for share in figures.series["shares"]]
    for axis, callers in zip(panels, ("1", "16"), strict=True):
        for arm, values in found[callers].items():
            axis.plot(values, shares, "-", color=COLOURS[arm], label=arm)
        axis.set_xscale("log")
        axis.set_xlabel("milliseconds")
        axis.set_title(f"runs that ended within, %; {callers} at once")
    panels[0].legend(fontsize=7)
    return figure


def memory(figures: Figures) -> Figure:
    figure, (axis,) = axes(1)
    found: dict[str, list[list[Any]]] = figures.series["memory"]
    for arm, curve in found.items():
        axis.plot(
            [runs for runs, _ in curve],
            [each for _, each in curve],
            "o-",
            ms=3,
            color=COLOURS[arm],
            label=arm,
        )
    axis.set_ylim(bottom=0)
    axis.set_xlabel("runs")
    axis.set_title("resident memory, MB")
    axis.legend(fontsize=7)
    return figure
