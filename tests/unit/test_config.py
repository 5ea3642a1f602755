"""Settings: where each comes from, what is refused and how it is said, and that no secret is ever repeated."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from clew.config import (
    DatabaseUrl,
    Settings,
    describe,
    export_environment,
    load_process_settings,
    load_settings,
    read_database_url,
    secrets_of,
)
from clew.config.declare import Setting
from clew.config.files import MAX_BYTES
from clew.config.settings import SECTIONS, SETTINGS
from clew.domain.errors import ConfigError
from clew.domain.profile import CheckCommand, Publication
from clew.domain.retry import RetryPolicy
from clew.telemetry.scrub import Scrubber

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"

by_key = {setting.key: setting for setting in SETTINGS}


def load(folder: Path, environ: Mapping[str, str] | None = None, yaml: str | None = None) -> Settings:
    if yaml is not None:
        (folder / "clew.yaml").write_text(yaml, "utf-8")
    return load_settings(environ or {}, cwd=folder)


def refusal(folder: Path, environ: Mapping[str, str] | None = None, yaml: str | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        load(folder, environ, yaml)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    return str(refused.value)


class TestWhereValuesComeFrom:
    def test_nothing_configured_is_sqlite_in_the_working_directory_on_loopback(self, tmp_path: Path) -> None:
        loaded = load(tmp_path)
        assert loaded.database.url == DatabaseUrl("sqlite", path=tmp_path / ".clew" / "clew.db")
        assert str(loaded.database.url) == f"sqlite:///{tmp_path}/.clew/clew.db"
        assert loaded.graph_store_url == loaded.database.url
        assert loaded.server.is_loopback
        assert (loaded.threads.ttl_days, loaded.cleanup.api_key, loaded.testing.failpoints) == (30, None, "")
        assert (loaded.sources, loaded.warnings, loaded.config_file) == ({}, (), None)
        assert not (tmp_path / ".clew").exists()

    def test_options_win_over_environment_over_file_over_defaults(self, tmp_path: Path) -> None:
        yaml = "server:\n  port: 1111\n  host: '::1'\nrunner: {concurrency: 3}\n"
        (tmp_path / "clew.yaml").write_text(yaml)
        loaded = load_settings(
            {"CLEW_PORT": "2222", "CLEW_HOST": "localhost"}, cwd=tmp_path, options={"server.port": 3333}
        )
        assert (loaded.server.port, loaded.server.host, loaded.runner.concurrency) == (3333, "localhost", 3)
        assert dict(loaded.sources) == {
            "server.port": "--port",
            "server.host": "CLEW_HOST",
            "runner.concurrency": f"{tmp_path}/clew.yaml: runner.concurrency",
        }

    @pytest.mark.parametrize(
        ("alias", "value", "key", "read"),
        [
            ("DATABASE_URL", "memory://", "database.url", DatabaseUrl("memory")),
            ("CLEANUP_API_KEY", "your-secret-key-here", "cleanup.api_key", SecretStr("your-secret-key-here")),
            ("CRON_SECRET", "0123456789abcdef", "cleanup.cron_secret", SecretStr("0123456789abcdef")),
            ("THREAD_TTL_DAYS", "7", "threads.ttl_days", 7),
            ("LANGGRAPH_CHECKPOINTER", "memory", "checkpoints.backend", "memory"),
        ],
    )
    def test_the_names_of_the_seeds_are_understood(
        self, tmp_path: Path, alias: str, value: str, key: str, read: object
    ) -> None:
        section, name = key.split(".")
        assert getattr(getattr(load(tmp_path, {alias: value}), section), name) == read
        assert alias in by_key[key].aliases

    def test_our_own_name_wins_over_an_alias(self, tmp_path: Path) -> None:
        environ = {"DATABASE_URL": "nonsense", "CLEW_DATABASE_URL": "memory://"}
        assert load(tmp_path, environ).database.url.kind == "memory"

    def test_an_empty_variable_is_one_that_is_not_set(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, {"CLEANUP_API_KEY": "", "CLEW_PORT": "  ", "CLEW_GRAPH_STORE_BACKEND": ""})
        assert loaded.cleanup.api_key is None
        assert loaded.sources == {}

    def test_a_file_can_be_named_and_its_paths_are_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "deploy").mkdir()
        (tmp_path / "deploy" / "prod.yaml").write_text("database: {url: 'sqlite:///data/clew.db'}")
        (tmp_path / "clew.yaml").write_text("server: {port: 1}")
        loaded = load_settings({}, cwd=tmp_path, config=Path("deploy/prod.yaml"))
        assert loaded.database.url.path == tmp_path / "deploy" / "data" / "clew.db"
        assert loaded.server.port == by_key["server.port"].default

    def test_a_file_that_was_named_must_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"missing\.yaml: expected a file"):
            load_settings({}, cwd=tmp_path, config=Path("missing.yaml"))
        with pytest.raises(ConfigError, match="expected a file"):
            load_settings({}, cwd=tmp_path, config=tmp_path)

    def test_a_file_can_take_a_value_from_the_environment(self, tmp_path: Path) -> None:
        yaml = "cleanup: {api_key: '${OPS_KEY}'}\nserver:\n  port: ${OPS_PORT}\n"
        loaded = load(tmp_path, {"OPS_KEY": "correct-horse-battery", "OPS_PORT": "99"}, yaml)
        assert (loaded.cleanup.api_key, loaded.server.port) == (SecretStr("correct-horse-battery"), 99)
        assert refusal(tmp_path, {"OPS_PORT": "99"}).endswith(
            "cleanup.api_key: the variable OPS_KEY is not set"
        )

    def test_a_variable_in_the_middle_of_a_text_is_text(self, tmp_path: Path) -> None:
        yaml = "channels: {telegram: {bot: {token: 'a${HOME}'}}}"
        (channel,) = load(tmp_path, {"HOME": "/root"}, yaml).channels
        assert channel.options["token"] == SecretStr("a${HOME}")

    def test_an_unknown_variable_of_ours_is_pointed_out(self, tmp_path: Path) -> None:
        assert load(tmp_path, {"CLEW_DATBASE_URL": "memory://", "OTHER": "1"}).warnings == (
            "CLEW_DATBASE_URL is no setting; did you mean CLEW_DATABASE_URL?",
        )

    def test_a_secret_that_can_be_guessed_is_pointed_out(self, tmp_path: Path) -> None:
        (warning,) = load(tmp_path, {"CLEANUP_API_KEY": "hunter2"}).warnings
        assert warning.startswith("CLEANUP_API_KEY is shorter than")
        assert "hunter2" not in warning

    def test_what_is_pointed_out_is_not_taken_for_a_secret_by_the_log(self, tmp_path: Path) -> None:
        environ = {"CLEW_OTHER_API_KEY": "1", "CLEW_BOT_TOKEN": "1", "CRON_SECRET": "1"}
        found = load(tmp_path, environ, "cleanup: {api_key: hunter2}").warnings
        assert len(found) == 4
        assert [Scrubber()(warning) for warning in found] == list(found)

    def test_the_process_reads_its_own_environment_and_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CLEW_THREAD_TTL_DAYS", "9")
        loaded = load_process_settings()
        assert loaded.threads.ttl_days == 9
        assert loaded.database.url.path == tmp_path / ".clew" / "clew.db"

    def test_only_the_environment_that_is_handed_in_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CLEW_PORT", "1")
        monkeypatch.setenv("SERVER", '{"port": 2}')
        (tmp_path / ".env").write_text("CLEW_PORT=3\n")
        assert load(tmp_path).server.port == by_key["server.port"].default

    def test_settings_are_frozen(self, tmp_path: Path) -> None:
        loaded = load(tmp_path)
        with pytest.raises(ValidationError, match="frozen"):
            loaded.server.port = 1
        with pytest.raises(TypeError):
            loaded.profiles["x"] = loaded.profiles["default"]  # type: ignore[index]


class TestEverySetting:
    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.key)
    def test_is_documented_with_its_names_default_and_meaning(self, setting: Setting) -> None:
        row = documented_row(setting)
        assert row in DOCS.read_text("utf-8").splitlines(), f"docs/reference/settings.md lacks:\n{row}"

    def test_that_is_documented_exists(self) -> None:
        known = {variable for setting in SETTINGS for variable in setting.variables}
        assert set(re.findall(r"CLEW_[A-Z_]+", DOCS.read_text("utf-8"))) <= known

    def test_example_in_the_documentation_is_read(self, tmp_path: Path) -> None:
        (tmp_path / "agent.py").touch()
        text = DOCS.read_text("utf-8")
        environ = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", text), "x" * 20) | {
            "VAULT_DATABASE_URL": "memory://"
        }
        examples = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        (tmp_path / "clew.yaml").write_text("\n".join(examples), "utf-8")
        loaded = load(tmp_path, environ)
        assert (loaded.server.port, loaded.database.url.kind) == (9000, "memory")
        assert loaded.profiles["work"].retry == RetryPolicy()
        assert [channel.name for channel in loaded.channels] == ["support", "desk"]

    @pytest.mark.parametrize("variable", [v for s in SETTINGS for v in s.variables])
    def test_is_refused_by_its_variable_without_repeating_the_value(
        self, tmp_path: Path, variable: str
    ) -> None:
        message = refusal(tmp_path, {variable: "hunter2 \x07 ://hunter2@"})
        assert message.startswith(f"{variable}: expected ")
        assert "hunter2" not in message

    @pytest.mark.parametrize("setting", [s for s in SETTINGS if s.in_file], ids=lambda s: s.key)
    def test_is_refused_by_its_key_without_repeating_the_value(
        self, tmp_path: Path, setting: Setting
    ) -> None:
        yaml = f'{setting.section}: {{{setting.name}: "hunter2 \\a"}}'
        message = refusal(tmp_path, yaml=yaml)
        assert message.startswith(f"{tmp_path}/clew.yaml: {setting.key}: expected ")
        assert "hunter2" not in message

    @pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.key)
    def test_has_the_type_it_is_declared_with(self, tmp_path: Path, setting: Setting) -> None:
        value = getattr(getattr(load(tmp_path), setting.section), setting.name)
        hint = get_type_hints(SECTIONS[setting.section])[setting.name]
        assert isinstance(value, getattr(hint, "__origin__", hint))

    def test_has_one_key_and_its_variables_to_itself(self) -> None:
        variables = [variable for setting in SETTINGS for variable in setting.variables]
        assert len(set(variables)) == len(variables)
        assert len(by_key) == len(SETTINGS)
        others = {setting.env for setting in SETTINGS if not setting.env.startswith("CLEW_")}
        assert others == {"OTEL_EXPORTER_OTLP_ENDPOINT"}

    def test_that_is_for_tests_only_cannot_be_left_in_a_file(self, tmp_path: Path) -> None:
        assert "testing: no such key" in refusal(tmp_path, yaml="testing: {failpoints: 'commit_done:kill'}")


def documented_row(setting: Setting) -> str:
    variables = " ".join(f"`{variable}`" for variable in setting.variables)
    default = "" if setting.default in (None, "", []) else f"`{str(setting.default).lower()}`"
    key = f"`{setting.name}`" if setting.in_file else ""
    return f"| {variables} | {key} | {default} | {setting.kind.expected} | {setting.about} |"


class TestKinds:
    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("CLEW_PORT", "65536"),
            ("CLEW_PORT", "-1"),
            ("CLEW_PORT", "80.0"),
            ("CLEW_PORT", "1_000"),
            ("CLEW_PORT", "٣"),
            ("CLEW_PORT", "0x50"),
            ("CLEW_PORT", "9" * 5000),
            ("CLEW_HOST", "a b"),
            ("CLEW_HOST", "http://localhost"),
            ("CLEW_ROOT_PATH", "/clew/"),
            ("CLEW_ROOT_PATH", "clew"),
            ("CLEW_ROOT_PATH", "//evil.example"),
            ("CLEW_ALLOWED_ORIGINS", "*"),
            ("CLEW_ALLOWED_ORIGINS", "https://a.example,*"),
            ("CLEW_ALLOWED_ORIGINS", "https://a.example/path"),
            ("CLEW_ALLOWED_ORIGINS", "null"),
            ("CLEW_AUTH", "none"),
            ("CLEW_VERBOSE", "maybe"),
            ("CLEW_RUNNER_LEASE_SECONDS", "nan"),
            ("CLEW_RUNNER_LEASE_SECONDS", "inf"),
            ("CLEW_RUNNER_LEASE_SECONDS", "1e1"),
            ("CLEW_RUNNER_LEASE_SECONDS", "0"),
            ("THREAD_TTL_DAYS", "0"),
            ("THREAD_TTL_DAYS", "1.5"),
            ("THREAD_TTL_DAYS", "99999999999999999999"),
            ("CLEANUP_API_KEY", "with space"),
            ("CLEANUP_API_KEY", "ümlaut"),
            ("CLEW_MODEL_CALLS_TTL_DAYS", "-1"),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "acme"),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "acme=0"),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "acme=101"),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "acme=1,acme=2"),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "acme=nan"),
        ],
    )
    def test_refuse_what_does_not_fit(self, tmp_path: Path, variable: str, value: str) -> None:
        assert refusal(tmp_path, {variable: value}).startswith(f"{variable}: expected ")

    @pytest.mark.parametrize(
        ("variable", "value", "key", "read"),
        [
            ("CLEW_PORT", "0", "server.port", 0),
            ("CLEW_QUEUE_TENANT_WEIGHTS", "a=3, b.c=0.5", "queue.tenant_weights", {"a": 3.0, "b.c": 0.5}),
            ("CLEW_HOST", "::1", "server.host", "::1"),
            ("CLEW_ROOT_PATH", "/tools/clew", "server.root_path", "/tools/clew"),
            ("CLEW_AUTH", "Keys", "server.auth", "keys"),
            ("CLEW_VERBOSE", "YES", "runner.verbose", True),
            ("CLEW_VERBOSE", "0", "runner.verbose", False),
            ("CLEW_RUNNER_POLL_SECONDS", ".05", "runner.poll_seconds", 0.05),
            ("CLEW_LOG_LEVEL", "WARNING", "logs.level", "warning"),
            ("CLEW_FAILPOINTS", "commit_done:kill", "testing.failpoints", "commit_done:kill"),
            ("CLEW_MODEL_CALLS_TTL_DAYS", "14", "model_calls.ttl_days", 14),
            (
                "CLEW_ALLOWED_ORIGINS",
                "https://a.example, http://B.example:8080",
                "server.allowed_origins",
                ("https://a.example", "http://b.example:8080"),
            ),
        ],
    )
    def test_accept_what_fits(
        self, tmp_path: Path, variable: str, value: str, key: str, read: object
    ) -> None:
        section, name = key.split(".")
        assert getattr(getattr(load(tmp_path, {variable: value}), section), name) == read

    @pytest.mark.parametrize(
        ("host", "loopback"),
        [("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("clew", False)],
    )
    def test_loopback_is_told_from_the_rest(self, tmp_path: Path, host: str, loopback: bool) -> None:
        assert load(tmp_path, {"CLEW_HOST": host}).server.is_loopback is loopback


class TestDatabase:
    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("memory://", "memory://"),
            ("sqlite:///:memory:", "memory://"),
            ("sqlite:////data/clew.db", "sqlite:////data/clew.db"),
            ("postgresql://clew:hunter2@db:5432/clew", "postgresql://db:5432/clew"),
            ("postgres://clew:hun@ter2@db/clew?sslmode=require", "postgresql://db/clew"),
            ("postgresql://clew:hunter2@a:1,b:2/clew", "postgresql://a:1,b:2/clew"),
            ("postgresql://clew:hunter2@[::1]:5432/clew", "postgresql://[::1]:5432/clew"),
            ("postgresql:///clew?host=/run/postgres&password=hunter2", "postgresql:///clew"),
        ],
    )
    def test_a_url_is_shown_without_user_password_and_options(
        self, tmp_path: Path, url: str, shown: str
    ) -> None:
        loaded = load(tmp_path, {"CLEW_DATABASE_URL": url})
        assert str(loaded.database.url) == shown
        assert "hunter2" not in repr(loaded.database.url)
        if loaded.database.url.kind == "postgres":
            assert loaded.database.url.reveal() == url.replace("postgres://", "postgresql://")

    @pytest.mark.parametrize(
        "url",
        [
            "clew.db",
            "/data/clew.db",
            "sqlite://",
            "sqlite:///",
            "sqlite://clew.db",
            "sqlite:///~/clew.db",
            "sqlite:///data/",
            "sqlite:///clew.db?mode=ro",
            "sqlite+aiosqlite:///clew.db",
            "mysql://clew:hunter2@db/clew",
            "postgresql+asyncpg://clew:hunter2@db/clew",
            "postgresql:",
            "postgresql://",
            "postgresql://clew:hun/ter2@db/clew",
            "postgresql://clew:12/hunter2@db/clew",
            "postgresql://clew:12?hunter2@db/clew",
            "postgresql://clew:hun#ter2@db/clew",
            "postgresql://clew:[hunter2]@db/clew",
            "postgresql://clew:hunter2@db:port/clew",
            "postgresql://clew:hunter2@db:999999/clew",
            "host=db user=clew password=hunter2",
            "memory://x",
        ],
    )
    def test_a_url_that_is_not_one_is_refused_unseen(self, tmp_path: Path, url: str) -> None:
        message = refusal(tmp_path, {"DATABASE_URL": url})
        assert message.startswith("DATABASE_URL: expected sqlite:///")
        assert "hunter2" not in message
        with pytest.raises(ConfigError) as refused:
            read_database_url(url)
        assert "hunter2" not in str(refused.value)

    def test_a_url_in_code_is_relative_to_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert read_database_url("sqlite:///app.db").path == tmp_path / "app.db"
        assert read_database_url("sqlite:////abs/app.db").path == Path("/abs/app.db")

    @pytest.mark.parametrize(
        ("environ", "pooled"),
        [
            ({"DATABASE_URL": "postgresql://u:p@x.pooler.example:6543/postgres"}, True),
            ({"DATABASE_URL": "postgresql://u:p@db/clew?pgbouncer=true"}, True),
            ({"DATABASE_URL": "postgresql://u:p@db:5432/clew"}, False),
            ({"DATABASE_URL": "postgresql://db/clew", "CLEW_DATABASE_TRANSACTION_POOLER": "yes"}, True),
            ({"DATABASE_URL": "postgresql://db:6543/clew", "CLEW_DATABASE_TRANSACTION_POOLER": "no"}, False),
        ],
    )
    def test_a_transaction_pooler_is_recognised(
        self, tmp_path: Path, environ: dict[str, str], pooled: bool
    ) -> None:
        database = load(tmp_path, environ).database
        assert database.is_behind_transaction_pooler is pooled
        assert "pgbouncer" not in database.url.reveal()

    def test_workers_need_notifications(self, tmp_path: Path) -> None:
        workers = {"CLEW_RUNNER_KIND": "workers", "CLEW_DATABASE_URL": "postgresql://u@db:6543/clew"}
        assert "CLEW_DATABASE_DIRECT_URL" in refusal(tmp_path, workers)
        direct = workers | {"CLEW_DATABASE_DIRECT_URL": "postgresql://u@db/clew"}
        assert load(tmp_path, direct).runner.kind == "workers"

    def test_a_direct_url_must_be_postgres(self, tmp_path: Path) -> None:
        assert "CLEW_DATABASE_DIRECT_URL: expected postgresql" in refusal(
            tmp_path, {"CLEW_DATABASE_DIRECT_URL": "sqlite:////x.db"}
        )
        (warning,) = load(tmp_path, {"CLEW_DATABASE_DIRECT_URL": "postgresql://u:hunter2@db/clew"}).warnings
        assert warning == "CLEW_DATABASE_DIRECT_URL: of no use, the database is not Postgres"

    def test_a_pool_cannot_be_smaller_than_its_smallest_size(self, tmp_path: Path) -> None:
        assert "pool_min no larger than pool_max" in refusal(tmp_path, {"CLEW_DATABASE_POOL_MIN": "11"})
        assert "pool_min no larger than pool_max" in refusal(
            tmp_path, {"CLEW_DATABASE_POOL_MAX": "2"}, "database: {pool_min: 3}"
        )

    def test_checkpoints_are_where_the_threads_are(self, tmp_path: Path) -> None:
        dsn = {"CLEW_POSTGRES_DSN": "postgresql://u:hunter2@db/clew"}
        assert load(tmp_path, {"CLEW_CHECKPOINT_BACKEND": "SQLite"}).database.url.kind == "sqlite"
        assert load(tmp_path, {"CLEW_CHECKPOINT_BACKEND": "memory"}).database.url.kind == "memory"
        chosen = load(tmp_path, {"CLEW_CHECKPOINT_BACKEND": "postgres", **dsn})
        assert chosen.database.url.reveal() == "postgresql://u:hunter2@db/clew"
        assert chosen.sources["database.url"] == "CLEW_POSTGRES_DSN"
        message = refusal(tmp_path, {"LANGGRAPH_CHECKPOINTER": "postgres"})
        assert message == "LANGGRAPH_CHECKPOINTER: postgres needs CLEW_DATABASE_URL or CLEW_POSTGRES_DSN"
        message = refusal(
            tmp_path, {"LANGGRAPH_CHECKPOINTER": "postgres", "DATABASE_URL": "memory://", **dsn}
        )
        assert message == "LANGGRAPH_CHECKPOINTER: expected memory, as DATABASE_URL says, or nothing"

    def test_a_postgres_dsn_alone_changes_nothing(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, {"CLEW_POSTGRES_DSN": "postgresql://u:hunter2@db/clew"})
        assert (loaded.database.url.kind, loaded.graph_store_url.kind) == ("sqlite", "sqlite")


class TestGraphStore:
    @pytest.mark.parametrize("backend", ["sqlite", "SQLite", "SQLITE"])
    def test_sqlite_starts_without_a_dsn(self, tmp_path: Path, backend: str) -> None:
        loaded = load(tmp_path, {"CLEW_GRAPH_STORE_BACKEND": backend})
        assert loaded.graph_store_url == loaded.database.url

    @pytest.mark.parametrize("backend", ["postgres", "Postgres"])
    def test_postgres_needs_its_dsn(self, tmp_path: Path, backend: str) -> None:
        environ = {"CLEW_GRAPH_STORE_BACKEND": backend}
        assert refusal(tmp_path, environ) == "CLEW_GRAPH_STORE_BACKEND: postgres needs CLEW_POSTGRES_DSN"
        environ["CLEW_POSTGRES_DSN"] = "postgresql://u:hunter2@db/items"
        loaded = load(tmp_path, environ)
        assert str(loaded.graph_store_url) == "postgresql://db/items"
        assert loaded.database.url.kind == "sqlite"

    def test_postgres_can_be_the_one_the_threads_are_in(self, tmp_path: Path) -> None:
        environ = {"CLEW_GRAPH_STORE_BACKEND": "postgres", "DATABASE_URL": "postgresql://db/clew"}
        loaded = load(tmp_path, environ)
        assert loaded.graph_store_url == loaded.database.url

    @pytest.mark.parametrize("backend", ["redis", "postgresql", "sqlite3", "memory", "sqlite,postgres"])
    def test_another_backend_is_refused_by_the_name_of_its_variable(
        self, tmp_path: Path, backend: str
    ) -> None:
        message = refusal(tmp_path, {"CLEW_GRAPH_STORE_BACKEND": backend})
        assert message == "CLEW_GRAPH_STORE_BACKEND: expected one of sqlite, postgres"

    @pytest.mark.parametrize("path", ["data/x.sqlite", "~/x.sqlite", "./x.sqlite", "../x.sqlite", "/data/"])
    def test_a_path_that_is_not_absolute_is_refused(self, tmp_path: Path, path: str) -> None:
        message = refusal(tmp_path, {"CLEW_GRAPH_STORE_SQLITE_PATH": path})
        assert message.startswith("CLEW_GRAPH_STORE_SQLITE_PATH: expected an absolute path")

    def test_an_absolute_path_is_the_store(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, {"CLEW_GRAPH_STORE_SQLITE_PATH": "/var/lib/clew/items.sqlite"})
        assert loaded.graph_store_url == DatabaseUrl("sqlite", path=Path("/var/lib/clew/items.sqlite"))

    def test_sqlite_beside_postgres_has_a_file_of_its_own(self, tmp_path: Path) -> None:
        environ = {"CLEW_GRAPH_STORE_BACKEND": "sqlite", "DATABASE_URL": "postgresql://db/clew"}
        assert load(tmp_path, environ).graph_store_url.path == tmp_path / ".clew" / "graph_store.db"


PROFILES = """
profiles:
  work:
    driver: api:openai
    tracker: jira
    retry:
      max_retries: 3
      base_delay: 1.0
      max_delay: 30.0
      retryable_errors:
        - network_timeout
        - rate_limit
        - llm_overload

  enterprise:
    driver: cli:claude
    tracker: github
    retry:
      max_retries: 5
      base_delay: 2
      max_delay: 60.0
      retryable_errors: [network_timeout, rate_limit, llm_overload, cli_timeout]

  bare:
    driver: api:anthropic
