"""Command-line driver: Claude Code, Codex CLI, Gemini CLI, or any program with the options and output of one of them.

The prompt is passed on stdin, so no part of an issue is ever an argument. The program gets a short list of variables.
Settings, hooks and servers of the folder it works in are disabled by its options, or refused.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from clew.apps.drivers.inquiries import MAX_REPLY, Inquiry, Purpose, Reply, Reports, Workplace
from clew.apps.drivers.programs import PROGRAMS, Heard, Program
from clew.apps.drivers.wording import worded
from clew.domain.documents import clean_text
from clew.domain.errors import Answered, Permanent, Transient
from clew.domain.retry import MAX_ANSWER, ErrorClass
from clew.domain.thread import Json
from clew.processes.run import Ended, NotStarted, TimedOut, TooMuch, run
from clew.texts.reasoning import without_reasoning

# Its output has the files that it read and wrote.
_MOST = 64 * 2**20

# Patterns in a failed run's output, most important first. The exit code does not distinguish these.
_SAYS: Sequence[tuple[re.Pattern[str], ErrorClass]] = tuple(
    (re.compile(pattern, re.IGNORECASE), error_class)
    for pattern, error_class in (
        (r"overloaded|\b529\b|service.?unavailable|\b50[0234]\b|internal.?server.?error", ErrorClass.LLM_OVERLOAD),
        (r"rate.?limit|usage limit|\b429\b|too many requests", ErrorClass.RATE_LIMIT),
        (r"invalid api key|/login|authenticat|unauthorized|\b40[13]\b|credit balance", ErrorClass.AUTH),
        (r"timed? ?out|fetch failed|connection (error|refused|reset)|ECONN|ENOTFOUND|EAI_AGAIN", ErrorClass.NETWORK_TIMEOUT),
    )
)  # fmt: skip
_PASSING = (ErrorClass.LLM_OVERLOAD, ErrorClass.RATE_LIMIT, ErrorClass.NETWORK_TIMEOUT)


class CliDriver:
    """One program. Without a workplace it runs in `folder`, which is empty."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        model: str,
        environment: Mapping[str, str],
        folder: Path,
        seconds: float,
    ) -> None:
        self.name = name
        self._kind = PROGRAMS[name]
        self._command = tuple(command)
        self._program = Path(self._command[0]).name
        self.model = model or self._program
        self._model = model
        self._environment = environment
        self._folder = folder
        self._seconds = seconds

    def can(self, purpose: Purpose) -> bool:
        # The program edits the files itself, which works better than returning their contents.
        return purpose not in (Purpose.CHANGE, Purpose.SEE, Purpose.USE)

    async def ask(self, inquiry: Inquiry) -> Reply:
        place = inquiry.workplace
        if place is not None:
            self._require_no_settings(place)
        session = "" if place is None else place.session
        lines, ended = await self._run(inquiry, session)
        if session and ended.code and not lines.heard.session:
            # The program does not know the session any more: the prompt says all, so a new one can do it.
            lines, ended = await self._run(inquiry, "")
        return self._reply(lines.heard, ended, may_be_silent=inquiry.purpose is Purpose.EDIT)

    def _require_no_settings(self, place: Workplace) -> None:
        found = [name for name in self._kind.settings if os.path.lexists(Path(place.folder) / name)]
        if found:
            raise Permanent(
                f"the worktree has settings that make {self._program} start programs: {', '.join(found)}. Remove them,"
                " or move them to your own settings if you trust them",
                ErrorClass.VALIDATION,
            )

    async def _run(self, inquiry: Inquiry, session: str) -> "tuple[_Lines, Ended]":
        place = inquiry.workplace
        edits = inquiry.purpose is Purpose.EDIT
        lines = _Lines(self._kind, None if place is None else place.reports)
        arguments = self._kind.arguments(edits=edits, model=self._model, session=session)
        try:
            ended = await run(
                [*self._command, *arguments],
                folder=self._folder if place is None else Path(place.folder),
                environment={**self._environment, **(place.variables if place else {})},
                seconds=self._seconds,
                most=_MOST,
                given=worded(inquiry).encode(errors="replace"),
                lock=None if place is None else place.lock,
                heard=lines.feed,
            )
        except NotStarted as exc:
            raise Permanent(
                f"the program {self._program!r} cannot be started here: install it, or name another as `command` of"
                " the profile",
                ErrorClass.NOT_FOUND,
            ) from exc
        except TimedOut as exc:
            raise Transient(
                f"{self._program} did not finish within {self._seconds:g} s", ErrorClass.CLI_TIMEOUT
            ) from exc
        except TooMuch as exc:
            raise Permanent(f"{self._program} wrote more output than allowed", ErrorClass.VALIDATION) from exc
        lines.end()
        return lines, ended

    def _reply(self, heard: Heard, ended: Ended, *, may_be_silent: bool) -> Reply:
        if ended.code or heard.failure or not heard.is_done:
            raise self._failure(heard, ended)
        text = without_reasoning(clean_text(heard.text))
        if not text and not may_be_silent:
            raise Transient(f"{self._program} answered nothing", ErrorClass.LLM_OVERLOAD)
        if len(text) > MAX_REPLY:
            raise Permanent(f"{self._program} wrote more output than allowed", ErrorClass.VALIDATION)
        return Reply(text=text, tokens_in=heard.tokens_in, tokens_out=heard.tokens_out)

    def _failure(self, heard: Heard, ended: Ended) -> Transient | Permanent:
        """The program's output is kept out of the message: it may quote a key, the prompt or the code."""
        said = heard.failure or heard.text or ended.out.decode(errors="replace")
        said = f"{said}\n{ended.err.decode(errors='replace')}"
        error_class = next((name for says, name in _SAYS if says.search(said)), ErrorClass.INTERNAL)
        how = f"with exit code {ended.code}" if ended.code else "without a result"
        message = f"{self._program} failed {how} ({error_class})"
        failed = (
            Transient(message, error_class) if error_class in _PASSING else Permanent(message, error_class)
        )
        failed.answered = Answered(said.strip()[:MAX_ANSWER])
        return failed


class _Lines:
    """The output of a program, read while it works: what it does and its session are reported at once."""

    def __init__(self, program: Program, reports: Reports | None) -> None:
        self.heard = Heard()
        self._program = program
        self._reports = reports
        self._rest = bytearray()

    def feed(self, part: bytes) -> None:
        first, *more = part.split(b"\n")
        self._rest += first
        for line in more:
            self._read(bytes(self._rest))
            self._rest = bytearray(line)

    def end(self) -> None:
        """The last line, which may have no end."""
        self._read(bytes(self._rest))
        self._rest.clear()

    def _read(self, line: bytes) -> None:
        known = self.heard.session
        for one in objects_in(line):
            self._program.hear(one, self.heard)
        doings, self.heard.doings = self.heard.doings, []
        if self._reports is None:
            return
        if self.heard.session != known:
            self._reports.session(self.heard.session)
        for doing in doings:
            self._reports.doing(doing)


def objects_in(line: bytes) -> list[Mapping[str, Json]]:
    """The objects of one line: itself, or those of a list, as programs write that know no stream."""
    if not line.strip():
        return []
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return []
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]
