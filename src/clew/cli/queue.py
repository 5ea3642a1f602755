"""`clew queue`: shows and changes the queue of a server, through the API."""

from typing import Any

from clew.cli.client import Api, ServerRefusal, Target, only_match, open_api, part
from clew.cli.opening import run
from clew.cli.output import say, say_json, say_table

MOST = 1000


def show_queue(tenant: str | None, *, target: Target, as_json: bool) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            return (await _queue(api, tenant))[0]

    found = run(work())
    if as_json:
        say_json(found)
        return
    say(
        f"{found['waiting']} wait, the oldest for {found['oldestWaitSeconds']:.1f} s;"
        f" {found['running']} run; {found['queuedBehind']} are queued behind a run of their thread."
    )
    if found["loads"]:
        say_table(
            ["graph", "tenant", "waiting", "running", "behind", "oldest wait"],
            [
                (
                    one["graph"],
                    one["tenant"],
                    str(one["waiting"]),
                    str(one["running"]),
                    str(one["queuedBehind"]),
                    f"{one['oldestWaitSeconds']:.1f} s",
                )
                for one in found["loads"]
            ],
        )
    if found["next"]:
        say()
        say_table(
            ["next", "graph", "tenant", "priority", "waits"],
            [
                (
                    one["threadId"],
                    one["graph"],
                    one["tenant"],
                    "front" if one["isFirst"] else str(one["priority"]),
                    f"{one['waitedSeconds']:.1f} s",
                )
                for one in found["next"]
            ],
            whole=("next",),
        )
    if found["processes"]:
        say()
        say_table(
            ["process", "host", "version", "runs", "last beat"],
            [
                (
                    one["role"],
                    one["host"],
                    one["version"],
                    f"{one['running']} of {one['slots']}",
                    f"{one['silentSeconds']:.0f} s ago" + ("" if one["isAlive"] else ", silent"),
                )
                for one in found["processes"]
            ],
        )


def change_queue(thread_id: str, change: str, *, target: Target, as_json: bool) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            shown, tenant = await _queue(api, None)
            waiting = [one["threadId"] for one in shown["next"]]
            # One that is not among them is named in full, and the server says what it does.
            known = [one for one in waiting if one.startswith(thread_id)]
            chosen = only_match(thread_id, known) if known else thread_id
            return await api.post(f"/api/queue/{part(chosen)}/{change}", tenant=tenant)

    done = run(work())
    if as_json:
        say_json(done)
    else:
        say(f"{done['threadId']} is {'next' if change == 'front' else done['status']}.")


async def _queue(api: Api, tenant: str | None) -> tuple[Any, str | None]:
    """Of all tenants where the key may see them, of its own otherwise; and which that is as a parameter."""
    wanted = tenant or "*"
    try:
        return await api.get("/api/queue", tenant=wanted, limit=MOST), wanted
    except ServerRefusal as exc:
        if exc.status != 403 or tenant is not None:
            raise
        return await api.get("/api/queue", limit=MOST), None
