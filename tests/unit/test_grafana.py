"""The Grafana dashboard and the page about monitoring name metrics that exist."""

import json
import re
from pathlib import Path

from clew.telemetry import Metrics

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\b(?:clew|agent_history)_[a-z_]+\b")


def families() -> set[str]:
    """Names as /metrics has them, with the suffixes of histograms."""
    names = set()
    for family in Metrics().registry.collect():
        names.add(f"{family.name}_total" if family.type == "counter" else family.name)
        if family.type == "histogram":
            names |= {f"{family.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")}
    return names


def test_the_dashboard_queries_metrics_that_exist() -> None:
    panels = json.loads((ROOT / "deploy/grafana/clew.json").read_text("utf-8"))["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert all(NAME.search(query) for query in queries)
    assert {name for query in queries for name in NAME.findall(query)} <= families()


def test_every_metric_of_ours_is_on_the_dashboard() -> None:
    shown = set(NAME.findall((ROOT / "deploy/grafana/clew.json").read_text("utf-8")))
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    ours = {name for name in families() if name.startswith("clew_")}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in ours} <= bases


def test_the_page_about_monitoring_names_metrics_that_exist() -> None:
    page = (ROOT / "docs/howto/monitor.md").read_text("utf-8")
    assert set(NAME.findall(page)) <= families()
