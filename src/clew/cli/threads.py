"""`clew threads list` and `show`: of a server, or of the database directly, where they see every tenant."""

import sys
from collections.abc import Sequence
from shutil import get_terminal_size
from typing import Any

from clew.api.numbers import Numbering
from clew.api.schemas import EventOut, ThreadOut, WholeThreadOut, WireModel
from clew.cli.client import PAGE, PREFIX_PAGES, SHORTEST_PREFIX, Target, only_match, open_api, part
from clew.cli.opening import run, stores_of
from clew.cli.output import say, say_json, say_table
from clew.domain.errors import Invalid, NotFound
from clew.domain.thread import Owner, Status
from clew.server.database import Stores, utc_now

Json = dict[str, Any]

# From this width on times are shown with their date.
WIDE = 100


def show_all(
    *,
    tenant: str | None,
    user: str,
    statuses: Sequence[str],
    graph: str | None,
    limit: int,
    target: Target,
    as_json: bool,
) -> None:
    wanted = [_status(text) for text in statuses]
    if target.server() is not None:
        refuse_owner(tenant, user)
        found = run(_listed(target, wanted, graph, limit))
    else:
        found = run(_stored(_owner(tenant, user), wanted, graph, limit, target))
    if as_json:
        say_json(found)
    elif not found:
        say("No threads.")
    else:
        is_one = len({thread["tenant"] for thread in found}) == 1
        columns = ["id", "status", "active", *([] if is_one else ["tenant"]), "graph", "name"]
        rows = [_row(thread, is_one=is_one) for thread in found]
        say_table(columns, rows, whole=("id", "status", "active"), short=("tenant", "graph", "name"))


async def _listed(target: Target, wanted: Sequence[Status], graph: str | None, limit: int) -> list[Json]:
    async with open_api(target) as api:
        status = [str(one) for one in wanted] or None
        return await api.pages("/api/threads", "threads", limit=limit, status=status, graph=graph)


async def _stored(
    owner: Owner | None, wanted: Sequence[Status], graph: str | None, limit: int, target: Target
) -> list[Json]:
    async with stores_of(target.config) as stores:
        found = await stores.threads.find(owner, status=wanted, graph=graph, limit=limit)
        numbers = await Numbering(stores.numbers).owners(thread.owner for thread in found)
        return [_json(ThreadOut.of(thread, numbers[thread.owner])) for thread in found]


def show_one(thread_id: str, *, events: int, target: Target, as_json: bool) -> None:
    is_remote = target.server() is not None
    thread, log = run((_fetched if is_remote else _read)(thread_id, events, target))
    if as_json:
        say_json({"thread": thread, "events": log})
        return
    for name, value in _facts(thread):
        say(f"{name:<12} {value}")
    if log:
        say()
        say_table(
            ["seq", "round", "at", "type", "id"],
            [_event_row(event) for event in log],
            whole=("at", "type", "id"),
        )


async def _fetched(given: str, events: int, target: Target) -> tuple[Json, list[Json]]:
    async with open_api(target) as api:
        thread = await api.thread(given)
        path = f"/api/threads/{part(thread['id'])}/events"
        log = (await api.get(path, limit=events))["events"] if events else []
        return thread, log


async def _read(given: str, events: int, target: Target) -> tuple[Json, list[Json]]:
    async with stores_of(target.config) as stores:
        thread = await stores.threads.get(await whole_id(stores, given))
        log = await stores.threads.read(thread.id, limit=events)
        numbers = await Numbering(stores.numbers).owner(thread.owner)
        shown = [_json(EventOut.of(thread, event)) for event in log]
        return _json(WholeThreadOut.of(thread, numbers)), shown


async def whole_id(stores: Stores, given: str) -> str:
    """The id of the thread that has it, or the one id that begins so. Raises NotFound or Invalid."""
    try:
        return (await stores.threads.get_listed(given)).id
    except NotFound:
        if len(given) < SHORTEST_PREFIX:
            raise
    ids: list[str] = []
    before = None
    for _ in range(PREFIX_PAGES):
        page = await stores.threads.find(before=before, limit=PAGE)
        ids += [thread.id for thread in page]
        if len(page) < PAGE:
            break
        before = (page[-1].created_at, page[-1].id)
    return only_match(given, ids)


def refuse_owner(tenant: str | None, user: str) -> None:
    """A server shows what its key may see. Raises Invalid."""
    if tenant is not None or user:
        raise Invalid(
            "--tenant and --user are for a local database; on a server the key says whose threads it sees"
        )


def _owner(tenant: str | None, user: str) -> Owner | None:
    if user and tenant is None:
        raise Invalid("--user: needs --tenant, a user belongs to one")
    return None if tenant is None else Owner(tenant=tenant, user_id=user)


def _status(text: str) -> Status:
    try:
        return Status(text.lower())
    except ValueError:
        raise Invalid(f"--status: expected one of {', '.join(Status)}") from None


def _json(shown: WireModel) -> Json:
    return shown.model_dump(mode="json", by_alias=True)


def _time(text: str) -> str:
    return text[:19].replace("T", " ")


def _is_wide() -> bool:
    return not sys.stdout.isatty() or get_terminal_size().columns >= WIDE


def _last(text: str) -> str:
    """On a narrow terminal the time of today, or the day: the space is for ids and names."""
    at = _time(text)
    if _is_wide():
        return at
    return at[11:16] if at[:10] == f"{utc_now():%Y-%m-%d}" else at[5:10]


def _row(thread: Json, *, is_one: bool) -> list[str]:
    return [
        thread["id"],
        thread["status"],
        _last(thread["lastActiveAt"]),
        *([] if is_one else [thread["tenant"]]),
        thread["graph"],
        thread["name"],
    ]


def _facts(thread: Json) -> list[tuple[str, str]]:
    facts = [
        ("id", thread["id"]),
        ("tenant", thread["tenant"]),
        ("user", thread["user"] or "(none)"),
        ("graph", thread["graph"]),
        ("name", thread["name"]),
        ("status", f"{thread['status']}, round {thread['round']}, stage {thread['stage'] or '(none)'}"),
        ("events", str(thread["lastSeq"])),
        ("created", _time(thread["createdAt"])),
        ("last active", _time(thread["lastActiveAt"])),
    ]
    if thread["failureReason"]:
        facts.append(("failed", thread["failureReason"]))
    facts += [
        ("waits for", f"{call['executor']}: {call['kind']} ({call_id})")
        for call_id, call in thread["pending"].items()
    ]
    return facts


def _event_row(event: Json) -> list[str]:
    at = _time(event["at"])
    return [
        str(event["seq"]),
        str(event["round"]),
        at if _is_wide() else at.partition(" ")[2],
        event["type"],
        event["id"],
    ]
