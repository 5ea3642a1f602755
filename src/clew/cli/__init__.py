"""The `clew` command: declares all commands. Their code is imported when they are called, so help is quick."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from clew import __version__
from clew.cli import retention
from clew.cli.chatting import channels
from clew.cli.output import complain, complain_of_bug
from clew.cli.remembering import histories
from clew.domain.errors import ClewError, ConfigError

app = typer.Typer(
    name="clew",
    help="A durable backend for LangGraph agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
keys = typer.Typer(help="API keys: create, list and revoke them.", no_args_is_help=True)
threads = typer.Typer(help="Threads: list, show, delete and count them.", no_args_is_help=True)
app.add_typer(keys, name="keys")
app.add_typer(threads, name="threads")
app.add_typer(histories, name="histories")
app.add_typer(channels, name="channels")

Config = Annotated[Path | None, typer.Option(help="clew.yaml or langgraph.json to read.", metavar="PATH")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


def main() -> None:
    """Run the command in the process's arguments. An error is one line, never a traceback."""
    try:
        app()
    except ConfigError as exc:
        complain(exc)
        sys.exit(2)
    except ClewError as exc:
        complain(exc)
        sys.exit(1)
    except Exception as exc:  # noqa: BLE001 - the last resort of a command line
        complain_of_bug(exc)
        sys.exit(70)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clew {__version__}")
        raise typer.Exit


@app.callback()
def clew(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; other than loopback needs API keys.")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    config: Config = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a file of the project changes; for development.")
    ] = False,
) -> None:
    """Start the HTTP API and the runner, by default on SQLite in .clew/."""
    if reload:
        from clew.cli.reloading import serve_reloading  # noqa: PLC0415 - heavy

        raise typer.Exit(serve_reloading(host=host, port=port, config=config))
    from clew.cli.serving import serve  # noqa: PLC0415 - heavy

    serve(host=host, port=port, config=config)


@app.command()
def migrate(config: Config = None, as_json: AsJson = False) -> None:
    """Migrate the database to the newest version. `clew serve` does the same when it starts."""
    from clew.cli.database import migrate  # noqa: PLC0415 - heavy

    migrate(config=config, as_json=as_json)


@app.command()
def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """Show settings and versions, and check the database, the serializer and the graphs. Opens them as `clew serve` does."""
    from clew.cli.doctor import examine  # noqa: PLC0415 - heavy

    examine(config=config, as_json=as_json)


@keys.command("create")
def create_key(
    name: Annotated[str, typer.Option(help="What the key is for.")],
    tenant: Annotated[str, typer.Option(help="The tenant whose data the key can access.")] = "default",
    user: Annotated[str, typer.Option(help="Only this user's data; default: all users of the tenant.")] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="read, write, approve, admin, operator or metrics; repeat for several."
            " Default: read, write, approve."
        ),
    ] = None,
    expires_days: Annotated[
        int | None, typer.Option(help="Days until the key expires; default: never.", min=1, max=3650)
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create an API key and show it once. Only its hash is stored."""
    from clew.cli.keys import create  # noqa: PLC0415 - heavy

    create(
        name=name,
        tenant=tenant,
        user=user,
        scopes=scope,
        expires_days=expires_days,
        config=config,
        as_json=as_json,
    )


@keys.command("list")
def list_keys(config: Config = None, as_json: AsJson = False) -> None:
    """List all keys, expired and revoked ones included. The secrets are not stored."""
    from clew.cli.keys import show_all  # noqa: PLC0415 - heavy

    show_all(config=config, as_json=as_json)


@keys.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(help="As `clew keys list` shows it: key_...")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key permanently. Running servers notice within two seconds."""
    from clew.cli.keys import revoke  # noqa: PLC0415 - heavy

    revoke(key_id, config=config, as_json=as_json)


@threads.command("list")
def list_threads(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    user: Annotated[str, typer.Option(help="Only this user; needs --tenant.")] = "",
    status: Annotated[
        list[str] | None, typer.Option(help="Only with this status; repeat for several.")
    ] = None,
    graph: Annotated[str | None, typer.Option(help="Only this graph.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 50,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List threads, newest first."""
    from clew.cli.threads import show_all  # noqa: PLC0415 - heavy

    show_all(
        tenant=tenant,
        user=user,
        statuses=status or [],
        graph=graph,
        limit=limit,
        config=config,
        as_json=as_json,
    )


@threads.command("show")
def show_thread(
    thread_id: Annotated[str, typer.Argument(help="The thread's id.")],
    events: Annotated[int, typer.Option(help="How many of its newest events to show.", min=0, max=1000)] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show one thread and its newest events. Message texts are only in --json."""
    from clew.cli.threads import show_one  # noqa: PLC0415 - heavy

    show_one(thread_id, events=events, config=config, as_json=as_json)


retention.add_to(app, threads)
