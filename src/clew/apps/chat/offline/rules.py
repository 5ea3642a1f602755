"""Offline rules of the chat: they plan, choose what to chart, and pick the sentences that sum a text up."""

import json
from collections.abc import Mapping
from typing import Final

from clew.apps.chat.offline.charting import choose_view
from clew.apps.chat.offline.planning import Held, Planner
from clew.apps.chat.plan import plan_as_json
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.offline import OfflineRule
from clew.documents.passages import digest

_SENTENCES = 7


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
    return json.dumps(choose_view(inquiry.prompt, inquiry.facts["tables"]))


def summarize(inquiry: Inquiry) -> str:
    """Per document the sentences that say most, as they stand there."""
    sections = []
    for material in inquiry.material:
        said = digest(material.text, count=_SENTENCES)
        points = "\n".join(f"- {sentence}" for sentence in said) or f"- {material.text.strip()[:300]}"
        sections.append(points if len(inquiry.material) == 1 else f"## {material.label}\n\n{points}")
    return "\n\n".join(sections)


RULES: Final[Mapping[Purpose, OfflineRule]] = {
    Purpose.PLAN: plan,
    Purpose.CHART: chart,
    Purpose.SUMMARIZE: summarize,
}
