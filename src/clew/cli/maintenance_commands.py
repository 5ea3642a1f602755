"""`clew backup`, `restore`, `encrypt`, `new` and `completion`, declared; the code is in modules of their own."""

from pathlib import Path
from typing import Annotated

import typer

from clew.cli.options import AsJson, Config, Yes


def add_to(app: typer.Typer) -> None:
    app.command("backup")(backup)
    app.command("restore")(restore)
    app.command("encrypt")(encrypt)
    app.command("new")(new)
    app.command("completion")(completion)


def backup(
    output: Annotated[
        Path | None, typer.Argument(help="The file to write; default: clew-TIME.backup.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Back up the database while servers use it, and verify the copy."""
    from clew.cli.backup import back_up  # noqa: PLC0415 - heavy

    back_up(output, config=config, as_json=as_json)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `clew backup` wrote.")],
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Put a backup in the place of the database. Stop all servers on it first."""
    from clew.cli.backup import restore  # noqa: PLC0415 - heavy

    restore(file, yes=yes, config=config, as_json=as_json)


def encrypt(config: Config = None, as_json: AsJson = False) -> None:
    """Encrypt what is not encrypted with the current key; see CLEW_ENCRYPTION_KEY."""
    from clew.cli.encryption import encrypt  # noqa: PLC0415 - heavy

    encrypt(config=config, as_json=as_json)


def new(
    folder: Annotated[Path, typer.Argument(help="The folder to create.")],
    as_json: AsJson = False,
) -> None:
    """Create a project: a graph that asks a person, and its settings."""
    from clew.cli.projects import create_project  # noqa: PLC0415 - heavy

    create_project(folder, as_json=as_json)


def completion(
    shell: Annotated[str, typer.Argument(help="bash, zsh or fish.")],
) -> None:
    """Print the completion script of a shell; `eval "$(clew completion bash)"` loads it."""
    from clew.cli.projects import show_completion  # noqa: PLC0415 - heavy

    show_completion(shell)
