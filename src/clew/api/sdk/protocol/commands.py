"""Commands of the thread protocol: start a run, answer its questions, show its graphs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import ValidationError

from clew.api.credentials import Principal
from clew.api.sdk.protocol.events import RunEvents
from clew.api.sdk.run_schemas import RunIn
from clew.api.sdk.runs import RunRoutes
from clew.api.thread_access import ThreadAccess
from clew.domain.errors import ClewError, Contradictory, Forbidden, Invalid, InvalidState, NotFound
from clew.domain.thread import Json, Status, Thread
from clew.domain.tool_calls import GATE
from clew.engine.runs import Runs
from clew.engine.stream_parts import PARTS
from clew.ports.streams import StreamParts

# A question is streamed shortly before it is in the log: an answer waits for that so long.
SETTLE_SECONDS = 5.0
# A greater number than any part has.
NEWEST = 2**62
STARTS = frozenset(
    {
        *("assistant_id", "input", "config", "context", "metadata", "langsmith_tracer"),
        *("multitaskStrategy", "multitask_strategy"),
    }
)
RESPONDS = frozenset(
    {"namespace", "interrupt_id", "response", "responses", "update", "goto", "config", "metadata"}
)

Answer = dict[str, Any]


class Refusal(Exception):
    """A command cannot be carried out, for a reason that the protocol has a code for."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ProtocolCommands:
    """Carries out commands for a caller. What is wrong with one is answered in the protocol's form."""

    def __init__(self, runs: Runs, routes: RunRoutes, parts: StreamParts, access: ThreadAccess) -> None:
        self._runs = runs
        self._routes = routes
        self._parts = parts
        self._access = access
        self._methods: Mapping[str, Callable[[Principal, str, Mapping[str, Any]], Awaitable[Json]]] = {
            "run.start": self._start,
            "input.respond": self._respond,
            "agent.getTree": self._tree,
        }

    async def carry_out(self, caller: Principal, thread_id: str, command: Mapping[str, Any]) -> Answer:
        command_id, method = command["id"], command["method"]
        carry_out = self._methods.get(method)
        if carry_out is None:
            return error(command_id, "unknown_command", f"Unknown protocol command: {method[:80]}")
        try:
            result = await carry_out(caller, thread_id, command.get("params") or {})
        except Refusal as exc:
            return error(command_id, exc.code, str(exc))
        except ClewError as exc:
            return error(command_id, code_of(exc), str(exc))
        return success(command_id, result)

    async def _start(self, caller: Principal, thread_id: str, params: Mapping[str, Any]) -> Json:
        caller.require("write")
        _require_known(params, STARTS)
        asked = {
            name: params.get(name)
            for name in ("assistant_id", "input", "config", "context", "metadata", "langsmith_tracer")
        }
        asked["multitask_strategy"] = params.get("multitaskStrategy") or params.get("multitask_strategy")
        configurable = (params.get("config") or {}).get("configurable") if _is_config(params) else None
        if isinstance(configurable, dict):
            asked["checkpoint_id"] = configurable.get("checkpoint_id")
        if asked["input"] is not None and await self._is_asked(caller, thread_id):
            # The protocol's words for the input: graph input, or resume value.
            asked |= {"command": {"resume": asked["input"]}, "input": None}
        run = await self._routes.start(caller, thread_id, _body(asked), is_protocol=True)
        return {"run_id": run.id}

    async def _respond(self, caller: Principal, thread_id: str, params: Mapping[str, Any]) -> Json:
        caller.require("approve")
        _require_known(params, RESPONDS)
        answers = answers_of(params)
        thread = await self._settled(caller, thread_id, answers)
        for interrupt_id in answers:
            if interrupt_id not in thread.pending:
                raise Refusal(
                    "no_such_interrupt", f"Unknown or already-consumed interrupt: {interrupt_id[:80]}"
                )
        known = (await self._runs.metadata.of((thread.id,)))[thread.id]
        command = {"resume": answers, "update": params.get("update"), "goto": params.get("goto")}
        asked = {
            "assistant_id": known.get("assistant_id") or thread.graph,
            "command": {name: value for name, value in command.items() if value is not None},
            "config": params.get("config"),
            "metadata": params.get("metadata"),
        }
        run = await self._routes.start(caller, thread.id, _body(asked), is_protocol=True)
        return {"run_id": run.id}

    async def _tree(self, caller: Principal, thread_id: str, params: Mapping[str, Any]) -> Json:
        """From the parts of the newest run that has any."""
        caller.require("read")
        _require_known(params, frozenset({"namespace"}))
        thread = await self._access.at(thread_id, caller.owner)
        newest = await self._parts.newest(thread.id, NEWEST)
        if newest is None or not newest.run_id:
            raise Refusal("no_such_run", "No run of this thread has events that are kept.")
        run = await self._runs.get(thread, newest.run_id)
        events = RunEvents(run)
        with self._parts.follow(thread.id, run.id, after=0) as reader:
            events.begin(newest.number // PARTS * PARTS)
            while (part := await reader.next(0)) is not None:
                events.feed(part)
        if run.status.is_over:
            events.end(run, newest.number + 1)
        return {"tree": events.tree()}

    async def _is_asked(self, caller: Principal, thread_id: str) -> bool:
        try:
            thread = await self._access.at(thread_id, caller.owner)
        except NotFound:
            return False
        return any(not call_id.startswith(GATE) for call_id in thread.pending)

    async def _settled(self, caller: Principal, thread_id: str, answers: Mapping[str, Json]) -> Thread:
        """The thread once it waits for these answers, or has come to rest without asking."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_SECONDS
        thread = await self._access.at(thread_id, caller.owner)
        with self._runs.notifier.subscribe(thread.id, for_rest=True) as subscription:
            while not answers.keys() <= thread.pending.keys() and loop.time() < deadline:
                thread = await self._runs.store.get(thread.id, caller.owner)
                if thread.status is not Status.RUNNING:
                    break
                await subscription.wait(0.5)
        return await self._runs.store.get(thread.id, caller.owner)


def success(command_id: Any, result: Json) -> Answer:
    return {"type": "success", "id": command_id, "result": result, "meta": {"applied_through_seq": 0}}


def error(command_id: Any, code: str, message: str, **more: Json) -> Answer:
    return {"type": "error", "id": command_id, "error": code, "message": message, **more}


def code_of(exc: ClewError) -> str:
    match exc:
        case Invalid() | Contradictory() | NotFound():
            return "invalid_argument"
        case Forbidden():
            return "permission_denied"
        case InvalidState():
            return "no_such_interrupt" if "waits for no answer" in str(exc) else "unknown_error"
        case _:
            return "unknown_error"


def is_command(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("id"), int)
        and not isinstance(message["id"], bool)
        and isinstance(message.get("method"), str)
        and isinstance(message.get("params"), dict | None)
    )


def answers_of(params: Mapping[str, Any]) -> dict[str, Json]:
    """By the ids of the questions. Raises Refusal."""
    entries = params.get("responses", [params])
    if not isinstance(entries, list) or not entries:
        raise Refusal("invalid_argument", "input.respond requires at least one response.")
    answers: dict[str, Json] = {}
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("interrupt_id"), str):
            raise Refusal("invalid_argument", "input.respond requires an interrupt_id.")
        namespace = entry.get("namespace", [])
        if not isinstance(namespace, list) or not all(isinstance(segment, str) for segment in namespace):
            raise Refusal("invalid_argument", "input.respond requires namespace to be a list of strings.")
        answers[entry["interrupt_id"]] = entry.get("response")
    return answers


def _body(asked: Mapping[str, Any]) -> RunIn:
    try:
        return RunIn.model_validate({**asked, "if_not_exists": "create"})
    except ValidationError as exc:
        wrong = exc.errors()[0]
        place = ".".join(str(each) for each in wrong["loc"])
        raise Refusal("invalid_argument", f"{place}: {wrong['msg']}") from exc


def _is_config(params: Mapping[str, Any]) -> bool:
    return isinstance(params.get("config"), dict)


def _require_known(params: Mapping[str, Any], known: frozenset[str]) -> None:
    if unknown := sorted(name for name in params.keys() - known if params[name] is not None):
        raise Refusal("not_supported", f"{unknown[0][:80]!r} is not supported here")
