"""Budgets and usage through HTTP and the command line: what models used is shown, and a spent budget refuses the next round."""

import json
from pathlib import Path
from typing import Any

import pytest

from clew.config import load_settings
from clew.domain.errors import ConfigError
from clew.domain.thread import Owner
from tests.http_client import client_of, new_key, opened_app
from tests.processes import clew

pytestmark = pytest.mark.anyio

FLOWS = """
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


def speak(state):
    used = {"input_tokens": 600, "output_tokens": 400, "total_tokens": 1000}
    said = AIMessage("hello", usage_metadata=used, response_metadata={"model_name": "gpt-5-mini-2025-08-07"})
    return {"messages": [said]}


graph = StateGraph(MessagesState)
graph.add_node("speak", speak)
graph.add_edge(START, "speak")
graph.add_edge("speak", END)
"""


def project(folder: Path, budgets: str) -> None:
    (folder / "flows.py").write_text(FLOWS)
    (folder / "clew.yaml").write_text(
        "graphs: {speak: './flows.py:graph'}\n"
        f"budgets: {budgets}\nprices: {{gpt-5-mini: {{input: 0.25, output: 2}}}}\n"
    )


async def test_a_spent_budget_refuses_the_next_round_and_usage_shows_why(tmp_path: Path) -> None:
    project(tmp_path, "{tokens_per_user: 1000}")
    body = {"graph": "speak", "input": {"messages": [{"role": "user", "content": "hi"}]}}
    async with opened_app(tmp_path, CLEW_AUTH="keys") as app:
        ann = client_of(app.http, await new_key(app.stores.keys, owner=Owner(tenant="a", user_id="ann")))
        bob = client_of(app.http, await new_key(app.stores.keys, owner=Owner(tenant="a", user_id="bob")))
        started: Any = (await ann.post("/api/workflows/start?wait=20", json=body)).json()
        assert started["status"] == "completed"
        for path in ("/api/workflows/start", f"/api/workflows/start?id={started['id']}"):
            refused = await ann.post(path, json={"input": body["input"]} if "id=" in path else body)
            assert refused.status_code == 429, refused.text
            assert refused.json()["error"]["code"] == "BUDGET_SPENT"
            assert "the budget of this user is spent (1000 of 1000 tokens)" in refused.text
            assert "Retry-After" not in refused.headers
        sdk = await ann.post(f"/threads/{started['id']}/runs", json={"assistant_id": "speak", "input": {}})
        assert (sdk.status_code, "is spent" in sdk.text) == (429, True)
        assert (await bob.post("/api/workflows/start?wait=20", json=body)).status_code == 200
        used: Any = (await ann.get("/api/usage")).json()
        assert used["usage"] == [
            {
                "name": "speak",
                "model": "gpt-5-mini-2025-08-07",
                "tokensIn": 600,
                "tokensOut": 400,
                "cost": pytest.approx(0.00095),
            }
        ]
        own: Any = (await ann.get("/api/usage", params={"thread_id": started["id"]})).json()
        assert (own["since"], own["tokensIn"], own["cost"]) == (None, 600, pytest.approx(0.00095))
        assert (await bob.get("/api/usage", params={"thread_id": started["id"]})).status_code == 404
        early = await ann.get("/api/usage", params={"until": "0001-01-02"})
        assert (early.json()["since"], early.json()["usage"]) == ("0001-01-01", [])
        wrong = await ann.get("/api/usage", params={"since": "2030-01-01"})
        assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "since")


def test_the_command_shows_tokens_and_cost(tmp_path: Path) -> None:
    project(tmp_path, "{cost_per_graph: 0.0009, period: day}")
    asked = ("run", "speak", "--input", '{"messages": [{"role": "user", "content": "hi"}]}', "--json")
    ran = clew(tmp_path, *asked)
    assert ran.returncode == 0, ran.stderr
    refused = clew(tmp_path, *asked)
    assert (refused.returncode, "the budget of the graph 'speak' is spent" in refused.stderr) == (1, True)
    shown = json.loads(clew(tmp_path, "usage", "--by", "model", "--json").stdout)
    assert (shown["tokensIn"], shown["tokensOut"]) == (600, 400)
    table = clew(tmp_path, "usage", "--thread", json.loads(ran.stdout)["id"][:20]).stdout
    assert "gpt-5-mini-2025-08-07" in table
    assert "0.0009" in table


def test_a_budget_of_money_needs_prices(tmp_path: Path) -> None:
    (tmp_path / "clew.yaml").write_text("budgets: {cost_per_user: 5}\n")
    with pytest.raises(ConfigError, match=r"budgets\.cost_per_user: needs the section `prices`"):
        load_settings({}, cwd=tmp_path)
    (tmp_path / "clew.yaml").write_text("prices: {gpt-5: {input: dear}}\n")
    with pytest.raises(ConfigError, match=r"prices\.gpt-5\.input: expected a number"):
        load_settings({}, cwd=tmp_path)
