"""Terminal: live text, questions and confirmations. Without a terminal there are no colours, and no questions."""

import asyncio
import codecs
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from clew.domain.errors import Invalid

_BAR = 20


def is_interactive() -> bool:
    """Whether a person is there to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def clean(text: str) -> str:
    """The text with its lines, without terminal control sequences: untrusted users and models wrote it."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\x{ord(c):02x}" for c in text)


def shorten(text: str, width: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(1, width - 1)] + "…"


class Screen:
    """Writes to standard output as things happen: whole lines, and text that grows."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self.width = shutil.get_terminal_size().columns
        self._column_open = False

    def line(self, text: str = "", *, style: str = "") -> None:
        self.end_text()
        self._write(self._styled(clean(text), style) + "\n")

    def text(self, piece: str) -> None:
        """A piece of text that continues where the last one ended."""
        if piece:
            self._write(clean(piece))
            self._column_open = not piece.endswith("\n")

    def end_text(self) -> None:
        if self._column_open:
            self._write("\n")
            self._column_open = False

    def progress(self, text: str, percent: int | None) -> None:
        if percent is None:
            self.line(f"  {text}", style="dim")
            return
        done = round(_BAR * max(0, min(percent, 100)) / 100)
        bar = "#" * done + "." * (_BAR - done)
        self.line(f"  [{bar}] {percent:3}% {shorten(text, self.width - _BAR - 12)}", style="dim")

    def _styled(self, text: str, style: str) -> str:
        codes = {"dim": "2", "bold": "1", "red": "31", "yellow": "33", "green": "32"}
        if not self.is_terminal or style not in codes:
            return text
        return f"\x1b[{codes[style]}m{text}\x1b[0m"

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


class Keyboard:
    """Lines a person types. Reading one can be cancelled, which a thread blocked in `input()` cannot."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = ""

    @asynccontextmanager
    async def open(self) -> "AsyncGenerator[Keyboard]":
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._read)
        try:
            yield self
        finally:
            loop.remove_reader(sys.stdin.fileno())

    def _read(self) -> None:
        piece = os.read(sys.stdin.fileno(), 65_536)
        if not piece:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._lines.put_nowait(None)
            return
        *lines, self._rest = (self._rest + self._decoder.decode(piece)).split("\n")
        for line in lines:
            self._lines.put_nowait(line)

    async def ask(self, prompt: str) -> str | None:
        """The next line; None at the end of the input."""
        sys.stdout.write(prompt)
        sys.stdout.flush()
        return await self._lines.get()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone. Raises Invalid where the answer is no, or no person is there to ask."""
    if yes:
        return
    if not is_interactive():
        raise Invalid(f"{question} There is no terminal to ask: say --yes")
    if input(f"{clean(question)} [y/N] ").strip().lower() not in ("y", "yes"):
        raise Invalid("nothing was changed")
