"""Project manager: turns a request into a valid work plan, or raises Permanent."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clew.apps.chat.plan import PLAN_SCHEMA, WorkPlan, read_plan
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.domain.errors import Invalid, Permanent
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

# These messages contain private text; they are written only at debug level.
debug = logging.getLogger("clew.debug")

ATTEMPTS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The input of a plan."""

    prompt: str
    language: str
    # By name, what each agent is good for.
    agents: Mapping[str, str]
    # Each with its label, its kind (text, table, picture, other), its origin (user, agent) and its round.
    documents: Sequence[Mapping[str, Json]]
    round: int = 1
    # What was said before, each with its role and content.
    history: Sequence[Mapping[str, str]] = ()
    # Whether the agents' model sees pictures.
    sees: bool = False


async def make_plan(driver: Driver, situation: Situation) -> WorkPlan:
    """Ask for a plan, and once more if the first is invalid. Raises Permanent if both are."""
    complaint = ""
    for _ in range(ATTEMPTS):
        reply = await driver.ask(_inquiry(situation, complaint))
        debug.debug("project manager: %s", reply.text)
        try:
            return read_plan(
                json_in(reply.text),
                agents=situation.agents,
                documents=[str(document["label"]) for document in situation.documents],
            )
        except Invalid as exc:
            complaint = f"{exc.field}: {exc}"
    raise Permanent(f"the project manager gave no valid work plan ({complaint})", ErrorClass.VALIDATION)


def _inquiry(situation: Situation, complaint: str) -> Inquiry:
    facts: dict[str, Json] = {
        "agents": [{"name": name, "use": use} for name, use in situation.agents.items()],
        "documents": list(situation.documents),
        "round": situation.round,
        "sees": situation.sees,
    }
    if situation.history:
        facts["history"] = list(situation.history)
    if complaint:
        facts["complaint"] = f"Your last plan could not be carried out: {complaint}"
    return Inquiry(
        purpose=Purpose.PLAN,
        role=prompt("project_manager"),
        prompt=situation.prompt,
        language=situation.language,
        facts=facts,
        wants_json=True,
        schema=PLAN_SCHEMA,
    )
