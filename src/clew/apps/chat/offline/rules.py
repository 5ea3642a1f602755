"""Offline rules of the chat: they plan, choose what to chart, and pick the sentences that sum a text up."""

import json
from collections.abc import Mapping
from typing import Final

from clew.apps.chat.offline.charting import choose_query
from clew.apps.chat.offline.planning import Held, Planner
from clew.apps.chat.offline.scan import PACKAGE, Scan, fold
from clew.apps.chat.plan import plan_as_json
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.offline import OfflineRule
from clew.documents.passages import digest, sentences
from clew.texts.catalog import read_language

# Of a text's sentences a summary has so many, and at most the share of them.
_MOST_SENTENCES = 50
_SENTENCES, _FEWEST, _SHARE = 7, 3, 0.4


def plan(inquiry: Inquiry) -> str:
    planner = Planner(
        prompt=inquiry.prompt,
        language=inquiry.language,
        agents=frozenset(agent["name"] for agent in inquiry.facts["agents"]),
        documents=[Held.of(document) for document in inquiry.facts["documents"]],
        round=inquiry.facts["round"],
    )
    return json.dumps(plan_as_json(planner.plan()))


def chart(inquiry: Inquiry) -> str:
    return json.dumps(choose_query(inquiry.prompt, inquiry.facts["tables"], inquiry.language))


def summarize(inquiry: Inquiry) -> str:
    """Per document the sentences that say most, as they stand there; as many as the prompt asks for."""
    sections = []
    asked = _length(inquiry.prompt, inquiry.language)
    for material in inquiry.material:
        share = max(_FEWEST, round(_SHARE * len(sentences(material.text))))
        said = digest(material.text, count=asked or min(_SENTENCES, share))
        points = "\n".join(f"- {sentence}" for sentence in said) or f"- {material.text.strip()[:300]}"
        sections.append(points if len(inquiry.material) == 1 else f"## {material.label}\n\n{points}")
    return "\n\n".join(sections)


def _length(prompt: str, language: str) -> int:
    """The number of sentences that the prompt asks for; 0 where it names none."""
    scan = Scan.of(prompt, language)
    for hit in scan.copy().take_list("lengths", "sentences"):
        before = scan.words[hit.start - 1] if hit.start else ""
        if before.isdigit() and 0 < int(before) <= _MOST_SENTENCES:
            return int(before)
        for code in scan.languages:
            numbers = [fold(word) for word in read_language(PACKAGE, code)["lengths"]["numbers"]]
            if before in numbers:
                return numbers.index(before) + 1
    return 0


RULES: Final[Mapping[Purpose, OfflineRule]] = {
    Purpose.PLAN: plan,
    Purpose.CHART: chart,
    Purpose.SUMMARIZE: summarize,
}
