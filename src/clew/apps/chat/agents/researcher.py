"""Researcher agent: finds passages about a question by a full-text index and quotes them with their place."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tasks import SHOWN_CHARACTERS, Part, labels, texts, wanted
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.apps.prompts import prompt
from clew.documents.passages import sentences, words
from clew.texts.phrases import Text, listed, say

PASSAGES = 8
# A sentence longer than this is cut into several.
_UNIT = 600
_SENTENCES_A_PASSAGE = 3
_QUERY_WORDS = 40
_CJK = re.compile(r"([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])")
_PLACES = {"page": Text.PAGE, "slide": Text.SLIDE, "sheet": Text.SHEET}


@dataclass(frozen=True, slots=True)
class Passage:
    """A few sentences of one place."""

    part: Part
    text: str

    def source(self, language: str) -> str:
        place = self.part.place
        if place is None:
            return self.part.label
        return f"{self.part.label}, {say(_PLACES[place[0]], language, number=place[1])}"


class Researcher:
    name = "researcher"
    description = (
        "Searches the documents for what a question asks and quotes the passages with their pages."
        " Makes one document (md, txt, html, docx or pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        parts = [part for document in task["inputDocuments"] for part in texts(document)]
        found = await asyncio.to_thread(search, parts, task["prompt"])
        if not found and self._driver.can(Purpose.ANSWER):
            # No passage shares a word with the question: a model may still find synonyms.
            found = await asyncio.to_thread(beginning, parts)
        if not found:
            text = say(Text.FOUND_NOTHING, language, documents=listed(labels(task), language) or "…")
        else:
            answer = await self._answer(task, found) if self._driver.can(Purpose.ANSWER) else ""
            quotes = [
                f"{number}. “{passage.text}”\n   ({passage.source(language)})\n"
                for number, passage in enumerate(found, 1)
                if not answer or f"[{number}]" in answer
            ]
            heading = say(Text.SOURCES if answer else Text.FOUND, language, count=len(found))
            sources = f"\n\n## {heading}\n\n{''.join(quotes)}" if quotes else ""
            text = f"{answer}{sources}".strip()
        return {
            "feedback": text.replace("## ", ""),
            "documents": [
                {
                    "label": label,
                    "content": await render(f"# {task['prompt']}\n\n{text}\n", label, language=language),
                }
                for label in wanted(task, "findings.md")
            ],
        }

    async def _answer(self, task: AgentTask, found: Sequence[Passage]) -> str:
        language = task["context"]["language"]
        reply = await self._driver.ask(
            Inquiry(
                purpose=Purpose.ANSWER,
                role=prompt("researcher"),
                prompt=task["prompt"],
                language=language,
                material=tuple(
                    Material(label=f"[{number}] {passage.source(language)}", text=passage.text)
                    for number, passage in enumerate(found, 1)
                ),
            )
        )
        return reply.text.strip()


def search(parts: Sequence[Part], question: str, *, limit: int = PASSAGES) -> list[Passage]:
    """The passages that answer the words of a question best, in the order they are best read in: as they stand."""
    passages = [Passage(part, text) for part in parts for text in _windows(part.text)]
    query = _query(question)
    if not passages or not query:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(
            "CREATE VIRTUAL TABLE passages USING fts5(text, tokenize = 'unicode61 remove_diacritics 2')"
        )
        index.executemany(
            "INSERT INTO passages (rowid, text) VALUES (?, ?)",
            [(place, _spaced(passage.text)) for place, passage in enumerate(passages)],
        )
        rows = index.execute(
            "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?", (query, limit)
        ).fetchall()
    return [passages[place] for (place,) in sorted(rows)]


def beginning(parts: Sequence[Part]) -> list[Passage]:
    """The passages with which the documents begin, as many as a model can be shown."""
    share = SHOWN_CHARACTERS // max(1, len(parts))
    return [Passage(part, text) for part in parts for text in _windows(part.text[:share])]


def _windows(text: str) -> Iterator[str]:
    # A log has lines and no sentences, and a line may be a whole file.
    units = sentences(text) or text.splitlines()
    said = [unit[start : start + _UNIT] for unit in units for start in range(0, len(unit), _UNIT)]
    for start in range(0, len(said), _SENTENCES_A_PASSAGE):
        yield " ".join(said[start : start + _SENTENCES_A_PASSAGE])


def _query(question: str) -> str:
    """Any of the words, each also as a beginning; scripts without spaces by two neighbours."""
    terms: list[str] = []
    for word in dict.fromkeys(words(question)):
        if _CJK.match(word):
            terms.append(f'"{" ".join(word)}"')
        elif len(word) > 2:
            terms.append(f'"{word}"*')
    return " OR ".join(terms[:_QUERY_WORDS])


def _spaced(text: str) -> str:
    """Every character of a script without spaces as a word of its own."""
    return _CJK.sub(r" \1 ", text)