"""


class TestProfiles:
    @pytest.mark.accept("001-27", "001-29")
    def test_the_published_schema_is_read(self, tmp_path: Path) -> None:
        profiles = load(tmp_path, yaml=PROFILES).profiles
        assert sorted(profiles) == ["bare", "default", "enterprise", "work"]
        work, enterprise, bare = (profiles[name] for name in ("work", "enterprise", "bare"))
        assert (work.name, work.driver, work.tracker, work.retry) == (
            "work",
            "api:openai",
            "jira",
            RetryPolicy(),
        )
        assert (enterprise.retry.max_retries, enterprise.retry.base_delay, enterprise.retry.max_delay) == (
            5,
            2.0,
            60.0,
        )
        assert "cli_timeout" in enterprise.retry.retryable_errors
        assert (bare.tracker, bare.retry) == ("none", RetryPolicy())

    def test_tests_are_a_command_or_a_section_and_a_publication_is_a_section(self, tmp_path: Path) -> None:
        yaml = """
profiles:
  one: {driver: offline, tests: make}
  two:
    driver: "cli:codex"
    tracker: github
    tests: {command: [make, test], seconds: 60, approval: true}
    publish: {remote: "git@example.com:acme/shop.git", pull_request: true, comment: true, author: "Ann <a@b.c>"}
