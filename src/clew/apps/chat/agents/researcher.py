"""Researcher agent: finds passages about a question by a full-text index and quotes them with their place."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from clew.apps.chat.agents.analyst import Analyst
from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tasks import SHOWN_CHARACTERS, TABLES, Part, labels, pictures, texts, wanted
from clew.apps.chat.agents.tasks import tables as tables_in
from clew.apps.chat.offline.scan import Scan, fold, same, tokens
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, ShownPicture
from clew.apps.prompts import prompt
from clew.documents.passages import paragraphs, sentences, words
from clew.domain.documents import split_name
from clew.texts.phrases import Text, listed, say

PASSAGES = 8
# Without a model a reader gets few passages, and only such as share half of the words that the question is about.
_QUOTED = 3
_SHARED = 0.5
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
    paragraph: int = 1

    def source(self, language: str) -> str:
        place = self.part.place
        if place is None:
            return f"{self.part.label}, {say(Text.PARAGRAPH, language, number=self.paragraph)}"
        return f"{self.part.label}, {say(_PLACES[place[0]], language, number=place[1])}"


class Researcher:
    name = "researcher"
    description = (
        "Searches the documents for what a question asks and quotes the passages with their pages. With a model that"
        " sees, it also answers questions about pictures and scanned pages."
        " Makes one document (md, txt, html, docx or pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        is_offline = not self._driver.can(Purpose.ANSWER)
        if is_offline and not task["outputSpecifications"] and (computed := await self._computed(task)):
            return computed
        parts = [part for document in task["inputDocuments"] for part in texts(document)]
        if is_offline:
            prose = [part for part in parts if part.content["contentType"] not in TABLES]
            found = await asyncio.to_thread(quotable, prose, task["prompt"], language)
        else:
            found = await asyncio.to_thread(search, parts, task["prompt"])
        if not found and self._driver.can(Purpose.ANSWER):
            # No passage shares a word with the question: a model may still find synonyms.
            found = await asyncio.to_thread(beginning, parts)
        seen = pictures(task, self._driver)
        if not found and not seen:
            text = say(Text.FOUND_NOTHING, language, documents=listed(labels(task), language) or "…")
            return {"feedback": text, "documents": [], "refused": True}
        answer = await self._answer(task, found, seen) if self._driver.can(Purpose.ANSWER) else ""
        quotes = [
            f"{number}. “{passage.text}”\n   ({passage.source(language)})\n"
            for number, passage in enumerate(found, 1)
            if not answer or f"[{number}]" in answer
        ]
        heading = say(Text.SOURCES if answer else Text.FOUND, language, count=len(found))
        sources = f"\n\n## {heading}\n\n{''.join(quotes)}" if quotes else ""
        text = f"{answer}{sources}".strip()
        said = text.replace("## ", "")
        result: AgentResult = {
            "feedback": said,
            "documents": [
                {
                    "label": label,
                    "content": await render(f"# {task['prompt']}\n\n{text}\n", label, language=language),
                }
                for label in wanted(task, *(() if is_offline else ("findings.md",)))
            ],
        }
        if is_offline and not result["documents"]:
            looked = say(Text.LOOKED, language, documents=listed(labels(task), language))
            result["feedback"], result["answer"] = looked, said
        return result

    async def _computed(self, task: AgentTask) -> AgentResult | None:
        """The answer from a table in the documents, if the rules are sure that the question is about one."""
        if not any(tables_in(task["inputDocuments"])):
            return None
        result = await Analyst(self._driver).process_task(task)
        return None if result.get("refused") else result

    async def _answer(self, task: AgentTask, found: Sequence[Passage], seen: tuple[ShownPicture, ...]) -> str:
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
                pictures=seen,
            )
        )
        return reply.text.strip()


def search(parts: Sequence[Part], question: str, *, limit: int = PASSAGES) -> list[Passage]:
    """The passages that answer the words of a question best, in the order they are best read in: as they stand."""
    passages = _passages(parts)
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
    return [Passage(part, text, number) for part in parts for number, text in _windows(part.text[:share])]


def quotable(parts: Sequence[Part], question: str, language: str) -> list[Passage]:
    """The passages that share most of the words that the question is about, the best ones first."""
    about = _subject(question, language, [part.label for part in parts])
    passages = [Passage(part, text, number) for part in parts for number, text in _windows(part.text, size=1)]
    scored = [(_share(about, passage.text), -place) for place, passage in enumerate(passages)]
    best = max((share for share, _ in scored), default=0.0)
    if best < _SHARED:
        return []
    chosen = sorted((one for one in scored if one[0] >= max(_SHARED, 0.75 * best)), reverse=True)[:_QUOTED]
    return [passages[-place] for _, place in chosen]


def _subject(question: str, language: str, labels: Sequence[str] = ()) -> list[str]:
    """The words of a question without those that any question has."""
    scan = Scan.of(question, language)
    for name in ("filler", "list", "who"):
        scan.take_list("question", name)
    for label in labels:
        scan.take(tokens(split_name(label)[0]))
    left = "".join(word if _CJK.match(word) else f" {word} " for _, word in scan.free())
    return list(dict.fromkeys(words(left)))


def _share(about: Sequence[str], text: str) -> float:
    said = set(words(fold(text)))
    return sum(any(same(word, one) for one in said) for word in about) / len(about) if about else 0.0


def _passages(parts: Sequence[Part]) -> list[Passage]:
    return [Passage(part, text, number) for part in parts for number, text in _windows(part.text)]


def _windows(text: str, *, size: int = _SENTENCES_A_PASSAGE) -> Iterator[tuple[int, str]]:
    """A few sentences each, with the number of the paragraph in which they begin."""
    units = [
        (number, sentence)
        for number, paragraph in enumerate(paragraphs(text), 1)
        for sentence in sentences(paragraph)
    ]
    # A log has lines and no sentences, and a line may be a whole file.
    units = units or list(enumerate(text.splitlines(), 1))
    said = [
        (number, unit[start : start + _UNIT])
        for number, unit in units
        for start in range(0, len(unit), _UNIT)
    ]
    for start in range(0, len(said), size):
        together = said[start : start + size]
        yield together[0][0], " ".join(unit for _, unit in together)


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
