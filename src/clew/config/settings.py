"""Every setting there is: its type, its default, what it may be, and a sentence about it.

A class is a section of clew.yaml and a field a key in it; PREFIX and the field's name make its variable, unless `env`
says otherwise. docs/reference/settings.md is checked against this file.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import SecretStr

from clew.config.channels import Channel
from clew.config.database import DatabaseUrl
from clew.config.declare import Setting, declared_in
from clew.config.graphs import GraphSource
from clew.config.kinds import (
    absolute_path,
    choice,
    cron,
    database_url,
    flag,
    folders,
    host_name,
    http_url,
    line,
    model_name,
    origins,
    postgres_url,
    repository,
    seconds,
    secret,
    url_path,
    variables,
    whole,
)
from clew.domain.profile import Profile
from clew.domain.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    PREFIX: ClassVar = "CLEW_"

    host: Annotated[
        str, Setting("127.0.0.1", host_name(), "Where to listen; other than loopback needs API keys.")
    ]
    port: Annotated[int, Setting(8124, whole(0, 65535), "Port to listen on; 0 takes a free one.")]
    root_path: Annotated[str, Setting("", url_path(), "Path under which a proxy shows Clew.")]
    auth: Annotated[
        str,
        Setting(
            "auto", choice("auto", "keys"), "`keys`: always ask for an API key. `auto`: not on loopback."
        ),
    ]
    allowed_origins: Annotated[
        tuple[str, ...], Setting([], origins(), "Other web pages that may call the API.")
    ]
    shutdown_seconds: Annotated[
        float, Setting(10, seconds(0, 600), "How long SIGTERM waits for running steps.")
    ]

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings:
    PREFIX: ClassVar = "CLEW_DATABASE_"

    url: Annotated[
        DatabaseUrl,
        Setting(
            "sqlite:///.clew/clew.db",
            database_url(),
            "Where threads are kept. `memory://` forgets at the end of the process.",
            aliases=("DATABASE_URL",),
        ),
    ]
    direct_url: Annotated[
        DatabaseUrl | None,
        Setting(
            None, postgres_url(), "Postgres around the pooler, for LISTEN. Behind one without it, Clew polls."
        ),
    ]
    postgres_dsn: Annotated[
        DatabaseUrl | None,
        Setting(None, postgres_url(), "Postgres for a backend set to `postgres`.", env="CLEW_POSTGRES_DSN"),
    ]
    transaction_pooler: Annotated[
        str,
        Setting(
            "auto",
            choice("auto", "yes", "no"),
            "No prepared statements behind a transaction pooler. `auto`: port 6543 or `?pgbouncer=true`.",
        ),
    ]
    pool_min: Annotated[int, Setting(1, whole(0, 1000), "Postgres connections kept open.")]
    pool_max: Annotated[int, Setting(10, whole(1, 1000), "Postgres connections at most.")]
    connect_seconds: Annotated[float, Setting(3, seconds(0.1, 60), "Deadline for a new Postgres connection.")]
    acquire_seconds: Annotated[float, Setting(4, seconds(0.1, 60), "Deadline for a free connection.")]
    statement_seconds: Annotated[float, Setting(5, seconds(0.1, 600), "Deadline for a statement.")]
    busy_seconds: Annotated[
        float, Setting(5, seconds(0.1, 600), "How long SQLite waits for other processes.")
    ]
    readers: Annotated[int, Setting(4, whole(1, 64), "SQLite connections that read.")]

    @property
    def is_behind_transaction_pooler(self) -> bool:
        if self.transaction_pooler == "auto":
            return self.url.is_transaction_pooler
        return self.transaction_pooler == "yes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    PREFIX: ClassVar = "CLEW_THREAD_"

    ttl_days: Annotated[
        int,
        Setting(
            30,
            whole(1, 3650),
            "Days without access after which a thread may be cleaned up.",
            aliases=("THREAD_TTL_DAYS",),
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    PREFIX: ClassVar = "CLEW_RUNNER_"

    concurrency: Annotated[int, Setting(16, whole(1, 1000), "Threads this process steps at once.")]
    lease_seconds: Annotated[
        float, Setting(30, seconds(0.5, 3600), "How long a silent runner keeps its threads.")
    ]
    poll_seconds: Annotated[
        float, Setting(1, seconds(0.01, 60), "How often to look for work when no bell rings.")
    ]
    max_recoveries: Annotated[int, Setting(5, whole(1, 100), "Crashes in a row before a thread is given up.")]
    verbose: Annotated[
        bool, Setting(False, flag(), "Stream model tokens as `llm_token`.", env="CLEW_VERBOSE")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    PREFIX: ClassVar = "CLEW_LIMITS_"

    body_bytes: Annotated[
        int,
        Setting(
            16_777_216,
            whole(1024, 2**30),
            "Largest request body that is not a file; eight times as much is held at once.",
        ),
    ]
    upload_bytes: Annotated[int, Setting(52_428_800, whole(1024, 2**33), "Largest file.")]
    round_seconds: Annotated[
        float, Setting(3600, seconds(1, 604800), "Longest round, waiting for people aside.")
    ]
    round_cpu_seconds: Annotated[
        float,
        Setting(
            120,
            seconds(1, 86400),
            "Longest computing of a chat round's agents, waiting for models aside; above it the round fails.",
        ),
    ]
    task_memory_bytes: Annotated[
        int,
        Setting(
            2**30,
            whole(2**26, 2**40),
            "Most memory a built-in agent may take for one task (Linux); above it the round fails.",
        ),
    ]
    requests_per_second: Annotated[
        int, Setting(1000, whole(0, 1_000_000), "Requests of one API key, on average; 0 is any number.")
    ]
    wrong_keys_per_minute: Annotated[
        int,
        Setting(
            60, whole(0, 1_000_000), "Wrong API keys of one address before it has to wait; 0 is any number."
        ),
    ]
    connections_per_address: Annotated[
        int,
        Setting(2000, whole(1, 1_000_000), "Connections one address may have open; a proxy is one address."),
    ]
    streams: Annotated[
        int, Setting(2000, whole(1, 1_000_000), "Event streams, WebSockets and waiting polls open at once.")
    ]
    streams_per_caller: Annotated[int, Setting(1000, whole(1, 1_000_000), "Of these, those of one API key.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    PREFIX: ClassVar = "CLEW_LOG_"

    level: Annotated[
        str, Setting("info", choice("debug", "info", "warning", "error"), "Least important record to write.")
    ]
    format: Annotated[
        str,
        Setting(
            "auto", choice("auto", "json", "human"), "`auto`: for people on a terminal, JSON lines elsewhere."
        ),
    ]
    debug: Annotated[
        bool,
        Setting(
            False, flag(), "Write what agents were asked and answered, which is private.", env="CLEW_DEBUG"
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStoreSettings:
    PREFIX: ClassVar = "CLEW_GRAPH_STORE_"

    backend: Annotated[
        str | None,
        Setting(
            None,
            choice("sqlite", "postgres"),
            "Where graphs keep their items; beside the threads unless set.",
        ),
    ]
    sqlite_path: Annotated[Path | None, Setting(None, absolute_path(), "The graph store's own SQLite file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSettings:
    PREFIX: ClassVar = "CLEW_CHECKPOINT_"

    backend: Annotated[
        str | None,
        Setting(
            None,
            choice("sqlite", "postgres", "memory"),
            "Checkpoints are kept with their threads: chooses the database if no URL does, else must agree with it.",
            aliases=("LANGGRAPH_CHECKPOINTER",),
        ),
    ]
    keep: Annotated[
        str,
        Setting(
            "all",
            choice("all", "latest"),
            "`latest`: when a round has ended, all checkpoints but the newest go.",
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupSettings:
    PREFIX: ClassVar = "CLEW_CLEANUP_"

    api_key: Annotated[
        SecretStr | None,
        Setting(
            None, secret(), "Key of the cleanup endpoint; closed without one.", aliases=("CLEANUP_API_KEY",)
        ),
    ]
    cron_secret: Annotated[
        SecretStr | None,
        Setting(
            None,
            secret(),
            "What a cron service proves itself with.",
            "CLEW_CRON_SECRET",
            aliases=("CRON_SECRET",),
        ),
    ]
    schedule: Annotated[
        Schedule | None,
        Setting(None, cron(), "When to clean up unasked, in UTC, once for all processes; not unless set."),
    ]
    every_seconds: Annotated[
        float, Setting(0, seconds(0, 604800), "How often to clean up unasked without a schedule; 0 is never.")
    ]
    budget_seconds: Annotated[float, Setting(8, seconds(0, 300), "Longest cleanup; the rest is done later.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCallSettings:
    PREFIX: ClassVar = "CLEW_MODEL_CALLS_"

    record: Annotated[bool, Setting(False, flag(), "Keep each model call with the context it was given.")]
    ttl_days: Annotated[int | None, Setting(None, whole(1, 3650), "Days to keep them; for ever unless set.")]
    rows_per_thread: Annotated[
        int | None, Setting(None, whole(1, 10**6), "How many to keep of a thread, newest.")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccessSettings:
    PREFIX: ClassVar = "CLEW_MODELS_"

    openai_api_key: Annotated[
        SecretStr | None, Setting(None, secret(), "Key for `api:openai`.", aliases=("OPENAI_API_KEY",))
    ]
    openai_base_url: Annotated[
        str | None,
        Setting(
            None,
            http_url(),
            "A server that speaks OpenAI's protocol, in its place; the key is sent there.",
            aliases=("OPENAI_BASE_URL",),
        ),
    ]
    openai_model: Annotated[
        str, Setting("gpt-5-mini", model_name(), "Model of `api:openai` where the profile names none.")
    ]
    anthropic_api_key: Annotated[
        SecretStr | None, Setting(None, secret(), "Key for `api:anthropic`.", aliases=("ANTHROPIC_API_KEY",))
    ]
    anthropic_base_url: Annotated[
        str | None,
        Setting(
            None,
            http_url(),
            "A server that speaks Anthropic's protocol, in its place; the key is sent there.",
            aliases=("ANTHROPIC_BASE_URL",),
        ),
    ]
    anthropic_model: Annotated[
        str,
        Setting("claude-sonnet-4-5", model_name(), "Model of `api:anthropic` where the profile names none."),
    ]
    call_seconds: Annotated[float, Setting(120, seconds(1, 3600), "Longest answer of a model.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    PREFIX: ClassVar = "CLEW_AGENTS_"

    folder: Annotated[
        Path | None,
        Setting(None, absolute_path(), "Python files with agents of your own for the chat workflow."),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingSettings:
    PREFIX: ClassVar = "CLEW_CODING_"

    roots: Annotated[
        tuple[Path, ...],
        Setting(
            [], folders(), "Folders under which worktrees may be; without any, callers with a key have none."
        ),
    ]
    concurrent_workflows: Annotated[
        int,
        Setting(10, whole(1, 1000), "Coding workflows that may be active at once, those that wait included."),
    ]
    review_rounds: Annotated[
        int, Setting(3, whole(1, 20), "Times a reviewer looks at the work of one plan before it has failed.")
    ]
    cli_seconds: Annotated[float, Setting(1800, seconds(1, 86400), "Longest work of a program (`cli:`).")]
    environment: Annotated[
        tuple[str, ...],
        Setting(
            [], variables(), "Variables a program is given beside those it needs to start, like its API key."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerSettings:
    PREFIX: ClassVar = "CLEW_TRACKERS_"

    github_url: Annotated[
        str, Setting("https://api.github.com", http_url(), "GitHub's API, or that of a server of your own.")
    ]
    github_repository: Annotated[
        str | None, Setting(None, repository(), "The repository meant by an issue that is only a number.")
    ]
    github_token: Annotated[
        SecretStr | None,
        Setting(None, secret(), "Token for GitHub; public issues need none.", aliases=("GITHUB_TOKEN",)),
    ]
    jira_url: Annotated[
        str | None, Setting(None, http_url(), "Where Jira is, like https://example.atlassian.net.")
    ]
    jira_user: Annotated[
        str, Setting("", line(), "Whose token it is, in Jira's cloud; a server of your own needs none.")
    ]
    jira_token: Annotated[
        SecretStr | None, Setting(None, secret(), "Token for Jira.", aliases=("JIRA_API_TOKEN",))
    ]
    call_seconds: Annotated[float, Setting(15, seconds(0.1, 300), "Longest answer of a tracker.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LangGraphSettings:
    PREFIX: ClassVar = "CLEW_LANGGRAPH_"

    webhooks: Annotated[
        str,
        Setting(
            "auto",
            choice("auto", "public", "private", "off"),
            "Which addresses are told when a run is over. `private`: also those of this machine and its net;"
            " `auto`: those only while callers need no API key.",
        ),
    ]
    temporary_seconds: Annotated[
        float, Setting(60, seconds(0, 86400), "How long the thread of a stateless run outlives the run.")
    ]
    crons: Annotated[int, Setting(1000, whole(0, 100_000), "Crons one user may have.")]
    built_in_graphs: Annotated[
        bool,
        Setting(
            True, flag(), "Whether Clew's own graphs, such as `chat`, have assistants beside those of yours."
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TestingSettings:
    PREFIX: ClassVar = "CLEW_"

    failpoints: Annotated[
        str, Setting("", line(), "`name:action@n,...`: where this process is to die or fail.", in_file=False)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything Clew was told, read once. Safe to print: secrets show as stars, URLs without their user."""

    server: ServerSettings
    database: DatabaseSettings
    threads: ThreadSettings
    runner: RunnerSettings
    limits: LimitSettings
    logs: LogSettings
    graph_store: GraphStoreSettings
    checkpoints: CheckpointSettings
    cleanup: CleanupSettings
    model_calls: ModelCallSettings
    models: ModelAccessSettings
    agents: AgentSettings
    coding: CodingSettings
    trackers: TrackerSettings
    langgraph: LangGraphSettings
    testing: TestingSettings

    profiles: Mapping[str, Profile]
    profile_keys: Mapping[str, SecretStr]
    """The API keys of profiles that have one of their own, by the profile's name."""
    graphs: Mapping[str, GraphSource]
    channels: tuple[Channel, ...]

    graph_store_url: DatabaseUrl
    """Where the graph store is, after `graph_store` and `database` had their say."""
    import_paths: tuple[Path, ...]
    """Folders from which graphs are imported."""
    graph_environment: Mapping[str, SecretStr]
    """Variables that langgraph.json asks for; `export_environment` hands them over."""
    program_environment: Mapping[str, SecretStr]
    """Variables that programs of ours are started with, and no others."""
    config_file: Path | None
    sources: Mapping[str, str]
    """Where each setting that is not a default came from, by its key."""
    warnings: tuple[str, ...]
    """What looks like a mistake but is no reason not to start."""


SECTIONS: Mapping[str, type] = {
    "server": ServerSettings,
    "database": DatabaseSettings,
    "threads": ThreadSettings,
    "runner": RunnerSettings,
    "limits": LimitSettings,
    "logs": LogSettings,
    "graph_store": GraphStoreSettings,
    "checkpoints": CheckpointSettings,
    "cleanup": CleanupSettings,
    "model_calls": ModelCallSettings,
    "models": ModelAccessSettings,
    "agents": AgentSettings,
    "coding": CodingSettings,
    "trackers": TrackerSettings,
    "langgraph": LangGraphSettings,
    "testing": TestingSettings,
}

SETTINGS: tuple[Setting, ...] = tuple(
    setting for section, cls in SECTIONS.items() for setting in declared_in(section, cls)
)
