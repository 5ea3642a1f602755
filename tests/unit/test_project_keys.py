"""Keys of langgraph.json against LangGraph's own schema of them, and against our page about them."""

import json
import re
import types
from collections.abc import Iterator
from datetime import timedelta
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import urlsplit

import langgraph_cli.config
import pytest
from langgraph_cli.deploy import RESERVED_ENV_VARS
from langgraph_cli.schemas import Config

from clew.config import load_settings
from clew.config.langgraph_environment import NAMES, REFUSED_NAMES, EnvironmentName, NameOutcome
from clew.config.project_keys import KEYS, KeyOutcome, ProjectKey
from clew.config.settings import SETTINGS
from clew.domain.errors import ConfigError

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "langgraph-project.md"
# Read by LangGraph's server, or written by its tools, and not in the schema of its command line.
NOT_IN_SCHEMA = {
    *("$schema", "store.path", "checkpointer.backend", "checkpointer.uri", "ui_config"),
    *("webhooks.allowed_fields", "webhooks.url.disable_private_ips", "http.disable_event_streaming"),
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


def test_the_page_has_the_same_tables() -> None:
    rows = [documented(line) for line in KEYS]
    names = [f"| `{one.name}` | {one.shown} |" for one in NAMES]
    shown = [row for row in PAGE.read_text("utf-8").splitlines() if row.startswith("| `")]
    assert shown == [*rows, *names], "\n".join([*rows, "", *names])


def write_project(folder: Path, key: str, value: object = "x") -> None:
    """With this key set to something."""
    for name in reversed(key.split(".")):
        value = {name: value}
    (folder / "langgraph.json").write_text(json.dumps(value))


def warnings(folder: Path, **environ: str) -> list[str]:
    found = load_settings(environ, cwd=folder).warnings
    return [warning.removeprefix(f"{folder}/langgraph.json: ") for warning in found]


NOT_HONOURED = [line for line in KEYS if line.outcome is not KeyOutcome.HONOURED]


@pytest.mark.parametrize("line", NOT_HONOURED, ids=lambda line: line.key)
def test_a_key_that_is_not_honoured_is_named(tmp_path: Path, line: ProjectKey) -> None:
    write_project(tmp_path, line.key)
    warned = line.outcome is KeyOutcome.WARNED
    assert warnings(tmp_path) == ([f"{line.key} has no effect: {line.about}"] if warned else [])


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


def test_a_name_that_is_not_refused_need_not_be_ignored(tmp_path: Path) -> None:
    wrong = {"encryption": "", "LANGGRAPH_HTP": "; did you mean LANGGRAPH_HTTP?"}
    assert warnings(tmp_path, CLEW_LANGGRAPH_IGNORE_KEYS=",".join(wrong)) == [
        f"CLEW_LANGGRAPH_IGNORE_KEYS names {key}, which Clew does not refuse{hint}"
        for key, hint in wrong.items()
    ]


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        ({"store": {"ttl": {"default_ttl": 0}}}, "store.ttl.default_ttl: expected minutes"),
        ({"store": {"ttl": {"refresh_on_read": "yes"}}}, "store.ttl.refresh_on_read: expected true or false"),
        (
            {"checkpointer": {"ttl": {"default_ttl": "7 days"}}},
            "checkpointer.ttl.default_ttl: expected minutes",
        ),
        ({"checkpointer": {"ttl": {"strategy": "archive"}}}, "strategy: expected delete or keep_latest"),
        ({"webhooks": {"url": {"allowed_ports": [0]}}}, "allowed_ports: expected a list of ports"),
        ({"webhooks": {"url": {"allowed_domains": ["a.*.b"]}}}, "allowed_domains: expected a list of hosts"),
        ({"webhooks": {"allowed_fields": ["secret"]}}, "allowed_fields: expected some of"),
        ({"webhooks": {"headers": {"Host": "x"}}}, "headers.Host: expected a header"),
        ({"webhooks": {"headers": {"A": "${{ env.HOME }}"}}}, "variables as ${{ env.LG_WEBHOOK_NAME }}"),
        ({"webhooks": {"headers": {"A": "${{ env.LG_WEBHOOK_A }}"}}}, "the variable LG_WEBHOOK_A is not set"),
        ({"webhooks": {"headers": {"A": "b\nc"}}}, "headers.A: expected one line of ASCII"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, project: dict[str, Any], expected: str) -> None:
    (tmp_path / "langgraph.json").write_text(json.dumps(project))
    with pytest.raises(ConfigError) as refused:
        warnings(tmp_path)
    assert expected in str(refused.value)


def test_our_settings_win_over_its_ttl_and_that_is_said(tmp_path: Path) -> None:
    write_project(tmp_path, "checkpointer.ttl", {"default_ttl": 90, "sweep_interval_minutes": 2})
    loaded = load_settings({}, cwd=tmp_path)
    assert (loaded.thread_ttl.delete_after, loaded.cleanup.every_seconds) == (timedelta(minutes=90), 120)
    assert loaded.warnings == ()
    environ = {"CLEW_THREAD_TTL_DAYS": "3", "CLEW_CLEANUP_SCHEDULE": "0 3 * * *"}
    loaded = load_settings(environ, cwd=tmp_path)
    assert (loaded.thread_ttl.delete_after, loaded.cleanup.every_seconds) == (timedelta(days=3), 0)
    ttl = f"{tmp_path}/langgraph.json: checkpointer.ttl"
    assert loaded.warnings == (
        f"{ttl}.default_ttl has no effect, since CLEW_THREAD_TTL_DAYS is set",
        f"{ttl}.sweep_interval_minutes has no effect, since CLEW_CLEANUP_SCHEDULE is set",
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://hooks.example.com/x", None),
        ("https://a.b.example.org", None),
        ("http://hooks.example.com", "must begin with https"),
        ("https://example.org", "has a host"),
        ("https://hooks.example.com.evil.net", "has a host"),
        ("https://hooks.example.com:8443", "has a port"),
        ("https://hooks.example.com/" + "x" * 100, "is longer than 100"),
    ],
)
def test_its_policy_decides_which_urls_are_called(tmp_path: Path, url: str, said: str | None) -> None:
    domains = ["hooks.example.com", "*.Example.org"]
    policy = {"allowed_domains": domains, "allowed_ports": [443], "max_url_length": 100}
    write_project(tmp_path, "webhooks.url", policy)
    parsed = urlsplit(url)
    refusal = load_settings({}, cwd=tmp_path).webhook_policy.why_refused(
        scheme=parsed.scheme, host=parsed.hostname or "", port=parsed.port, length=len(url)
    )
    assert (refusal is None) if said is None else (refusal or "").startswith(said)


