"""`clew traces export`: sends the traces of rounds that have ended, again or for the first time."""

import re
from datetime import datetime, timedelta
from typing import Annotated

import typer

from clew.cli.options import AsJson, Config
from clew.domain.errors import Invalid

traces = typer.Typer(help="Traces: send those of rounds in the log to the collector.", no_args_is_help=True)

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@traces.command("export")
def export_traces(
    since: Annotated[
        str,
        typer.Option(
            help="Threads active since then: 90m, 2h, 7d, or a time such as 2026-11-18T09:00+01:00."
        ),
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send the traces of all rounds of threads that were active since then. A trace sent twice stays one."""
    from clew.cli.trace_export import export  # noqa: PLC0415 - heavy

    export(parse_since(since), config=config, as_json=as_json)


def parse_since(text: str) -> datetime | timedelta:
    """Raises Invalid."""
    if found := _AGO.fullmatch(text):
        return timedelta(**{_UNITS[found[2]]: int(found[1])})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid("--since: give a time span (90m, 2h, 7d) or a time (2026-11-18T09:00+01:00)") from None
    return at.astimezone()
