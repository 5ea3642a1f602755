"""Tools that go through the ledger: logged before they run, asked about where declared, never silently run twice."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Literal, overload

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import run_in_executor
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt
from pydantic import ConfigDict, ValidationError
from pydantic_core import to_jsonable_python

from clew.domain.errors import ConfigError
from clew.domain.events import ToolCall
from clew.domain.retention import require_seconds
from clew.domain.thread import Executor, Json
from clew.domain.tool_calls import Ask, OnCrash, Settled, Terms
from clew.failpoints import failpoint
from clew.graph.run import current_run
from clew.graph.stream import storable
from clew.ports.run_context import Ledger

CALL = "clew_call"
INVALID = "invalid tool arguments"
# More calls than this in one turn are a model error; the rest are refused with an error result each.
MAX_CALLS = 64


class LedgerTool(StructuredTool):
    """A LangChain tool that any agent or ToolNode can use. Outside of Clew's runner it is a plain tool, unless it needs
    an approval: then it refuses to run."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    terms: Terms = Terms()
    executor: Executor = Executor.SERVER
    idempotent: bool = True
    timeout: float | None = None

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        run = current_run()
        if run is None or not _is_call(input):
            self._require_no_ledger()
            return await super().ainvoke(input, config, **kwargs)
        call = self._call(input)
        # What is shown is what runs. JSON cannot encode some values, and a person was shown a replacement.
        given = {**input, "args": {**input["args"], **call.args}} if self.terms.approval else input

        async def effect() -> Any:
            async with asyncio.timeout(self.timeout):
                if self.coroutine is None:
                    # Not by ainvoke: that would come back to our own invoke, which has no ledger.
                    invoke = partial(StructuredTool.invoke, self)
                    return await run_in_executor(config, invoke, given, config, **kwargs)
                return await StructuredTool.ainvoke(self, given, config, **kwargs)

        return await through_ledger(run, call, self.terms, effect)

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        if current_run() is not None and _is_call(input):
            raise RuntimeError(
                f"tool {self.name!r} runs under Clew: call it with ainvoke, or let an async node do so"
            )
        self._require_no_ledger()
        return super().invoke(input, config, **kwargs)

    def _require_no_ledger(self) -> None:
        """Called by its arguments alone it has no id, so nothing that was promised about it could be kept."""
        if current_run() is None and self.terms.approval:
            raise RuntimeError(
                f"tool {self.name!r} needs an approval, and outside of Clew no person is asked: run the graph on Clew."
                f" A test can call the function itself: {self.name}.{'func' if self.func else 'coroutine'}(...)"
            )
        is_repeated = self.idempotent and self.terms.on_crash in (None, OnCrash.RETRY)
        is_plain = is_repeated and self.executor is Executor.SERVER
        if current_run() is None or (is_plain and not self.terms.approval and not self.terms.needs_user):
            return
        raise RuntimeError(
            f"tool {self.name!r} runs under Clew and needs the whole call, not only its arguments:"
            " await tool.ainvoke(tool_call)"
        )

    def _call(self, call: dict[str, Any]) -> ToolCall:
        # What a ToolNode adds (the state, the store, the runtime) the model did not ask for.
        injected = self._injected_args_keys
        return ToolCall(
            call_id=call["id"],
            name=self.name,
            args=storable({key: value for key, value in call["args"].items() if key not in injected}),
            executor=self.executor,
            idempotent=self.idempotent,
        )


