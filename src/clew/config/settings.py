"""Settings: each with its type, its default, its allowed values, and a sentence about it.

A class is a section of clew.yaml and a field a key in it; PREFIX and the field's name make its variable, unless `env`
says otherwise. Pydantic validates each field by its kind. docs/reference/settings.md is checked against this file.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from clew.config.agents import (
    AgentSettings,
    CodingSettings,
    DocumentSettings,
    ModelAccessSettings,
    ModelCallSettings,
    TrackerSettings,
)
from clew.config.apps import AppSection
from clew.config.budgets import BudgetSettings
from clew.config.channels import Channel
from clew.config.client import ClientSettings
from clew.config.database import DatabaseUrl
from clew.config.declare import Section, Setting, declared_in, setting
from clew.config.encryption import EncryptionSettings
from clew.config.graphs import GraphSource
from clew.config.kinds import (
    absolute_path,
    address_or_path,
    choice,
    claim,
    cron,
    database_url,
    flag,
    host_name,
    http_url,
    line,
    origins,
    postgres_url,
    project_keys,
    seconds,
    secret,
    signing_secret,
    url_path,
    whole,
)
from clew.config.mcp import McpServerSource
from clew.config.project_auth import ProjectAuth
from clew.config.project_code import CodeSource
from clew.config.project_http import ProjectHttp
from clew.config.project_ttl import StoreTtl, ThreadTtl
from clew.config.queue import QueueSettings
from clew.config.quotas import QuotaSettings
from clew.config.store_index import StoreIndexSource
from clew.domain.crons import Schedule
from clew.domain.profile import Price, Profile
from clew.domain.runs import WebhookPolicy


class ServerSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_"

    host: Annotated[str, host_name()] = setting(
        "127.0.0.1", "Where to listen; other than loopback needs API keys."
    )
    port: Annotated[int, whole(0, 65535)] = setting(8124, "Port to listen on; 0 takes a free one.")
    root_path: Annotated[str, url_path()] = setting("", "Path under which a proxy shows Clew.")
    auth: Annotated[str, choice("auto", "keys")] = setting(
        "auto", "`keys`: always ask for an API key. `auto`: not on loopback."
    )
    allowed_origins: Annotated[tuple[str, ...], origins()] = setting(
        [], "Other web pages that may call the API."
    )
    shutdown_seconds: Annotated[float, seconds(0, 3600)] = setting(
        10, "How long SIGTERM waits for running steps."
    )

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class DatabaseSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_DATABASE_"

    url: Annotated[DatabaseUrl, database_url()] = setting(
        "sqlite:///.clew/clew.db",
        "Where threads are kept. `memory://` forgets at the end of the process.",
        aliases=("DATABASE_URL",),
    )
    direct_url: Annotated[DatabaseUrl | None, postgres_url()] = setting(
        None, "Postgres around the pooler, for LISTEN. Behind one without it, Clew polls."
    )
    postgres_dsn: Annotated[DatabaseUrl | None, postgres_url()] = setting(
        None, "Postgres for a backend set to `postgres`.", env="CLEW_POSTGRES_DSN"
    )
    transaction_pooler: Annotated[str, choice("auto", "yes", "no")] = setting(
        "auto", "No prepared statements behind a transaction pooler. `auto`: port 6543 or `?pgbouncer=true`."
    )
    pool_min: Annotated[int, whole(0, 1000)] = setting(1, "Postgres connections kept open.")
    pool_max: Annotated[int, whole(1, 1000)] = setting(10, "Postgres connections at most.")
    connect_seconds: Annotated[float, seconds(0.1, 60)] = setting(
        3, "Deadline for a new Postgres connection."
    )
    acquire_seconds: Annotated[float, seconds(0.1, 60)] = setting(4, "Deadline for a free connection.")
    statement_seconds: Annotated[float, seconds(0.1, 600)] = setting(5, "Deadline for a statement.")
    busy_seconds: Annotated[float, seconds(0.1, 600)] = setting(
        5, "How long SQLite waits for other processes."
    )
    readers: Annotated[int, whole(1, 64)] = setting(4, "SQLite connections that read.")

    @property
    def is_behind_transaction_pooler(self) -> bool:
        if self.transaction_pooler == "auto":
            return self.url.is_transaction_pooler
        return self.transaction_pooler == "yes"


class AuthSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_AUTH_"

    issuer: Annotated[str | None, http_url()] = setting(
        None, "Accept access tokens (JWT) of this OpenID provider beside API keys; with `audience`."
    )
    audience: Annotated[str | None, line()] = setting(None, "What the `aud` claim of a token must name.")
    jwks: Annotated[str | None, address_or_path()] = setting(
        None, "Address or absolute path of the provider's keys; unset asks the issuer where they are."
    )
    tenant_claim: Annotated[str | None, claim()] = setting(
        None, "Claim that names the tenant; unset puts all callers into `default`."
    )
    user_claim: Annotated[str, claim()] = setting("sub", "Claim that names the user.")
    scope_claim: Annotated[str, claim()] = setting(
        "scope", "Claim with the scopes: words or a list, each as it is or after `clew:`."
    )
    handler_seconds: Annotated[float, seconds(0.1, 60)] = setting(
        10, "Seconds a handler of the project's custom authentication may take."
    )


class AuditSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_AUDIT_"

    record: Annotated[str, choice("auto", "always", "never")] = setting(
        "auto", "Record who did what. `auto`: once callers need a key or a token."
    )
    ttl_days: Annotated[int, whole(1, 36500)] = setting(365, "Days to keep the audit trail.")


class ThreadSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_THREAD_"

    ttl_days: Annotated[int, whole(1, 3650)] = setting(
        30, "Days without access after which a thread may be cleaned up.", aliases=("THREAD_TTL_DAYS",)
    )


class RunnerSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_RUNNER_"

    kind: Annotated[str, choice("local", "workers")] = setting(
        "local", "`workers` takes runs from a job queue in Postgres, for many processes."
    )
    concurrency: Annotated[int, whole(1, 1000)] = setting(16, "Threads this process steps at once.")
    lease_seconds: Annotated[float, seconds(0.5, 3600)] = setting(
        30, "How long a silent runner keeps its threads."
    )
    poll_seconds: Annotated[float, seconds(0.01, 60)] = setting(
        1, "How often to poll for work when no notification arrives."
    )
    max_recoveries: Annotated[int, whole(1, 100)] = setting(
        5, "Crashes in a row before a thread is given up."
    )
    verbose: Annotated[bool, flag()] = setting(
        False, "Stream model tokens as `llm_token`.", env="CLEW_VERBOSE"
    )


class LimitSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_LIMITS_"

    body_bytes: Annotated[int, whole(1024, 2**30)] = setting(
        16_777_216, "Largest request body that is not a file; eight times as much is held at once."
    )
    upload_bytes: Annotated[int, whole(1024, 2**33)] = setting(52_428_800, "Largest file.")
    round_seconds: Annotated[float, seconds(1, 604800)] = setting(
        3600, "Longest round, waiting for people aside."
    )
    round_cpu_seconds: Annotated[float, seconds(1, 86400)] = setting(
        120, "Longest computing of a chat round's agents, waiting for models aside; above it the round fails."
    )
    task_memory_bytes: Annotated[int, whole(2**26, 2**40)] = setting(
        2**30, "Most memory a built-in agent may take for one task (Linux); above it the round fails."
    )
    requests_per_second: Annotated[int, whole(0, 1_000_000)] = setting(
        1000, "Requests of one API key, on average; 0 is any number."
    )
    wrong_keys_per_minute: Annotated[int, whole(0, 1_000_000)] = setting(
        60, "Wrong API keys of one address before it has to wait; 0 is any number."
    )
    connections_per_address: Annotated[int, whole(1, 1_000_000)] = setting(
        2000, "Connections one address may have open; a proxy is one address."
    )
    streams: Annotated[int, whole(1, 1_000_000)] = setting(
        2000, "Event streams, WebSockets and waiting polls open at once."
    )
    streams_per_caller: Annotated[int, whole(1, 1_000_000)] = setting(1000, "Of these, those of one API key.")


class LogSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_LOG_"

    level: Annotated[str, choice("debug", "info", "warning", "error")] = setting(
        "info", "Least important record to write."
    )
    format: Annotated[str, choice("auto", "json", "text")] = setting(
        "auto", "`auto`: for people on a terminal, JSON lines elsewhere."
    )
    debug: Annotated[bool, flag()] = setting(
        False, "Write what agents were asked and answered, which is private.", env="CLEW_DEBUG"
    )


class TraceSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_TRACES_"

    endpoint: Annotated[str | None, http_url()] = setting(
        None,
        "OpenTelemetry collector (OTLP by HTTP) that gets a trace of each round; needs the extra `otel`.",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
    )


class SearchSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_SEARCH_"

    index: Annotated[bool, flag()] = setting(
        True, "Index the words of messages, so that threads can be searched."
    )


class GraphStoreSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_GRAPH_STORE_"

    backend: Annotated[str | None, choice("sqlite", "postgres")] = setting(
        None, "Where graphs keep their items; beside the threads unless set."
    )
    sqlite_path: Annotated[Path | None, absolute_path()] = setting(None, "The graph store's own SQLite file.")


class CheckpointSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_CHECKPOINT_"

    backend: Annotated[str | None, choice("sqlite", "postgres", "memory")] = setting(
        None,
        "Checkpoints are kept with their threads: chooses the database if no URL does, else must agree with it.",
        aliases=("LANGGRAPH_CHECKPOINTER",),
    )
    keep: Annotated[str, choice("all", "latest")] = setting(
        "all", "`latest`: when a round has ended, all checkpoints but the newest go."
    )


class CleanupSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_CLEANUP_"

    api_key: Annotated[SecretStr | None, secret()] = setting(
        None, "Key of the cleanup endpoint; closed without one.", aliases=("CLEANUP_API_KEY",)
    )
    cron_secret: Annotated[SecretStr | None, secret()] = setting(
        None, "What a cron service proves itself with.", env="CLEW_CRON_SECRET", aliases=("CRON_SECRET",)
    )
    schedule: Annotated[Schedule | None, cron()] = setting(
        None, "When to clean up unasked, in UTC, once for all processes; not unless set."
    )
    every_seconds: Annotated[float, seconds(0, 604800)] = setting(
        0, "How often to clean up unasked without a schedule; 0 is never."
    )
    budget_seconds: Annotated[float, seconds(0, 300)] = setting(8, "Longest cleanup; the rest is done later.")


class LangGraphSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_LANGGRAPH_"

    webhooks: Annotated[str, choice("auto", "public", "private", "off")] = setting(
        "auto",
        "Which addresses webhooks may call when a run is over. `private`: also those of this machine and its net;"
        " `auto`: those only while callers need no API key.",
    )
    webhook_secret: Annotated[SecretStr | None, signing_secret()] = setting(
        None, "Signs webhooks, as Standard Webhooks says."
    )
    webhook_old_secret: Annotated[SecretStr | None, signing_secret()] = setting(
        None, "Signs them too, while receivers change to the new secret."
    )
    temporary_seconds: Annotated[float, seconds(0, 86400)] = setting(
        60, "How long the thread of a stateless run outlives the run."
    )
    crons: Annotated[int, whole(0, 100_000)] = setting(1000, "Crons one user may have.")
    built_in_graphs: Annotated[bool, flag()] = setting(
        True, "Whether Clew's own graphs, such as `chat`, have assistants beside those of yours."
    )
    ignore_keys: Annotated[tuple[str, ...], project_keys()] = setting(
        [],
        "Variables of LangGraph's that promise a protection Clew has not, and without which it may start.",
    )


class TestingSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_"

    failpoints: Annotated[str, line()] = setting(
        "", "`name:action@n,...`: where this process is to die or fail.", in_file=False
    )


class Sections(BaseSettings):
    """The settings that have a kind and a default, section by section, as pydantic-settings reads them."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid")

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    audit: AuditSettings = Field(default_factory=AuditSettings)
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    encryption: EncryptionSettings = Field(default_factory=EncryptionSettings)
    threads: ThreadSettings = Field(default_factory=ThreadSettings)
    runner: RunnerSettings = Field(default_factory=RunnerSettings)
    queue: QueueSettings = Field(default_factory=QueueSettings)
    quotas: QuotaSettings = Field(default_factory=QuotaSettings)
    budgets: BudgetSettings = Field(default_factory=BudgetSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    logs: LogSettings = Field(default_factory=LogSettings)
    traces: TraceSettings = Field(default_factory=TraceSettings)
    search: SearchSettings = Field(default_factory=SearchSettings)
    graph_store: GraphStoreSettings = Field(default_factory=GraphStoreSettings)
    checkpoints: CheckpointSettings = Field(default_factory=CheckpointSettings)
    cleanup: CleanupSettings = Field(default_factory=CleanupSettings)
    model_calls: ModelCallSettings = Field(default_factory=ModelCallSettings)
    models: ModelAccessSettings = Field(default_factory=ModelAccessSettings)
    agents: AgentSettings = Field(default_factory=AgentSettings)
    documents: DocumentSettings = Field(default_factory=DocumentSettings)
    coding: CodingSettings = Field(default_factory=CodingSettings)
    trackers: TrackerSettings = Field(default_factory=TrackerSettings)
    langgraph: LangGraphSettings = Field(default_factory=LangGraphSettings)
    client: ClientSettings = Field(default_factory=ClientSettings)
    testing: TestingSettings = Field(default_factory=TestingSettings)

    @classmethod
    def read(cls, *sources: PydanticBaseSettingsSource) -> Self:
        """Values from these sources, the first one over the next. Raises pydantic's ValidationError."""
        given: dict[str, Any] = {"sources": sources}
        return cls(**given)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature of pydantic-settings
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources `read` was given, in place of pydantic's, which read the process's environment themselves."""
        given: tuple[PydanticBaseSettingsSource, ...] = init_settings()["sources"]
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a process, read once. Safe to print: secrets show as stars, URLs without their user."""

    server: ServerSettings
    auth: AuthSettings
    audit: AuditSettings
    database: DatabaseSettings
    encryption: EncryptionSettings
    threads: ThreadSettings
    runner: RunnerSettings
    queue: QueueSettings
    quotas: QuotaSettings
    budgets: BudgetSettings
    limits: LimitSettings
    logs: LogSettings
    traces: TraceSettings
    search: SearchSettings
    graph_store: GraphStoreSettings
    checkpoints: CheckpointSettings
    cleanup: CleanupSettings
    model_calls: ModelCallSettings
    models: ModelAccessSettings
    agents: AgentSettings
    documents: DocumentSettings
    coding: CodingSettings
    trackers: TrackerSettings
    langgraph: LangGraphSettings
    client: ClientSettings
    testing: TestingSettings

    profiles: Mapping[str, Profile]
    profile_keys: Mapping[str, SecretStr]
    """The API keys of profiles that have one of their own, by the profile's name."""
    custom_auth: ProjectAuth | None
    """`auth` of langgraph.json."""
    custom_encryption: CodeSource | None
    """`encryption` of langgraph.json."""
    custom_priority: CodeSource | None
    """`priority` of langgraph.json."""
    prices: Mapping[str, Price]
    """Of models, by name."""
    graphs: Mapping[str, GraphSource]
    http: ProjectHttp
    """`http` of langgraph.json."""
    store_index: StoreIndexSource | None
    """`store.index` of clew.yaml, or else of langgraph.json."""
    channels: tuple[Channel, ...]
    mcp_servers: tuple[McpServerSource, ...]
    apps: Mapping[str, AppSection]
    """Sections of installed apps by name; each app's model validates its own when the server finds the app."""

    graph_store_url: DatabaseUrl
    """Where the graph store is, after `graph_store` and `database` had their say."""
    store_ttl: StoreTtl
    thread_ttl: ThreadTtl
    """By `threads.ttl_days` and langgraph.json."""
    webhook_policy: WebhookPolicy
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
    """Likely mistakes that are no reason not to start."""


SECTIONS: Mapping[str, type[Section]] = {
    name: field.annotation
    for name, field in Sections.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
}

SETTINGS: tuple[Setting, ...] = tuple(
    setting for section, cls in SECTIONS.items() for setting in declared_in(section, cls)
)