"""
        profiles = load(tmp_path, yaml=yaml).profiles
        assert profiles["one"].tests == CheckCommand(command=("make",))
        assert profiles["one"].publish is None
        assert profiles["two"].tests == CheckCommand(command=("make", "test"), seconds=60, approval=True)
        assert profiles["two"].publish == Publication(
            remote="git@example.com:acme/shop.git", pull_request=True, comment=True, author="Ann <a@b.c>"
        )

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ("tests: {seconds: 5}", "tests: expected a command"),
            ("tests: {command: [make], seconds: 0}", "tests.seconds: expected seconds from 1 to 86400"),
            ("tests: [--version]", "tests.command: expected a program"),
            ("tests: {command: make, approval: 1}", "tests.approval: expected yes or no"),
            ("publish: {remote: 'ext::sh'}", "publish.remote: expected an address"),
            ("publish: {remote: 'file:///x'}", "publish.remote: expected an address"),
            ("publish: {remote: 'https://ann:secret@example.com/x'}", "expected no user or password"),
            ("publish: {remote: '--upload-pack=x'}", "publish.remote: expected an address"),
            ("publish: {author: Ann}", "publish.author: expected a name and an address"),
            ("publish: {base: '-x'}", "publish.base: expected the name of a branch"),
            ("publish: {pull_request: true}", "publish.pull_request: expected a remote"),
            ("tracker: jira, publish: {remote: /a, pull_request: true}", "expected the tracker github"),
            ("publish: {comment: true}", "publish.comment: expected the tracker github or jira"),
        ],
    )
    def test_what_cannot_be_run_or_published_is_refused_by_name(
        self, tmp_path: Path, given: str, reason: str
    ) -> None:
        assert reason in refusal(tmp_path, yaml=f"profiles: {{one: {{driver: offline, {given}}}}}")

    def test_there_is_always_one_that_works_offline(self, tmp_path: Path) -> None:
        assert load(tmp_path).profiles["default"].driver == "offline"
        given = load(tmp_path, yaml="profiles: {default: {driver: 'api:openai'}}")
        assert given.profiles["default"].driver == "api:openai"

    @pytest.mark.accept("001-28", "001-21", "001-29")
    @pytest.mark.parametrize(
        ("profile", "key", "expected"),
        [
            ("{driver: 'api:acme'}", "driver", "one of api:openai"),
            ("{driver: openai}", "driver", "one of api:openai"),
            ("{tracker: jira}", "", "a driver"),
            ("{driver: offline, tracker: svn}", "tracker", "one of jira, github, none"),
            (
                "{driver: offline, retry: {max_retries: 11}}",
                "retry.max_retries",
                "a whole number from 0 to 10",
            ),
            (
                "{driver: offline, retry: {max_retries: -1}}",
                "retry.max_retries",
                "a whole number from 0 to 10",
            ),
            ("{driver: offline, retry: {max_retries: 2.5}}", "retry.max_retries", "a whole number"),
            ("{driver: offline, retry: {max_retries: true}}", "retry.max_retries", "a whole number"),
            ("{driver: offline, retry: {base_delay: 0.05}}", "retry.base_delay", "seconds from 0.1 to 30"),
            ("{driver: offline, retry: {base_delay: 31}}", "retry.base_delay", "seconds from 0.1 to 30"),
            ("{driver: offline, retry: {base_delay: -1.0}}", "retry.base_delay", "seconds from 0.1 to 30"),
            ("{driver: offline, retry: {max_delay: 0.5}}", "retry.max_delay", "seconds from 1 to 300"),
            ("{driver: offline, retry: {max_delay: 301}}", "retry.max_delay", "seconds from 1 to 300"),
            ("{driver: offline, retry: {max_delay: .inf}}", "retry.max_delay", "seconds from 1 to 300"),
            (
                "{driver: offline, retry: {retryable_errors: [timeout]}}",
                "retry.retryable_errors",
                "a list of network",
            ),
            (
                "{driver: offline, retry: {retryable_errors: [auth]}}",
                "retry.retryable_errors",
                "a list of network",
            ),
            (
                "{driver: offline, retry: {retryable_errors: rate_limit}}",
                "retry.retryable_errors",
                "a list of",
            ),
            ("{driver: offline, retry: 3}", "retry", "a mapping"),
            ("{driver: 'api:ollama', temperature: 3}", "temperature", "a number from 0 to 2"),
            ("{driver: offline, temperature: 1}", "temperature", "nothing: temperature is for a driver api:"),
            ("{driver: 'cli:claude', headers: {A: b}}", "headers", "nothing: headers are for a driver api:"),
            ("{driver: 'api:ollama', headers: {A: 1}}", "headers", "names and values"),
            ("{driver: 'api:ollama', headers: [A]}", "headers", "names and values"),
            ("{driver: 'api:ollama', max_tokens: 0}", "max_tokens", "a whole number from 1"),
            ("{driver: 'api:ollama', timeout: 0}", "timeout", "seconds from 1"),
            ("{driver: 'api:ollama', vision: maybe}", "vision", "one of auto, yes, no"),
            ("{driver: 'api:ollama', region: eu}", "region", "nothing: region is for api:bedrock"),
            ("{driver: 'api:azure', api_version: 'a b'}", "api_version", "a word like"),
            ("{driver: 'api:ollama', budget: {tokens: 0}}", "budget.tokens", "a whole number from 1"),
            ("{driver: 'api:ollama', budget: {}}", "budget", "tokens, or cost with prices"),
            ("{driver: 'api:ollama', budget: {cost: 1}}", "budget", "input_price and output_price"),
            ("{driver: 'api:ollama', budget: 5}", "budget", "a mapping"),
        ],
    )
    def test_a_wrong_value_is_refused_at_load_by_its_key(
        self, tmp_path: Path, profile: str, key: str, expected: str
    ) -> None:
        message = refusal(tmp_path, yaml=f"profiles: {{work: {profile}}}")
        path = f"profiles.work.{key}" if key else "profiles.work"
        assert message.startswith(f"{tmp_path}/clew.yaml: {path}: expected {expected}")

    @pytest.mark.accept("001-29")
    def test_the_block_is_called_retry_and_nothing_else(self, tmp_path: Path) -> None:
        yaml = "profiles: {work: {driver: offline, retry_config: {max_retries: 1}}}"
        assert (
            "profiles.work.retry_config: no such key; there are api_key, api_key_env, api_version,"
            " base_url, budget, command, driver, headers, max_tokens, model, publish, region, retry,"
            " temperature, tests, timeout, tracker, vision" in refusal(tmp_path, yaml=yaml)
        )

    def test_the_options_of_a_model_are_read_and_its_headers_are_secrets(self, tmp_path: Path) -> None:
        yaml = """