@overload
def tool(function: Callable[..., Any], /) -> LedgerTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = True,
    approval: bool = False,
    executor: str = "server",
    timeout: float | None = None,
    patience: timedelta | None = None,
    needs_user: bool = False,
    on_crash: Literal["retry", "ask", "interrupted"] | None = None,
) -> Callable[[Callable[..., Any]], LedgerTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = True,
    approval: bool = False,
    executor: str = "server",
    timeout: float | None = None,
    patience: timedelta | None = None,
    needs_user: bool = False,
    on_crash: Literal["retry", "ask", "interrupted"] | None = None,
) -> LedgerTool | Callable[[Callable[..., Any]], LedgerTool]:
    """Make a tool of a function, sync or async.

    `idempotent=False`: after a crash in the middle a person is asked, it is never repeated silently.
    `approval=True`: a person sees the exact arguments and says yes before it runs, within `patience` if given.
    `executor`: `server` runs it here; `client` and `human` wait for its result from outside.
    `timeout`: seconds it may take here. `needs_user`: it fails when no user woke the thread.
    `on_crash`: what becomes of a call that a crash cut off. `retry` carries it out again under the same id, `ask` waits
    for a person, `interrupted` ends it as an error and the turn goes on. Left out, `idempotent` decides between the
    first two.
    """
    after_crash = _on_crash(on_crash, idempotent=idempotent, executor=executor)

    require_seconds(timeout, field="timeout")

    def make(function: Callable[..., Any]) -> LedgerTool:
        is_async = asyncio.iscoroutinefunction(function)
        made = LedgerTool.from_function(
            func=None if is_async else function,
            coroutine=function if is_async else None,
            name=name,
            description=description,
        )
        assert isinstance(made, LedgerTool)  # noqa: S101 - from_function makes the class it is called on
        made.terms = Terms(approval=approval, patience=patience, needs_user=needs_user, on_crash=after_crash)
        made.executor = Executor(executor)
        made.idempotent = idempotent
        made.timeout = timeout
        return made

    return make if function is None else make(function)


def _on_crash(given: str | None, *, idempotent: bool, executor: str) -> OnCrash | None:
    if given is None:
        return None
    if given not in set(OnCrash):
        raise ConfigError(f"on_crash: expected one of {', '.join(OnCrash)}, not {given!r}")
    if executor != Executor.SERVER:
        raise ConfigError(
            f"on_crash is for tools that run here: executor={executor!r} has no crash to survive"
        )
    if given == OnCrash.RETRY and not idempotent:
        raise ConfigError("on_crash='retry' repeats a tool that idempotent=False says must not be repeated")
    return OnCrash(given)


async def through_ledger(
    run: Ledger, call: ToolCall, terms: Terms, effect: Callable[[], Awaitable[Any]]
) -> Any:
    """Carry one call out by the rules, or say what became of it before. Stops the graph where an answer is needed first."""
    # LangGraph hands answers out in the order of questions, so what was asked before is asked again here. The answer
    # itself is taken from the log: parallel tools may get each other's.
    for _ in range(run.asked_before(call.call_id)):
        interrupt({CALL: call.call_id})
    verdict = await run.begin(call, terms)
    while isinstance(verdict, Ask):
        interrupt({CALL: call.call_id, **verdict.suspension.prompt})
        verdict = await run.begin(call, terms)
    if isinstance(verdict, Settled):
        return settled_message(call.call_id, call.name, verdict)
    try:
        outcome = await effect()
    except GraphBubbleUp:
        await run.pause(call.call_id)
        raise
    except ValidationError as exc:
        return await _failed(run, call, f"{INVALID}: {_fields(exc)}")
    except TimeoutError:
        return await _failed(run, call, "the tool took too long")
    except Exception as exc:  # noqa: BLE001 - the model gets the error, and decides what to do about it
        return await _failed(run, call, storable(f"{type(exc).__name__}: {exc}"))
    except BaseException:
        run.abandon(call.call_id)
        raise
    failpoint("tool_after_effect")
    answer = _answer(outcome)
    ok = not isinstance(answer, ToolMessage) or answer.status != "error"
    result = storable(answer.content if isinstance(answer, ToolMessage) else answer, str)
    await run.finish(call.call_id, ok=ok, result=result if ok else None, error="" if ok else str(result))
    return (
        outcome
        if isinstance(outcome, ToolMessage | Command)
        else _message(call.call_id, call.name, ok=ok, content=result)
    )


