"""Settings that depend on each other: which database is used, and which values are likely mistakes."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from clew.config.database import DatabaseUrl
from clew.config.project_ttl import SWEEP, ThreadTtl, keeps_latest, read_minutes
from clew.config.settings import (
    SETTINGS,
    AuthSettings,
    CheckpointSettings,
    CleanupSettings,
    DatabaseSettings,
    GraphStoreSettings,
    ThreadSettings,
)
from clew.config.tree import ConfigNode, suggestion
from clew.domain.errors import ConfigError

_SHORT_SECRET = 16


def choose_database(
    database: DatabaseSettings, checkpoints: CheckpointSettings, sources: dict[str, str], folder: Path
) -> DatabaseSettings:
    """Threads and their checkpoints are written under one fence, so they are in one database.

    A relative path starts from `folder`.
    """
    if database.pool_min > database.pool_max:
        where = sources.get("database.pool_min") or sources["database.pool_max"]
        raise ConfigError(f"{where}: expected pool_min no larger than pool_max")
    if checkpoints.backend in (None, database.url.kind):
        return _at(database, database.url.under(folder))
    where = sources["checkpoints.backend"]
    if "database.url" in sources:
        raise ConfigError(
            f"{where}: expected {database.url.kind}, as {sources['database.url']} says, or nothing"
        )
    if checkpoints.backend == "memory":
        return _at(database, DatabaseUrl("memory"))
    if database.postgres_dsn is None:
        raise ConfigError(f"{where}: postgres needs CLEW_DATABASE_URL or CLEW_POSTGRES_DSN")
    sources["database.url"] = sources["database.postgres_dsn"]
    return _at(database, database.postgres_dsn)


def _at(database: DatabaseSettings, url: DatabaseUrl) -> DatabaseSettings:
    return database.model_copy(update={"url": url})


def choose_graph_store(
    store: GraphStoreSettings, database: DatabaseSettings, sources: Mapping[str, str], cwd: Path
) -> DatabaseUrl:
    if store.backend == "postgres":
        if database.postgres_dsn is not None:
            return database.postgres_dsn
        if database.url.kind == "postgres":
            return database.url
        raise ConfigError(f"{sources['graph_store.backend']}: postgres needs CLEW_POSTGRES_DSN")
    if store.sqlite_path is not None:
        return DatabaseUrl("sqlite", path=store.sqlite_path)
    if store.backend == "sqlite" and database.url.kind == "postgres":
        return DatabaseUrl("sqlite", path=cwd / ".clew" / "graph_store.db")
    return database.url


def choose_thread_ttl(
    place: ConfigNode, threads: ThreadSettings, cleanup: CleanupSettings, sources: dict[str, str]
) -> tuple[ThreadTtl, CleanupSettings, tuple[str, ...]]:
    """By our settings and the `checkpointer.ttl` of langgraph.json; the schedule of cleanups with it; and warnings for
    what our settings overrule there."""
    entries = place.entries()
    default, sweep = entries.get("default_ttl"), entries.get("sweep_interval_minutes")
    after, every, prunes = read_minutes(default), read_minutes(sweep), keeps_latest(entries.get("strategy"))
    ttl = ThreadTtl(delete_after=timedelta(days=threads.ttl_days), prune_every=every or SWEEP)
    if default is None or after is None:
        return ttl, cleanup, ()
    if prunes:
        return replace(ttl, prune_after=after), cleanup, ()
    overruled = []
    if ours := sources.get("threads.ttl_days"):
        overruled.append(f"{default.where} has no effect, since {ours} is set")
    else:
        ttl = replace(ttl, delete_after=after)
        sources["threads.ttl"] = default.where
    scheduled = sources.get("cleanup.schedule") or sources.get("cleanup.every_seconds")
    if scheduled is None:
        cleanup = cleanup.model_copy(update={"every_seconds": (every or SWEEP).total_seconds()})
        sources["cleanup.every_seconds"] = (sweep or place).where
    elif sweep is not None:
        overruled.append(f"{sweep.where} has no effect, since {scheduled} is set")
    return ttl, cleanup, tuple(overruled)


def require_queue_database(kind: str, database: DatabaseSettings, sources: Mapping[str, str]) -> None:
    """Raises ConfigError where the job queue of `runner.kind: workers` cannot be."""
    if kind != "workers":
        return
    where = sources["runner.kind"]
    if database.url.kind != "postgres":
        raise ConfigError(
            f"{where}: workers need Postgres, and the database is {database.url.kind}: set CLEW_DATABASE_URL"
        )
    if database.direct_url is None and database.is_behind_transaction_pooler:
        raise ConfigError(
            f"{where}: workers need notifications, which a transaction pooler does not pass on: set CLEW_DATABASE_DIRECT_URL"
        )


def require_whole_auth(auth: AuthSettings, sources: Mapping[str, str]) -> None:
    """Raises ConfigError. Without an audience Clew would accept tokens that were issued for other services."""
    if auth.issuer is not None and auth.audience is None:
        raise ConfigError(f"{sources['auth.issuer']}: needs CLEW_AUTH_AUDIENCE beside it")
    given = sorted(key for key in sources if key.startswith("auth.") and key != "auth.handler_seconds")
    if auth.issuer is None and given:
        raise ConfigError(f"{sources[given[0]]}: needs CLEW_AUTH_ISSUER beside it")


def doubts(
    database: DatabaseSettings,
    cleanup: CleanupSettings,
    sources: Mapping[str, str],
    environ: Mapping[str, str],
) -> tuple[str, ...]:
    """Warnings for the log that are no reason not to start."""
    names = {variable for setting in SETTINGS for variable in setting.variables}
    unknown = sorted(name for name in environ if name.startswith("CLEW_") and name not in names)
    # No colon after a name: what follows `api_key:` is masked in the log.
    found = [f"{name} is no setting{suggestion(name, names)}" for name in unknown]
    secrets = {"cleanup.api_key": cleanup.api_key, "cleanup.cron_secret": cleanup.cron_secret}
    found += [
        f"{sources[key]} is shorter than {_SHORT_SECRET} characters, which can be guessed"
        for key, secret in secrets.items()
        if secret is not None and len(secret) < _SHORT_SECRET
    ]
    if database.direct_url is not None and database.url.kind != "postgres":
        found.append(f"{sources['database.direct_url']}: of no use, the database is not Postgres")
    return tuple(found)