profiles:
  work:
    driver: api:azure
    temperature: 0
    max_tokens: 100
    timeout: 5
    vision: no
    headers: {X-Gateway: "${TOKEN}"}
    api_version: 2024-10-21
    budget: {cost: 0.5, input_price: 1, output_price: 10}
"""
        loaded = load(tmp_path, {"TOKEN": "the-token-of-the-gateway"}, yaml)
        work = loaded.profiles["work"]
        assert (work.temperature, work.max_tokens, work.timeout, work.vision) == (0, 100, 5, "no")
        assert work.headers == {"X-Gateway": "the-token-of-the-gateway"}
        assert work.api_version == "2024-10-21"
        assert work.budget is not None
        assert work.budget.cost_of(1_000_000, 100_000) == 2.0
        assert "the-token-of-the-gateway" in secrets_of(loaded)
        assert "the-token" not in f"{loaded}{describe(loaded)}"

    def test_a_key_of_its_own_is_kept_apart_from_what_is_shown(self, tmp_path: Path) -> None:
        work = "driver: 'api:openai', base_url: 'http://127.0.0.1:1/v1'"
        yaml = f"profiles: {{a: {{{work}, api_key: '${{ONE}}'}}, b: {{{work}, api_key_env: TWO}}, c: {{{work}}}}}"
        loaded = load(tmp_path, {"ONE": "key-number-one", "TWO": "key-number-two"}, yaml)
        assert {name: key.get_secret_value() for name, key in loaded.profile_keys.items()} == {
            "a": "key-number-one",
            "b": "key-number-two",
        }
        assert secrets_of(loaded) >= {"key-number-one", "key-number-two"}
        shown = {one.key: one.value for one in describe(loaded)}
        assert shown["profiles.a"] == "api:openai, tracker none, a key of its own"
        assert "key-number" not in f"{loaded}{shown}"

    @pytest.mark.parametrize(
        ("profile", "said"),
        [
            ("driver: 'api:openai', api_key: x, api_key_env: TWO", "api_key or api_key_env, not both"),
            ("driver: 'api:openai', api_key_env: NONE", "the variable NONE is not set"),
            ("driver: 'api:openai', api_key_env: 7", "expected the name of a variable"),
            ("driver: 'api:openai', api_key: 'a b'", "expected a secret"),
            ("driver: offline, api_key: x", "offline takes no key"),
            ("driver: 'cli:claude', api_key_env: TWO", "cli:claude takes no key"),
        ],
    )
    def test_a_key_that_is_none_is_refused(self, tmp_path: Path, profile: str, said: str) -> None:
        assert said in refusal(tmp_path, {"TWO": "2"}, f"profiles: {{work: {{{profile}}}}}")

    @pytest.mark.parametrize(
        ("url", "is_warned"),
        [
            ("http://127.0.0.1:1/v1", True),
            ("https://api.openai.com/v2", True),
            ("https://api.openai.com.example.com/v1", True),
            ("https://api.openai.com:443/v1/", False),
            ("https://API.openai.com./v1", False),
            ("http://api.openai.com/v1", True),
            ("https://api.openai.com:99999/v1", True),
        ],
    )
    def test_a_key_that_stays_here_is_said_to(self, tmp_path: Path, url: str, is_warned: bool) -> None:
        yaml = f"profiles: {{work: {{driver: 'api:openai', base_url: '{url}'}}}}"
        warnings = load(tmp_path, {"OPENAI_API_KEY": "k"}, yaml).warnings
        assert any("is not sent to the base_url of profiles.work" in line for line in warnings) is is_warned


# Each is refused, and the message holds the second text.
BAD_YAML = {
    "billion laughs": ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]", "line 2: aliases"),
    "an alias to oneself": ("profiles: &p {work: *p}", "line 1: aliases"),
    "merge keys": ("profiles:\n  a: &a {driver: offline}\n  b: {<<: *a}", "line 3: aliases"),
    "a merge key without an alias": ("profiles: {a: {<<: {driver: offline}}}", "profiles.a.<<: no such key"),
    "nesting without end": ("a: " + "[" * 5000, "levels"),
    "nesting in blocks": ("\n".join(" " * i + "a:" for i in range(40)), "levels"),
    "a megabyte": ("# " + "x" * 1_000_000, "at most 256 KiB"),
    "python object": ("profiles: !!python/object:os.system {}", "line 1: tags"),
    "python object applied": ("a: !!python/object/apply:os.system ['true']", "line 1: tags"),
    "python name": ("server: {host: !!python/name:os.system ''}", "line 1: tags"),
    "python module": ("server: {host: !!python/module:os ''}", "line 1: tags"),
    "python tuple": ("server: {allowed_origins: !!python/tuple [a]}", "line 1: tags"),
    "a tag of one's own": ("server: {host: !vault hunter2}", "line 1: tags"),
    "binary": ("server: {host: !!binary aHVudGVyMg==}", "line 1: tags"),
    "a set": ("profiles: !!set {work}", "line 1: tags"),
    "an ordered map": ("profiles: !!omap [work: {driver: offline}]", "line 1: tags"),
    "a timestamp tag": ("server: {port: !!timestamp 2001-99-99}", "line 1: tags"),
    "the same key twice": ("server: {port: 1}\nserver: {port: 2}", "line 2: server: the key stands twice"),
    "the same key twice, deeper": (
        "server:\n  port: 1\n  port: 2",
        "line 3: server.port: the key stands twice",
    ),
    "a key that is a list": ("? [a, b]\n: c", "line 1: expected a name as key"),
    "a key that is a mapping": ("{{a: b}: c}", "line 1: expected a name as key"),
    "an unknown section": ("servr: {port: 1}", "servr: no such key; did you mean server?"),
    "an unknown key": ("server: {prot: 1}", "server.prot: no such key; did you mean port?"),
    "an unknown key in a profile": (
        "profiles: {a: {driver: offline, models: x}}",
        "profiles.a.models: no such key",
    ),
    "an unknown key in retry": (
        "profiles: {a: {driver: offline, retry: {tries: 1}}}",
        "retry.tries: no such key",
    ),
    "a list for a document": ("- server", "expected a mapping"),
    "a word for a document": ("hunter2", "expected a mapping"),
    "a list for a section": ("server: [1, 2]", "server: expected a mapping"),
    "a number for the profiles": ("profiles: 3", "profiles: expected a mapping"),
    "two documents": ("server: {port: 1}\n---\nserver: {port: 2}", "line 2"),
    "a tab": ("server:\n\tport: 1", "line 2"),
    "an open quote": ("server: {host: 'hunter2", "line"),
    "an open bracket": ("server: {port: 1", "line"),
    "a control character": ("server: {host: hunter2\x07}", "characters that YAML does not allow"),
    "a key left empty": ("server:\n  port:\n", "server.port: expected a whole number"),
    "a boolean for a number": ("server: {port: true}", "server.port: expected a whole number"),
    "a fraction for a whole number": ("server: {port: 80.5}", "server.port: expected a whole number"),
    "a negative delay": ("runner: {lease_seconds: -3}", "runner.lease_seconds: expected seconds"),
    "not a number": ("runner: {lease_seconds: .nan}", "runner.lease_seconds: expected seconds"),
    "a number with ten thousand digits": (f"server: {{port: {'9' * 10_000}}}", "server.port: expected"),
    "base sixty": ("server: {port: 1:30}", "server.port: expected a whole number"),
    "a lone surrogate": ('server: {host: "\\ud800"}', "server.host: expected"),
    "a relative store path": (
        "graph_store: {sqlite_path: data/x.db}",
        "graph_store.sqlite_path: expected an absolute",
    ),
    "a path for a profile's name": ("profiles: {../x: {driver: offline}}", "expected a name of letters"),
    "a line end in a profile's name": ('profiles: {"a\\n": {driver: offline}}', "expected a name of letters"),
    "a graph without an attribute": ("graphs: {a: my.module}", "graphs.a: expected module:attribute"),
    "a graph that is an expression": ("graphs: {a: 'os:system(1)'}", "graphs.a: expected module:attribute"),
    "a graph in another language": ("graphs: {a: './agent.ts:graph'}", "graphs.a: expected module:attribute"),
    "stages that are no list": (
        "graphs: {a: {path: 'm:a', stages: plan}}",
        "graphs.a.stages: expected a list of nodes",
    ),
    "stages that are no names": (
        "graphs: {a: {path: 'm:a', stages: [1]}}",
        "graphs.a.stages: expected a list of nodes",
    ),
    "a key a graph does not have": (
        "graphs: {a: {path: 'm:a', stage: [b]}}",
        "graphs.a.stage: no such key; did you mean stages?",
    ),
    "a list of graphs": ("graphs: ['a:b']", "graphs: expected a mapping"),
    "an unknown channel": ("channels: {irc: {bot: {}}}", "channels.irc: no such key"),
    "an unknown key of a channel": (
        "channels: {telegram: {bot: {token: x, tokn: y}}}",
        "bot.tokn: no such key",
    ),
    "a channel without its token": ("channels: {telegram: {bot: {graph: chat}}}", "bot: expected a token"),
    "a channel with no such profile": (
        "channels: {telegram: {bot: {token: x, profile: wrok}}}",
        "channels.telegram.bot.profile: expected the name of a profile",
    ),
    "a secret that is a mapping": ("cleanup: {api_key: {a: hunter2}}", "cleanup.api_key: expected a secret"),
}


class TestFile:
    @pytest.mark.fault("F9")
    @pytest.mark.parametrize("case", BAD_YAML)
    def test_a_bad_file_is_refused_by_line_or_key_without_its_contents(
        self, tmp_path: Path, case: str
    ) -> None:
        yaml, expected = BAD_YAML[case]
        message = refusal(tmp_path, yaml=yaml)
        assert message.startswith(f"{tmp_path}/clew.yaml")
        assert expected in message
        assert "hunter2" not in message
        assert message.isprintable()
        assert len(message) < 500

    def test_there_are_enough_of_them(self) -> None:
        assert len(BAD_YAML) >= 40

    def test_not_utf8_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "clew.yaml").write_bytes(b"server: {host: \xff\xfe}")
        assert refusal(tmp_path).endswith("clew.yaml: expected UTF-8")

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "clew.yaml")
        assert refusal(tmp_path).endswith("clew.yaml: expected a file")

    @pytest.mark.parametrize(
        "yaml", ["", "# nothing yet\n", "---\n", "server:\nprofiles:\n", "model_calls: {ttl_days: }"]
    )
    def test_an_empty_file_or_section_is_the_defaults(self, tmp_path: Path, yaml: str) -> None:
        loaded = load(tmp_path, yaml=yaml)
        assert [line.source for line in describe(loaded) if line.key in by_key] == ["default"] * len(SETTINGS)
        assert loaded.sources == {}

    def test_words_that_yaml_once_took_for_something_else_are_words(self, tmp_path: Path) -> None:
        yaml = "channels: {telegram: {no: {token: 12:30:45}, y: {token: on}, n: {token: 0x1f}}}"
        tokens = {channel.name: channel.options["token"] for channel in load(tmp_path, yaml=yaml).channels}
        assert tokens == {"no": SecretStr("12:30:45"), "y": SecretStr("on"), "n": SecretStr("0x1f")}

    def test_a_file_of_the_largest_size_is_read(self, tmp_path: Path) -> None:
        yaml = "server: {port: 7}\n#"
        assert load(tmp_path, yaml=yaml + "x" * (MAX_BYTES - len(yaml))).server.port == 7

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
    @given(
        text=st.text(max_size=200)
        | st.lists(
            st.sampled_from([*"{}[]:,&*!|>'\"%@`#-?\n \t", "server", "port", "a", "1", "<<", "hunter2"]),
            max_size=60,
        ).map("".join)
    )
    def test_no_text_at_all_does_anything_but_load_or_be_refused(self, tmp_path: Path, text: str) -> None:
        refused: str | None = None
        try:
            load(tmp_path, yaml=text.encode("utf-8", "replace").decode())
        except ConfigError as error:
            refused = str(error)
        assert refused is None or (refused.startswith(f"{tmp_path}/clew.yaml") and refused.isprintable())


class TestGraphs:
    def test_graphs_are_modules_or_files_beside_the_configuration(self, tmp_path: Path) -> None:
        (tmp_path / "agent.py").touch()
        loaded = load(tmp_path, yaml="graphs:\n  support: my_bot.graph:support\n  local: ./agent.py:graph\n")
        support, local = loaded.graphs["support"], loaded.graphs["local"]
        assert (support.module, support.path, support.attribute) == ("my_bot.graph", None, "support")
        assert (local.module, local.path, local.attribute) == (None, tmp_path / "agent.py", "graph")
        assert loaded.import_paths == (tmp_path,)

    def test_a_langgraph_project_is_understood_as_it_is(self, tmp_path: Path) -> None:
        (tmp_path / "src").mkdir()
        (tmp_path / "src" / "graph.py").touch()
        (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-hunter2\nexport MODE='dev'\nREF=${HOME}\nBARE\n")
        write_project(
            tmp_path,
            python_version="3.12",
            dependencies=[
                ".",
                "./libs",
                "langgraph_sdk>=0.4",
                "no-such-package[x]>=1",
                "git+https://tok@x/y.git",
            ],
            graphs={"agent": "./src/graph.py:graph", "other": {"path": "pkg.mod:make", "description": "x"}},
            env="./.env",
            store={"index": {"embed": "./src/graph.py:embed", "dims": 3}, "ttl": {"default_ttl": 5}},
        )
        loaded = load(tmp_path)
        assert {name: str(graph) for name, graph in loaded.graphs.items()} == {
            "agent": f"{tmp_path}/src/graph.py:graph",
            "other": "pkg.mod:make",
        }
        assert loaded.import_paths == (tmp_path, tmp_path / "src", tmp_path / "libs")
        said = [one.partition("dependencies")[2] for one in loaded.warnings if "dependencies" in one]
        assert said == [
            f"[1] names {tmp_path}/libs, which is no folder",
            "[3] names no-such-package, which is not installed here; install it beside Clew",
            "[4] has no effect: Clew installs nothing, and this is not the name of a package",
        ]
        assert {name: value.get_secret_value() for name, value in loaded.graph_environment.items()} == {
            "OPENAI_API_KEY": "sk-hunter2",
            "MODE": "dev",
            "REF": "${HOME}",
        }
        assert "hunter2" not in repr(loaded)
        index = loaded.store_index
        assert index is not None
        assert (index.path, index.attribute, index.dims, index.fields) == (
            *(tmp_path / "src" / "graph.py", "embed"),
            *(3, ("$",)),
        )

    def test_our_file_adds_to_it_and_wins(self, tmp_path: Path) -> None:
        theirs = {"index": {"embed": "openai:small", "dims": 3}}
        write_project(tmp_path, graphs={"a": "theirs:a", "b": "theirs:b"}, store=theirs)
        ours = "store: {index: {embed: 'openai:large', dims: 4}}"
        loaded = load(tmp_path, yaml=f"graphs: {{a: 'ours:a'}}\n{ours}")
        assert loaded.store_index is not None
        assert loaded.store_index.written == "openai:large"
        assert {name: str(graph) for name, graph in loaded.graphs.items()} == {"a": "ours:a", "b": "theirs:b"}

    def test_it_can_be_named_too(self, tmp_path: Path) -> None:
        (tmp_path / "clew.yaml").write_text("graphs: {a: 'ours:a'}")
        (tmp_path / "demo.json").write_text('{"graphs": {"b": "theirs:b"}}')
        assert list(load_settings({}, cwd=tmp_path, config=Path("demo.json")).graphs) == ["b"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("{", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ("[]", "expected a mapping"),
            ('{"graphs": {"a": "x:y", "a": "z:y"}}', "the same key stands twice"),
            ('{"graphs": {"a": 3}}', "graphs.a: expected module:attribute"),
            ('{"graphs": {"a": {"description": "x"}}}', "graphs.a: expected module:attribute"),
            ('{"graphs": {"a": "./agent:graph"}}', "graphs.a: expected module:attribute"),
            ('{"graphs": ["a"]}', "graphs: expected a mapping"),
            ('{"dependencies": "."}', "dependencies: expected a list"),
            ('{"env": "."}', "expected a file"),
            ('{"graphs": {"a/b": "x:y"}}', "graphs.a/b: expected a name"),
            ('{"graphs": {" a": "x:y"}}', "graphs. a: expected a name"),
            ('{"graphs": {"a\\nb": "x:y"}}', "expected a name"),
            ('{"env": {"KEY": 3}}', "env.KEY: expected text"),
            ('{"env": ["KEY"]}', "env: expected a mapping"),
        ],
    )
    def test_a_broken_one_is_refused(self, tmp_path: Path, text: str, expected: str) -> None:
        (tmp_path / "langgraph.json").write_text(text)
        assert expected in refusal(tmp_path)

    def test_a_graph_may_have_a_name_of_several_words(self, tmp_path: Path) -> None:
        write_project(tmp_path, graphs={"My first Agent": "x:y", "Übersetzer v1.2": "x:z"})
        assert [*load(tmp_path).graphs] == ["My first Agent", "Übersetzer v1.2"]

    def test_an_env_file_that_is_not_there_is_a_warning(self, tmp_path: Path) -> None:
        write_project(tmp_path, graphs={"a": "x:y"}, env=".env")
        loaded = load(tmp_path)
        assert [*loaded.graphs] == ["a"]
        assert loaded.warnings == (
            f"{tmp_path}/langgraph.json: env names {tmp_path}/.env, which does not exist; no variables are read",
        )

    def test_its_variables_reach_graphs_but_never_replace_what_is_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_project(tmp_path, env={"CLEWTEST_A": "project", "CLEWTEST_B": "project", "CLEW_PORT": "1"})
        monkeypatch.setenv("CLEWTEST_A", "mine")
        monkeypatch.setenv("CLEWTEST_B", "x")
        monkeypatch.delenv("CLEWTEST_B")
        monkeypatch.setenv("CLEW_PORT", "2")
        monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", "x")
        monkeypatch.delenv("LANGGRAPH_STRICT_MSGPACK")
        loaded = load(tmp_path)
        assert loaded.server.port == by_key["server.port"].default
        export_environment(loaded)
        assert [os.environ[name] for name in ("CLEWTEST_A", "CLEWTEST_B")] == ["mine", "project"]  # noqa: TID251 - what it is about
        assert os.environ["LANGGRAPH_STRICT_MSGPACK"] == "true"  # noqa: TID251 - what it is about


def write_project(folder: Path, **values: Any) -> None:
    (folder / "langgraph.json").write_text(json.dumps(values))


class TestSecrets:
    YAML = """
