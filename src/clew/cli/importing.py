"""`clew import`: creates a thread from the zip that `clew export` wrote."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import IO
from zipfile import ZipFile

from clew.cli.opening import read_settings, run
from clew.cli.output import complain, say, say_json
from clew.cli.progress import progress_bar
from clew.config import export_environment
from clew.documents.uploads import PART_BYTES
from clew.domain.errors import ClewError, ConfigError, Duplicate, Invalid
from clew.domain.lifecycle import Stamp
from clew.domain.thread import Owner
from clew.ports.files import Files
from clew.ports.guards import Imported
from clew.retention.importing import ImportedDocument, ImportedThread, read_export
from clew.server.database import new_id, utc_now

# The exit code of an import without the state of the graph.
NOT_WHOLE = 3


def import_thread(path: Path, *, tenant: str | None, user: str, config: Path | None, as_json: bool) -> None:
    if user and tenant is None:
        raise Invalid("--user: needs --tenant, a user belongs to one")
    owner = None if tenant is None else Owner(tenant=tenant, user_id=user)
    try:
        with path.open("rb") as file:
            imported = read_export(file, owner=owner, now=lambda: Stamp(utc_now(), new_id))
    except OSError as exc:
        raise Invalid(f"cannot read {path}: {exc.strerror}") from exc
    problem = run(_save(path, imported, config))
    thread = imported.change.thread
    if as_json:
        shown = {"id": thread.id, "tenant": thread.owner.tenant, "status": thread.status}
        say_json(shown | {"events": thread.last_seq, "documents": len(imported.documents), "state": problem})
    else:
        say(f"{thread.id} is imported: {thread.last_seq} events, {len(imported.documents)} documents.")
    if problem is not None:
        complain(Invalid(f"the state of its graph was not imported: {problem}"))
        raise SystemExit(NOT_WHOLE)


async def _save(path: Path, imported: ImportedThread, config: Path | None) -> str | None:
    """Why the state of its graph could not be written, if it could not."""
    settings = read_settings(config, level="error", without=("channels",))
    if settings.database.url.kind == "memory":
        raise ConfigError("the database is memory://, which only the running process sees")
    export_environment(settings)
    from clew.server.app import open_app  # noqa: PLC0415 - reads what was just exported

    quiet = replace(settings, channels=(), runner=settings.runner.model_copy(update={"concurrency": 0}))
    thread = imported.change.thread
    async with open_app(quiet, background=False) as app:
        store = app.stores.threads
        if (known := await store.tenant_of(thread.id)) is not None:
            raise Duplicate(f"there is a thread {thread.id}, of the tenant {known}, or there was one lately")
        with progress_bar("importing") as show, path.open("rb") as file, ZipFile(file) as archive:
            for number, one in enumerate(imported.documents):
                with archive.open(one.path) as data:
                    await _keep_bytes(app.stores.files, one, data)
                show(number + 1, len(imported.documents) + 1)
        await store.commit(imported.change, Imported())
        try:
            for one in imported.documents:
                await app.stores.files.add_document(one.document, ())
            await store.touch([thread.id], now=utc_now(), grain=timedelta())
            if imported.values is None:
                return None
            fence = await store.fence(thread.id)
            await app.execution.graph_driver.write_supersteps(thread, imported.supersteps, fence=fence)
        except ClewError as exc:
            return str(exc)
    return None


async def _keep_bytes(files: Files, one: ImportedDocument, data: IO[bytes]) -> None:
    found = sha256()
    for number, part in enumerate(_parts(data)):
        found.update(part)
        await files.add_part(one.document.sha256, number, part, now=utc_now())
    if found.hexdigest() != one.document.sha256:
        raise Invalid(f"{one.path} in the export is not the file that was exported")


def _parts(data: IO[bytes]) -> Iterator[bytes]:
    yield data.read(PART_BYTES)  # an empty file has one part
    while part := data.read(PART_BYTES):
        yield part
