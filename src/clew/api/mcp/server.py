"""MCP server of one request: lists the caller's assistants as tools, and runs the one that is called."""

import logging
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid4

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic_core import from_json, to_json
from starlette.types import Receive, Scope, Send

from clew import __version__
from clew.api.answer_text import APART, AnswerText
from clew.api.credentials import Principal
from clew.api.followed_runs import FollowedRun, FollowedRuns, RunCall, cut_off
from clew.domain.assistants import Assistant, Search
from clew.domain.errors import ClewError, Forbidden, Invalid
from clew.domain.questions import answers_in_words, is_yes_or_no, question_text
from clew.domain.records import StreamPart
from clew.domain.runs import RunStatus
from clew.domain.thread import Json, Status, Thread
from clew.engine.assistants import system_id
from clew.ports.graphs import GraphIntrospection

# The package reports each request; Clew's own log does that.
logging.getLogger("mcp").setLevel(logging.WARNING)

MOST_TOOLS = 1000
# Arguments beside the graph's input.
THREAD, ANSWER = "clew_thread", "clew_answer"
OURS: Mapping[str, Json] = {
    THREAD: {
        "type": "string",
        "format": "uuid",
        "description": "A thread to continue, as an earlier call named it.",
    },
    ANSWER: {"type": "string", "description": "The answer to the question that the thread asks."},
}
MESSAGES = "messages"
# As a model writes them. The graph's own schema lists all fields of all kinds of messages.
SIMPLE_MESSAGES: Mapping[str, Json] = {
    "type": "array",
    "description": "The messages to send.",
    "items": {
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["user", "assistant", "system"]},
            "content": {"type": "string"},
        },
        "required": ["role", "content"],
    },
}
YES_OR_NO = "It needs a yes or a no."
BY_ID = "Answer all of them with one JSON object of answers by these ids."
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


