"""`clew queue`, declared: list what waits and runs, cancel a waiting run, move one to the front."""

from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Key, Url

queue = typer.Typer(help="The queue: list what waits, cancel it, move it to the front.", no_args_is_help=True)

Waiting = Annotated[str, typer.Argument(help="The id of a thread that waits, or the beginning of it.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant; default: all.")]


@queue.command("list")
def list_queue(
    tenant: OfTenant = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List what waits and runs, by graph and tenant, and the processes."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.queue import show_queue  # noqa: PLC0415 - heavy

    show_queue(tenant, target=Target(url=url, key=key, config=config), as_json=as_json)


@queue.command("cancel")
def cancel_waiting(
    thread_id: Waiting,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Stop a run that waits."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.queue import change_queue  # noqa: PLC0415 - heavy

    change_queue(thread_id, "cancel", target=Target(url=url, key=key, config=config), as_json=as_json)


@queue.command("front")
def move_to_front(
    thread_id: Waiting,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start a run that waits before all others."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.queue import change_queue  # noqa: PLC0415 - heavy

    change_queue(thread_id, "front", target=Target(url=url, key=key, config=config), as_json=as_json)
