"""`clew channels poll` and `set-webhook`: poll a Telegram bot's updates, set or remove its webhook."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clew.channels.http import open_outside
from clew.channels.telegram import UpdatesTaken
from clew.cli.opening import read_settings, run
from clew.cli.output import say, say_json
from clew.config import Settings
from clew.domain.errors import ConfigError, Invalid, Permanent
from clew.server.channels import BotPlan, open_poller, telegram_plan
from clew.server.database import open_stores
from clew.telemetry import shared_metrics


def poll(name: str, *, once: bool, config: Path | None, as_json: bool) -> None:
    settings = read_settings(config)
    if settings.database.url.kind == "memory":
        raise ConfigError("the database is memory://, which only the running process sees")
    fetched = 0

    def count(brought: int) -> None:
        nonlocal fetched
        fetched += brought

    async def work() -> None:
        async with (
            open_stores(settings) as stores,
            open_poller(settings, name, stores, shared_metrics(), count) as poller,
        ):
            if once:
                while await poller.poll(seconds=0):
                    pass
                return
            if not as_json:
                say(f"Fetching the messages of {poller.source}; `clew serve` answers them. Ctrl-C ends this.")
            stopping = asyncio.Event()
            await _until_told(stopping, poller.run(stopping))

    try:
        run(work())
    except UpdatesTaken as exc:
        hint = f"`clew channels set-webhook {name} --remove` removes a webhook"
        raise Permanent(f"Telegram refused to deliver the messages: {exc}; {hint}") from None
    if as_json:
        say_json({"bot": name, "fetched": fetched})
    else:
        say(f"{fetched} fetched.")


def set_webhook(name: str, *, url: str, remove: bool, config: Path | None, as_json: bool) -> None:
    if bool(url) == remove:
        raise Invalid("name the server's public address with --url, or say --remove")
    settings = read_settings(config, level="warning")
    plan = telegram_plan(settings, name)
    address = "" if remove else webhook_address(settings, plan, url)

    async def work() -> None:
        async with open_outside() as outside:
            wire = plan.telegram_wire(outside)
            if remove:
                await wire.remove_webhook()
            else:
                await wire.set_webhook(address, plan.secret_token, types=plan.update_types)

    run(work())
    if as_json:
        say_json({"bot": plan.source, "url": address or None})
    else:
        say(f"Telegram delivers to {address} now." if address else f"{plan.source} no longer has a webhook.")


def webhook_address(settings: Settings, plan: BotPlan, url: str) -> str:
    """The webhook address of the bot on this server. A complete webhook address is accepted too. Raises Invalid."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise Invalid("--url: expected an address such as https://clew.example.org")
    path = f"{settings.server.root_path}{settings.http.mount_prefix}/channels/telegram/{plan.channel.name}"
    base = url.rstrip("/")
    return base if parts.path.rstrip("/").endswith(f"/channels/telegram/{plan.channel.name}") else base + path


async def _until_told(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Run until a signal arrives. A request that waits for updates is cancelled: it has fetched nothing yet."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(work)

    def stop() -> None:
        stopping.set()
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    with suppress(asyncio.CancelledError):
        await task