# Of the machine, or of other programs beside the server.
NOT_LANGGRAPHS = {
    *("PATH", "PORT", "POSTGRES_PASSWORD", "LOG_DICT_TRACEBACKS"),
    *("DD_TRACE_PSYCOPG_ENABLED", "DD_TRACE_REDIS_ENABLED"),
}


# What LangGraph's images are built with. The checkpointer is a setting of ours by the same name.
IN_IMAGES = {*re.findall(r"ENV (LANG[A-Z_]+)=", Path(langgraph_cli.config.__file__).read_text("utf-8"))}
IN_IMAGES -= {"LANGGRAPH_CHECKPOINTER"}


@pytest.mark.parametrize("name", sorted((RESERVED_ENV_VARS - NOT_LANGGRAPHS) | IN_IMAGES))
def test_each_variable_that_langgraph_sets_or_reserves_has_a_line(name: str) -> None:
    assert [one for one in NAMES if one.is_set({name: "x"})], f"config/langgraph_environment.py lacks {name}"


VALUES = {"database.url": "postgresql://u:hunter2@db/x", "server.allowed_origins": "https://a.example"}
VALUES |= {"logs.level": "WARN", "logs.format": "true", "encryption.key": "sixteen-hunter2!"}
SETS = [one for one in NAMES if one.outcome is NameOutcome.SETS and one.name != "MOUNT_PREFIX"]


