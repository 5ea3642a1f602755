"""Log lines: one a record, as JSON or for people, with known fields only.

Conversations are private. The libraries Clew uses log requests and values, so of them only warnings are written and
without the values in them; of an exception its type and place, and its message only when it cannot quote a conversation.
`debug` lifts both. What the user's own graphs log is up to them.
"""

import json
import logging
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import lru_cache
from io import TextIOWrapper
from itertools import islice
from math import isfinite
from pathlib import PurePath
from traceback import walk_tb
from types import MappingProxyType, TracebackType
from typing import TextIO
from uuid import UUID

from clew.domain.errors import ClewError
from clew.telemetry.fields import FIELDS
from clew.telemetry.scrub import Scrubber

_context: ContextVar[Mapping[str, object]] = ContextVar("clew_log_context", default=MappingProxyType({}))

_LIBRARIES = frozenset(
    {
        "anthropic",
        "asyncio",
        "asyncpg",
        "fastapi",
        "httpcore",
        "httpcore2",  # used by newer model clients
        "httpx",
        "httpx2",
        "langchain",
        "langgraph",
        "langsmith",
        "openai",
        "procrastinate",
        "psycopg",
        "py",  # py.warnings
        "python",  # python_multipart
        "starlette",
        "urllib3",
        "websockets",
    }
)
# What these put into a line are names of modules and classes.
_NAMES_OF_CODE = frozenset({"langgraph.checkpoint.serde.jsonplus"})
_SAFE_TO_QUOTE = (ClewError, OSError, sqlite3.Error)
_MAX_FRAMES = 8
# Texts of at most so many characters are scrubbed once.
SHORT = 64
_MAX_ITEMS = 50


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields to every line written inside the block, in this task."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def configure_logs(
    stream: TextIO,
    *,
    level: str = "info",
    format: str = "auto",
    debug: bool = False,
    secrets: Collection[str] = (),
) -> None:
    """Send every logger of this process to `stream`, in our way. `secrets` are words that never pass."""
    human = format == "text" or (format == "auto" and stream.isatty())
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal that knows only ASCII still gets its line
    handler = _Handler(stream)
    handler.setFormatter(LineFormatter(Scrubber(secrets), human=human, debug=debug))
    if not debug:
        handler.addFilter(_may_be_written)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # What models and agents were asked and answered: written at any level, or not at all.
    logging.getLogger("clew.debug").setLevel(logging.DEBUG if debug else logging.CRITICAL)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    access = logging.getLogger("uvicorn.access")  # writes addresses with their queries
    access.handlers.clear()
    access.propagate = False
    logging.captureWarnings(True)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A closed pipe under the log is no reason to print the record somewhere else."""


class LineFormatter(logging.Formatter):
    def __init__(self, scrub: Scrubber, *, human: bool, debug: bool = False) -> None:
        super().__init__()
        self._scrub_any = scrub
        # Names of loggers, events, routes and graphs come again and again.
        self._scrub_short = lru_cache(maxsize=1024)(scrub)
        self._human = human
        self._debug = debug

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": self._scrub(self._event(record)),
        }
        line.update((name, self._plain(value)) for name, value in self._fields(record).items())
        if record.exc_info and record.exc_info[1] is not None:
            line.update(self._exception(record.exc_info[1]))
        return _for_people(line) if self._human else json.dumps(line)

    def _scrub(self, text: str) -> str:
        return self._scrub_short(text) if len(text) <= SHORT else self._scrub_any(text)

    def _event(self, record: logging.LogRecord) -> str:
        if not self._debug and _is_of_a_library(record):
            return _without_words(record)
        try:
            return record.getMessage()
        except (TypeError, ValueError, KeyError):
            # A wrong number of arguments must not cost the line, nor print the arguments.
            return str(record.msg)

    def _fields(self, record: logging.LogRecord) -> dict[str, object]:
        given = {**_context.get(), **record.__dict__}
        fields = {name: given[name] for name in given if name in FIELDS}
        if dropped := sorted(given.keys() - FIELDS - _RECORD_ATTRIBUTES):
            fields["dropped_fields"] = dropped
        return fields

    def _plain(self, value: object) -> object:
        match value:
            case None | bool() | int():
                return value
            case float():
                return value if isfinite(value) else str(value)
            case str() | UUID() | PurePath() | datetime():
                return self._scrub(str(value))
            case list() | tuple() | set() | frozenset():
                return [self._plain(item) for item in islice(value, _MAX_ITEMS)]
            case _:
                # Anything else might print what it holds.
                return f"<{type(value).__name__}>"

    def _exception(self, error: BaseException) -> dict[str, object]:
        described: dict[str, object] = {"error": _name(error), "trace": _trace(error.__traceback__)}
        if self._debug or isinstance(error, _SAFE_TO_QUOTE):
            described["reason"] = self._scrub(str(error))
        elif (sqlstate := getattr(error, "sqlstate", None)) is not None:
            described["reason"] = self._scrub(f"SQLSTATE {sqlstate}")
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None:
            described["cause"] = _name(cause)
        return described


def _is_of_a_library(record: logging.LogRecord) -> bool:
    return re.split("[._]", record.name, maxsplit=1)[0] in _LIBRARIES  # langchain_core is langchain


def _may_be_written(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING or not _is_of_a_library(record)


def _without_words(record: logging.LogRecord) -> str:
    if record.name == "py.warnings":  # path:line: Category: words
        return ": ".join(record.getMessage().split(": ", 2)[:2])
    if not record.args:
        # The values may be in the text already: then the line it came from must do.
        return f"{record.filename}:{record.lineno}"
    given = record.args
    if record.name not in _NAMES_OF_CODE:
        given = (
            {name: _stand_in(value) for name, value in given.items()}
            if isinstance(given, Mapping)
            else tuple(map(_stand_in, given))
        )
    try:
        return str(record.msg) % given
    except (TypeError, ValueError, KeyError):
        return str(record.msg)


class _Withheld:
    """What stands in a line for a value that may be private: its type."""

    def __init__(self, value: object) -> None:
        self._type = type(value).__name__

    def __repr__(self) -> str:
        return f"<{self._type}>"


def _stand_in(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | float) else _Withheld(value)


def _name(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{type(error).__name__}[{', '.join(_name(inner) for inner in error.exceptions[:5])}]"
    return type(error).__name__


def _trace(traceback: TracebackType | None) -> str:
    """Innermost frame first: that is where it broke."""
    frames = [
        f"{PurePath(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}"
        for frame, line in walk_tb(traceback)
    ]
    return " < ".join(reversed(frames[-_MAX_FRAMES:]))


def _for_people(line: dict[str, object]) -> str:
    time, level, logger, event = (str(line.pop(name)) for name in ("time", "level", "logger", "event"))
    fields = "".join(f"  {name}={_word(value)}" for name, value in line.items())
    return f"{time[11:23]} {level:<8} {event}  ({logger}){fields}"


def _word(value: object) -> str:
    return value if isinstance(value, str) and value and " " not in value else json.dumps(value)


# What logging itself puts on a record; everything else came in through `extra`.
_RECORD_ATTRIBUTES = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