cleanup: {cron_secret: canary-cron-secret-1}
database: {direct_url: 'postgresql://u:canary%2Dpassword-2@db/clew'}
channels:
  telegram: {support: {token: canary-token-3, secret_token: canary-token-4, chat_types: [private]}}
  wecom: {desk: {token: canary-token-5, encoding_aes_key: canary-aes-6, secret: canary-secret-7, agent_id: 1000002}}
"""
    ENVIRON = {  # noqa: RUF012 - read only
        "DATABASE_URL": "postgresql://clew:canary-password-8@db:6543/clew?password=canary-option-9",
        "CLEW_POSTGRES_DSN": "postgresql://clew:canary-password-10@db/items",
        "CLEANUP_API_KEY": "canary-cleanup-key-11",
    }

    def everything(self, folder: Path) -> Settings:
        write_project(folder, env={"OPENAI_API_KEY": "canary-openai-12", "MODE": "production"})
        return load(folder, self.ENVIRON, self.YAML)

    def test_no_way_of_printing_settings_shows_one(self, tmp_path: Path) -> None:
        loaded = self.everything(tmp_path)
        parts = [loaded, *(getattr(loaded, name) for name in loaded.__dataclass_fields__)]
        printed = "\n".join(
            [f"{part!r} {part!s} {part}" for part in parts] + [repr(line) for line in describe(loaded)]
        )
        assert "canary" not in printed
        assert "Channel(" in printed

    def test_every_one_is_known_to_the_log_by_heart(self, tmp_path: Path) -> None:
        words = secrets_of(self.everything(tmp_path))
        for number in (*range(1, 9), 10, 11, 12):
            assert any(word.startswith("canary") and word.endswith(f"-{number}") for word in words), number
        assert any("canary-option-9" in word for word in words)
        assert "production" not in words

    def test_what_is_described_is_complete_and_says_where_from(self, tmp_path: Path) -> None:
        described = {line.key: line for line in describe(self.everything(tmp_path))}
        assert set(by_key) <= set(described)
        assert described["database.url"].value == "postgresql://db:6543/clew"
        assert described["database.url"].source == "DATABASE_URL"
        assert described["cleanup.api_key"].value == "set"
        assert described["server.port"].source == "default"
        assert "channels.telegram.support" in described
        assert "profiles.default" in described

    def test_channels_keep_their_options_with_secrets_wrapped(self, tmp_path: Path) -> None:
        telegram, wecom = self.everything(tmp_path).channels
        assert (telegram.kind, telegram.name, telegram.graph, telegram.profile) == (
            "telegram",
            "support",
            None,
            None,
        )
        assert telegram.options["chat_types"] == ("private",)
        assert wecom.options["agent_id"] == "1000002"
        assert wecom.options["secret"] == SecretStr("canary-secret-7")
