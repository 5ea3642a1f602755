"""A project of LangGraph's as it is cloned: what of its langgraph.json is obeyed, warned of, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.errors import AuthenticationError

from tests.acceptance import run_graphs
from tests.processes import ROOT, clew, one_line, serving

pytestmark = pytest.mark.anyio


def write_project(folder: Path, **keys: Any) -> None:
    graphs = {"Echo of words": {"path": f"{run_graphs.__file__}:echo", "description": "Says two words."}}
    (folder / "langgraph.json").write_text(json.dumps({"dependencies": ["."], "graphs": graphs, **keys}))


async def test_a_cloned_template_is_served_and_what_has_no_effect_is_named(tmp_path: Path) -> None:
    write_project(tmp_path, env=".env", python_version="3.12", store={"index": {"dims": 3}}, grahps={})
    with serving(tmp_path, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
        warnings = [json.loads(line) for line in server.log.splitlines()]
        said = " ".join(line["event"] for line in warnings if line["level"] == "warning")
        for part in (".env, which does not exist", "store.index has no effect", "did you mean graphs?"):
            assert part in said
        assert "python_version" not in server.log
        async with get_client(url=server.address, api_key=None) as client:
            found = await client.assistants.search(graph_id="Echo of words")
            assert [(one["name"], one["description"]) for one in found] == [
                ("Echo of words", "Says two words.")
            ]
            given: Any = {"words": ["x"]}
            answer: Any = await client.runs.wait(None, "Echo of words", input=given)
            assert answer["words"] == ["x", "first", "second"]
            assert (await client.assistants.get("Echo of words"))["graph_id"] == "Echo of words"


async def test_a_key_for_langsmith_in_the_environment_is_no_obstacle_where_none_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANGSMITH_API_KEY", "lsv2_pt_0123456789abcdef")
    write_project(tmp_path)
    with serving(tmp_path, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
        async with get_client(url=server.address) as client:
            (first, *_) = await client.assistants.search()
            assert first["graph_id"] == "Echo of words"
        async with get_client(url=server.address, api_key="clew_" + "a" * 8 + "_" + "a" * 32) as client:
            with pytest.raises(AuthenticationError):
                await client.assistants.search()


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"encryption": {"path": "./keys.py:encryption"}}, "langgraph.json: encryption: "),
    ],
)
def test_a_server_does_not_start_without_the_protection_it_was_told_of(
    tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    write_project(tmp_path, **keys)
    refused = clew(tmp_path, "serve", "--port", "0")
    assert refused.returncode != 0
    assert named in one_line(refused)
    assert "Remove the key" in refused.stderr
    write_project(tmp_path, ui={"a": "./ui.tsx"}, **keys)
    ignored = named.removeprefix("langgraph.json: ").removesuffix(": ")
    said = clew(tmp_path, "doctor", CLEW_LANGGRAPH_IGNORE_KEYS=ignored).stdout
    assert f"{ignored} is ignored, as CLEW_LANGGRAPH_IGNORE_KEYS says" in said
    assert "ui has no effect" in said
