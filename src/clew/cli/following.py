"""Following of a thread in a terminal: its events as they happen, and the answers a person gives to it."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clew.cli.client import Api, ServerRefusal, part
from clew.cli.terminal import Keyboard, Screen, shorten
from clew.domain.errors import Invalid, Unavailable

ENDS = {"workflow_completed": "completed", "workflow_failed": "failed", "workflow_stopped": "stopped"}
QUESTIONS = ("approval_required", "suspension")
# How long a lost server is tried again, and how often.
PATIENCE_SECONDS = 60.0
RETRY_SECONDS = 0.5


@dataclass(slots=True)
class Follower:
    """Shows one thread. `keyboard` is None where no person is there to ask; then following ends at a question."""

    api: Api
    screen: Screen
    thread_id: str
    since: int
    keyboard: Keyboard | None = None
    as_json: bool = False
    ends: bool = True  # with the newest round
    waits: bool = False  # at a question, for the answer of another person
    echoes: bool = True  # what users say
    documents: list[tuple[str, str]] = field(default_factory=list)
    spoke: bool = False  # the thread, in this round
    said: str = ""  # its newest message
    _shown: dict[str, int] = field(default_factory=dict)  # characters of a message that were streamed
    _answered: set[str] = field(default_factory=set)

    async def follow(self) -> str:
        """How the round ended: completed, failed or stopped; `blocked` if it waits; `deleted`."""
        lost_at: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            try:
                thread = await self.api.get(f"/api/threads/{part(self.thread_id)}")
                lost_at = None
                if (ended := await self._at_rest(thread)) is not None:
                    return ended
                async for event in self.api.events(self.thread_id, since=self.since):
                    if (ended := await self._take(event)) is not None:
                        return ended
            except Unavailable as exc:
                if self.api.is_local:
                    raise
                lost_at = lost_at or clock()
                if clock() - lost_at > PATIENCE_SECONDS:
                    raise
                if not self.as_json and clock() - lost_at < RETRY_SECONDS:
                    self.screen.line(f"  {exc}; trying again", style="yellow")
                await asyncio.sleep(RETRY_SECONDS)

    async def _at_rest(self, thread: dict[str, Any]) -> str | None:
        """The status of a thread of which everything was shown, once its open questions are answered."""
        if self.since < thread["lastSeq"]:
            return None
        if thread["pending"]:
            return await self._answer_all()
        if self.ends and thread["status"] in ENDS.values():
            return str(thread["status"])
        return None

    async def _take(self, event: dict[str, Any]) -> str | None:
        kind = event.get("eventType", "")
        if event.get("sequence") is not None:
            self.since = event["sequence"]
        if self.as_json:
            if kind != "llm_token":
                self.screen.line(json.dumps(event, ensure_ascii=True))
        else:
            self._show(kind, event.get("data") or {})
        if kind == "workflow_deleted":
            return "deleted"
        if kind in QUESTIONS:
            return await self._answer_all()
        return ENDS.get(kind) if self.ends and kind in ENDS and await self._is_last() else None

    async def _is_last(self) -> bool:
        """Whether the round that ended is the newest one: a replay of a log meets the ends of earlier rounds."""
        thread = await self.api.get(f"/api/threads/{part(self.thread_id)}")
        return bool(self.since >= thread["lastSeq"])

    def _show(self, kind: str, data: dict[str, Any]) -> None:
        screen = self.screen
        match kind:
            case "stage_changed":
                screen.line(f"· {data.get('stage')}", style="dim")
            case "llm_token":
                self._show_token(data)
            case "assistant_msg":
                self._show_message(data)
            case "user_msg" if self.echoes:
                screen.line(f"> {shorten(plain(data.get('content')), screen.width - 2)}", style="bold")
            case "log":
                screen.progress(str(data.get("message", "")), data.get("progress"))
            case "tool_call":
                args = json.dumps(data.get("args"), ensure_ascii=False)
                screen.line(shorten(f"→ {data.get('name')}({args})", screen.width), style="dim")
            case "tool_result":
                told = plain(data.get("result")) if data.get("ok") else f"failed: {data.get('error')}"
                screen.line(shorten(f"← {told}", screen.width), style="dim")
            case "document_added":
                name = f"{data.get('name')}.{data['ext']}" if data.get("ext") else str(data.get("name"))
                self.documents.append((str(data.get("document_id")), name))
            case "workflow_failed":
                screen.line(f"failed: {data.get('error') or data.get('reason')}", style="red")
            case "workflow_stopped":
                screen.line("stopped", style="yellow")
            case _:
                pass

    def _show_token(self, data: dict[str, Any]) -> None:
        """A gap means that tokens were lost: the rest is shown with the whole message."""
        message, text = str(data.get("message_id")), str(data.get("token", ""))
        shown = self._shown.get(message, 0)
        if data.get("offset") == shown:
            self.screen.text(text)
            self._shown[message] = shown + len(text)

    def _show_message(self, data: dict[str, Any]) -> None:
        self.spoke = True
        self.said = text = plain(data.get("content"))
        shown = self._shown.pop(str(data.get("ref")), 0)
        self.screen.text(text[shown:])
        self.screen.end_text()

    async def _answer_all(self) -> str | None:
        """Ask the person everything the thread waits for. `blocked` if a question stays open."""
        path = f"/api/workflows/{part(self.thread_id)}/tool-calls"
        for call in (await self.api.get(path))["toolCalls"]:
            if call["id"] in self._answered or not call["waiting"]:
                continue
            if self.keyboard is None:
                if not self.waits:
                    return "blocked"
                self._answered.add(call["id"])
                if not self.as_json:
                    show_question(self.screen, call)
                continue
            body = await self._ask(call, self.keyboard)
            if body is None:
                return "blocked"
            self._answered.add(call["id"])
            try:
                await self.api.post(f"{path}/{part(call['id'])}/resolve", body)
            except ServerRefusal as exc:
                self.screen.line(str(exc), style="yellow")
        return None

    async def _ask(self, call: dict[str, Any], keyboard: Keyboard) -> dict[str, Any] | None:
        """The answer as the API takes it; None at the end of the input."""
        show_question(self.screen, call, said=self.said)
        match call["kind"]:
            case "approval":
                return await _ask_approval(keyboard)
            case "in_doubt":
                typed = await keyboard.ask("It may have happened. Result, or `retry` to run it again: ")
                if typed is None:
                    return None
                return {"retry": True} if typed.strip() == "retry" else {"answer": as_json_or_text(typed)}
            case _:
                typed = await keyboard.ask("Answer: ")
                return None if typed is None else {"answer": as_json_or_text(typed)}

    async def save_documents(self, folder: Path) -> list[Path]:
        """Write the documents of this round into the folder; an existing file is never overwritten."""
        saved = []
        documents = f"/api/workflows/{part(self.thread_id)}/documents"
        added = dict(self.documents)
        for document in (await self.api.get(documents))["documents"] if added else ():
            if (name := added.get(document["id"])) is None or document["file"] != document["id"]:
                continue  # of another round, or what the user uploaded
            async with self.api.stream(f"{documents}/{part(document['id'])}") as answer:
                saved.append(save_new(folder, name, await answer.aread()))
        self.documents.clear()
        return saved


def show_question(screen: Screen, call: dict[str, Any], *, said: str = "") -> None:
    """What the person decides on. A value that the thread has just `said`, such as a plan, is not shown twice."""
    prompt = call.get("prompt")
    question = ""
    rest = prompt
    if isinstance(prompt, dict):
        question = next((str(prompt[k]) for k in ("question", "message", "text") if prompt.get(k)), "")
        hidden = ("question", "message", "text", "kind", "timeout", "args_hash", "tool", "args")
        rest = {
            name: value
            for name, value in prompt.items()
            if name not in hidden and not (said and isinstance(value, str) and value.strip() == said.strip())
        }
    if call["kind"] == "approval" and call.get("name"):
        question = question or f"Allow the tool {call['name']} to run?"
    screen.line(f"? {question or call['kind']}", style="bold")
    for value in (call.get("args"), rest):
        if value:
            _show_value(screen, value)


def _show_value(screen: Screen, value: Any) -> None:
    """A line for each name, and texts of several lines as they are."""
    fields = value.items() if isinstance(value, dict) else [("", value)]
    for name, one in fields:
        lines = (one if isinstance(one, str) else json.dumps(one, ensure_ascii=False)).splitlines()
        label = f"{name}: " if name else ""
        if len(lines) > 1:
            screen.line(f"  {label}".rstrip())
        for line in lines:
            screen.line(f"    {line}" if len(lines) > 1 else f"  {label}{line}")


async def _ask_approval(keyboard: Keyboard) -> dict[str, Any] | None:
    while True:
        typed = await keyboard.ask("Approve? [y/n, or why not] ")
        if typed is None:
            return None
        word = typed.strip()
        if word.lower() in ("y", "yes"):
            return {"approved": True}
        if word.lower() in ("n", "no"):
            why = await keyboard.ask("Why not? ")
            return None if why is None else {"approved": False, "feedback": why.strip() or "rejected"}
        if word:
            return {"approved": False, "feedback": word}


def as_json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def plain(content: Any) -> str:
    """The text of a message: of its parts, if it has parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "\n".join(str(p.get("text", "")) for p in content if isinstance(p, dict) and p.get("text"))
    return json.dumps(content, ensure_ascii=False)


def save_new(folder: Path, name: str, content: bytes) -> Path:
    """Write a file under this name, or with a number added to it. Raises Invalid."""
    safe = name.replace("/", "_").replace("\\", "_").lstrip(".") or "document"
    path = folder / safe
    number = 2
    try:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            try:
                with path.open("xb") as file:
                    file.write(content)
                return path
            except FileExistsError:
                path = folder / f"{Path(safe).stem}-{number}{Path(safe).suffix}"
                number += 1
    except OSError as exc:
        raise Invalid(f"cannot write {path}: {exc.strerror}") from exc
