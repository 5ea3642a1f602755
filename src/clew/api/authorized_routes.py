"""Authorization of routes: which actions of LangGraph's a request comes to, and the values handlers get for them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from clew.api.access import RouteRule
from clew.api.authorization import METADATA, THREADS, AskedRequest, AuthorizationCheck, as_id
from clew.domain.errors import Forbidden, Invalid
from clew.domain.thread import Json
from clew.ports.authorization import AllOf, Equals, MetadataFilter

# What of a run's body LangGraph hands to handlers as `kwargs`.
_KWARGS: Final = (
    *("input", "command", "config", "context", "checkpoint", "webhook", "stream_mode", "interrupt_before"),
    *("interrupt_after", "stream_subgraphs", "on_disconnect", "on_completion", "durability"),
)


def checks_of(rule: RouteRule, asked: AskedRequest) -> list[AuthorizationCheck]:
    """The questions of a route, by its name; of one that is not listed, by the thread in its path."""
    name = rule.context.name or ""
    if make := _ROUTES.get(name):
        return list(make(asked))
    if asked.thread_id is not None:
        is_whole = rule.path.endswith(tuple(f"{{{one}}}" for one in THREADS))
        deletes = is_whole and asked.scope.get("method") == "DELETE"
        action = "read" if rule.access.scope == "read" else "delete" if deletes else "update"
        return [_thread(asked, action)]
    if rule.path.startswith("/store"):
        raise Forbidden("no authorization handler is asked about this route")
    return []


def _thread(asked: AskedRequest, action: str, **more: Any) -> AuthorizationCheck:
    run = {"run_id": as_id(asked.params["run_id"])} if "run_id" in asked.params else {}
    return AuthorizationCheck(
        resource="threads", action=action, value={"thread_id": asked.thread_id, **run, **more}
    )


def _metadata(asked: AskedRequest, body: dict[str, Any], *names: str) -> Callable[..., None]:
    """Writes the metadata and these other fields back, as the handlers left them."""

    def write_back(value: dict[str, Any], _: MetadataFilter) -> None:
        for name in (METADATA, *names):
            # What the body has of another kind is for the route to refuse.
            if (
                isinstance(value.get(name), dict)
                and isinstance(body.get(name) or {}, dict)
                and (value[name] or name in body)
            ):
                asked.change(body, name, value[name])

    return write_back


def _object(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _creates_thread(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    value = {
        "thread_id": as_id(body.get("thread_id")),
        "metadata": _object(body, METADATA),
        "if_exists": body.get("if_exists") or "raise",
    }
    yield AuthorizationCheck(
        resource="threads", action="create", value=value, write_back=_metadata(asked, body), opens=True
    )


def _searches_threads(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    value = {
        "metadata": _object(body, METADATA),
        "values": _object(body, "values"),
        "status": body.get("status"),
        "limit": body.get("limit", 10),
        "offset": body.get("offset", 0),
        "ids": body.get("ids"),
    }
    yield AuthorizationCheck(resource="threads", action="search", value=value)


def _updates_thread(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    check = _thread(asked, "update", metadata=_object(body, METADATA))
    check.write_back = _metadata(asked, body)
    yield check


def _updates_state(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    yield _thread(asked, "read")
    yield _thread(asked, "update")


def _copies_thread(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    yield _thread(asked, "read")
    yield AuthorizationCheck(resource="threads", action="create", value={"metadata": {}}, is_new=True)


def _prunes_threads(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    ids = asked.body.get("thread_ids")
    value = {"thread_ids": [as_id(one) for one in ids] if isinstance(ids, list) else []}
    yield AuthorizationCheck(resource="threads", action="delete", value=value)


def _lists_runs(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    yield _thread(asked, "read")
    yield _thread(asked, "search", metadata={})


def _cancels_runs(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    value = {
        "thread_id": as_id(asked.thread_id or body.get("thread_id")),
        "action": asked.query.get("action", "interrupt"),
        "metadata": {"run_ids": body.get("run_ids"), "status": body.get("status")},
    }
    yield AuthorizationCheck(resource="threads", action="update", value=value)


def _run(asked: AskedRequest, given: dict[str, Any], *, opens: bool) -> AuthorizationCheck:
    kwargs = {name: given[name] for name in _KWARGS if name in given}
    value = {
        "thread_id": asked.thread_id,
        "assistant_id": as_id(given.get("assistant_id")),
        "run_id": None,
        "status": "pending",
        "metadata": _object(given, METADATA),
        "prevent_insert_if_inflight": given.get("multitask_strategy") == "reject",
        "multitask_strategy": given.get("multitask_strategy") or "enqueue",
        "if_not_exists": given.get("if_not_exists") or "reject",
        "after_seconds": given.get("after_seconds") or 0,
        "kwargs": kwargs,
    }
    metadata = _metadata(asked, given)

    def write_back(value: dict[str, Any], found: MetadataFilter) -> None:
        metadata(value, found)
        for name, changed in value["kwargs"].items() if isinstance(value.get("kwargs"), dict) else ():
            if name in _KWARGS:
                asked.change(given, name, changed)

    return AuthorizationCheck(
        resource="threads", action="create_run", value=value, write_back=write_back, opens=opens
    )


def _creates_run(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    yield _run(asked, asked.body, opens=True)
    yield _assistant_of(asked.body)


def _creates_runs(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    for body in asked.bodies:
        yield _run(asked, body, opens=False)
        yield _assistant_of(body)


def _goes_on(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    """A native route that starts a round, or answers what a thread asks: a run in LangGraph's terms."""
    yield _thread(asked, "create_run", metadata={}, kwargs={})


