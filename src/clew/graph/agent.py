"""Chat agent: a model and its tools, turn by turn, on a thread's own log.

The model is shown the log, not a list in the graph's state: the checkpoint stays small however long the conversation
grows, and a thread that is revived, moved or pruned remembers all of it.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.constants import TAG_NOSTREAM
from langgraph.errors import GraphBubbleUp
from langgraph.graph import END, START, StateGraph
from pydantic_core import to_jsonable_python

from clew.domain.errors import InvalidState
from clew.domain.events import AssistantMessage, Event, ToolCall
from clew.domain.records import ModelCall
from clew.domain.retry import MAX_ANSWER
from clew.domain.thread import ModelSettings, Thread
from clew.failpoints import failpoint
from clew.graph.context_window import Compaction, ContextBudget, Rendered, Turn, render, unanswered
from clew.graph.run import current_run
from clew.graph.tools import act_on, own_ids
from clew.history.model_settings import settings_of
from clew.ports.run_context import RunContext
from clew.texts.reasoning import without_thoughts

logger = logging.getLogger(__name__)

Inject = Callable[[Thread, Sequence[Event]], Awaitable[str]]
FindTools = Callable[[], Awaitable[Sequence[BaseTool]]]
SumUp = Callable[[Rendered], Awaitable[str]]


class AgentState(TypedDict, total=False):
    last: AIMessage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The options of one chat agent."""

    model: BaseChatModel
    # Also a function that finds them for every turn, such as `clew.mcp_tools`.
    tools: tuple[BaseTool, ...] | FindTools = ()
    system: str = ""
    budget: ContextBudget = field(default_factory=ContextBudget)
    compaction: Compaction = field(default_factory=Compaction)
    # Fetched anew for every turn (retrieval, memory) and shown to the model; never part of the log.
    inject: Inject | None = None
    # Makes the text of a summary; the model itself, when not given.
    sum_up: SumUp | None = None

    @property
    def model_settings(self) -> ModelSettings | None:
        return settings_of(self.model, self.system)

    def graph(self) -> StateGraph[AgentState, None, AgentState, AgentState]:
        graph = StateGraph(AgentState)
        graph.add_node("model", self.ask)
        graph.add_node("tools", self.act)
        graph.add_node("compact", self.compact)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", _next, ["tools", "compact"])
        graph.add_edge("tools", "model")
        graph.add_edge("compact", END)
        return graph

    async def ask(self, state: AgentState) -> AgentState:  # noqa: ARG002 - every node takes the state
        """One model call on what the log says now."""
        run = _run()
        summary, events = await run.transcript()
        injected = await self.inject(run.thread, events) if self.inject else ""
        shown = render(
            events,
            fates=await run.fates(unanswered(events)),
            summary=summary,
            system=self.system,
            injected=injected,
            budget=self.budget,
        )
        failpoint("llm_before")
        known = {event.body.ref for event in events if isinstance(event.body, AssistantMessage)}
        reply = own_ids(
            await self._said(run, shown, known),
            used={event.body.call_id for event in events if isinstance(event.body, ToolCall)},
            new_id=run.stamp().new_id,
        )
        failpoint("llm_after_before_commit")
        return {"last": reply}

    async def act(self, state: AgentState) -> AgentState:
        """Carry out what the model asked for. All of it is begun, so that every question of the turn is asked at once."""
        run = _run()
        last = state.get("last")
        if last is None:
            return {}
        await act_on(run, await self._tools(), last)
        return {}

    async def _tools(self) -> Sequence[BaseTool]:
        return await self.tools() if callable(self.tools) else self.tools

    async def compact(self, state: AgentState) -> AgentState:  # noqa: ARG002 - every node takes the state
        """Summarize the beginning when it has grown long. The log stays as it is; only the next context is shorter."""
        run = _run()
        summary, events = await run.transcript()
        span = self.compaction.span(events)
        if span:
            fates = await run.fates(unanswered(span))
            shown = render(span, fates=fates, summary=summary, system=SUM_UP, budget=self.budget)
            if text := await self._summed_up(run, shown):
                from_seq = summary.from_seq if summary else span[0].seq
                await run.sum_up(from_seq, span[-1].seq, text, version=run.stamp().new_id())
        return {"last": None}

    async def _summed_up(self, run: RunContext, shown: Rendered) -> str:
        """Nothing, where that fails: the round has its answer, and the log is then only read from further back."""
        try:
            return (await (self.sum_up(shown) if self.sum_up else self._summary(run, shown))).strip()
        except GraphBubbleUp:
            raise
        except Exception:
            logger.warning("the log was not summarized", extra={"thread_id": run.thread.id}, exc_info=True)
            return ""

    async def _summary(self, run: RunContext, shown: Rendered) -> str:
        asked = replace(shown, turns=(*shown.turns, Turn(role="user", content=SUM_UP)))
        # Not streamed word by word: it is no part of the conversation.
        whole = await self._streamed(run, self.model.with_config(tags=[TAG_NOSTREAM]), asked)
        return "" if whole is None else without_thoughts(str(whole.text))

    async def _said(self, run: RunContext, shown: Rendered, known: Collection[str]) -> AIMessage:
        """Stream the reply, so that a stop in the middle keeps what was generated by then."""
        tools = await self._tools()
        model: Runnable[Any, Any] = self.model.bind_tools(list(tools)) if tools else self.model
        return _reply(await self._streamed(run, model, shown, run.saying), known, run.stamp().new_id())

    async def _streamed(
        self,
        run: RunContext,
        model: Runnable[Any, Any],
        shown: Rendered,
        tell: Callable[[str], None] | None = None,
    ) -> AIMessageChunk | None:
        """One model call, recorded however it ends."""
        started = time.perf_counter()
        status = "failed"
        whole: AIMessageChunk | None = None
        error = ""
        try:
            async for chunk in model.astream(to_messages(shown.turns)):
                whole = chunk if whole is None else whole + chunk
                if tell is not None:
                    tell(without_thoughts(str(whole.text)))
            status = "ok"
        except asyncio.CancelledError:
            status = "cancelled"
            raise
        except Exception as exc:
            error = str(exc)[:MAX_ANSWER]
            raise
        finally:
            call = _audited(run, shown, self.model, whole, status, started)
            await run.audit(replace(call, error=error))
        return whole


