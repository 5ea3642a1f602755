"""`clew graphs`, `assistants`, `usage`, `crons` and `store`: what a server has, through the API."""

from typing import Any

from clew.cli.client import Target, only_match, open_api, part
from clew.cli.opening import run
from clew.cli.output import say, say_json, say_table
from clew.cli.running import read_input
from clew.cli.terminal import confirm
from clew.domain.errors import Invalid, NotFound

MOST = 1000


def graphs(*, target: Target, as_json: bool) -> None:
    async def work() -> Any:
        async with open_api(target, creates=True) as api:
            return await api.get("/api/graphs")

    found = run(work())
    if as_json:
        say_json(found)
        return
    say_table(
        ["graph", "", "needs"],
        [
            (one["name"], "default" if one["isDefault"] else "", ", ".join(map(_field, one["fields"])))
            for one in found["graphs"]
        ],
    )


def _field(field: Any) -> str:
    return str(field.get("name", field)) if isinstance(field, dict) else str(field)


def assistants(*, graph: str | None, target: Target, as_json: bool) -> None:
    body = {"limit": MOST, **({} if graph is None else {"graph_id": graph})}

    async def work() -> Any:
        async with open_api(target) as api:
            return await api.post("/assistants/search", body)

    found = run(work())
    if as_json:
        say_json(found)
    elif not found:
        say("No assistants.")
    else:
        rows = [
            (one["assistant_id"], one["graph_id"], one["name"] or "", f"v{one['version']}") for one in found
        ]
        say_table(["id", "graph", "name", "version"], rows, whole=("id",))


def usage(
    *, by: str, since: str | None, until: str | None, thread: str | None, target: Target, as_json: bool
) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            if thread is None:
                return await api.get("/api/usage", by=by, since=since, until=until)
            return await api.get("/api/usage", thread_id=(await api.thread(thread))["id"])

    found = run(work())
    if as_json:
        say_json(found)
        return
    if not found["usage"]:
        say("No model used any tokens.")
        return
    title = "" if thread is not None or by == "model" else by
    rows = [(one["name"] or "(none)", one["model"] or "(not said)", *_numbers(one)) for one in found["usage"]]
    rows.append(("total", "", *_numbers(found)))
    columns = [title, "model", "tokens in", "tokens out", "cost"]
    say_table(
        columns if title else columns[1:],
        rows if title else [(row[1] or row[0], *row[2:]) for row in rows],
        whole=columns[2:],
        short=columns[:2],
    )


def _numbers(one: Any) -> tuple[str, str, str]:
    cost = "" if one["cost"] is None else f"{one['cost']:.4f}"
    return f"{one['tokensIn']:,}", f"{one['tokensOut']:,}", cost


def crons(*, target: Target, as_json: bool) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            return await api.post("/runs/crons/search", {"limit": MOST})

    found = run(work())
    if as_json:
        say_json(found)
    elif not found:
        say("No crons.")
    else:
        rows = [
            (
                one["cron_id"],
                one["schedule"],
                _when(one.get("next_run_date")),
                "" if one.get("enabled", True) else "off",
            )
            for one in found
        ]
        say_table(["id", "schedule", "next", ""], rows, whole=("id",))


def create_cron(
    assistant: str, schedule: str, *, input: str | None, timezone: str | None, target: Target, as_json: bool
) -> None:
    body: dict[str, Any] = {"assistant_id": assistant, "schedule": schedule}
    if input is not None:
        body["input"] = read_input(input)
    if timezone is not None:
        body["timezone"] = timezone

    async def work() -> Any:
        async with open_api(target) as api:
            return await api.post("/runs/crons", body)

    made = run(work())
    if as_json:
        say_json(made)
    else:
        say(f"{made['cron_id']} runs next at {_when(made.get('next_run_date'))}.")


def delete_cron(cron: str, *, yes: bool, target: Target, as_json: bool) -> None:
    async def work() -> str:
        async with open_api(target) as api:
            known = await api.post("/runs/crons/search", {"limit": MOST})
            cron_id = only_match(cron, [one["cron_id"] for one in known])
            confirm(f"Delete the cron {cron_id}?", yes=yes)
            await api.delete(f"/runs/crons/{part(cron_id)}")
            return cron_id

    _deleted(run(work()), as_json=as_json)


def _deleted(id: str, *, as_json: bool) -> None:
    if as_json:
        say_json({"id": id, "status": "deleted"})
    else:
        say(f"{id} is deleted.")


def namespaces(*, target: Target, as_json: bool) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            return await api.post("/store/namespaces", {"limit": MOST})

    found = run(work())
    if as_json:
        say_json(found)
        return
    for labels in found["namespaces"]:
        say(".".join(labels))


def search_items(namespace: str, *, query: str | None, limit: int, target: Target, as_json: bool) -> None:
    body = {
        "namespace_prefix": _labels(namespace),
        "limit": limit,
        **({} if query is None else {"query": query}),
    }

    async def work() -> Any:
        async with open_api(target) as api:
            return await api.post("/store/items/search", body)

    found = run(work())
    if as_json:
        say_json(found)
        return
    for item in found["items"]:
        say(f"{'.'.join(item['namespace'])}  {item['key']}  {item['value']}")


def get_item(namespace: str, key: str, *, target: Target) -> None:
    async def work() -> Any:
        async with open_api(target) as api:
            return await api.get("/store/items", namespace=namespace, key=key)

    item = run(work())
    if item is None:
        raise NotFound(f"no item {key!r} in {namespace!r}")
    say_json(item)


def put_item(namespace: str, key: str, value: str, *, target: Target, as_json: bool) -> None:
    body = {"namespace": _labels(namespace), "key": key, "value": read_input(value)}
    if not isinstance(body["value"], dict):
        raise Invalid("VALUE: expected a JSON object")

    async def work() -> None:
        async with open_api(target, creates=True) as api:
            await api.request("PUT", "/store/items", json=body)

    run(work())
    if as_json:
        say_json({"namespace": body["namespace"], "key": key})
    else:
        say(f"{key} is stored in {namespace}.")


def delete_item(namespace: str, key: str, *, yes: bool, target: Target, as_json: bool) -> None:
    confirm(f"Delete {key} of {namespace}?", yes=yes)

    async def work() -> None:
        async with open_api(target) as api:
            await api.delete("/store/items", {"namespace": _labels(namespace), "key": key})

    run(work())
    if as_json:
        say_json({"namespace": _labels(namespace), "key": key, "status": "deleted"})
    else:
        say(f"{key} of {namespace} is deleted.")


def _labels(namespace: str) -> list[str]:
    return namespace.split(".") if namespace else []


def _when(moment: str | None) -> str:
    return "(never)" if moment is None else moment[:16].replace("T", " ")
