"""`clew run`, `clew chat` and `clew threads tail`: start threads, talk to them and follow them in a terminal."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import Any

from clew.cli.client import Api, ServerRefusal, Target, open_api, part
from clew.cli.following import Follower, plain
from clew.cli.opening import run as run_async
from clew.cli.output import say_json
from clew.cli.terminal import Keyboard, Screen, is_interactive
from clew.domain.errors import ClewError, Invalid

# Exit codes of a command that follows a thread.
WAITS = 4
FAILED = 5
CODES = {"completed": 0, "blocked": WAITS, "failed": FAILED, "stopped": FAILED, "deleted": FAILED}
SHOWN_MESSAGES = 10
# Lines of the diff of a coding workflow.
SHOWN_DIFF = 400

HELP = """\
/file PATH   send a file with the next message
/id          show the thread's id
/help        show this
/quit        end; `clew chat --thread ID` continues"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What to start: the fields of `POST /api/workflows/start` that a command line gives."""

    graph: str | None = None
    prompt: str | None = None
    input: str | None = None
    files: Sequence[Path] = ()
    profile: str | None = None
    name: str | None = None
    fields: Sequence[str] = ()

    async def post(self, api: Api, thread_id: str | None) -> dict[str, Any]:
        body: dict[str, Any] = {name: value for name, value in self._fields() if value is not None}
        if self.input is not None:
            body["input"] = read_input(self.input)
        if self.files:
            body["listFileId"] = [(await api.upload(path))["id"] for path in self.files]
        if thread_id is None:
            body["verbose"] = True
        started: dict[str, Any] = await api.post("/api/workflows/start", body, id=thread_id)
        return started

    def _fields(self) -> list[tuple[str, Any]]:
        own: list[tuple[str, Any]] = [
            ("graph", self.graph),
            ("prompt", self.prompt),
            ("profile", self.profile),
            ("name", self.name),
        ]
        for text in self.fields:
            name, sign, value = text.partition("=")
            if not sign or not name:
                raise Invalid(f"--field: expected NAME=VALUE, not {text!r}")
            own.append((name, value))
        return own


