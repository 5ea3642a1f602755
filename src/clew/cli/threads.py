"""`clew threads`: list threads, and show one with its events."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from clew.api.numbers import Numbering, OwnerNumbers
from clew.api.schemas import EventOut, ThreadOut, WholeThreadOut, WireModel
from clew.cli.opening import run, stores_of
from clew.cli.output import say, say_json, say_table
from clew.domain.errors import Invalid
from clew.domain.events import Event
from clew.domain.thread import Owner, Status, Thread


def show_all(
    *,
    tenant: str | None,
    user: str,
    statuses: Sequence[str],
    graph: str | None,
    limit: int,
    config: Path | None,
    as_json: bool,
) -> None:
    if user and tenant is None:
        raise Invalid("--user: needs --tenant, a user belongs to one")
    owner = None if tenant is None else Owner(tenant=tenant, user_id=user)
    wanted = [_status(text) for text in statuses]

    async def find() -> tuple[Sequence[Thread], Mapping[Owner, OwnerNumbers]]:
        async with stores_of(config) as stores:
            found = await stores.threads.find(owner, status=wanted, graph=graph, limit=limit)
            numbering = Numbering(stores.numbers)
            return found, await numbering.owners(thread.owner for thread in found) if as_json else {}

    found, numbers = run(find())
    if as_json:
        say_json([_json(ThreadOut.of(thread, numbers[thread.owner])) for thread in found])
    elif not found:
        say("No threads.")
    else:
        say_table(
            ["id", "tenant", "graph", "name", "status", "round", "events", "last active"],
            [_row(thread) for thread in found],
        )


def show_one(thread_id: str, *, events: int, config: Path | None, as_json: bool) -> None:
    async def get() -> tuple[Thread, Sequence[Event], OwnerNumbers]:
        async with stores_of(config) as stores:
            thread = await stores.threads.get(thread_id)
            log = await stores.threads.read(thread_id, limit=events)
            return thread, log, await Numbering(stores.numbers).owner(thread.owner)

    thread, log, numbers = run(get())
    if as_json:
        shown = [_json(EventOut.of(thread, event)) for event in log]
        say_json({"thread": _json(WholeThreadOut.of(thread, numbers)), "events": shown})
        return
    for name, value in _facts(thread):
        say(f"{name:<12} {value}")
    if log:
        say()
        say_table(["seq", "round", "at", "type", "id"], [_event_row(event) for event in log])


def _status(text: str) -> Status:
    try:
        return Status(text.lower())
    except ValueError:
        raise Invalid(f"--status: expected one of {', '.join(Status)}") from None


def _json(shown: WireModel) -> dict[str, object]:
    return shown.model_dump(mode="json", by_alias=True)


def _row(thread: Thread) -> list[str]:
    return [
        thread.id,
        thread.owner.tenant,
        thread.graph,
        thread.name,
        thread.status,
        str(thread.round),
        str(thread.last_seq),
        f"{thread.last_active_at:%Y-%m-%d %H:%M:%S}",
    ]


def _facts(thread: Thread) -> list[tuple[str, str]]:
    facts = [
        ("id", thread.id),
        ("tenant", thread.owner.tenant),
        ("user", thread.owner.user_id or "(none)"),
        ("graph", thread.graph),
        ("name", thread.name),
        ("status", f"{thread.status}, round {thread.round}, stage {thread.stage or '(none)'}"),
        ("events", str(thread.last_seq)),
        ("created", f"{thread.created_at:%Y-%m-%d %H:%M:%S}"),
        ("last active", f"{thread.last_active_at:%Y-%m-%d %H:%M:%S}"),
    ]
    if thread.failure_reason:
        facts.append(("failed", thread.failure_reason))
    facts += [
        ("waits for", f"{call.executor}: {call.kind} ({call_id})") for call_id, call in thread.pending.items()
    ]
    return facts


def _event_row(event: Event) -> list[str]:
    return [str(event.seq), str(event.round), f"{event.at:%Y-%m-%d %H:%M:%S}", event.type, event.id]
