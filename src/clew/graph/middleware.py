"""Ledger middleware for agents made with LangChain's `create_agent`: existing tools gain it without being rewritten."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.types import Command

from clew.domain.errors import ConfigError
from clew.domain.events import ToolCall
from clew.domain.tool_calls import OnCrash, Settled, Terms
from clew.graph.run import current_run
from clew.graph.stream import storable
from clew.graph.tools import INVALID, LedgerTool, own_ids, settled_message, through_ledger

# What a model wrote where a tool's arguments should be. LangChain's agents handle calls they can carry out only, and
# would leave this one without an answer.
ODD = "clew_odd_arguments"


class ToolLedger(AgentMiddleware[Any, Any]):
    """`create_agent(model, tools, middleware=[ToolLedger(approval=["send_mail"], once=["send_mail"])])`.

    Tools named in `approval` run after a person said yes, within `patience` if given; tools named in `once` are never
    repeated silently after a crash; the call of one named in `interrupted` ends as an error after a crash. A tool that answers with a Command has its message remembered, not its update.
    A name that none of the agent's tools has is refused when the first of them is called: no tool runs past a typo.
    """

    def __init__(
        self,
        *,
        approval: Collection[str] = (),
        once: Collection[str] = (),
        interrupted: Collection[str] = (),
        patience: timedelta | None = None,
    ) -> None:
        super().__init__()
        self._approval = frozenset(approval)
        self._once = frozenset(once)
        self._interrupted = frozenset(interrupted)
        self._patience = patience

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        run = current_run()
        if run is None:
            return await handler(request)
        if left := _unanswered(request.messages):
            request = request.override(messages=_answered(request.messages, await run.fates(left)))
        response = await handler(request)
        used = {
            call["id"]
            for message in request.messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
            if call["id"]
        }
        response.result = [
            _answerable(own_ids(message, used=used, new_id=run.stamp().new_id))
            if isinstance(message, AIMessage)
            else message
            for message in response.result
        ]
        return response

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]],
    ) -> ToolMessage | Command[Any]:
        run = current_run()
        call_id = request.tool_call["id"]
        name = request.tool_call["name"]
        if run is not None and call_id and ODD in request.tool_call["args"]:
            await run.record(ToolCall(call_id=call_id, name=name, args=storable(request.tool_call["args"])))
            await run.finish(call_id, ok=False, error=INVALID)
            return ToolMessage(INVALID, tool_call_id=call_id, name=name, status="error")
        if run is not None:
            self._require_tools(request)
        if run is None or isinstance(request.tool, LedgerTool):
            return await handler(request)
        if not call_id:
            if name in self._named:
                raise ConfigError(f"a call of tool {name!r} has no id, so it cannot be asked about")
            return await handler(request)
        call = ToolCall(
            call_id=call_id,
            name=name,
            args=storable(request.tool_call["args"]),
            idempotent=name not in self._once,
        )
        terms = Terms(
            approval=name in self._approval,
            patience=self._patience,
            on_crash=OnCrash.INTERRUPTED if name in self._interrupted else None,
        )
        if terms.approval:
            # What is shown is what runs. JSON cannot encode some values, and a person was shown a replacement.
            request = request.override(tool_call={**request.tool_call, "args": call.args})
        outcome: ToolMessage | Command[Any] = await through_ledger(run, call, terms, lambda: handler(request))
        return outcome

    @property
    def _named(self) -> frozenset[str]:
        return self._approval | self._once | self._interrupted

    def _require_tools(self, request: ToolCallRequest) -> None:
        there = {tool.name for tool in request.runtime.tools}
        if there and (unknown := sorted(self._named - there)):
            raise ConfigError(
                f"ToolLedger names tools that the agent does not have: {', '.join(unknown)};"
                f" it has {', '.join(sorted(there))}"
            )


def _unanswered(messages: Sequence[AnyMessage]) -> list[str]:
    """The calls that have no result: a round that failed left them in the state."""
    results = {message.tool_call_id for message in messages if isinstance(message, ToolMessage)}
    calls = (
        call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls
    )
    return [call_id for call_id in calls if call_id and call_id not in results]


def _answered(messages: Sequence[AnyMessage], fates: Mapping[str, Settled]) -> list[AnyMessage]:
    """With what became of these calls behind the message that asks for them: no provider takes a call without."""
    whole: list[AnyMessage] = []
    for message in messages:
        whole.append(message)
        if isinstance(message, AIMessage):
            whole += [
                settled_message(call_id, call["name"], fates[call_id])
                for call in message.tool_calls
                if (call_id := call["id"]) and call_id in fates
            ]
    return whole


def _answerable(message: AIMessage) -> AIMessage:
    """With every call among those that are carried out: odd arguments are found there, and answered as such."""
    if not message.invalid_tool_calls:
        return message
    odd = [
        {
            "id": call["id"],
            "name": call["name"] or "unknown",
            "args": {ODD: call["args"]},
            "type": "tool_call",
        }
        for call in message.invalid_tool_calls
    ]
    return message.model_copy(update={"tool_calls": [*message.tool_calls, *odd], "invalid_tool_calls": []})