def read_input(text: str) -> Any:
    """JSON, or with @ the file it is in. Raises Invalid."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise Invalid(f"--input: cannot read {text[1:]}") from exc
    try:
        return json.loads(text)
    except ValueError as exc:
        raise Invalid(f"--input: expected JSON or @FILE: {exc}") from exc


def run_graph(
    start: StartRequest, *, thread: str | None, output: Path, target: Target, asks: bool, as_json: bool
) -> None:
    """Start a thread, or a round of one, and follow it to its end. Without something new, follow what runs."""

    async def work() -> int:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(open_api(target, runs=True))
            keyboard = await _keyboard(stack, wanted=asks and not as_json)
            screen = Screen()
            attached = None if thread is None else await api.thread(thread)
            is_new = start != StartRequest(graph=start.graph)
            if attached is None or is_new:
                begun = await start.post(api, None if attached is None else attached["id"])
                thread_id, since = begun["id"], 0 if attached is None else attached["lastSeq"]
            else:
                thread_id, since = attached["id"], 0
            if not as_json:
                screen.line(f"thread {thread_id}", style="dim")
            follower = Follower(api, screen, thread_id, since, keyboard)
            if as_json:
                follower.screen = _Silent()
            ended = await _followed(follower, api)
            saved = await follower.save_documents(output)
            await _report(api, screen, follower, ended, saved, as_json=as_json)
            return CODES[ended]

    _exit(run_async(work()))


async def _followed(follower: Follower, api: Api) -> str:
    try:
        return await follower.follow()
    except asyncio.CancelledError:
        where = (
            "`clew serve` continues it, and so does"
            if api.is_local
            else "It continues on the server; follow it:"
        )
        follower.screen.line(f"{where} clew run --thread {follower.thread_id}", style="yellow")
        raise


async def _report(
    api: Api, screen: Screen, follower: Follower, ended: str, saved: Sequence[Path], *, as_json: bool
) -> None:
    path = f"/api/workflows/{part(follower.thread_id)}"
    if as_json:
        # As `start?wait=` answers, and the documents that are files here now.
        whole = None
        if ended != "deleted":
            whole = await api.get(path)
            whole |= {"state": await api.get(f"{path}/state"), "saved": [str(file) for file in saved]}
        say_json(whole)
        return
    for file in saved:
        screen.line(f"saved {file}", style="green")
    if ended == "completed":
        await _report_worktree(api, screen, path)
    if ended == "blocked":
        screen.line(f"It waits for an answer: clew pending {follower.thread_id}", style="yellow")
    elif ended == "completed" and not follower.spoke:
        values = (await api.get(f"{path}/state"))["values"]
        screen.line(json.dumps(values, indent=2, ensure_ascii=False))


async def _report_worktree(api: Api, screen: Screen, path: str) -> None:
    """What a coding workflow changed, and how to look at it."""
    whole = await api.get(path)
    if (folder := whole.get("worktree_path")) is None:
        return
    for file in whole["execution_state"].get("changed_files", ()):
        screen.line(f"changed {file}", style="green")
    await _show_diff(api, screen, path)
    published = whole["execution_state"].get("published") or {}
    for name in ("branch", "commit", "pull_request", "comment"):
        if name in published:
            screen.line(f"{name.replace('_', ' ')} {published[name]}", style="green")
    if not published:
        screen.line(
            f"Nothing is committed: git -C {quote(folder)} status, git -C {quote(folder)} diff", style="dim"
        )


async def _show_diff(api: Api, screen: Screen, path: str) -> None:
    try:
        shown = await api.get(f"{path}/diff")
    except ServerRefusal:  # the work tree is gone, or the server has no such route
        return
    lines = shown["diff"].splitlines()
    for line in lines[:SHOWN_DIFF]:
        is_head = line.startswith(("+++", "---", "diff ", "index "))
        styles = {} if is_head else {"+": "green", "-": "red"}
        screen.line(line, style=styles.get(line[:1], "dim" if is_head else ""))
    if shown["isCut"] or len(lines) > SHOWN_DIFF:
        screen.line("... the rest of the diff is not shown", style="dim")


def chat(start: StartRequest, *, thread: str | None, output: Path, target: Target) -> None:
    if not is_interactive():
        raise Invalid("clew chat needs a terminal; `clew run --prompt` works without one")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            api = await stack.enter_async_context(open_api(target, runs=True))
            keyboard = await stack.enter_async_context(Keyboard().open())
            session = ChatSession(api, Screen(), keyboard, output, start, list(start.files))
            await session.talk(None if thread is None else await api.thread(thread))

    run_async(work())


@dataclass(slots=True)
class ChatSession:
    """A conversation in one thread: what is typed is its next round."""

    api: Api
    screen: Screen
    keyboard: Keyboard
    output: Path
    start: StartRequest
    files: list[Path] = field(default_factory=list)
    follower: Follower | None = None

    async def talk(self, thread: dict[str, Any] | None) -> None:
        self.screen.line("Type a message; /help shows the commands, /quit ends.", style="dim")
        try:
            if thread is not None:
                await self._resume(thread)
            while (typed := await self.keyboard.ask("> ")) is not None:
                try:
                    if not await self._do(typed.strip()):
                        break
                except ClewError as exc:
                    self.screen.line(str(exc), style="red")
        finally:
            if self.follower is not None:
                self.screen.line(f"clew chat --thread {self.follower.thread_id}", style="dim")

    async def _resume(self, thread: dict[str, Any]) -> None:
        """Show the newest messages, and follow the round if it still runs."""
        thread_id = thread["id"]
        whole = await self.api.get(f"/api/workflows/{part(thread_id)}")
        for message in whole["messages"][-SHOWN_MESSAGES:]:
            mark = "> " if message["role"] == "user" else ""
            self.screen.line(f"{mark}{plain(message['content'])}", style="bold" if mark else "")
        self.follower = self._follower(thread_id, thread["lastSeq"])
        if thread["status"] in ("running", "blocked", "pending"):
            await self._follow(self.follower)

    async def _do(self, typed: str) -> bool:
        word, _, rest = typed.partition(" ")
        match word:
            case "":
                pass
            case "/quit" | "/exit":
                return False
            case "/help":
                self.screen.line(HELP, style="dim")
            case "/id":
                self.screen.line(self.follower.thread_id if self.follower else "(no thread yet)")
            case "/file":
                self._attach(rest.strip())
            case _ if word.startswith("/"):
                self.screen.line(f"no command {word}; /help shows them", style="red")
            case _:
                await self._say(typed)
        return True

    def _attach(self, typed: str) -> None:
        path = Path(typed).expanduser()
        if not path.is_file():
            raise Invalid(f"no file {path}")
        self.files.append(path)
        self.screen.line(f"{path.name} goes with the next message", style="dim")

    async def _say(self, text: str) -> None:
        start = replace(self.start, prompt=text, files=tuple(self.files))
        if self.follower is None:
            started = await start.post(self.api, None)
            self.follower = self._follower(started["id"], 0)
        else:
            last = (await self.api.get(f"/api/threads/{part(self.follower.thread_id)}"))["lastSeq"]
            await StartRequest(prompt=text, files=start.files).post(self.api, self.follower.thread_id)
            self.follower.since = last
        self.files.clear()
        await self._follow(self.follower)

    def _follower(self, thread_id: str, since: int) -> Follower:
        return Follower(self.api, self.screen, thread_id, since, self.keyboard, echoes=False)

    async def _follow(self, follower: Follower) -> None:
        await follower.follow()
        for path in await follower.save_documents(self.output):
            self.screen.line(f"saved {path}", style="green")


def tail(thread: str, *, lines: int, forever: bool, target: Target, as_json: bool) -> None:
    async def work() -> int:
        async with open_api(target) as api:
            found = await api.thread(thread)
            since = max(0, found["lastSeq"] - lines)
            follower = Follower(
                api, Screen(), found["id"], since, as_json=as_json, ends=not forever, waits=True
            )
            return CODES[await follower.follow()]

    _exit(run_async(work()))


class _Silent(Screen):
    """Shows nothing: the answer is one JSON document at the end."""

    @staticmethod
    def _write(text: str) -> None:
        pass


async def _keyboard(stack: AsyncExitStack, *, wanted: bool) -> Keyboard | None:
    return await stack.enter_async_context(Keyboard().open()) if wanted and is_interactive() else None


def _exit(code: int) -> None:
    if code:
        raise SystemExit(code)
