"""Environment names of LangGraph Server: the setting each one sets, or why it has no effect. docs/howto/langgraph-project.md
shows this table."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from clew.config.encryption import langgraph_key
from clew.config.kinds import url_path
from clew.config.tree import suggestion
from clew.domain.errors import ConfigError

_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "warn": "warning", "error": "error"}
_FORMATS = {"true": "json", "1": "json", "false": "text", "0": "text"}


class NameOutcome(StrEnum):
    SETS = "sets"
    LANGCHAIN = "read by LangChain"
    """Clew has no part in it."""
    WARNED = "no effect"
    REFUSED = "refused"
    """It promises a protection. A server that starts without it would do what its operator has ruled out."""


@dataclass(frozen=True, slots=True)
class EnvironmentName:
    """A star at its end stands for any text. `about`: the setting, or why it has no effect."""

    name: str
    outcome: NameOutcome
    about: str = ""
    # What the setting is given for a value; None for a value that has no counterpart.
    read: Callable[[str], str | None] = str

    @property
    def shown(self) -> str:
        about = f"`{self.about}`" if self.outcome is NameOutcome.SETS else self.about
        if not about:
            return self.outcome
        return f"{self.outcome} {about}" if self.outcome is NameOutcome.SETS else f"{self.outcome}: {about}"

    def is_set(self, environ: Mapping[str, str]) -> list[str]:
        """The variables of this name that are set."""
        if self.name.endswith("*"):
            return sorted(
                name for name in environ if name.startswith(self.name[:-1]) and environ[name].strip()
            )
        return [self.name] if environ.get(self.name, "").strip() else []


def _sets(name: str, setting: str, read: Callable[[str], str | None] = str) -> EnvironmentName:
    return EnvironmentName(name, NameOutcome.SETS, setting, read)


def _warned(about: str, *names: str) -> list[EnvironmentName]:
    return [EnvironmentName(name, NameOutcome.WARNED, about) for name in names]


def _langchain(*names: str) -> list[EnvironmentName]:
    return [EnvironmentName(name, NameOutcome.LANGCHAIN) for name in names]


def _refused(name: str, about: str, read: Callable[[str], str | None] = str) -> EnvironmentName:
    return EnvironmentName(name, NameOutcome.REFUSED, about, read)


def _origins(value: str) -> str | None:
    return None if value == "*" else value


def _auth_type(value: str) -> str | None:
    return None if value == "noop" else value


_IN_PROJECT = "Clew reads this from langgraph.json"

NAMES: tuple[EnvironmentName, ...] = (
    _sets("DATABASE_URI", "database.url"),
    _sets("POSTGRES_URI", "database.url"),
    _sets("POSTGRES_URI_CUSTOM", "database.url"),
    _sets("LANGGRAPH_POSTGRES_POOL_MAX_SIZE", "database.pool_max"),
    _sets("N_JOBS_PER_WORKER", "runner.concurrency"),
    _sets("BG_JOB_TIMEOUT_SECS", "limits.round_seconds"),
    _sets("BG_JOB_MAX_RETRIES", "runner.max_recoveries"),
    _sets("BG_JOB_SHUTDOWN_GRACE_PERIOD_SECS", "server.shutdown_seconds"),
    _sets("HTTP_MAX_REQUEST_BODY_BYTES", "limits.body_bytes"),
    _sets("CORS_ALLOW_ORIGINS", "server.allowed_origins", _origins),
    _sets("LOG_LEVEL", "logs.level", lambda value: _LEVELS.get(value.lower())),
    _sets("LOG_JSON", "logs.format", lambda value: _FORMATS.get(value.lower())),
    _sets("MOUNT_PREFIX", "http.mount_prefix of langgraph.json"),
    _sets("LANGGRAPH_AES_KEY", "encryption.key", langgraph_key),
    _refused(
        "LANGGRAPH_AES_JSON_KEYS", "Clew encrypts state whole, and the metadata it searches by not at all"
    ),
    _refused("LANGGRAPH_AUTH_TYPE", "Clew does not ask LangSmith who a caller is", _auth_type),
    _refused("LANGGRAPH_AUTH", _IN_PROJECT),
    _refused("LANGGRAPH_ENCRYPTION", _IN_PROJECT),
    _refused("LANGGRAPH_HTTP", _IN_PROJECT),
    _refused("LANGGRAPH_WEBHOOKS", _IN_PROJECT),
    *_warned(_IN_PROJECT, "LANGSERVE_GRAPHS", "LANGGRAPH_STORE", "LANGGRAPH_THREAD_TTL", "CORS_CONFIG"),
    *_warned(_IN_PROJECT, "LANGGRAPH_PRIORITY", "LANGGRAPH_UI", "LANGGRAPH_UI_CONFIG"),
    *_warned("Clew needs no Redis", "REDIS_URI", "REDIS_URI_CUSTOM", "REDIS_CLUSTER", "REDIS_KEY_PREFIX"),
    *_warned("Clew needs no license", "LANGGRAPH_CLOUD_LICENSE_KEY", "LANGSMITH_CONTROL_PLANE_API_KEY"),
    *_warned("Clew keeps what it streamed for an hour", "RESUMABLE_STREAM_TTL_SECONDS"),
    *_warned("all runs of a process share one event loop", "BG_JOB_ISOLATED_LOOPS"),
    *_warned("give a graph its own with `.with_config()`", "LANGGRAPH_DEFAULT_RECURSION_LIMIT"),
    *_warned("`CLEW_LANGGRAPH_CRONS` is how many a user may have", "FF_CRONS_ENABLED"),
    *_warned("`OTEL_EXPORTER_OTLP_ENDPOINT` alone turns traces on", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
    *_warned("`OTEL_EXPORTER_OTLP_ENDPOINT` alone turns traces on", "OTEL_ENABLED"),
    *_warned("`/metrics` has them", "LANGGRAPH_METRICS_ENABLED", "LANGGRAPH_METRICS_ENDPOINT"),
    *_warned("Clew sends no logs", "LANGGRAPH_LOGS_ENABLED", "LANGGRAPH_LOGS_ENDPOINT"),
    *_warned(
        "for LangSmith's own deployments", "LANGSMITH_HOST_*", "LANGSMITH_LANGGRAPH_*", "LANGSMITH_AUTH_*"
    ),
    *_warned("for LangSmith's own deployments", "LANGSMITH_TENANT_ID", "LANGSMITH_DEPLOYMENT_NAME", "LSD_*"),
    *_warned("for LangSmith's own deployments", "LANGGRAPH_GIT_REPO_PATH"),
    *_langchain("LANGSMITH_API_KEY", "LANGSMITH_ENDPOINT", "LANGSMITH_PROJECT", "LANGSMITH_TRACING"),
    *_langchain("LANGSMITH_TRACING_V2", "LANGCHAIN_API_KEY", "LANGCHAIN_ENDPOINT", "LANGCHAIN_PROJECT"),
    *_langchain("LANGCHAIN_TRACING_V2", "LANGCHAIN_CALLBACKS_BACKGROUND"),
)
REFUSED_NAMES = tuple(one.name for one in NAMES if one.outcome is NameOutcome.REFUSED)
MOUNT_PREFIX = "MOUNT_PREFIX"


def langgraph_variables(environ: Mapping[str, str], project: Mapping[str, str]) -> dict[str, str]:
    """LangGraph's variables of the process, and of the project's `env` where the process has none of that name."""
    known = {name for one in NAMES for name in one.is_set(project)}
    return {**{name: project[name] for name in known}, **environ}


def find_variable(setting: str, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """The first variable of LangGraph's that sets this, and what to."""
    for one in NAMES:
        if one.outcome is NameOutcome.SETS and one.about == setting and one.is_set(environ):
            value = one.read(environ[one.name].strip())
            if value is not None:
                return one.name, value
    return None


