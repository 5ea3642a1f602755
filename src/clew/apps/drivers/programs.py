"""Programs of the CLI driver: their arguments, and what the lines they write mean. Claude Code, Codex CLI, Gemini CLI."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from clew.domain.thread import Json

_SHOWN = 160


@dataclass(slots=True)
class Heard:
    """What a program has said so far."""

    session: str = ""
    text: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    # Whether it said that its work is done.
    is_done: bool = False
    # What it gave as the reason of its failure.
    failure: str = ""
    # What it is doing, newest last; emptied by the reader.
    doings: list[str] = field(default_factory=list)

    def count(self, usage: Json) -> None:
        self.tokens_in, self.tokens_out = _tokens(usage)


class Program(Protocol):
    """One program. It reads the prompt on its stdin, and writes a JSON object a line."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Files of a folder that would make it start other programs, and which no option turns off."""
        ...

    def arguments(self, *, edits: bool, model: str, session: str) -> list[str]:
        """`session` is one of its own to go on with; empty for a new one."""
        ...

    def hear(self, line: Mapping[str, Json], heard: Heard) -> None:
        """One line of its output. A line of an unknown kind is skipped."""
        ...


class ClaudeCode:
    # `--setting-sources user` and `--strict-mcp-config` keep the folder's settings out.
    settings: tuple[str, ...] = ()

    def arguments(self, *, edits: bool, model: str, session: str) -> list[str]:
        mode = (
            ["--permission-mode", "acceptEdits"]
            if edits
            else ["--permission-mode", "default", "--disallowedTools", "Edit,Write,NotebookEdit,Bash"]
        )
        return [
            *("-p", "--output-format", "stream-json", "--verbose"),
            *("--setting-sources", "user", "--strict-mcp-config"),
            *mode,
            *(["--model", model] if model else []),
            *(["--resume", session] if session else []),
        ]

    def hear(self, line: Mapping[str, Json], heard: Heard) -> None:
        match line:
            case {"type": "system", "session_id": str(session)}:
                heard.session = session
            case {"type": "assistant", "message": {"content": list(parts)}}:
                heard.doings += [_doing(str(part["name"]), part.get("input")) for part in _uses(parts)]
            case {"type": "result"}:
                heard.session = str(line.get("session_id") or heard.session)
                heard.text = str(line.get("result") or "")
                # `is_error` counts: a rate limit may come with `subtype` success and exit code 0.
                heard.failure = (heard.text or "an error without words") if line.get("is_error") else ""
                heard.is_done = True
                heard.count(line.get("usage"))
            case _:
                pass


class CodexCli:
    settings = (".codex/config.toml", ".codex/hooks.json")

    def arguments(self, *, edits: bool, model: str, session: str) -> list[str]:
        sandbox = "workspace-write" if edits else "read-only"
        return [
            *("exec", "--json", "--skip-git-repo-check", "--sandbox", sandbox),
            *(["--model", model] if model else []),
            *(["resume", session] if session else []),
            "-",
        ]

    def hear(self, line: Mapping[str, Json], heard: Heard) -> None:
        match line:
            case {"type": "thread.started", "thread_id": str(session)}:
                heard.session = session
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str(text)}}:
                heard.text = text
            case {"type": "item.started", "item": {"type": "command_execution", "command": command}}:
                heard.doings.append(_doing("run", {"command": command}))
            case {"type": "item.completed", "item": {"type": "file_change", "changes": list(changes)}}:
                heard.doings += [
                    _doing(str(one.get("kind") or "change"), {"path": one.get("path")})
                    for one in changes
                    if isinstance(one, dict)
                ]
            case {"type": "turn.completed"}:
                heard.is_done, heard.failure = True, ""
                heard.count(line.get("usage"))
            case {"type": "turn.failed", "error": {"message": message}} | {
                "type": "error",
                "message": message,
            }:
                # Of a connection that is tried again there is an error too, and then the turn completes.
                heard.failure = str(message)
            case _:
                pass


class GeminiCli:
    settings = (".gemini/settings.json", ".gemini/extensions", ".gemini/.env")

    def arguments(self, *, edits: bool, model: str, session: str) -> list[str]:
        return [
            *("--output-format", "stream-json", "--approval-mode", "auto_edit" if edits else "default"),
            *(["--model", model] if model else []),
            *(["--resume", session] if session else []),
        ]

    def hear(self, line: Mapping[str, Json], heard: Heard) -> None:
        match line:
            case {"type": "init", "session_id": str(session)}:
                heard.session = session
            case {"type": "message", "role": "assistant", "content": str(text)}:
                heard.text = heard.text + text if line.get("delta") else text
            case {"type": "tool_use", "tool_name": name}:
                # What it said before is not its answer.
                heard.text = ""
                heard.doings.append(_doing(str(name), line.get("parameters")))
            case {"type": "result", "status": status}:
                heard.is_done = status == "success"
                error = line.get("error")
                said = error.get("message") if isinstance(error, dict) else error
                heard.failure = "" if heard.is_done else str(said or status)
                heard.count(line.get("stats"))
            case _:
                pass


PROGRAMS: Mapping[str, Program] = {
    "cli:claude": ClaudeCode(),
    "cli:codex": CodexCli(),
    "cli:gemini": GeminiCli(),
}


def _uses(parts: list[Json]) -> Iterator[Mapping[str, Json]]:
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "tool_use" and "name" in part:
            yield part


def _doing(name: str, given: Json) -> str:
    """A tool and what it is used on, in one short line."""
    known = given if isinstance(given, dict) else {}
    keys = ("file_path", "path", "dir_path", "notebook_path", "pattern", "command", "query", "url")
    target = next((str(known[key]) for key in keys if known.get(key)), "")
    line = " ".join(f"{name} {target}".split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def _tokens(usage: Json) -> tuple[int, int]:
    counts = usage if isinstance(usage, dict) else {}
    told = [counts.get(name) for name in ("input_tokens", "output_tokens")]
    read, written = (count if isinstance(count, int) and 0 <= count < 2**31 else 0 for count in told)
    return read, written
