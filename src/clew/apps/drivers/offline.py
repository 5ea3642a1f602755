"""No model: rules that plan, choose what to chart, pick the sentences that sum a text up, and make notes of an issue.

The rest they refuse."""

import asyncio
import json

from clew.apps.chat.offline.charting import choose_view
from clew.apps.chat.offline.planning import Held, Planner
from clew.apps.chat.plan import plan_as_json
from clew.apps.coding import notes
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.documents.passages import digest
from clew.domain.errors import Permanent
from clew.domain.retry import ErrorClass

_SENTENCES = 7
_CAN = frozenset(
    {Purpose.PLAN, Purpose.CHART, Purpose.SUMMARIZE, Purpose.DESIGN, Purpose.CHANGE, Purpose.REVIEW}
)


class OfflineDriver:
    name = "offline"
    model = ""

    def can(self, purpose: Purpose) -> bool:
        return purpose in _CAN

    async def ask(self, inquiry: Inquiry) -> Reply:
        match inquiry.purpose:
            case Purpose.PLAN:
                return Reply(text=await asyncio.to_thread(_plan, inquiry))
            case Purpose.CHART:
                return Reply(text=json.dumps(choose_view(inquiry.prompt, inquiry.facts["tables"])))
            case Purpose.SUMMARIZE:
                return Reply(text=await asyncio.to_thread(_summary, inquiry))
            case Purpose.DESIGN:
                return Reply(text=notes.plan(inquiry))
            case Purpose.CHANGE:
                return Reply(text=notes.change(inquiry))
            case Purpose.REVIEW:
                return Reply(text=notes.review(inquiry))
            case _:
                raise Permanent("this needs a language model, and none is configured", ErrorClass.VALIDATION)


def _plan(inquiry: Inquiry) -> str:
    planner = Planner(
        prompt=inquiry.prompt,
        language=inquiry.language,
        agents=frozenset(agent["name"] for agent in inquiry.facts["agents"]),
        documents=[Held.of(document) for document in inquiry.facts["documents"]],
        round=inquiry.facts["round"],
    )
    return json.dumps(plan_as_json(planner.plan()))


def _summary(inquiry: Inquiry) -> str:
    """Per document the sentences that say most, as they stand there."""
    sections = []
    for material in inquiry.material:
        said = digest(material.text, count=_SENTENCES)
        points = "\n".join(f"- {sentence}" for sentence in said) or f"- {material.text.strip()[:300]}"
        sections.append(points if len(inquiry.material) == 1 else f"## {material.label}\n\n{points}")
    return "\n\n".join(sections)
