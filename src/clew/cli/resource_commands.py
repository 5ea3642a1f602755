"""`clew graphs`, `assistants`, `usage`, `bench`, `crons` and `store`, declared; the code is in modules of their own."""

from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Key, Tenant, Url, Yes

crons = typer.Typer(help="Crons: list, create and delete them.", no_args_is_help=True)
store = typer.Typer(help="Items of the store that graphs share.", no_args_is_help=True)

Namespace = Annotated[str, typer.Argument(help="Labels separated by periods.")]
ItemKey = Annotated[str, typer.Argument(help="The item's key.")]


def add_to(app: typer.Typer) -> None:
    app.command("graphs")(graphs)
    app.command("assistants")(assistants)
    app.command("usage")(usage)
    app.command("bench")(bench)
    app.add_typer(crons, name="crons")
    app.add_typer(store, name="store")


def graphs(url: Url = None, key: Key = None, config: Config = None, as_json: AsJson = False) -> None:
    """List the graphs that can be run."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import graphs  # noqa: PLC0415 - heavy

    graphs(target=Target(url=url, key=key, config=config), as_json=as_json)


def assistants(
    graph: Annotated[str | None, typer.Option(help="Only of this graph.")] = None,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List assistants: graphs with a configuration."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import assistants  # noqa: PLC0415 - heavy

    assistants(graph=graph, target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json)


def usage(
    by: Annotated[str, typer.Option(help="graph, user, tenant, model or day.")] = "graph",
    since: Annotated[
        str | None, typer.Option(help="First day, as in 2026-11-01; default: of the last 30.")
    ] = None,
    until: Annotated[str | None, typer.Option(help="Last day; default: today.")] = None,
    thread: Annotated[
        str | None, typer.Option(help="Only this thread, by its id or the beginning of it.")
    ] = None,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the tokens that models used, and what they cost."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import usage  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    usage(by=by, since=since, until=until, thread=thread, target=target, as_json=as_json)


def bench(
    graph: Annotated[
        str | None, typer.Option(help="The graph to run; default: one that does nothing.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="What the user says.")] = None,
    input: Annotated[
        str | None, typer.Option(help="The graph's input as JSON, or @FILE with it.", metavar="JSON")
    ] = None,
    runs: Annotated[int, typer.Option(help="How many runs.", min=1, max=100_000)] = 100,
    at_once: Annotated[int, typer.Option(help="How many at a time.", min=1, max=1000)] = 16,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the threads there.")] = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start many runs and say how long they took: of this machine, or of a server."""
    from clew.cli.bench import measure  # noqa: PLC0415 - heavy
    from clew.cli.client import Target  # noqa: PLC0415 - heavy

    measure(
        graph=graph,
        prompt=prompt,
        input=input,
        runs=runs,
        at_once=at_once,
        keeps=keep,
        target=Target(url=url, key=key, config=config, tenant=tenant),
        as_json=as_json,
    )


@crons.command("list")
def list_crons(
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List crons, newest first."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import crons  # noqa: PLC0415 - heavy

    crons(target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json)


@crons.command("create")
def create_cron(
    assistant: Annotated[str, typer.Argument(help="An assistant's id, or the name of a graph.")],
    schedule: Annotated[str, typer.Argument(help="As in '0 9 * * mon-fri' or @daily.")],
    input: Annotated[
        str | None, typer.Option(help="The graph's input as JSON, or @FILE with it.", metavar="JSON")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="As in Europe/Berlin; default: UTC.")] = None,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Run a graph by a schedule, each time in a temporary thread. `clew serve` starts the runs."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import create_cron  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    create_cron(assistant, schedule, input=input, timezone=timezone, target=target, as_json=as_json)


@crons.command("delete")
def delete_cron(
    cron_id: Annotated[str, typer.Argument(help="The cron's id, or the beginning of it.")],
    yes: Yes = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete a cron. Its running runs continue."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import delete_cron  # noqa: PLC0415 - heavy

    delete_cron(
        cron_id, yes=yes, target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json
    )


@store.command("namespaces")
def namespaces(
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the namespaces that have items."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import namespaces  # noqa: PLC0415 - heavy

    namespaces(target=Target(url=url, key=key, config=config, tenant=tenant), as_json=as_json)


@store.command("search")
def search_items(
    namespace: Annotated[str, typer.Argument(help="Labels separated by periods; default: all.")] = "",
    query: Annotated[str | None, typer.Option(help="Search by meaning; needs a semantic index.")] = None,
    limit: Annotated[int, typer.Option(help="How many at most.", min=1, max=1000)] = 50,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the items of a namespace and of those below it."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import search_items  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    search_items(namespace, query=query, limit=limit, target=target, as_json=as_json)


@store.command("get")
def get_item(
    namespace: Namespace,
    item_key: ItemKey,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,  # noqa: ARG001 - an item is shown as JSON in any case
) -> None:
    """Show one item as JSON."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import get_item  # noqa: PLC0415 - heavy

    get_item(namespace, item_key, target=Target(url=url, key=key, config=config, tenant=tenant))


@store.command("put")
def put_item(
    namespace: Namespace,
    item_key: ItemKey,
    value: Annotated[str, typer.Argument(help="A JSON object, or @FILE with it.")],
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write an item."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import put_item  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    put_item(namespace, item_key, value, target=target, as_json=as_json)


@store.command("delete")
def delete_item(
    namespace: Namespace,
    item_key: ItemKey,
    yes: Yes = False,
    url: Url = None,
    key: Key = None,
    tenant: Tenant = "default",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Delete an item."""
    from clew.cli.client import Target  # noqa: PLC0415 - heavy
    from clew.cli.resources import delete_item  # noqa: PLC0415 - heavy

    target = Target(url=url, key=key, config=config, tenant=tenant)
    delete_item(namespace, item_key, yes=yes, target=target, as_json=as_json)
