"""`clew cleanup`, `clew export` and `clew threads usage|delete|undelete`, run on the database directly."""

import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

from clew.api.retention_schemas import DeletedThreadsOut, ThreadCleanupOut, UsageOut
from clew.cli.client import Target, only_match, open_api, part
from clew.cli.opening import OTHERS, read_settings, run
from clew.cli.output import complain, say, say_json, say_table
from clew.cli.terminal import confirm
from clew.cli.threads import refuse_owner, whole_id
from clew.config import Settings
from clew.domain import retention
from clew.domain.errors import ConfigError, Corrupt, Invalid, Unavailable
from clew.domain.thread import Owner
from clew.ports.retention import Space
from clew.retention.cleanup import Cleanup, CleanupOutcome
from clew.retention.export import PROBLEMS, Export
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


def delete_all(
    *, tenant: str, user: str | None, dry_run: bool, yes: bool, config: Path | None, as_json: bool
) -> None:
    wanted = retention.owned_by(tenant, user)
    whose = f"the tenant {tenant}" if user is None else f"{user} of the tenant {tenant}"
    confirm(f"Delete all threads of {whose} for good?", yes=yes or dry_run)

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


def export(thread: str, *, output: Path | None, target: Target, as_json: bool) -> None:
    is_remote = target.server() is not None
    work = _export_remote(thread, output, target) if is_remote else _export_local(thread, output, target)
    thread_id, path, size, problems = run(work)
    if as_json:
        say_json({"id": thread_id, "path": str(path), "bytes": size, "problems": problems})
    else:
        say(f"{path}: {size} bytes")
    if problems:
        # A caller that exports in order to delete must not continue as if the export were complete.
        complain(
            Corrupt(f"{path} is incomplete: {PROBLEMS} in it lists what could not be read ({len(problems)})")
        )
        raise SystemExit(NOT_WHOLE)


Exported = tuple[str, Path, int, list[Any]]


async def _export_local(given: str, output: Path | None, target: Target) -> Exported:
    # LangGraph takes seconds to import, and no other command here needs it.
    from clew.checkpointer.saver import Checkpointer  # noqa: PLC0415 - see above
    from clew.graph.latest import latest_state  # noqa: PLC0415 - see above
    from clew.stores.sql.checkpoints import CheckpointRows  # noqa: PLC0415 - see above

    async with _opened(target.config) as (_, stores, _):
        thread = await stores.threads.get(await whole_id(stores, given))
        saver = Checkpointer(CheckpointRows(stores.db))
        export = Export(store=stores.threads, files=stores.files, latest=lambda one: latest_state(saver, one))
        archive = export.zip_of(thread)
        path = output or _zip_name(thread.id)
        with new_file(path) as file:
            size = sum([file.write(piece) async for piece in archive])
        return thread.id, path, size, [problem.told() for problem in archive.problems]


async def _export_remote(given: str, output: Path | None, target: Target) -> Exported:
    async with open_api(target) as api:
        thread_id = (await api.thread(given))["id"]
        path = output or _zip_name(thread_id)
        async with api.stream(f"/api/threads/{part(thread_id)}/export") as answer:
            with new_file(path) as file:
                size = sum([file.write(piece) async for piece in answer.aiter_bytes()])
    try:
        with ZipFile(path) as archive:
            problems = json.loads(archive.read(PROBLEMS)) if PROBLEMS in archive.namelist() else []
    except BadZipFile:
        path.unlink()
        raise Unavailable("the connection ended before the export was complete") from None
    return thread_id, path, size, problems


def _zip_name(thread_id: str) -> Path:
    return Path(f"thread-{re.sub('[^A-Za-z0-9._-]', '_', thread_id)}.zip")


def usage(*, tenant: str | None, user: str, target: Target, as_json: bool) -> None:
    if target.server() is not None:
        refuse_owner(tenant, user)
        shown = run(_usage_remote(target))
    else:
        shown = run(_usage_local(_owner(tenant, user), target))
    if as_json:
        say_json(shown)
        return
    oldest = shown["oldest"][:16].replace("T", " ") if shown["oldest"] else "(none)"
    for name in ("threads", "events", "oldest", "due", "deleted"):
        say(f"{name:<12} {oldest if name == 'oldest' else shown[name]}")
    for title, counts in (
        ("status", shown["byStatus"]),
        ("graph", shown["byGraph"]),
        ("table", shown.get("tables")),
    ):
        if counts:
            say()
            say_table([title, "bytes" if title == "table" else "threads"], _rows(counts))


async def _usage_local(owner: Owner | None, target: Target) -> dict[str, Any]:
    wanted = retention.selection(now=utc_now(), days_old=None, owner=owner)
    async with _opened(target.config) as (_, stores, space):
        found, tables = await space.usage(wanted), await space.sizes()
        shown = UsageOut.of(found, tables, await CleanupRows(stores.db).last())
        return shown.model_dump(mode="json", by_alias=True)


async def _usage_remote(target: Target) -> dict[str, Any]:
    async with open_api(target) as api:
        found: dict[str, Any] = await api.get("/api/threads/usage")
        return found


def delete(thread: str, *, soft: bool, yes: bool, target: Target, as_json: bool) -> None:
    async def remote() -> str:
        async with open_api(target) as api:
            found = await api.thread(thread)
            _confirm_delete(found["id"], found["name"], soft=soft, yes=yes)
            await api.delete(f"/api/threads/{part(found['id'])}", soft="true" if soft else None)
            return str(found["id"])

    async def local() -> str:
        async with _opened(target.config) as (settings, stores, _):
            found = await stores.threads.get_listed(await whole_id(stores, thread))
            _confirm_delete(found.id, found.name, soft=soft, yes=yes)
            if soft:
                await TrashRows(stores.db).put(found.id, now=utc_now())
                return found.id
            await stores.threads.tombstone(found.id, now=utc_now())
            while await stores.threads.purge(only=found.id):
                pass
            async with open_graph_database(settings, stores.db) as graph_db:
                await _forget_memory(stores.db, graph_db)
            return found.id

    thread_id = run(local() if target.server() is None else remote())
    if as_json:
        say_json({"id": thread_id, "status": "deleted"})
    else:
        say(f"{thread_id} is deleted." + (" You can restore it for seven days." if soft else ""))


def _confirm_delete(thread_id: str, name: str, *, soft: bool, yes: bool) -> None:
    confirm(f"Delete {thread_id} ({name}) for good?", yes=yes or soft)


def undelete(thread: str, *, target: Target, as_json: bool) -> None:
    async def remote() -> str:
        async with open_api(target) as api:
            known = [one["id"] for one in (await api.get("/api/threads/deleted", limit=1000))["threads"]]
            found: dict[str, Any] = await api.post(f"/api/threads/{part(only_match(thread, known))}/undelete")
            return str(found["id"])

    async def local() -> str:
        async with _opened(target.config) as (_, stores, _):
            await TrashRows(stores.db).restore(thread, now=utc_now())
            return thread

    thread_id = run(local() if target.server() is None else remote())
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
    settings = read_settings(config, level=level, without=OTHERS)
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
