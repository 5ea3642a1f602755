"""Command-line driver: Claude Code, or any program with the same options and output.

The prompt is passed on stdin, so no part of an issue is ever an argument. The program gets a short list of variables,
and options that disable settings, hooks and servers from the folder it works in.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from clew.apps.drivers.inquiries import MAX_REPLY, Inquiry, Purpose, Reply
from clew.apps.drivers.wording import worded
from clew.domain.documents import clean_text
from clew.domain.errors import Answered, Permanent, Transient
from clew.domain.retry import MAX_ANSWER, ErrorClass
from clew.domain.thread import Json
from clew.processes.run import Ended, NotStarted, TimedOut, TooMuch, run
from clew.texts.reasoning import without_reasoning

_ALWAYS = ("-p", "--output-format", "json", "--setting-sources", "user", "--strict-mcp-config")
_EDITS = ("--permission-mode", "acceptEdits")
_READS = ("--permission-mode", "default", "--disallowedTools", "Edit,Write,NotebookEdit,Bash")
_MOST = 8 * 2**20

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

    name = "cli:claude"

    def __init__(
        self,
        command: Sequence[str],
        *,
        model: str,
        environment: Mapping[str, str],
        folder: Path,
        seconds: float,
    ) -> None:
        self.model = model or Path(command[0]).name
        self._program = Path(command[0]).name
        self._options = ("--model", model) if model else ()
        self._command = command
        self._environment = environment
        self._folder = folder
        self._seconds = seconds

    def can(self, purpose: Purpose) -> bool:
        # The program edits the files itself, which works better than returning their contents.
        return purpose not in (Purpose.CHANGE, Purpose.SEE, Purpose.USE)

    async def ask(self, inquiry: Inquiry) -> Reply:
        place = inquiry.workplace
        edits = inquiry.purpose is Purpose.EDIT
        try:
            ended = await run(
                [*self._command, *_ALWAYS, *(_EDITS if edits else _READS), *self._options],
                folder=self._folder if place is None else Path(place.folder),
                environment={**self._environment, **(place.variables if place else {})},
                seconds=self._seconds,
                most=_MOST,
                given=worded(inquiry).encode(errors="replace"),
                lock=None if place is None else place.lock,
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
        return self._reply(ended, may_be_silent=edits)

    def _reply(self, ended: Ended, *, may_be_silent: bool) -> Reply:
        """`is_error` counts: a rate limit may come with `subtype` success and exit code 0."""
        result = result_in(ended.out)
        if ended.code or result is None or result.get("is_error"):
            raise self._failure(ended, result)
        text = without_reasoning(clean_text(str(result.get("result") or "")))
        if not text and not may_be_silent:
            raise Transient(f"{self._program} answered nothing", ErrorClass.LLM_OVERLOAD)
        if len(text) > MAX_REPLY:
            raise Permanent(f"{self._program} wrote more output than allowed", ErrorClass.VALIDATION)
        tokens_in, tokens_out = _tokens(result.get("usage"))
        return Reply(text=text, tokens_in=tokens_in, tokens_out=tokens_out)

    def _failure(self, ended: Ended, result: Mapping[str, Json] | None) -> Transient | Permanent:
        """The program's output is kept out of the message: it may quote a key, the prompt or the code."""
        said = str(result.get("result")) if result else ended.out.decode(errors="replace")
        said = f"{said}\n{ended.err.decode(errors='replace')}"
        error_class = next((name for says, name in _SAYS if says.search(said)), ErrorClass.INTERNAL)
        how = f"with exit code {ended.code}" if ended.code else "without a result"
        message = f"{self._program} failed {how} ({error_class})"
        failed = (
            Transient(message, error_class) if error_class in _PASSING else Permanent(message, error_class)
        )
        failed.answered = Answered(said.strip()[:MAX_ANSWER])
        return failed


def result_in(out: bytes) -> Mapping[str, Json] | None:
    """The result among what the program wrote: one object, or the last of a list of them."""
    try:
        value = json.loads(out)
    except (ValueError, RecursionError):
        return None
    for one in reversed(value if isinstance(value, list) else [value]):
        if isinstance(one, dict) and one.get("type") == "result":
            return one
    return None


def _tokens(usage: Json) -> tuple[int, int]:
    counts = usage if isinstance(usage, dict) else {}
    told = [counts.get(name) for name in ("input_tokens", "output_tokens")]
    read, written = (count if isinstance(count, int) and 0 <= count < 2**31 else 0 for count in told)
    return read, written
