"""`clew channels`, declared; the code is in channels.py."""

from typing import Annotated

import typer

from clew.cli.options import AsJson, Config

channels = typer.Typer(help="Telegram and WeCom bots: poll, set the webhook, simulate.", no_args_is_help=True)

Name = Annotated[
    str, typer.Argument(help="The bot's name in the settings, as in support or telegram:support.")
]


@channels.command("poll")
def poll(
    name: Name,
    once: Annotated[bool, typer.Option("--once", help="Fetch the waiting messages, then exit.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a Telegram bot's messages by polling, for a server that Telegram cannot reach. `clew serve` answers them."""
    from clew.cli.channels import poll  # noqa: PLC0415 - heavy

    poll(name, once=once, config=config, as_json=as_json)


@channels.command("set-webhook")
def set_webhook(
    name: Name,
    url: Annotated[
        str, typer.Option(help="The server's public address, as in https://clew.example.org.", metavar="URL")
    ] = "",
    remove: Annotated[bool, typer.Option("--remove", help="Remove the webhook, so that poll works.")] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Set the address to which Telegram delivers a bot's messages, with the bot's secret token."""
    from clew.cli.channels import set_webhook  # noqa: PLC0415 - heavy

    set_webhook(name, url=url, remove=remove, config=config, as_json=as_json)


@channels.command("simulate")
def simulate(
    name: Name,
    text: Annotated[list[str], typer.Option(help="A message to the bot; repeat for the next one.")],
    seconds: Annotated[int, typer.Option(help="How long to wait for each answer.", min=1, max=3600)] = 120,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send messages to a bot as its provider would, and show the answers. Runs in memory: stores and sends nothing."""
    from clew.cli.simulating import simulate  # noqa: PLC0415 - heavy

    simulate(name, text, seconds=seconds, config=config, as_json=as_json)
