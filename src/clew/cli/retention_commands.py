"""`clew cleanup`, `clew export` and the retention commands of `clew threads`, declared; the code is in retention.py."""

from pathlib import Path
from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Key, ThreadId, Url, Yes

Soft = Annotated[bool, typer.Option("--soft", help="Soft delete: it can be restored for seven days.")]


def add_to(app: typer.Typer, threads: typer.Typer) -> None:
    app.command("cleanup")(cleanup)
    app.command("export")(export)
    app.command("import")(import_thread)
    threads.command("export")(export)
    threads.command("usage")(usage)
    threads.command("delete")(delete)
    threads.command("delete-all")(delete_all)
    threads.command("undelete")(undelete)


def cleanup(
    days_old: Annotated[
        int | None,
        typer.Option(
            help="Delete threads not accessed for this many days; default: expired threads.", min=1, max=365
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be deleted.")] = False,
    soft: Soft = False,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    user: Annotated[str, typer.Option(help="Only this user; needs --tenant.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Delete even if the clock jumped recently.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete all due threads. Works with and without a server."""
    from clew.cli.retention import clean_up  # noqa: PLC0415 - heavy

    clean_up(
        days_old=days_old,
        dry_run=dry_run,
        soft=soft,
        tenant=tenant,
        user=user,
        force=force,
        config=config,
        as_json=as_json,
    )


def export(
    thread_id: ThreadId,
    output: Annotated[
        Path | None, typer.Option(help="The file to write; default: thread-ID.zip.", metavar="PATH")
    ] = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Export a thread as a zip: its log, messages, documents and newest state."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.retention import export  # noqa: PLC0415 - heavy

    export(thread_id, output=output, target=Target(url=url, key=key, config=config), as_json=as_json)


def import_thread(
    file: Annotated[Path, typer.Argument(help="A zip that `clew export` wrote.")],
    tenant: Annotated[
        str | None, typer.Option(help="The tenant that gets the thread; default: whose it was.")
    ] = None,
    user: Annotated[str, typer.Option(help="The user that gets it; needs --tenant.")] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a thread from an export: its log, documents and newest state."""
    from clew.cli.importing import import_thread  # noqa: PLC0415 - heavy

    import_thread(file, tenant=tenant, user=user, config=config, as_json=as_json)


def usage(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    user: Annotated[str, typer.Option(help="Only this user; needs --tenant.")] = "",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show usage: threads by status and graph, events, and bytes by table."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.retention import usage  # noqa: PLC0415 - heavy

    usage(tenant=tenant, user=user, target=Target(url=url, key=key, config=config), as_json=as_json)


def delete(
    thread_id: ThreadId,
    soft: Soft = False,
    yes: Yes = False,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete a thread with everything that belongs to it."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.retention import delete  # noqa: PLC0415 - heavy

    delete(thread_id, soft=soft, yes=yes, target=Target(url=url, key=key, config=config), as_json=as_json)


def delete_all(
    tenant: Annotated[str, typer.Option(help="The tenant whose threads to delete.")],
    user: Annotated[str | None, typer.Option(help="Only this user of the tenant.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report how many would be deleted.")
    ] = False,
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete all threads of a tenant, or of one of its users, regardless of age and status."""
    from clew.cli.retention import delete_all  # noqa: PLC0415 - heavy

    delete_all(tenant=tenant, user=user, dry_run=dry_run, yes=yes, config=config, as_json=as_json)


def undelete(
    thread_id: ThreadId, url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False
) -> None:
    """Restore a softly deleted thread."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.retention import undelete  # noqa: PLC0415 - heavy

    undelete(thread_id, target=Target(url=url, key=key, config=config), as_json=as_json)
