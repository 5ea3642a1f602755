"""Keys of langgraph.json against LangGraph's own schema of them, and against our page about them."""

import json
import types
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from langgraph_cli.schemas import Config

from clew.config import load_settings
from clew.config.project_keys import KEYS, REFUSED, KeyOutcome, ProjectKey
from clew.domain.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "langgraph-project.md"
# Read by LangGraph's server, or written by its tools, and not in the schema of its command line.
NOT_IN_SCHEMA = {
    *("$schema", "store.path", "checkpointer.backend", "checkpointer.uri", "ui_config"),
    *("webhooks.allowed_fields", "http.disable_event_streaming"),
}


def schema_keys(hint: Any, key: str = "") -> Iterator[str]:
    """The dotted key of every value in a TypedDict; a star for names that a project chooses."""
    if is_typeddict(hint):
        for name, inner in get_type_hints(hint).items():
            yield from schema_keys(inner, f"{key}.{name}" if key else name)
    elif get_origin(hint) in (Union, types.UnionType):
        for option in get_args(hint):
            yield from schema_keys(option, key)
    elif get_origin(hint) is dict and any(is_typeddict(option) for option in get_args(get_args(hint)[1])):
        yield from schema_keys(get_args(hint)[1], f"{key}.*")
    elif hint is not type(None):
        yield key


def covered(key: str) -> set[str]:
    """The lines that say what becomes of a key: its own, or that of a key above it."""
    parts = key.split(".")
    above = {".".join(parts[: length + 1]) for length in range(len(parts))}
    return above & {line.key for line in KEYS}


SCHEMA = sorted(set(schema_keys(Config)))


def test_the_schema_is_read_to_its_leaves() -> None:
    assert {"graphs.*.path", "auth.openapi.security", "http.cors.max_age", "env"} <= set(SCHEMA)


@pytest.mark.parametrize("key", SCHEMA)
def test_each_key_of_langgraph_has_a_line(key: str) -> None:
    assert covered(key), f"config/project_keys.py says nothing of {key}"


def test_each_line_is_about_a_key_of_langgraph() -> None:
    real = {key for key in SCHEMA for key in covered(key)} | NOT_IN_SCHEMA
    assert {line.key for line in KEYS} == real


def documented(line: ProjectKey) -> str:
    return f"| `{line.key}` | {line.outcome} | {line.about} |"


def test_the_page_has_the_same_table() -> None:
    shown = [row for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| `")]
    keys = shown[: len(KEYS)]
    assert keys == [documented(line) for line in KEYS], "\n".join(documented(line) for line in KEYS)


def write_project(folder: Path, key: str, value: object = "x") -> None:
    """With this key set to something."""
    for name in reversed(key.split(".")):
        value = {name: value}
    (folder / "langgraph.json").write_text(json.dumps(value))


def warnings(folder: Path, **environ: str) -> list[str]:
    found = load_settings(environ, cwd=folder).warnings
    return [warning.removeprefix(f"{folder}/langgraph.json: ") for warning in found]


@pytest.mark.parametrize("line", KEYS, ids=lambda line: line.key)
def test_a_key_that_is_not_honoured_is_named(tmp_path: Path, line: ProjectKey) -> None:
    write_project(tmp_path, line.key)
    match line.outcome:
        case KeyOutcome.WARNED:
            assert warnings(tmp_path) == [f"{line.key} has no effect: {line.about}"]
        case KeyOutcome.IMAGE_ONLY:
            assert warnings(tmp_path) == []
        case KeyOutcome.REFUSED:
            with pytest.raises(ConfigError) as refused:
                warnings(tmp_path)
            assert str(refused.value).startswith(
                f"{tmp_path}/langgraph.json: {line.key}: {line.about}. Remove"
            )
            said = f"{line.key} is ignored, as CLEW_LANGGRAPH_IGNORE_KEYS says: {line.about}"
            assert warnings(tmp_path, CLEW_LANGGRAPH_IGNORE_KEYS=line.key) == [said]
        case KeyOutcome.HONOURED:
            pass  # tests of its own


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize("value", [None, False, {}])
def test_a_protection_that_is_not_asked_for_is_none(tmp_path: Path, key: str, value: object) -> None:
    write_project(tmp_path, key, value)
    assert warnings(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [("grpahs", "graphs"), ("graphs.a.descripton", "description"), ("http.disable_mpc", "disable_mcp")],
)
def test_a_key_that_langgraph_does_not_have_gets_the_nearest(tmp_path: Path, key: str, meant: str) -> None:
    project: dict[str, Any] = {"graphs": {"a": {"path": "x:y"}}, "http": {}}
    *above, name = key.split(".")
    reduce(getitem, above, project)[name] = "x"
    (tmp_path / "langgraph.json").write_text(json.dumps(project))
    assert warnings(tmp_path) == [f"{key} has no effect: there is no such key; did you mean {meant}?"]


def test_a_key_that_is_not_refused_need_not_be_ignored(tmp_path: Path) -> None:
    write_project(tmp_path, "python_version")
    assert warnings(tmp_path, CLEW_LANGGRAPH_IGNORE_KEYS="env,webhooks.ur") == [
        "CLEW_LANGGRAPH_IGNORE_KEYS names env, which Clew does not refuse",
        "CLEW_LANGGRAPH_IGNORE_KEYS names webhooks.ur, which Clew does not refuse; did you mean webhooks.url?",
    ]
