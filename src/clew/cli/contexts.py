"""`clew context`: servers saved by name, and which one commands call."""

from typing import Annotated

import typer

from clew.cli.options import AsJson
from clew.cli.output import say, say_json, say_table

context = typer.Typer(help="Saved servers: set, use, list and remove them.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The context's name.")]
LOCAL = "local"


@context.command("set")
def save(
    name: Name,
    url: Annotated[str, typer.Option(help="The server's address, as in https://clew.example.org.")],
    key: Annotated[
        str | None, typer.Option(help="API key for it. Stored in a file that only you can read.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Save a server and use it from now on."""
    from clew.config import client_settings, contexts_file, read_contexts, write_contexts  # noqa: PLC0415 - heavy
    from clew.domain.errors import Invalid  # noqa: PLC0415 - heavy

    if name == LOCAL:
        raise Invalid(f"NAME: {LOCAL} means the local database")
    path = contexts_file()
    write_contexts(path, read_contexts(path).with_server(name, client_settings(url, key)))
    _say_current(name, as_json=as_json)


@context.command("use")
def use(
    name: Annotated[str, typer.Argument(help="The context's name; `local`: the local database.")],
    as_json: AsJson = False,
) -> None:
    """Use a saved server, or the local database, from now on."""
    from clew.config import contexts_file, read_contexts, write_contexts  # noqa: PLC0415 - heavy

    path = contexts_file()
    write_contexts(path, read_contexts(path).using(None if name == LOCAL else name))
    _say_current(name, as_json=as_json)


@context.command("list")
def show(as_json: AsJson = False) -> None:
    """List saved servers. Keys are not shown."""
    from clew.config import contexts_file, read_contexts  # noqa: PLC0415 - heavy

    saved = read_contexts(contexts_file())
    rows = [
        {"name": LOCAL, "url": None, "hasKey": False, "current": saved.current is None},
        *(
            {"name": name, "url": one.url, "hasKey": one.key is not None, "current": name == saved.current}
            for name, one in sorted(saved.servers.items())
        ),
    ]
    if as_json:
        say_json(rows)
        return
    say_table(
        ["", "name", "url", "key"],
        [
            (
                "*" if r["current"] else "",
                str(r["name"]),
                str(r["url"] or "(database)"),
                "set" if r["hasKey"] else "",
            )
            for r in rows
        ],
    )


@context.command("remove")
def remove(name: Name, as_json: AsJson = False) -> None:
    """Forget a saved server and its key."""
    from clew.config import contexts_file, read_contexts, write_contexts  # noqa: PLC0415 - heavy

    path = contexts_file()
    write_contexts(path, read_contexts(path).without(name))
    if as_json:
        say_json({"name": name, "status": "removed"})
    else:
        say(f"{name} is removed.")


def _say_current(name: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"current": name})
    else:
        say(f"Commands use {'the local database' if name == LOCAL else name} now.")
