"""Choice of a query: the table a prompt is about, and what is computed of it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from clew.apps.chat.offline.queries import Query, build_query
from clew.apps.chat.offline.questions import Question, TableFacts, Unsure, read_question
from clew.apps.chat.offline.scan import Scan
from clew.apps.chat.offline.wishes import FILE_NAME, Wish, read_wishes
from clew.domain.thread import Json
from clew.texts.catalog import DEFAULT, SUPPORTED

# What another agent does: a clause that asks for it says nothing about the table.
_OTHERS = frozenset({Wish.SUMMARY, Wish.SEARCH, Wish.TRANSLATION, Wish.WRITING, Wish.REPORT, Wish.CONVERSION})
_FIGURES = frozenset({Wish.CHART, Wish.TABLE})
_CLAUSE = re.compile(r"[.?!;。？！；,，\n]\s*|\s(?:and|und|et|y|e|ed)\s|并且|并|和")  # noqa: RUF001


def choose_query(
    prompt: str,
    tables: Sequence[Mapping[str, Json]],
    language: str | None = None,
    *,
    asks: bool | None = None,
) -> dict[str, Json]:
    """The SQL for the table that the prompt is about; `{"unsure": [words], ...}` where the rules might get it wrong."""
    facts = [TableFacts.of(table) for table in tables]
    least = Unsure()
    for clause in _readings(prompt):
        try:
            return _choose(clause, facts, language, asks=asks)
        except Unsure as exc:
            # The clauses about figures say best what is not understood.
            least = exc
    return {"table": facts[0].label, "unsure": list(least.words)}


def _choose(
    prompt: str, tables: Sequence[TableFacts], language: str | None, *, asks: bool | None
) -> dict[str, Json]:
    wishes = read_wishes(prompt, [])
    scan = Scan.of(prompt, language)
    draws = bool(
        Wish.CHART in wishes.wishes
        or any(scan.copy().take_list("charts", one) for one in ("pie", "bar", "line"))
    )
    is_question = asks if asks is not None else Wish.SEARCH in wishes.wishes
    known = language if language in SUPPORTED else DEFAULT
    found: list[tuple[int, Question, Query]] = []
    unsure: list[Unsure] = []
    for table in tables:
        try:
            question = read_question(prompt, table, language)
            query = build_query(question, known, draws=draws, asks=is_question)
        except Unsure as exc:
            unsure.append(exc)
            continue
        found.append((_mentions(question), question, query))
    if not found:
        raise min(unsure, key=lambda one: len(one.words) or 99)
    best = max(mentions for mentions, _, _ in found)
    chosen = [(question, query) for mentions, question, query in found if mentions == best]
    if best and len({question.table.label for question, _ in chosen}) > 1:
        raise Unsure
    question, query = chosen[0]
    makes = draws or question.says_nothing or Wish.REPORT in wishes.wishes
    return query.as_json(question) | {"answerOnly": not makes}


def _mentions(question: Question) -> int:
    return len(question.measures) + len(question.dims) + len(question.filters) + (question.period is not None)


def _readings(prompt: str) -> Iterator[str]:
    """The whole prompt; else its clauses about figures, if the others are about something else."""
    yield prompt
    names = [match.span() for match in FILE_NAME.finditer(prompt)]
    cuts = [
        match.span()
        for match in _CLAUSE.finditer(prompt)
        if not any(start <= match.start() < end for start, end in names)
    ]
    starts = [0, *(end for _, end in cuts)]
    ends = [*(start for start, _ in cuts), len(prompt)]
    clauses = [prompt[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    # The name of a file to make is no clause.
    clauses = [clause for clause in clauses if FILE_NAME.sub("", clause).strip()]
    if not 1 < len(clauses) <= 8:
        return
    wishes = [read_wishes(clause, []).wishes for clause in clauses]
    about = [clause for clause, its in zip(clauses, wishes, strict=True) if its & _FIGURES]
    rest = [its for its in wishes if not its & _FIGURES]
    if about and all(its & _OTHERS for its in rest):
        yield " ".join(about)