class McpServer:
    def __init__(self, runs: FollowedRuns, introspection: GraphIntrospection, caller: Principal) -> None:
        self._runs = runs
        self._introspection = introspection
        self._caller = caller

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        server: Server[Any] = Server(
            "clew", version=__version__, on_list_tools=self._list, on_call_tool=self._call
        )
        manager = StreamableHTTPSessionManager(server, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    async def _list(
        self,
        _: ServerRequestContext[Any],
        params: PaginatedRequestParams | None,  # noqa: ARG002 - all of them are one page
    ) -> ListToolsResult:
        tools = [await self._tool(name, one) for name, one in (await self._assistants()).items()]
        return ListToolsResult(tools=tools)

    async def _call(
        self, context: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult:
        try:
            return await self._run(context, params.name, dict(params.arguments or {}))
        except ClewError as exc:
            field = f"{exc.field}: " if isinstance(exc, Invalid) and exc.field else ""
            return _failed(f"{field}{exc}")

    async def _run(
        self, context: ServerRequestContext[Any], name: str, given: dict[str, Json]
    ) -> CallToolResult:
        if "write" not in self._caller.scopes:
            raise Forbidden("this needs a key with the scope 'write'")
        assistant = (await self._assistants()).get(name)
        if assistant is None:
            raise Invalid(f"no tool {name!r}")
        thread_id, answer = _thread_id(given.pop(THREAD, None)), given.pop(ANSWER, None)
        call = RunCall(
            assistant=assistant, thread_id=thread_id, modes=("messages-tuple", "updates"), input=given
        )
        if answer is not None:
            thread = await self._runs.thread(thread_id, self._caller.owner)
            if thread is None or thread.status is not Status.BLOCKED:
                raise Invalid("the thread asks nothing", field=ANSWER)
            resume = answers_in_words(thread, str(answer).strip())
            if resume is None:
                return _result(_questions(thread), thread_id)
            call = RunCall(
                assistant=assistant, thread_id=thread_id, modes=call.modes, resumes=True, resume=resume
            )
        followed = await self._runs.start(self._caller, call)
        try:
            return await self._outcome(context, followed, thread_id)
        finally:
            followed.close()
            await cut_off(followed, self._runs.streams)

    async def _outcome(
        self, context: ServerRequestContext[Any], followed: FollowedRun, thread_id: str
    ) -> CallToolResult:
        text = AnswerText()
        steps = 0
        async for part in followed.parts():
            if part is not None:
                text.hear(part)
            for node in _nodes(part):
                steps += 1
                await context.session.report_progress(steps, message=node)
        run = followed.run
        if run.status in (RunStatus.ERROR, RunStatus.TIMEOUT):
            return _failed(run.error or run.reason)
        if run.status is RunStatus.INTERRUPTED:
            return _failed("the run was cancelled")
        thread = await followed.thread()
        if thread.pending:
            said = APART.join(one for one in text.texts.values() if one)
            return _result(APART.join(one for one in (said, _questions(thread)) if one), thread_id)
        output = await followed.output()
        return _result(text.whole(output), thread_id, None if _is_chat(output) else output)

    async def _assistants(self) -> dict[str, Assistant]:
        """The caller's assistants by the names of their tools."""
        wanted = Search(limit=MOST_TOOLS, sort_by="name", descending=False)
        found, _ = await self._runs.assistants.find(self._caller.owner, wanted)
        return {tool_name(one): one for one in found}

    async def _tool(self, name: str, assistant: Assistant) -> Tool:
        schema = (await self._introspection.schemas(assistant, self._caller.owner)).input
        return Tool(
            name=name,
            title=assistant.name,
            description=assistant.description or f"Runs the graph {assistant.graph!r}.",
            input_schema=input_schema(schema),
        )


def tool_name(assistant: Assistant) -> str:
    """The graph's name, or for an assistant that a client created its own name with a part of its id."""
    if assistant.id == system_id(assistant.graph):
        return _NO_NAME.sub("-", assistant.graph)[:128]
    return f"{_NO_NAME.sub('-', assistant.name)[:100]}-{assistant.id[:8]}"


def input_schema(schema: Json) -> dict[str, Json]:
    """The schema of a graph's input with Clew's own arguments."""
    found = dict(schema) if isinstance(schema, dict) else {}
    if isinstance(ref := found.get("$ref"), str):
        found = {**found.get("$defs", {}).get(ref.rpartition("/")[2], {}), "$defs": found.get("$defs", {})}
    fields = dict(found.get("properties") or {})
    if MESSAGES in fields:
        fields[MESSAGES] = SIMPLE_MESSAGES
    shown: dict[str, Json] = {
        "type": "object",
        "properties": {**fields, **OURS},
        # An answer comes without an input.
        "required": [],
    }
    if "#/$defs/" in to_json(fields).decode():
        shown["$defs"] = found.get("$defs", {})
    return shown


def _thread_id(given: Json) -> str:
    if given is None:
        return str(uuid4())
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise Invalid("a thread is named by its id, which is a UUID", field=THREAD) from None


def _nodes(part: StreamPart | None) -> list[str]:
    if part is None or part.name != "updates":
        return []
    return [name for name in from_json(part.data) if not name.startswith("__")]


def _is_chat(output: Json) -> bool:
    return isinstance(output, dict) and isinstance(output.get(MESSAGES), list)


def _questions(thread: Thread) -> str:
    """What the thread asks, and how a model passes the answer on."""
    asked = [*thread.pending.items()]
    lines = [
        question_text(pending.prompt) if len(asked) == 1 else f"{call_id}: {question_text(pending.prompt)}"
        for call_id, pending in asked
    ]
    if len(asked) > 1:
        lines.append(BY_ID)
    elif is_yes_or_no(*asked[0]):
        lines.append(YES_OR_NO)
    how = f'Ask the user, then call this tool again with {THREAD} "{thread.id}" and the answer as {ANSWER}.'
    return APART.join(["The run waits for an answer.", *lines, how])


def _result(text: str, thread_id: str, values: Json = None) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=values if isinstance(values, dict) else None,
        _meta={THREAD: thread_id},
    )


def _failed(message: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=message)], is_error=True)
