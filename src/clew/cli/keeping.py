"""`clew cleanup`, `clew export` and `clew threads usage|delete|undelete`, run on the database directly."""

import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO

from clew.api.retention_schemas import DeletedThreadsOut, ThreadCleanupOut, UsageOut
from clew.cli.opening import read_settings, run
from clew.cli.output import complain, say, say_json, say_table
from clew.config import Settings
from clew.domain import retention
from clew.domain.errors import ConfigError, Corrupt, Invalid
from clew.domain.retention import Usage
from clew.domain.thread import Owner
from clew.ports.retention import Space
from clew.retention.cleanup import Cleanup, CleanupOutcome
from clew.retention.export import PROBLEMS, Export
from clew.retention.salvage import Problem
from clew.server.database import (
    Stores,
    open_cleanup,
    open_graph_database,
    open_space,
    open_stores,
    open_thread_memory,
    utc_now,
)
from clew.stores.sql.cleanup import CleanupRows
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database

# The exit code of an incomplete export: it holds only what could be read.
NOT_WHOLE = 3


def clean_up(
    *,
    days_old: int | None,
    dry_run: bool,
    soft: bool,
    tenant: str | None,
    user: str,
    force: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    wanted = retention.selection(now=utc_now(), days_old=days_old, owner=_owner(tenant, user), soft=soft)

    async def work() -> CleanupOutcome:
        # Each deleted id is logged, as a server does.
        async with (
            _opened(config, level=None) as (settings, stores, _),
            open_graph_database(settings, stores.db) as graph_db,
        ):
            cleanup = _cleanup(settings, stores, graph_db)
            if dry_run:
                return await cleanup.preview(wanted)
            outcome = await cleanup.run(wanted, force=force)
            await _forget_memory(stores.db, graph_db)
            await cleanup.give_back()
            return outcome

    outcome = run(work())
    if as_json:
        say_json(ThreadCleanupOut.of(outcome).model_dump(mode="json", by_alias=True))
    elif outcome.is_preview:
        say(f"{outcome.due} would be deleted, {outcome.preserved} stay.")
    elif outcome.job is None:
        say("Another cleanup is already running.")
    else:
        failed = f", {outcome.job.failed} could not be deleted" if outcome.job.failed else ""
        say(f"{outcome.job.deleted} deleted, {outcome.preserved} stay{failed}.")


def delete_all(*, tenant: str, user: str | None, dry_run: bool, config: Path | None, as_json: bool) -> None:
    wanted = retention.owned_by(tenant, user)

    async def work() -> CleanupOutcome:
        async with (
            _opened(config, level=None) as (settings, stores, _),
            open_graph_database(settings, stores.db) as graph_db,
        ):
            cleanup = _cleanup(settings, stores, graph_db)
            if dry_run:
                return await cleanup.preview(wanted)
            outcome = await cleanup.delete_all(wanted)
            await _forget_memory(stores.db, graph_db)
            await cleanup.give_back()
            return outcome

    outcome = run(work())
    if as_json:
        say_json(DeletedThreadsOut.of(outcome).model_dump(mode="json", by_alias=True))
    elif outcome.job is None:
        say(f"{outcome.due} would be deleted.")
    else:
        failed = f", {outcome.job.failed} could not be deleted" if outcome.job.failed else ""
        say(f"{outcome.job.deleted} deleted{failed}.")


async def _forget_memory(db: Database, graph_db: Database) -> None:
    if (memory := open_thread_memory(db, graph_db)) is not None:
        await memory.forget_all()


def export(thread_id: str, *, output: Path | None, config: Path | None, as_json: bool) -> None:
    path = output or Path(f"thread-{re.sub('[^A-Za-z0-9._-]', '_', thread_id)}.zip")

    async def work() -> tuple[int, list[Problem]]:
        # LangGraph takes seconds to import, and no other command here needs it.
        from clew.checkpointer.saver import Checkpointer  # noqa: PLC0415 - see above
        from clew.graph.latest import latest_state  # noqa: PLC0415 - see above
        from clew.stores.sql.checkpoints import CheckpointRows  # noqa: PLC0415 - see above

        async with _opened(config) as (_, stores, _):
            thread = await stores.threads.get(thread_id)
            saver = Checkpointer(CheckpointRows(stores.db))
            export = Export(
                store=stores.threads, files=stores.files, latest=lambda one: latest_state(saver, one)
            )
            archive = export.zip_of(thread)
            with new_file(path) as file:
                size = sum([file.write(piece) async for piece in archive])
            return size, archive.problems

    size, problems = run(work())
    if as_json:
        told = [problem.told() for problem in problems]
        say_json({"id": thread_id, "path": str(path), "bytes": size, "problems": told})
    else:
        say(f"{path}: {size} bytes")
    if problems:
        # A caller that exports in order to delete must not continue as if the export were complete.
        complain(
            Corrupt(f"{path} is incomplete: {PROBLEMS} in it lists what could not be read ({len(problems)})")
        )
        raise SystemExit(NOT_WHOLE)


def usage(*, tenant: str | None, user: str, config: Path | None, as_json: bool) -> None:
    wanted = retention.selection(now=utc_now(), days_old=None, owner=_owner(tenant, user))

    async def work() -> tuple[Usage, Mapping[str, int], UsageOut]:
        async with _opened(config) as (_, stores, space):
            found, tables = await space.usage(wanted), await space.sizes()
            return found, tables, UsageOut.of(found, tables, await CleanupRows(stores.db).last())

    found, tables, shown = run(work())
    if as_json:
        say_json(shown.model_dump(mode="json", by_alias=True))
        return
    oldest = f"{found.oldest:%Y-%m-%d %H:%M}" if found.oldest else "(none)"
    for name, value in (
        ("threads", found.threads),
        ("events", found.events),
        ("oldest", oldest),
        ("due", found.due),
        ("deleted", found.deleted),
    ):
        say(f"{name:<12} {value}")
    for title, counts in (("status", found.by_status), ("graph", found.by_graph), ("table", tables)):
        if counts:
            say()
            say_table([title, "bytes" if title == "table" else "threads"], _rows(counts))


def delete(thread_id: str, *, soft: bool, config: Path | None, as_json: bool) -> None:
    async def work() -> None:
        async with _opened(config) as (settings, stores, _):
            if soft:
                await TrashRows(stores.db).put(thread_id, now=utc_now())
                return
            await stores.threads.tombstone(thread_id, now=utc_now())
            while await stores.threads.purge(only=thread_id):
                pass
            async with open_graph_database(settings, stores.db) as graph_db:
                await _forget_memory(stores.db, graph_db)

    run(work())
    if as_json:
        say_json({"id": thread_id, "status": "deleted"})
    else:
        say(f"{thread_id} is deleted." + (" You can restore it for seven days." if soft else ""))


def undelete(thread_id: str, *, config: Path | None, as_json: bool) -> None:
    async def work() -> None:
        async with _opened(config) as (_, stores, _):
            await TrashRows(stores.db).restore(thread_id, now=utc_now())

    run(work())
    if as_json:
        say_json({"id": thread_id, "status": "restored"})
    else:
        say(f"{thread_id} is restored.")


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """An interrupted export leaves no file."""
    try:
        with path.open("xb") as file:
            try:
                yield file
            except BaseException:
                path.unlink()
                raise
    except FileExistsError as exc:
        raise Invalid(f"{path} already exists") from exc
    except OSError as exc:
        raise Invalid(f"cannot write {path}: {exc.strerror}") from exc


@asynccontextmanager
async def _opened(
    config: Path | None, *, level: str | None = "warning"
) -> AsyncGenerator[tuple[Settings, Stores, Space]]:
    settings = read_settings(config, level=level)
    url = settings.database.url
    if url.kind == "memory":
        raise ConfigError("the database is memory://, which only the running process sees")
    if url.path is not None and not url.path.exists():
        raise ConfigError(f"there is no database at {url.path}; is this the right folder?")
    async with open_stores(settings) as stores:
        yield settings, stores, open_space(stores.db, url.path)


def _cleanup(settings: Settings, stores: Stores, graph_db: Database) -> Cleanup:
    return open_cleanup(
        stores,
        graph_db,
        settings.database.url.path,
        lease=timedelta(seconds=settings.runner.lease_seconds),
        ttl=timedelta(days=settings.threads.ttl_days),
    )


def _owner(tenant: str | None, user: str) -> Owner | None:
    if user and tenant is None:
        raise Invalid("--user: needs --tenant, a user belongs to one")
    return None if tenant is None else Owner(tenant=tenant, user_id=user)


def _rows(counts: Mapping[str, int]) -> list[list[str]]:
    return [[name, str(count)] for name, count in sorted(counts.items(), key=lambda one: -one[1])]
