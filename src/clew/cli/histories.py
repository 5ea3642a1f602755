"""`clew histories`: chat histories of agents, read and written in the database directly."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from clew.cli.opening import OTHERS, read_settings, run
from clew.cli.output import say, say_json
from clew.cli.terminal import confirm
from clew.config import Settings
from clew.domain.errors import ConfigError, Invalid
from clew.domain.thread import Owner
from clew.history.access import ChatHistories
from clew.ports.histories import HistoryMessage, HistorySummary, NewMessage, Role, message_item
from clew.server.database import open_database, open_histories


def push(
    key: str,
    content: str,
    *,
    role: str,
    id: str | None,
    tenant: str,
    namespace: str,
    config: Path | None,
    as_json: bool,
) -> None:
    message = NewMessage(role=_role(role), content=content, id=id)
    if not content.strip():
        raise Invalid("TEXT: a message is not blank")

    async def work() -> int:
        async with _histories(config) as histories:
            return await histories.append(Owner(tenant=tenant), key, message, namespace=namespace)

    last_seq = run(work())
    if as_json:
        say_json({"key": key, "written": True, "lastSeq": last_seq})
    else:
        say(f"{key} has {last_seq} messages now.")


def show(key: str, *, limit: int, tenant: str, namespace: str, config: Path | None, as_json: bool) -> None:
    async def work() -> tuple[HistorySummary, Sequence[HistoryMessage]]:
        async with _histories(config) as histories:
            owner = Owner(tenant=tenant)
            summary, _ = await histories.read(owner, key, namespace=namespace, limit=1)
            after = max(0, summary.last_seq - limit)
            return await histories.read(owner, key, namespace=namespace, after=after, limit=limit)

    summary, messages = run(work())
    if as_json:
        say_json({**summary.metadata(), "messages": [message_item(one, "content") for one in messages]})
        return
    say(f"{key}: {summary.last_seq} messages, the last one at {summary.updated_at:%Y-%m-%d %H:%M}.")
    for message in messages:
        say(f"{message.seq:>6} {message.role:<9} {message.content}")


def erase(
    key: str | None,
    *,
    everything: bool,
    tenant: str,
    user: str,
    namespace: str,
    yes: bool,
    config: Path | None,
    as_json: bool,
) -> None:
    if (key is None) == (not user and not everything) or (user and everything):
        raise Invalid(
            "name one conversation by its KEY, or one user with --user, or all of a tenant with --all"
        )

    whose = f"of {user}" if user else f"of the tenant {tenant}"
    confirm(f"Delete {f'the history {key}' if key else f'all histories {whose}'} for good?", yes=yes)

    async def work() -> int:
        async with _histories(config) as histories:
            if key is None:
                return await histories.delete_all(Owner(tenant=tenant, user_id=user))
            await histories.delete(Owner(tenant=tenant), key, namespace=namespace)
            return 1

    deleted = run(work())
    if as_json:
        say_json({"deleted": deleted})
    else:
        say(f"{deleted} deleted.")


@asynccontextmanager
async def _histories(config: Path | None) -> AsyncGenerator[ChatHistories]:
    """The histories of the graph store, which may be kept in a database of its own."""
    settings = read_settings(config, level="warning", without=OTHERS)
    _require_database(settings)
    async with open_database(settings.graph_store_url, settings) as db:
        yield ChatHistories(histories=open_histories(db))


def _require_database(settings: Settings) -> None:
    url = settings.graph_store_url
    if url.kind == "memory":
        raise ConfigError("the graph store is memory://, which only the running process sees")
    if url.path is not None and not url.path.exists():
        raise ConfigError(f"there is no database at {url.path}; is this the right folder?")


def _role(text: str) -> Role:
    match text:
        case "user" | "assistant":
            return text
        case _:
            raise Invalid(f"--role: expected user or assistant, not {text!r}")
