"""`clew bench`: starts many runs of one graph, some at once, and says how long they took."""

import asyncio
import math
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clew.cli.client import Api, Target, open_api, open_local_api, part
from clew.cli.opening import read_settings, run
from clew.cli.output import say, say_json
from clew.cli.progress import progress_bar
from clew.cli.running import FAILED, read_input
from clew.domain.errors import Invalid

# Of one request; a longer run is asked about again.
WAIT_SECONDS = 30
GRAPH = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph


class Count(TypedDict, total=False):
    number: int


graph = StateGraph(Count)
graph.add_node("count", lambda state: {"number": state["number"] + 1})
graph.add_edge(START, "count")
graph.add_edge("count", END)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to start, how often, and how many at a time."""

    body: Mapping[str, Any]
    runs: int
    at_once: int
    keeps: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    seconds: float
    latencies: Sequence[float]
    statuses: Mapping[str, int]

    def shown(self) -> dict[str, Any]:
        return {
            "runs": len(self.latencies),
            "byStatus": dict(self.statuses),
            "seconds": round(self.seconds, 3),
            "runsPerSecond": round(len(self.latencies) / self.seconds, 1),
            "milliseconds": {f"p{share}": self._within(share) for share in (50, 95, 99)}
            | {"max": self._within(100)},
        }

    def _within(self, share: int) -> float:
        ordered = sorted(self.latencies)
        return round(ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)] * 1000, 1)


def measure(
    *,
    graph: str | None,
    prompt: str | None,
    input: str | None,
    runs: int,
    at_once: int,
    keeps: bool,
    target: Target,
    as_json: bool,
) -> None:
    if graph is None and (prompt is not None or input is not None or target.server() is not None):
        raise Invalid("--graph: name a graph of the server or the project for this")
    body: dict[str, Any] = {"graph": graph or "count"}
    if prompt is not None:
        body["prompt"] = prompt
    if input is not None or prompt is None:
        body["input"] = {"number": 0} if input is None else read_input(input)
    load = Load(body=body, runs=runs, at_once=at_once, keeps=keeps)

    async def work() -> Measured:
        async with _opened(graph, target) as api:
            return await _measured(api, load)

    measured = run(work())
    shown = measured.shown()
    if as_json:
        say_json(shown)
    else:
        times = shown["milliseconds"]
        say(
            f"{shown['runs']} runs, {at_once} at once, in {shown['seconds']} s: {shown['runsPerSecond']} a second"
        )
        say("milliseconds " + "  ".join(f"{name} {times[name]}" for name in times))
        if failed := {name: n for name, n in measured.statuses.items() if name != "completed"}:
            say("not completed: " + ", ".join(f"{number} {name}" for name, number in failed.items()))
    if set(measured.statuses) != {"completed"}:
        raise SystemExit(FAILED)


@asynccontextmanager
async def _opened(graph: str | None, target: Target) -> AsyncGenerator[Api]:
    """Without a graph, a project and a database that are deleted afterwards, on the disk of the working directory."""
    if graph is not None:
        async with open_api(target, runs=True) as api:
            yield api
        return
    with tempfile.TemporaryDirectory(prefix="clew-bench-", dir=Path.cwd()) as made:
        folder = Path(made)
        (folder / "bench.py").write_text(GRAPH)
        (folder / "clew.yaml").write_text("graphs: {count: './bench.py:graph'}\n")
        options: dict[str, object] = {"database.url": f"sqlite:///{folder}/bench.db"}
        settings = read_settings(folder / "clew.yaml", options, level="error")
        async with open_local_api(settings, runs=True) as api:
            yield api


async def _measured(api: Api, load: Load) -> Measured:
    await _one(api, load)  # what is built by the first request is not measured
    slots, started = asyncio.Semaphore(load.at_once), time.perf_counter()
    done = 0
    with progress_bar("runs") as show:

        async def one() -> tuple[float, str]:
            nonlocal done
            async with slots:
                begun = time.perf_counter()
                status = await _one(api, load)
                done += 1
                show(done, load.runs)
                return time.perf_counter() - begun, status

        found = await asyncio.gather(*(one() for _ in range(load.runs)))
    return Measured(
        seconds=time.perf_counter() - started,
        latencies=[seconds for seconds, _ in found],
        statuses=Counter(status for _, status in found),
    )


async def _one(api: Api, load: Load) -> str:
    """The status that the run came to. Its thread is deleted."""
    thread = await api.post("/api/workflows/start", load.body, wait=WAIT_SECONDS)
    path = f"/api/workflows/{part(thread['id'])}"
    while thread["status"] in ("pending", "running"):
        thread = await api.get(f"{path}/status", wait=WAIT_SECONDS)
    if not load.keeps:
        await api.delete(f"/api/threads/{part(path.rpartition('/')[2])}")
    return str(thread["status"])
