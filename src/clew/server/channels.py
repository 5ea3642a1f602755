"""Channel composition: bots from the settings, their webhook receivers, and the dispatcher of their chats."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from clew.channels import telegram, wecom_api
from clew.channels.admission import Admission
from clew.channels.bot import Bot
from clew.channels.dispatcher import ChatDispatcher
from clew.channels.files import ChatFiles
from clew.channels.http import HttpClient, open_outside
from clew.channels.message import ChatClient
from clew.channels.polling import Poller
from clew.channels.replies import Approvers
from clew.channels.telegram import TelegramClient
from clew.channels.telegram_receiver import TelegramReceiver
from clew.channels.wecom_api import AccessToken, WeComApi, WeComAppClient, WeComBotClient, WeComCustomerClient
from clew.config import Channel, Settings
from clew.documents.uploads import Uploads
from clew.domain.errors import ConfigError
from clew.domain.thread import Json, Owner
from clew.engine.commands import Commands
from clew.ports.channels import WebhookReceiver
from clew.ports.graphs import Graphs
from clew.ports.notifier import Notifier
from clew.ports.threads import Store
from clew.server.database import Stores, new_id, utc_now
from clew.stores.sql.conversations import ConversationRows
from clew.telemetry import Metrics

if TYPE_CHECKING:
    from clew.channels.wecom_crypto import Envelope

DEFAULT_GRAPH = "chat"
DEFAULT_UPDATES = ("message", "callback_query")
DEFAULT_CHATS = ("private",)


@asynccontextmanager
async def open_doors(
    settings: Settings,
    stores: Stores,
    store: Store,
    process: str,
    commands: Commands,
    notifier: Notifier,
    graphs: Graphs,
    metrics: Metrics,
    pace: Callable[[str], None],
    stopping: asyncio.Event,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncGenerator[Mapping[str, WebhookReceiver]]:
    """The webhook receivers by source; inside the block chats are answered. Raises ConfigError, naming the setting.

    `transport` stands for the network, in a simulation.
    """
    async with open_outside(transport=transport) as outside:
        plans = [BotPlan(channel, settings) for channel in settings.channels]
        bots = {plan.source: plan.bot(plan.wire(outside), graphs) for plan in plans}
        attendant = ChatDispatcher(
            bots=bots,
            conversations=ConversationRows(stores.db, process),
            store=store,
            commands=commands,
            notifier=notifier,
            admission=lambda wake: Admission(
                inbox=stores.inbox, clock=utc_now, new_id=new_id, wake=wake, metrics=metrics
            ),
            files=ChatFiles(
                uploads=Uploads(
                    files=stores.files, clock=utc_now, new_id=new_id, max_bytes=settings.limits.upload_bytes
                )
            ),
            new_id=new_id,
            metrics=metrics,
            stopping=stopping,
            poll_seconds=settings.runner.poll_seconds,
            lease=timedelta(seconds=settings.runner.lease_seconds),
        )
        doors = {plan.source: plan.door(attendant.admission, pace) for plan in plans}
        async with attendant.running():
            yield doors


@asynccontextmanager
async def open_poller(
    settings: Settings, name: str, stores: Stores, metrics: Metrics, report: Callable[[int], None]
) -> AsyncGenerator[Poller]:
    """Fetches a Telegram bot's updates. Raises ConfigError."""
    plan = telegram_plan(settings, name)
    async with open_outside() as outside:
        yield Poller(
            source=plan.source,
            wire=plan.telegram_wire(outside),
            update_types=plan.update_types,
            chat_types=plan.chat_types,
            admission=Admission(
                # The server that answers polls the inbox itself.
                inbox=stores.inbox,
                clock=utc_now,
                new_id=new_id,
                wake=lambda: None,
                metrics=metrics,
            ),
            conversations=ConversationRows(stores.db),
            clock=utc_now,
            report=report,
        )


def find_plan(settings: Settings, name: str) -> "BotPlan":
    """The bot of this name, or of `channel:name` where two channels have one. Raises ConfigError."""
    plans = [BotPlan(channel, settings) for channel in settings.channels]
    found = [plan for plan in plans if name in (plan.channel.name, plan.source)]
    if len(found) == 1:
        return found[0]
    there_are = ", ".join(sorted(plan.source for plan in found or plans)) or "none"
    what = f"there are several bots {name!r}" if found else f"there is no bot {name!r} under `channels`"
    raise ConfigError(f"{what}; choose from: {there_are}")


def telegram_plan(settings: Settings, name: str) -> "BotPlan":
    plan = find_plan(settings, name)
    if plan.channel.kind != "telegram":
        raise ConfigError(
            f"{plan.source}: only Telegram's bots can do this; WeCom's address is set on its own page"
        )
    return plan


