"""Conclusion of a round: its last message, which answers the request and reviews the promised documents."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from clew.apps.chat.plan import WorkPlan
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.domain.errors import Invalid, LimitExceeded, Permanent, Transient
from clew.domain.thread import Json
from clew.texts.phrases import Text, listed, say

logger = logging.getLogger(__name__)


def review(
    plan: WorkPlan,
    made: Sequence[str],
    results: Sequence[Mapping[str, Json]],
    language: str,
    *,
    is_offline: bool = False,
) -> str:
    """What was planned, what was made, what is missing. Rules do not say "done" for what they did not do."""
    if plan.closing and not plan.tasks:
        return plan.closing
    refused = [bool(result.get("refused")) for result in results]
    dropped = {
        output.label
        for task, is_refused in zip(plan.tasks, refused, strict=False)
        if is_refused
        for output in task.outputs
    }
    if not made and (all(refused) if refused else is_offline):
        return say(Text.NOT_DONE, language)
    answers = [str(result["answer"]) for result in results if result.get("answer")]
    promised = [label for label in plan.final_documents if label not in dropped]
    missing = [label for label in promised if label not in made]
    delivered = [label for label in promised if label in made] or list(made)
    if answers and not plan.final_documents:
        return "\n\n".join(answers)
    said = [say(Text.DONE, language)]
    if delivered:
        said.append(say(Text.DELIVERED, language, documents=listed(delivered, language)))
    if missing:
        said.append(say(Text.MISSING, language, documents=listed(missing, language)))
    if failed := sum(not result["ok"] for result in results):
        said.append(say(Text.TASKS_FAILED, language, failed=failed, total=len(plan.tasks)))
    return " ".join(said)


async def conclude(driver: Driver, plan: WorkPlan, state: Mapping[str, Any], reviewed: str) -> str:
    """A model's answer from the results, and the review below it. Without a model, or an answer, the review alone."""
    results = state["results"]
    if not results or not driver.model or not driver.can(Purpose.CONCLUDE):
        return reviewed
    inquiry = Inquiry(
        purpose=Purpose.CONCLUDE,
        role=prompt("conclusion"),
        prompt=state["prompt"],
        language=state["language"],
        facts={
            "promised": list(plan.final_documents),
            "made": [f"{one['label']}" for result in results for one in result["documents"]],
            "failed": [
                {"agent": result["agent"], "reason": result["reason"]}
                for result in results
                if not result["ok"]
            ],
        },
        material=tuple(
            Material(label=f"{number}. {result['agent']}", text=str(result.get("said") or ""))
            for number, result in enumerate(results, 1)
        ),
    )
    try:
        answer = (await driver.ask(inquiry)).text.strip()
    except (Transient, Permanent, LimitExceeded) as exc:
        # The work is done and its documents are there: the round does not fail for want of closing words.
        logger.warning(
            "the last message is written without the model", extra={"error_class": exc.error_class}
        )
        return reviewed
    if not answer or _is_json(answer):
        return reviewed
    # An answer needs no word that it is one.
    is_all = reviewed == say(Text.DONE, state["language"])
    return answer if is_all else f"{answer}\n\n{reviewed}"


def _is_json(text: str) -> bool:
    """Whether a model answered with a plan again, which is nothing to show to a person."""
    try:
        return isinstance(json_in(text), dict | list) and text.lstrip().startswith(("{", "[", "```"))
    except Invalid:
        return False
