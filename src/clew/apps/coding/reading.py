"""Code reading: a model over HTTP looks at a worktree with tools before it answers. The tools change nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool

from clew.apps.coding.ports import Worktree
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply, ToolUse
from clew.domain.errors import Permanent
from clew.domain.retry import ErrorClass

# Turns of the model in one inquiry, and what one result may hold.
MAX_TURNS = 30
_MOST_FILES = 500
_MOST_LINES = 400
_MOST_HITS = 100
_LINE = 400
_CHARACTERS = 30_000


async def consult(driver: Driver, worktree: Worktree, inquiry: Inquiry) -> Reply:
    """The answer to an inquiry, by a model that may read the worktree first, if it can use tools."""
    if not driver.can(Purpose.USE):
        return await driver.ask(inquiry)
    tools = code_tools(worktree)
    turns: list[BaseMessage] = []
    for number in range(MAX_TURNS):
        asked = replace(
            inquiry,
            purpose=Purpose.USE,
            facts={**inquiry.facts, "turns left": MAX_TURNS - number},
            tool_use=ToolUse(tools=tuple(tools), turns=tuple(turns)),
        )
        try:
            reply = await driver.ask(asked)
        except Permanent as exc:
            if number == 0 and _is_about_tools(exc):  # a server that has none for this model
                return await driver.ask(inquiry)
            raise
        turn = reply.message
        if turn is None or not (turn.tool_calls or turn.invalid_tool_calls):
            return reply
        turns += [turn, *await _results(tools, turn)]
    raise Permanent(f"no answer after {MAX_TURNS} turns with tools", ErrorClass.VALIDATION)


def code_tools(worktree: Worktree) -> Sequence[BaseTool]:
    """List, search and read what git lists in the worktree: nothing that it ignores, and nothing outside."""

    @tool
    async def list_files(pattern: str = "*") -> str:
        """List the files whose path matches a pattern such as src/*.py; a * also matches slashes."""
        found = [path for path in await worktree.files() if fnmatch(path, pattern)]
        more = len(found) - _MOST_FILES
        return "\n".join(
            [*found[:_MOST_FILES], *([f"({more} more)"] if more > 0 else [])] or ["no file matches"]
        )

    @tool
    async def search_code(text: str, pattern: str = "*") -> str:
        """Find the lines that contain a text, in any case, in the files whose path matches a pattern."""
        hits: list[str] = []
        for path in await worktree.files():
            if fnmatch(path, pattern) and len(hits) <= _MOST_HITS:
                content = await worktree.read(path)
                hits += await asyncio.to_thread(_hits, path, content or "", text.casefold())
        more = ["(more lines were found: search for a longer text)"] if len(hits) > _MOST_HITS else []
        return "\n".join([*hits[:_MOST_HITS], *more] or ["no line has this text"])

    @tool
    async def read_file(path: str, first_line: int = 1, lines: int = _MOST_LINES) -> str:
        """Read a file, or some lines of it, at most 400 at a time. Lines are numbered from 1."""
        content = await worktree.read(path) if path in await worktree.files() else None
        if content is None:
            raise ToolException(f"{path} is no text file that git lists here")
        return _excerpt(content, first_line, lines)

    made: list[Any] = [list_files, search_code, read_file]
    for one in made:
        one.handle_tool_error = True
        one.handle_validation_error = True
    return made


async def _results(tools: Sequence[BaseTool], turn: AIMessage) -> list[ToolMessage]:
    known = {one.name: one for one in tools}
    results = []
    for call in turn.tool_calls:
        named = known.get(call["name"])
        said = (
            f"there is no tool {call['name']!r}" if named is None else str(await named.ainvoke(call["args"]))
        )
        results.append(ToolMessage(said[:_CHARACTERS], tool_call_id=call["id"] or "", name=call["name"]))
    results += [
        ToolMessage(
            "the arguments are no JSON object", tool_call_id=call["id"] or "", name=call["name"] or ""
        )
        for call in turn.invalid_tool_calls
    ]
    return results


def _hits(path: str, content: str, text: str) -> list[str]:
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if text and text in line.casefold():
            found.append(f"{path}:{number}: {line.strip()[:_LINE]}")
            if len(found) > _MOST_HITS:
                break
    return found


def _excerpt(content: str, first: int, count: int) -> str:
    every = content.splitlines()
    start = max(1, first)
    shown = every[start - 1 : start - 1 + max(1, min(count, _MOST_LINES))]
    end = start + len(shown) - 1
    numbered = "\n".join(f"{start + at}: {line}" for at, line in enumerate(shown))[:_CHARACTERS]
    return f"{numbered}\n(lines {start} to {end} of {len(every)})"


def _is_about_tools(exc: Permanent) -> bool:
    return (
        exc.error_class == ErrorClass.VALIDATION
        and exc.answered is not None
        and "tool" in exc.answered.text.casefold()
    )
