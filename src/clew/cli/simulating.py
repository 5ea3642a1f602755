"""`clew channels simulate`: the whole server in memory, with a simulated provider in this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import httpx

from clew.channels.simulation import (
    SimulatedMessage,
    SimulatedProvider,
    Webhook,
    telegram_webhook,
    wecom_webhook,
)
from clew.cli.opening import read_settings, run
from clew.cli.output import say, say_json
from clew.config import Settings, export_environment, read_database_url
from clew.domain.errors import Invalid, Permanent
from clew.ports.channels import Conversations
from clew.server.app import Server, open_app
from clew.server.channels import BotPlan, find_plan
from clew.stores.sql.conversations import ConversationRows

LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Exchange:
    """The message, and the replies the chat would show."""

    text: str
    answers: Sequence[SimulatedMessage]


def simulate(name: str, texts: Sequence[str], *, seconds: int, config: Path | None, as_json: bool) -> None:
    if not all(text.strip() for text in texts):
        raise Invalid("--text: a message is not blank")
    settings = read_settings(config, level="warning")
    export_environment(settings)
    plan = find_plan(settings, name)
    exchanges = run(_simulate(alone(settings, plan), plan, texts, seconds))
    if as_json:
        say_json([asdict(exchange) for exchange in exchanges])
        return
    for exchange in exchanges:
        say(f"> {exchange.text}")
        for shown in exchange.answers:
            for line in shown.text.splitlines():
                say(f"  {line}")
            if shown.buttons:
                say("  " + " ".join(f"[{label}]" for label in shown.buttons))
        if not exchange.answers:
            say("  (no answer)")


def alone(settings: Settings, plan: BotPlan) -> Settings:
    """The settings with this bot alone, on a database in memory, without a network."""
    memory = read_database_url("memory://")
    return replace(
        settings,
        database=settings.database.model_copy(update={"url": memory}),
        graph_store_url=memory,
        channels=(plan.channel,),
        server=settings.server.model_copy(update={"host": "127.0.0.1"}),
    )


async def _simulate(settings: Settings, plan: BotPlan, texts: Sequence[str], seconds: int) -> list[Exchange]:
    provider = SimulatedProvider()
    webhook = _webhook_maker(plan, provider)
    exchanges: list[Exchange] = []
    async with open_app(settings, transport=provider) as app:
        chats = ConversationRows(app.stores.db)
        for number, text in enumerate(texts, 1):
            seen = len(provider.shown)
            await _deliver(app, webhook(number, text))
            await _quiet(chats, plan.source, seconds)
            exchanges.append(Exchange(text, provider.shown[seen:]))
    return exchanges


def _webhook_maker(plan: BotPlan, provider: SimulatedProvider) -> Callable[[int, str], Webhook]:
    name = plan.channel.name
    if plan.channel.kind == "telegram":
        return lambda number, text: telegram_webhook(name, plan.secret_token, number, text)
    envelope, sign = plan.wecom_seal()
    return lambda number, text: wecom_webhook(
        name,
        plan.wecom_kind,
        number,
        text,
        provider=provider,
        base_url=plan.wecom_url,
        account=plan.wecom_account or "wk_simulated",
        seconds=int(time.time()),
        seal=envelope,
        sign=sign,
    )


async def _deliver(app: Server, webhook: Webhook) -> None:
    transport = httpx.ASGITransport(app.http)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.post(
            webhook.path, content=webhook.content, headers=webhook.headers, params=webhook.query
        )
    if answer.status_code != 200:
        raise Permanent(f"the webhook was answered with {answer.status_code}: {answer.text[:500]}")


async def _quiet(chats: Conversations, source: str, seconds: int) -> None:
    try:
        async with asyncio.timeout(seconds):
            while not await chats.are_quiet((source,)):  # noqa: ASYNC110 - it is the database that knows
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise Permanent(f"there was no answer within {seconds} seconds; --seconds waits longer") from None