@dataclass(frozen=True, slots=True)
class BotPlan:
    """The settings of one bot, validated on use."""

    channel: Channel
    settings: Settings

    @property
    def source(self) -> str:
        return f"{self.channel.kind}:{self.channel.name}"

    def bot(self, wire: ChatClient, graphs: Graphs) -> Bot:
        graph = self.channel.graph or DEFAULT_GRAPH
        if graph not in graphs.graphs and graph not in graphs.broken:
            raise self._expected("graph", f"one of {', '.join(sorted(graphs.graphs))}")
        chosen: dict[str, Json] = {"profile": self.channel.profile} if self.channel.profile else {}
        return Bot(
            source=self.source,
            owner=Owner(tenant=self._text("tenant", "default")),
            graph=graph,
            wire=wire,
            settings=chosen,
            ttl=self.settings.thread_ttl.delete_after,
            approvers=self._approvers(),
            # Clew's own graphs have fixed texts; one of them uses `results` for something else.
            gives_results=graph in self.settings.graphs,
            accounts=wire if isinstance(wire, WeComCustomerClient) else None,
        )

    def telegram_wire(self, outside: HttpClient) -> TelegramClient:
        token = self._secret("token")
        return TelegramClient(outside=outside, base_url=self._base_url(telegram.BASE_URL), token=token)

    def wire(self, outside: HttpClient) -> ChatClient:
        if self.channel.kind == "telegram":
            return self.telegram_wire(outside)
        base_url = self.wecom_url
        kind = self.wecom_kind
        if kind == "ai_bot":
            return WeComBotClient(outside=outside, base_url=base_url)
        access = AccessToken(outside, base_url, self._needed("corp_id"), self._secret("secret"))
        api = WeComApi(outside=outside, base_url=base_url, access=access)
        if kind == "customer_service":
            return WeComCustomerClient(api=api)
        agent_id = self._needed("agent_id")
        if not (agent_id.isascii() and agent_id.isdigit()):
            raise self._expected("agent_id", "a number")
        return WeComAppClient(api=api, agent_id=int(agent_id))

    def door(self, admission: Admission, pace: Callable[[str], None]) -> WebhookReceiver:
        make = self._telegram if self.channel.kind == "telegram" else self._wecom
        return make(admission, pace)

    @property
    def wecom_url(self) -> str:
        return self._base_url(wecom_api.BASE_URL)

    @property
    def update_types(self) -> tuple[str, ...]:
        return self._names("update_types", DEFAULT_UPDATES, telegram.UPDATE_TYPES)

    @property
    def chat_types(self) -> tuple[str, ...]:
        return self._names("chat_types", DEFAULT_CHATS, telegram.CHAT_TYPES)

    def _telegram(self, admission: Admission, pace: Callable[[str], None]) -> WebhookReceiver:
        return TelegramReceiver(
            source=self.source,
            # Without it any client that guesses the address could pose as Telegram.
            secret=self.secret_token,
            update_types=self.update_types,
            chat_types=self.chat_types,
            pace=pace,
            admission=admission,
        )

    @property
    def secret_token(self) -> str:
        secret = self._secret("secret_token")
        if not telegram.SECRET_TOKEN.fullmatch(secret):
            raise self._expected("secret_token", "1 to 256 of the characters A-Z, a-z, 0-9, _ and -")
        return secret

    def _wecom(self, admission: Admission, pace: Callable[[str], None]) -> WebhookReceiver:
        envelope = self._envelope()
        from clew.channels import wecom_receiver as wecom_door  # noqa: PLC0415 - needs an extra, which is here

        return wecom_door.WeComReceiver(
            source=self.source,
            kind=self.wecom_kind,
            envelope=envelope,
            account=self.wecom_account,
            clock=utc_now,
            pace=pace,
            admission=admission,
        )

    def wecom_seal(self) -> tuple[Callable[[bytes, bytes], str], Callable[[str, str, str], str]]:
        """How WeCom seals and signs what it delivers: of content and noise, and of timestamp, nonce and what is sealed."""
        envelope = self._envelope()
        from clew.channels.wecom_crypto import sign  # noqa: PLC0415 - needs an extra, which is here

        return (
            lambda content, noise: envelope.seal(content, noise=noise),
            lambda timestamp, nonce, sealed: sign(envelope.token, timestamp, nonce, sealed),
        )

    def _envelope(self) -> "Envelope":
        try:
            from clew.channels import wecom_crypto  # noqa: PLC0415 - needs an extra that may be missing
        except ModuleNotFoundError as exc:
            raise ConfigError("WeCom needs another package: pip install 'clew-server[wecom]'") from exc
        try:
            key = wecom_crypto.read_key(self._secret("encoding_aes_key"))
        except ConfigError as exc:
            raise ConfigError(f"{self._where('encoding_aes_key')}: {exc}") from None
        receiver = "" if self.wecom_kind == "ai_bot" else self._needed("corp_id")
        return wecom_crypto.Envelope(self._secret("token"), key, receiver)

    @property
    def wecom_account(self) -> str:
        return self._text("open_kf_id", "")

    @property
    def wecom_kind(self) -> str:
        kind = self._text("kind", "app")
        if kind not in ("app", "customer_service", "ai_bot"):
            raise self._expected("kind", "app, customer_service or ai_bot")
        return kind

    def _approvers(self) -> Approvers:
        match self._text("approvals", "chat"):
            case "chat":
                return "chat"
            case "dashboard":
                return "dashboard"
            case _:
                raise self._expected("approvals", "chat or dashboard")

    def _base_url(self, usual: str) -> str:
        url = self._text("base_url", usual).rstrip("/")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username:
            raise self._expected("base_url", "an address that begins with https://")
        return url

    def _names(self, key: str, usual: Collection[str], there_are: Collection[str]) -> tuple[str, ...]:
        given = self.channel.options.get(key, tuple(usual))
        names = given if isinstance(given, tuple) else (given,)
        if not all(name in there_are for name in names):
            raise self._expected(key, f"some of {', '.join(there_are)}")
        return tuple(str(name) for name in names)

    def _text(self, key: str, usual: str) -> str:
        given = self.channel.options.get(key, usual)
        if not isinstance(given, str):
            raise self._expected(key, "text")
        return given

    def _needed(self, key: str) -> str:
        return self._text(key, "") or self._missing(key)

    def _secret(self, key: str) -> str:
        given = self.channel.options.get(key)
        return given.get_secret_value() if isinstance(given, SecretStr) else self._missing(key)

    def _missing(self, key: str) -> NoReturn:
        raise self._expected(key, "to be set")

    def _where(self, key: str) -> str:
        return f"channels.{self.channel.kind}.{self.channel.name}.{key}"

    def _expected(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self._where(key)}: expected {what}")
