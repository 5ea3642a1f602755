"""`clew histories`, declared; the code is in histories.py."""

from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Yes

histories = typer.Typer(help="Chat histories: stored messages by conversation key.", no_args_is_help=True)

Key = Annotated[str, typer.Argument(help="The conversation key, as in telegram:42.")]
Tenant = Annotated[str, typer.Option(help="The bot's tenant.")]
Namespace = Annotated[
    str,
    typer.Option(help="The node's history_namespace, labels separated by periods.", metavar="LABELS"),
]


@histories.command("push")
def push(
    key: Key,
    text: Annotated[str, typer.Argument(help="The message text.")],
    role: Annotated[str, typer.Option(help="user or assistant.")] = "assistant",
    message_id: Annotated[
        str | None, typer.Option("--id", help="An id of the message; the same id is stored once.")
    ] = None,
    tenant: Tenant = "default",
    namespace: Namespace = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Append a message outside a turn, for example a notification. The agent's next turn sees it."""
    from clew.cli.histories import push  # noqa: PLC0415 - heavy

    push(
        key,
        text,
        role=role,
        id=message_id,
        tenant=tenant,
        namespace=namespace,
        config=config,
        as_json=as_json,
    )


@histories.command("show")
def show(
    key: Key,
    limit: Annotated[
        int, typer.Option(help="How many of the newest messages to show.", min=1, max=1000)
    ] = 30,
    tenant: Tenant = "default",
    namespace: Namespace = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the newest messages of one chat."""
    from clew.cli.histories import show  # noqa: PLC0415 - heavy

    show(key, limit=limit, tenant=tenant, namespace=namespace, config=config, as_json=as_json)


@histories.command("erase")
def erase(
    key: Annotated[str | None, typer.Argument(help="The conversation key, as in telegram:42.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All histories of the tenant.")] = False,
    user: Annotated[str, typer.Option(help="All histories begun by runs of this user.")] = "",
    tenant: Tenant = "default",
    namespace: Namespace = "",
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete the history of one chat, one user or a whole tenant permanently. Threads stay."""
    from clew.cli.histories import erase  # noqa: PLC0415 - heavy

    erase(
        key,
        everything=everything,
        user=user,
        tenant=tenant,
        namespace=namespace,
        yes=yes,
        config=config,
        as_json=as_json,
    )
