"""The ledger for agents made with LangChain's `create_agent`: existing tools gain it without being rewritten."""

from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AIMessage, ToolMessage
from langgraph.types import Command

from clew.domain.events import ToolCall
from clew.domain.ledger import Terms
from clew.graph.run import current_run
from clew.graph.stream import storable
from clew.graph.tools import LedgerTool, own_ids, through_ledger


class ToolLedger(AgentMiddleware[Any, Any]):
    """`create_agent(model, tools, middleware=[ToolLedger(approval=["send_mail"], once=["send_mail"])])`.

    Tools named in `approval` run after a person said yes, within `patience` if given; tools named in `once` are never
    repeated silently after a crash. A tool that answers with a Command has its message remembered, not its update.
    """

    def __init__(
        self,
        *,
        approval: Collection[str] = (),
        once: Collection[str] = (),
        patience: timedelta | None = None,
    ) -> None:
        super().__init__()
        self._approval = frozenset(approval)
        self._once = frozenset(once)
        self._patience = patience

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        response = await handler(request)
        run = current_run()
        if run is None:
            return response
        used = {
            call["id"]
            for message in request.messages
            if isinstance(message, AIMessage)
            for call in message.tool_calls
            if call["id"]
        }
        response.result = [
            own_ids(message, used=used, new_id=run.stamp().new_id)
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
        if run is None or not call_id or isinstance(request.tool, LedgerTool):
            return await handler(request)
        name = request.tool_call["name"]
        call = ToolCall(
            call_id=call_id,
            name=name,
            args=storable(request.tool_call["args"]),
            idempotent=name not in self._once,
        )
        terms = Terms(approval=name in self._approval, patience=self._patience)
        outcome: ToolMessage | Command[Any] = await through_ledger(run, call, terms, lambda: handler(request))
        return outcome