async def act_on(run: Ledger, tools: Sequence[BaseTool], turn: AIMessage) -> list[ToolMessage]:
    """Carry out what a turn of the model asked for. All of it is begun, so that every question is asked at once."""
    by_name = {tool.name: tool for tool in tools}
    outcomes = await asyncio.gather(
        *(_carry_out(run, by_name.get(call["name"]), call) for call in turn.tool_calls[:MAX_CALLS]),
        *(_refuse(run, call, INVALID) for call in turn.invalid_tool_calls),
        *(_refuse(run, call, "too many tool calls") for call in turn.tool_calls[MAX_CALLS:]),
        return_exceptions=True,
    )
    failures = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    # A question to a person stops the graph; anything else that went wrong matters more and is raised first.
    failures.sort(key=lambda failure: isinstance(failure, GraphBubbleUp))
    if failures:
        raise failures[0]
    return [outcome for outcome in outcomes if isinstance(outcome, ToolMessage)]


async def _carry_out(run: Ledger, tool: BaseTool | None, call: Any) -> Any:
    logged = ToolCall(call_id=call["id"], name=call["name"], args=to_jsonable_python(call["args"]))
    if tool is None:
        return await _refuse(run, call, f"there is no tool {call['name']!r}")
    request = {**call, "type": "tool_call"}
    if isinstance(tool, LedgerTool):
        return await tool.ainvoke(request)
    return await through_ledger(run, logged, Terms(), lambda: tool.ainvoke(request))


async def _refuse(run: Ledger, call: Any, error: str) -> ToolMessage:
    logged = ToolCall(call_id=call["id"], name=call["name"] or "", args=to_jsonable_python(call["args"]))
    await run.record(replace(logged, name=logged.name or "unknown"))
    await run.finish(logged.call_id, ok=False, error=error)
    return ToolMessage(error, tool_call_id=logged.call_id, status="error")


def own_ids(message: AIMessage, *, used: Collection[str], new_id: Callable[[], str]) -> AIMessage:
    """The message with an id of its own for every call in it.

    Some models number their calls anew in every turn, or leave the number out. The ledger knows a call by its id,
    and would take the second for the first.
    """
    taken = set(used)
    renamed: dict[str, list[Any]] = {"tool_calls": [], "invalid_tool_calls": []}
    anew: dict[str, str] = {}
    is_fine = True
    for kind, calls in renamed.items():
        for call in getattr(message, kind):
            if not call["id"] or call["id"] in taken:
                is_fine = False
                given = call["id"]
                call = {**call, "id": f"call_{new_id()}"}
                if given:
                    anew[given] = call["id"]
            taken.add(call["id"])
            calls.append(call)
    if is_fine:
        return message
    return message.model_copy(update={**renamed, "content": _renamed(message.content, anew)})


def _renamed(content: Any, anew: Mapping[str, str]) -> Any:
    """Some providers show a call among the parts of the message too, and want it back under the same id."""
    if isinstance(content, str):
        return content
    return [
        {**part, "id": anew[part["id"]]} if isinstance(part, dict) and part.get("id") in anew else part
        for part in content
    ]


def _answer(outcome: Any) -> Any:
    """The result of a tool: itself, or the message in a Command that also changes the state."""
    if isinstance(outcome, Command):
        update = outcome.update if isinstance(outcome.update, dict) else {}
        said = [message for message in update.get("messages", ()) if isinstance(message, ToolMessage)]
        return said[-1] if said else "done"
    return outcome


async def _failed(run: Ledger, call: ToolCall, error: str) -> ToolMessage:
    await run.finish(call.call_id, ok=False, error=error)
    return _message(call.call_id, call.name, ok=False, content=error)


def settled_message(call_id: str, name: str, settled: Settled) -> ToolMessage:
    return _message(call_id, name, ok=settled.ok, content=settled.result if settled.ok else settled.error)


def _message(call_id: str, name: str, *, ok: bool, content: Json) -> ToolMessage:
    text = content if isinstance(content, str | list) else str(content)
    return ToolMessage(content=text, tool_call_id=call_id, name=name, status="success" if ok else "error")


def _fields(exc: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, error['loc'])) or 'value'}: {error['msg']}" for error in exc.errors()
    )


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == "tool_call" and bool(value.get("id"))