def _starts(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    thread_id = as_id(asked.query.get("id"))
    if thread_id is None:
        yield AuthorizationCheck(resource="threads", action="create", value={"metadata": {}}, opens=True)
    value = {"thread_id": thread_id, "metadata": {}, "kwargs": {}}
    yield AuthorizationCheck(resource="threads", action="create_run", value=value, opens=thread_id is None)


def _begins_all(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    value: dict[str, Any] = {
        "thread_id": None,
        "thread_ids": asked.body.get("ids"),
        "metadata": {},
        "kwargs": {},
    }
    yield AuthorizationCheck(resource="threads", action="create_run", value=value)


def _completes(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    value: dict[str, Any] = {
        "thread_id": None,
        "assistant_id": asked.body.get("model"),
        "metadata": {},
        "kwargs": {},
    }
    yield AuthorizationCheck(resource="threads", action="create_run", value=value, opens=True)
    yield _assistant_of({"assistant_id": asked.body.get("model")})


def _runs_agent(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    """A run of AG-UI's clients, who send the thread in the body."""
    assistant = {"assistant_id": asked.params.get("assistant")}
    value = {"thread_id": as_id(asked.body.get("threadId")), **assistant, "metadata": {}, "kwargs": {}}
    yield AuthorizationCheck(resource="threads", action="create_run", value=value, opens=True)
    yield _assistant_of(assistant)


def _calls_tool(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    if asked.body.get("method") == "tools/call":
        arguments = _object(_object(asked.body, "params"), "arguments")
        value = {"thread_id": as_id(arguments.get("thread_id")), "metadata": {}, "kwargs": {}}
        yield AuthorizationCheck(resource="threads", action="create_run", value=value, opens=True)
    if asked.body.get("method") in ("tools/list", "tools/call"):
        yield AuthorizationCheck(
            resource="assistants", action="search", value={"metadata": {}, "limit": 100, "offset": 0}
        )


def _commands(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    """A command of the thread protocol."""
    params = asked.body.get("params")
    params = params if isinstance(params, dict) else {}
    match asked.body.get("method"):
        case "run.start":
            yield _run(asked, params, opens=True)
            yield _assistant_of(params)
        case "input.respond":
            yield _run(asked, params, opens=False)
        case _:
            yield _thread(asked, "read")


def _assistant_of(body: Mapping[str, Any]) -> AuthorizationCheck:
    """The assistant of a run. One that a graph brings along needs no permission, so that a refusal only hides others."""
    value = {"assistant_id": as_id(body.get("assistant_id"))}
    return AuthorizationCheck(resource="assistants", action="read", value=value, hides=True)


def _reads_model(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    value = {"assistant_id": as_id(asked.params.get("model"))}
    yield AuthorizationCheck(resource="assistants", action="read", value=value)


def _assistant(action: str) -> Callable[[AskedRequest], Iterator[AuthorizationCheck]]:
    def make(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
        body = asked.body
        value: dict[str, Any] = {
            "assistant_id": as_id(asked.params.get("assistant_id") or body.get("assistant_id"))
        }
        write_back = None
        if action in ("create", "update"):
            value |= {name: body.get(name) for name in ("graph_id", "name", "description", "version")}
            value |= {name: _object(body, name) for name in ("config", "context", METADATA)}
            write_back = _metadata(asked, body, "config", "context")
        yield AuthorizationCheck(resource="assistants", action=action, value=value, write_back=write_back)
        if action == "delete" and "delete_threads" in asked.query:
            yield AuthorizationCheck(resource="threads", action="delete", hides=True)

    return make


def _searches_assistants(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    value = {
        "graph_id": body.get("graph_id"),
        "metadata": _object(body, METADATA),
        "limit": body.get("limit", 10),
        "offset": body.get("offset", 0),
    }
    yield AuthorizationCheck(resource="assistants", action="search", value=value)


def _cron(action: str) -> Callable[[AskedRequest], Iterator[AuthorizationCheck]]:
    def make(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
        body = asked.body
        value: dict[str, Any] = {"cron_id": as_id(asked.params.get("cron_id"))}
        write_back = None
        if action in ("create", "update"):
            value |= {name: body.get(name) for name in ("schedule", "end_time")}
            value |= {"payload": dict(body), "thread_id": asked.thread_id, METADATA: _object(body, METADATA)}
            write_back = _metadata(asked, body)
        yield AuthorizationCheck(resource="crons", action=action, value=value, write_back=write_back)
        if action == "create":
            yield _assistant_of(body)
            if asked.thread_id is not None:
                yield _thread(asked, "read")

    return make


def _searches_crons(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    value = {
        "assistant_id": as_id(body.get("assistant_id")),
        "thread_id": as_id(body.get("thread_id")),
        "limit": body.get("limit", 10),
        "offset": body.get("offset", 0),
        "metadata": _object(body, METADATA),
    }
    yield AuthorizationCheck(resource="crons", action="search", value=value)
    # Of crons that belong to a thread those whose thread the caller may see.
    yield AuthorizationCheck(resource="threads", action="search", hides=True)


def _item(action: str, *fields: str) -> Callable[[AskedRequest], Iterator[AuthorizationCheck]]:
    def make(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
        body = asked.body
        names = body.get("namespace")
        value = {
            "namespace": tuple(names) if isinstance(names, list) else (),
            **{name: body.get(name) for name in fields},
        }

        def write_back(value: dict[str, Any], _: MetadataFilter) -> None:
            if isinstance(names, list):
                asked.change(body, "namespace", list(value["namespace"]))
            for name in fields:
                if name in body or value.get(name) is not None:
                    asked.change(body, name, value.get(name))

        yield AuthorizationCheck(resource="store", action=action, value=value, write_back=write_back)

    return make


def _gets_item(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    query = asked.query
    value = {
        "namespace": tuple(query.get("namespace", "").split(".")),
        "key": query.get("key"),
        "refresh_ttl": query.get("refresh_ttl"),
    }

    def write_back(value: dict[str, Any], _: MetadataFilter) -> None:
        if any("." in str(label) for label in value["namespace"]):
            raise Invalid("a label of a namespace has no period", field="namespace")
        told = {**query, "namespace": ".".join(map(str, value["namespace"])), "key": value["key"]}
        given = {name: str(one) for name, one in told.items() if one is not None}
        asked.scope["query_string"] = urlencode(given).encode()

    yield AuthorizationCheck(resource="store", action="get", value=value, write_back=write_back)


def _searches_items(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    prefix = body.get("namespace_prefix")
    names = ("filter", "limit", "offset", "query", "refresh_ttl")
    value = {
        "namespace": tuple(prefix) if isinstance(prefix, list) else (),
        **{name: body.get(name) for name in names},
    }

    def write_back(value: dict[str, Any], found: MetadataFilter) -> None:
        asked.change(body, "namespace_prefix", list(value["namespace"] or ()))
        for name in names:
            if name in body or value.get(name) is not None:
                asked.change(body, name, value.get(name))
        if wanted := _values(found):
            asked.change(body, "filter", {**_object(body, "filter"), **wanted})

    yield AuthorizationCheck(resource="store", action="search", value=value, write_back=write_back)


def _values(found: MetadataFilter) -> dict[str, Json]:
    """A handler's filter as one on items. Raises Forbidden for what the store cannot be asked."""
    match found:
        case Equals(name, value):
            return {name: value}
        case AllOf(parts):
            return {name: value for part in parts for name, value in _values(part).items()}
        case _:
            raise Forbidden("the authorization handler's filter cannot be applied to store items")


def _lists_namespaces(asked: AskedRequest) -> Iterator[AuthorizationCheck]:
    body = asked.body
    prefix, suffix = body.get("prefix"), body.get("suffix")
    value = {
        "namespace": tuple(prefix) if isinstance(prefix, list) else None,
        "suffix": tuple(suffix) if isinstance(suffix, list) else None,
        **{name: body.get(name) for name in ("max_depth", "limit", "offset")},
    }

    def write_back(value: dict[str, Any], _: MetadataFilter) -> None:
        for name, key in (("namespace", "prefix"), ("suffix", "suffix")):
            if value.get(name) is not None:
                asked.change(body, key, list(value[name]))
        for name in ("max_depth", "limit", "offset"):
            if value.get(name) is not None:
                asked.change(body, name, value[name])

    yield AuthorizationCheck(resource="store", action="list_namespaces", value=value, write_back=write_back)


# By the name of the route's function. What is not here is asked about by the thread in its path; see `checks_of`.
_ROUTES: Mapping[str, Callable[[AskedRequest], Iterator[AuthorizationCheck]]] = {
    "create_thread": _creates_thread,
    **dict.fromkeys(("search_threads", "count_threads", "list_threads", "list_workflows"), _searches_threads),
    **dict.fromkeys(
        ("search_messages", "thread_counts", "thread_usage", "token_usage", "deleted_threads"),
        _searches_threads,
    ),
    "patch_thread": _updates_thread,
    "update_thread_state": _updates_state,
    "copy_thread": _copies_thread,
    "prune_threads": _prunes_threads,
    "list_runs": _lists_runs,
    **dict.fromkeys(("cancel_run", "cancel_runs"), _cancels_runs),
    "delete_run": lambda asked: iter([_thread(asked, "delete")]),
    **dict.fromkeys(("create_run", "wait_run", "stream_run"), _creates_run),
    **dict.fromkeys(("create_stateless_run", "wait_stateless_run", "stream_stateless_run"), _creates_run),
    "create_runs": _creates_runs,
    **dict.fromkeys(("start_workflow", "start_optimization"), _starts),
    "begin_workflows": _begins_all,
    **dict.fromkeys(("begin_workflow", "resume_workflow", "resolve_tool_call", "answer_question"), _goes_on),
    **dict.fromkeys(("approve", "reject", "approve_unprefixed", "reject_unprefixed"), _goes_on),
    "create_completion": _completes,
    "thread_command": _commands,
    "handle_mcp": _calls_tool,
    "run_agent": _runs_agent,
    **dict.fromkeys(("list_models", "search_assistants", "count_assistants"), _searches_assistants),
    "get_model": _reads_model,
    "create_assistant": _assistant("create"),
    **dict.fromkeys(("get_assistant", "list_versions", "draw_graph", "get_schemas"), _assistant("read")),
    **dict.fromkeys(("get_subgraphs", "get_subgraph"), _assistant("read")),
    **dict.fromkeys(("update_assistant", "set_latest"), _assistant("update")),
    "delete_assistant": _assistant("delete"),
    **dict.fromkeys(("create_cron", "create_thread_cron"), _cron("create")),
    **dict.fromkeys(("search_crons", "count_crons"), _searches_crons),
    "get_cron": _cron("read"),
    "update_cron": _cron("update"),
    "delete_cron": _cron("delete"),
    "put_item": _item("put", "key", "value", "index", "ttl"),
    "get_item": _gets_item,
    "delete_item": _item("delete", "key"),
    "search_items": _searches_items,
    "list_namespaces": _lists_namespaces,
}