@pytest.mark.parametrize("one", SETS, ids=lambda one: one.name)
def test_a_variable_of_langgraph_sets_ours_unless_that_is_set(tmp_path: Path, one: EnvironmentName) -> None:
    environ = {one.name: VALUES.get(one.about, "2000" if "bytes" in one.about else "17")}
    loaded = load_settings(environ, cwd=tmp_path)
    assert (loaded.sources[one.about], loaded.warnings) == (one.name, ())
    default = load_settings({}, cwd=tmp_path)
    section, name = one.about.split(".")
    assert getattr(getattr(loaded, section), name) != getattr(getattr(default, section), name)
    (ours,) = [setting for setting in SETTINGS if setting.key == one.about]
    value = {"logs.format": "json"}.get(one.about, one.read(environ[one.name]) or "")
    loaded = load_settings({**environ, ours.env: value}, cwd=tmp_path)
    assert loaded.sources[one.about] == ours.env
    assert loaded.warnings == (f"{one.name} has no effect, since {ours.env} is set",)
    assert "hunter2" not in str(loaded)


@pytest.mark.parametrize("name", REFUSED_NAMES)
def test_a_variable_that_promises_a_protection_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: .*Unset it, or start without it"):
        warnings(tmp_path, **{name: "sixteen-hunter2!"})
    (said,) = warnings(tmp_path, CLEW_LANGGRAPH_IGNORE_KEYS=name, **{name: "sixteen-hunter2!"})
    assert said.startswith(f"{name} is ignored, as CLEW_LANGGRAPH_IGNORE_KEYS says")


def test_an_aes_key_of_another_length_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^LANGGRAPH_AES_KEY: expected AES keys of 32 bytes") as refused:
        load_settings({"LANGGRAPH_AES_KEY": "fifteen-hunter2"}, cwd=tmp_path)
    assert "hunter2" not in str(refused.value)


def test_the_variables_of_a_project_count_too(tmp_path: Path) -> None:
    write_project(tmp_path, "env", {"N_JOBS_PER_WORKER": "3", "REDIS_URI": "redis://x", "CLEW_PORT": "1"})
    loaded = load_settings({}, cwd=tmp_path)
    assert loaded.runner.concurrency == 3
    assert warnings(tmp_path) == [
        "env sets CLEW_PORT, which is for graphs only; set it in the environment or clew.yaml",
        "REDIS_URI has no effect here; Clew needs no Redis",
    ]
    assert load_settings({"N_JOBS_PER_WORKER": "4"}, cwd=tmp_path).runner.concurrency == 4


def test_values_without_a_counterpart_are_named(tmp_path: Path) -> None:
    environ = {"CORS_ALLOW_ORIGINS": "*", "LOG_LEVEL": "trace", "LANGGRAPH_AUTH_TYPE": "noop"}
    assert warnings(tmp_path, **environ, LSD_ENV="x", LANGSMITH_API_KEY="x") == [
        "CORS_ALLOW_ORIGINS has no effect, since server.allowed_origins cannot be set to this value",
        "LOG_LEVEL has no effect, since logs.level cannot be set to this value",
        "LSD_ENV has no effect here; for LangSmith's own deployments",
    ]


def test_a_mount_prefix(tmp_path: Path) -> None:
    write_project(tmp_path, "http.mount_prefix", "/a")
    assert load_settings({}, cwd=tmp_path).http.mount_prefix == "/a"
    loaded = load_settings({"MOUNT_PREFIX": "/b/"}, cwd=tmp_path)
    assert (loaded.http.mount_prefix, loaded.warnings) == ("/b", ())
    with pytest.raises(ConfigError, match="MOUNT_PREFIX: expected a path"):
        load_settings({"MOUNT_PREFIX": "b c"}, cwd=tmp_path)
