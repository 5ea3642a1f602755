"""The `clew` command: declares all commands. Their code is imported when they are called, so help is quick."""

import sys
from typing import Annotated

import typer
from typer import completion

from clew import __version__
from clew.cli import maintenance_commands, resource_commands, retention_commands, run_commands
from clew.cli.channel_commands import channels
from clew.cli.contexts import context
from clew.cli.history_commands import histories
from clew.cli.options import AsJson, Config, Key, ThreadId, Url, Yes
from clew.cli.output import complain, complain_of_bug
from clew.cli.queue_commands import queue
from clew.cli.traces import traces
from clew.domain.errors import ClewError, ConfigError, Unavailable

app = typer.Typer(
    name="clew",
    help="A durable backend for LangGraph agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys = typer.Typer(help="API keys: create, list and revoke them.", no_args_is_help=True)
threads = typer.Typer(
    help="Threads: list, show, follow, stop, delete, export and count them.", no_args_is_help=True
)
app.add_typer(keys, name="keys")
app.add_typer(threads, name="threads")
app.add_typer(queue, name="queue")
app.add_typer(histories, name="histories")
app.add_typer(channels, name="channels")
app.add_typer(context, name="context")
app.add_typer(traces, name="traces")


def main() -> None:
    """Run the command in the process's arguments. An error is one line, never a traceback."""
    completion.completion_init()  # type: ignore[attr-defined]  # for `clew completion`; it is not exported
    try:
        app(prog_name="clew")
    except ConfigError as exc:
        complain(exc)
        sys.exit(2)
    except Unavailable as exc:
        complain(exc)
        sys.exit(69)
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
    log_format: Annotated[
        str | None, typer.Option(help="`text` for people or `json`; by default text on a terminal.")
    ] = None,
    config: Config = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when a file of the project changes; for development.")
    ] = False,
    no_runner: Annotated[
        bool, typer.Option("--no-runner", help="Only the API: other processes execute the runs.")
    ] = False,
    processes: Annotated[
        int, typer.Option(help="How many processes share the address and the database.", min=1, max=64)
    ] = 1,
    socket_fd: Annotated[int | None, typer.Option(hidden=True)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", hidden=True)] = False,
) -> None:
    """Start the HTTP API and the runner, by default on SQLite in .clew/."""
    if reload:
        if no_runner or processes > 1:
            raise ConfigError("--reload: expected neither --no-runner nor --processes beside it")
        from clew.cli.reloading import serve_reloading  # noqa: PLC0415 - heavy

        raise typer.Exit(serve_reloading(host=host, port=port, log_format=log_format, config=config))
    if processes > 1:
        from clew.cli.processes import serve_in_processes  # noqa: PLC0415 - heavy

        code = serve_in_processes(
            processes,
            host=host,
            port=port,
            log_format=log_format,
            config=config,
            has_runner=not no_runner,
        )
        raise typer.Exit(code)
    from clew.cli.serving import serve  # noqa: PLC0415 - heavy

    serve(
        host=host,
        port=port,
        log_format=log_format,
        config=config,
        has_runner=not no_runner,
        socket_fd=socket_fd,
        is_quiet=quiet,
    )


@app.command()
def worker(
    graphs: Annotated[
        str | None, typer.Option(help="Names of the graphs to run, with commas between; default: all.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="How many threads to run at once; default: runner.concurrency.")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="`text` for people or `json`; by default text on a terminal.")
    ] = None,
    config: Config = None,
) -> None:
    """Start a runner without the HTTP API, on the database of `clew serve`."""
    from clew.cli.worker import work  # noqa: PLC0415 - heavy

    work(graphs=graphs, concurrency=concurrency, log_format=log_format, config=config)


@app.command()
def migrate(config: Config = None, as_json: AsJson = False) -> None:
    """Migrate the database to the newest version. `clew serve` does the same when it starts."""
    from clew.cli.database import migrate  # noqa: PLC0415 - heavy

    migrate(config=config, as_json=as_json)


@app.command()
def doctor(
    deep: Annotated[
        bool, typer.Option("--deep", help="Check every thread against its log too, and look for orphans.")
    ] = False,
    ask: Annotated[
        bool, typer.Option("--ask", help="Ask the model of each profile one small question.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show settings and versions, and check the database, the serializer and the graphs. Opens them as `clew serve` does."""
    from clew.cli.doctor import examine  # noqa: PLC0415 - heavy

    examine(config=config, as_json=as_json, deep=deep, ask=ask)


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
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Revoke a key permanently. Running servers notice within two seconds."""
    from clew.cli.keys import revoke  # noqa: PLC0415 - heavy

    revoke(key_id, yes=yes, config=config, as_json=as_json)


@threads.command("list")
def list_threads(
    tenant: Annotated[str | None, typer.Option(help="Only this tenant.")] = None,
    user: Annotated[str, typer.Option(help="Only this user; needs --tenant.")] = "",
    status: Annotated[
        list[str] | None, typer.Option(help="Only with this status; repeat for several.")
    ] = None,
    graph: Annotated[str | None, typer.Option(help="Only this graph.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 50,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List threads, newest first."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.threads import show_all  # noqa: PLC0415 - heavy

    show_all(
        tenant=tenant,
        user=user,
        statuses=status or [],
        graph=graph,
        limit=limit,
        target=Target(url=url, key=key, config=config),
        as_json=as_json,
    )


@threads.command("show")
def show_thread(
    thread_id: ThreadId,
    events: Annotated[int, typer.Option(help="How many of its newest events to show.", min=0, max=1000)] = 20,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show one thread and its newest events. Message texts are only in --json."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.threads import show_one  # noqa: PLC0415 - heavy

    show_one(thread_id, events=events, target=Target(url=url, key=key, config=config), as_json=as_json)


run_commands.add_to(app, threads)
retention_commands.add_to(app, threads)
resource_commands.add_to(app)
maintenance_commands.add_to(app)
