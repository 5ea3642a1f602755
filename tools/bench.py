"""Benchmark runner: runs the scripts of benchmarks/, keeps what they print, writes benchmarks/RESULTS.md and the plots.

python tools/bench.py [FILE ...] [-- ARGUMENTS]     run these (default: all), then write
python tools/bench.py --write                       write what earlier runs found
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.arms.figures import FOLDER, Figures, shown, spread  # noqa: E402 - the folder above is not installed
from benchmarks.arms.plots import draw  # noqa: E402

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
IMAGES = ROOT / "docs" / "images"
# Those that keep their figures round by round; of the others, what they print is shown.
FIGURES = {"peers": "Clew and its peers", "statements": "Statements and size"}
PLOTS = {
    "bench-rates.svg": "Runs a second of each server at 1, 16 and 64 callers",
    "bench-latencies.svg": "Share of runs that ended within so many milliseconds, at 1 and 16 callers",
    "bench-thread.svg": "Time of a turn, time of a state read and bytes a turn, against the length of the thread",
    "bench-memory.svg": "Resident memory against the number of runs",
}


def run(files: list[str], arguments: list[str]) -> None:
    """One after another; a benchmark that fails ends all, and what was found before is kept."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in files or sorted(str(path.relative_to(ROOT)) for path in (ROOT / "benchmarks").glob("*.py")):
        print(f"== {file}", flush=True)
        with (FOLDER / f"{Path(file).stem}.txt").open("w") as kept:
            child = subprocess.Popen(
                [sys.executable, "-u", file, *arguments],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},  # noqa: TID251 - a child's
                stdout=subprocess.PIPE,
                text=True,
            )
            for line in child.stdout or ():
                print(line, end="", flush=True)
                kept.write(line)
        if child.wait():
            sys.exit(f"{file} failed")


def write() -> None:
    found = {
        name: json.loads(path.read_text()) for name in FIGURES if (path := FOLDER / f"{name}.json").exists()
    }
    if "peers" in found:
        draw(Figures.load("peers"), IMAGES)
    RESULTS.write_text("\n".join(report(found)) + "\n")
    print(f"wrote {RESULTS.relative_to(ROOT)}")


def report(found: dict[str, Any]) -> Iterator[str]:
    yield "# Benchmark results"
    yield ""
    yield "`make bench` writes this file. [docs/benchmarks.md](../docs/benchmarks.md) says what the benchmarks measure. A cell is the"
    yield "median of all rounds with the smallest and the largest. A ratio is taken round by round."
    for name, title in FIGURES.items():
        if name in found:
            yield from ("", f"## {title}", "")
            yield from figures_report(found[name])
            if name == "peers":
                yield from plots()
    printed = sorted(path for path in FOLDER.glob("*.txt") if path.stem not in FIGURES)
    if printed:
        yield from ("", "## The other benchmarks, as they print")
    for path in printed:
        yield from ("", f"### {path.stem}.py", "", "```text", path.read_text().rstrip(), "```")


def figures_report(found: dict[str, Any]) -> Iterator[str]:
    machine = found["machine"]
    measured = "; ".join(f"{section} {when}" for section, when in found["measured"].items())
    yield f"{machine['cores']} cores, {machine['processor']}, {machine['system']}. Measured (UTC): {measured}."
    if found["versions"]:
        yield ""
        yield from versions(found["versions"])
    for arm, reason in found["absent"].items():
        yield from ("", f"**{arm}** is absent: {reason}")
    yield ""
    yield from goals(found["goals"])
    for section, metrics in found["sections"].items():
        yield from ("", f"### {section}", "")
        yield from rounds({metric: found["rounds"][metric] for metric in metrics})


def versions(found: dict[str, dict[str, str]]) -> Iterator[str]:
    yield "| arm | versions |"
    yield "|---|---|"
    for arm, packages in found.items():
        yield f"| {arm} | {', '.join(f'{name} {version}' for name, version in packages.items())} |"


def goals(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| ratio | measured | rounds | goal | |"
    yield "|---|--:|--:|--:|---|"
    for goal in found:
        sign = ">=" if goal["at_least"] else "<="
        cell = f"{shown(goal['median'])} ({shown(goal['low'])} to {shown(goal['high'])})"
        verdict = "met" if goal["met"] else "**missed**"
        yield f"| {goal['text']} | {cell} | {goal['rounds']} | {sign} {shown(goal['limit'])} | {verdict} |"


def rounds(found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    arms = list(dict.fromkeys(arm for values in found.values() for arm in values))
    yield f"| | {' | '.join(arms)} |"
    yield f"|---|{'--:|' * len(arms)}"
    for metric, values in found.items():
        if metric != "one" and any(map(any, values.values())):
            yield f"| {metric} | {' | '.join(spread(values.get(arm)) for arm in arms)} |"


def plots() -> Iterator[str]:
    for name, text in PLOTS.items():
        if (IMAGES / name).exists():
            yield from ("", f"![{text}](../docs/images/{name})")


if __name__ == "__main__":
    given = sys.argv[1:]
    if given != ["--write"]:
        split = given.index("--") if "--" in given else len(given)
        run(given[:split], given[split + 1 :])
    write()