def read_mount_prefix(environ: Mapping[str, str]) -> str:
    """Empty if it is not set. Raises ConfigError."""
    kind = url_path()
    try:
        return kind.read(environ.get(MOUNT_PREFIX, "").strip().rstrip("/"))
    except ValueError:
        raise ConfigError(f"{MOUNT_PREFIX}: expected {kind.expected}") from None


def check_environment(
    environ: Mapping[str, str], sources: Mapping[str, str], *, ignored: Collection[str] = ()
) -> tuple[str, ...]:
    """Warnings, one for each variable without an effect. `sources`: where each setting comes from.

    Raises ConfigError for one that promises a protection, unless it is among those the operator says to ignore.
    """
    found = [
        warning
        for one in NAMES
        for name in one.is_set(environ)
        for warning in _warnings(one, name, environ[name].strip(), sources, ignored)
    ]
    needless = [
        f"CLEW_LANGGRAPH_IGNORE_KEYS names {name}, which Clew does not refuse{suggestion(name, REFUSED_NAMES)}"
        for name in ignored
        if name not in REFUSED_NAMES
    ]
    return (*found, *needless)


def _warnings(
    one: EnvironmentName, name: str, value: str, sources: Mapping[str, str], ignored: Collection[str]
) -> Iterator[str]:
    # No colon after a name: what follows `api_key:` is masked in the log.
    if one.outcome is NameOutcome.WARNED:
        yield f"{name} has no effect here; {one.about}"
    elif one.outcome is NameOutcome.REFUSED and one.read(value) is not None:
        if name not in ignored:
            raise ConfigError(
                f"{name}: {one.about}. Unset it, or start without it with CLEW_LANGGRAPH_IGNORE_KEYS={name}"
            )
        yield f"{name} is ignored, as CLEW_LANGGRAPH_IGNORE_KEYS says; {one.about}"
    elif one.outcome is NameOutcome.SETS and name != MOUNT_PREFIX:
        if one.read(value) is None:
            yield f"{name} has no effect, since {one.about} cannot be set to this value"
        elif (source := sources.get(one.about)) != name:
            yield f"{name} has no effect, since {source} is set"