SUM_UP = (
    "Summarize the conversation above for yourself: facts, names, numbers, decisions and open questions that later"
    " turns may need. Plain sentences, nothing else."
)


def to_messages(turns: Sequence[Turn]) -> list[BaseMessage]:
    return [_message(turn) for turn in turns]


def _message(turn: Turn) -> BaseMessage:
    content: Any = turn.content
    match turn.role:
        case "system":
            return SystemMessage(content)
        case "user":
            return HumanMessage(content)
        case "tool":
            return ToolMessage(content, tool_call_id=turn.call_id, status="success" if turn.ok else "error")
        case "assistant":
            calls = [
                {
                    "id": call.call_id,
                    "name": call.name,
                    "args": call.args if isinstance(call.args, dict) else {},
                }
                for call in turn.calls
            ]
            return AIMessage(content, tool_calls=calls)


def _reply(whole: AIMessageChunk | None, known: Collection[str], new_id: str) -> AIMessage:
    """The reply under the id its words were streamed with, unless the model uses that one again and again."""
    if whole is None:
        return AIMessage("", id=new_id)
    return AIMessage(
        content=without_thoughts(whole.content),
        tool_calls=whole.tool_calls,
        invalid_tool_calls=whole.invalid_tool_calls,
        usage_metadata=whole.usage_metadata,
        id=whole.id if whole.id and whole.id not in known else new_id,
    )


def _next(state: AgentState) -> str:
    last = state.get("last")
    return "tools" if last is not None and (last.tool_calls or last.invalid_tool_calls) else "compact"


def _audited(
    run: RunContext,
    shown: Rendered,
    model: BaseChatModel,
    whole: AIMessageChunk | None,
    status: Any,
    started: float,
) -> ModelCall:
    stamp = run.stamp()
    return ModelCall(
        id=stamp.new_id(),
        thread_id=run.thread.id,
        turn_ref=run.thread.last_seq,
        model=str(
            getattr(model, "model_name", None) or getattr(model, "model", None) or model.__class__.__name__
        ),
        rendered_context=to_jsonable_python(shown.turns),
        created_at=stamp.now,
        status=status,
        usage=dict(whole.usage_metadata) if whole is not None and whole.usage_metadata else {},
        latency_ms=int((time.perf_counter() - started) * 1000),
        summary_version=shown.summary_version,
        evictions=list(shown.evictions),
    )


def _run() -> RunContext:
    run = current_run()
    if run is None:
        raise InvalidState("this graph works on a thread's log: it runs under Clew only")
    return run
