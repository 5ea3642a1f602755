"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[Path | None, typer.Option(help="clew.yaml or langgraph.json to read.", metavar="PATH")]
AsJson = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]
Url = Annotated[
    str | None,
    typer.Option(help="Server to call; default: CLEW_URL, the saved context, or the local database."),
]
Key = Annotated[str | None, typer.Option(help="API key for that server; default: CLEW_KEY.")]
Tenant = Annotated[str, typer.Option(help="Tenant, on a local database.")]
User = Annotated[str, typer.Option(help="User, on a local database.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
ThreadId = Annotated[str, typer.Argument(help="The thread's id, or the beginning of it.")]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Follow the thread; on a local database, run it here."),
]
