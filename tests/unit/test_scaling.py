"""Work on texts grows with the text: four times the input takes less than eight times the computing."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from clew.apps.chat.agents.rendering.blocks import parse
from clew.apps.chat.agents.researcher import search
from clew.apps.chat.agents.tasks import Part
from clew.apps.chat.offline.charting import choose_query
from clew.apps.chat.offline.wishes import read_wishes
from clew.apps.drivers.replies import json_in
from clew.apps.interview.rules import improve, questions
from clew.checkpointer.deltas import Remembered
from clew.documents.extraction.html import text_of_html
from clew.documents.gist import gist
from clew.documents.passages import digest, relevant, relevant_rows
from clew.documents.tables.database import TableSource, open_tables
from clew.domain.errors import Invalid
from clew.domain.redaction import without

SENTENCE = "Revenue grew by twelve percent in the last year of this report. "
LINE = "and the words go on and on without a full stop and without a blank line\n"
# Below this a measurement says nothing.
SHORTEST = 0.02


def prose(unit: str) -> Callable[[int], str]:
    return lambda size: unit * size


def table(size: int) -> str:
    return "name,sales\n" + "".join(f"name {number},{number}\n" for number in range(size))


def summed_up(text: str) -> Any:
    with open_tables([TableSource("t.csv", text)]) as database:
        return database.query('SELECT name, sum(sales) FROM "t.csv" GROUP BY 1 LIMIT 20')


def answered(text: str) -> None:
    with suppress(Invalid):
        json_in(text)


def found(text: str) -> Any:
    content: Any = {"data": text, "metadata": {}}
    return search([Part("a.txt", content)], "How did the revenue grow?")


def charted(prompt: str) -> Any:
    columns = [{"name": name, "kind": "text", "distinct": 3} for name in ("region", "month")]
    return choose_query(prompt, [{"label": "t.csv", "columns": columns}])


CASES: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any], int]] = {
    "summary of lines": (prose(f"{SENTENCE}\n"), digest, 4_000),
    "summary of one line": (prose(SENTENCE), digest, 20_000),
    "summary without full stops": (prose(LINE), digest, 4_000),
    "summary of abbreviations": (prose("a. B. "), digest, 4_000),
    "summary of Chinese": (prose("收入增长了很多。"), digest, 20_000),
    "passages": (prose(f"{SENTENCE}\n"), lambda text: relevant(text, "revenue", limit=4_000), 4_000),
    "rows": (table, lambda text: relevant_rows(text, "name 7", limit=4_000), 20_000),
    "search": (prose(f"{SENTENCE}\n"), found, 4_000),
    "gist": (prose(SENTENCE), gist, 20_000),
    "interview": (prose(f"{SENTENCE}\n"), lambda text: questions(text, "Kubernetes"), 4_000),
    "interview of gaps": (
        prose("[name] and so on "),
        lambda text: improve(text, questions(text), ["Ada"] * 6),
        20_000,
    ),
    "table": (table, summed_up, 5_000),
    "JSON behind a fence that stays open": (lambda size: "```" + " " * size, answered, 4_000),
    "Markdown": (prose(f"*{SENTENCE}*\n"), parse, 2_000),
    "nested tags": (prose("<span>x "), text_of_html, 4_000),
    "wishes": (prose(SENTENCE), lambda text: read_wishes(text, ()), 5_000),
    "columns a prompt names": (lambda size: "words " * size, charted, 4_000),
    "texts taken back": (
        lambda size: [f"the text with number {number}" for number in range(size)],
        lambda texts: without(texts, texts),
        1_000,
    ),
    "a list in another order": (
        lambda size: [[number] for number in range(size)],
        lambda items: Remembered.of(items).delta_to(items[::-1]),
        5_000,
    ),
}


def seconds(work: Callable[[Any], Any], given: Any) -> float:
    """Of computing, by this thread alone; the best of two, since the machine is not ours."""
    best = float("inf")
    for _ in range(2):
        begun = time.thread_time()
        work(given)
        best = min(best, time.thread_time() - begun)
    return best


@pytest.mark.fault("F12")
@pytest.mark.parametrize("name", CASES)
def test_four_times_the_input_is_less_than_eight_times_the_work(name: str) -> None:
    make, work, size = CASES[name]
    once, four_times = seconds(work, make(size)), seconds(work, make(4 * size))
    assert four_times < 8 * max(once, SHORTEST), f"{once:.3f} s, then {four_times:.3f} s"
