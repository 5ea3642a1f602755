"""Reviewer: checks whether the changes match the plan."""

from collections.abc import Sequence

from clew.apps.coding.checks import CheckResult
from clew.apps.coding.plan import Changes, Issue, Review, read_review
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, Workplace
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.domain.errors import Invalid, Permanent
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

ATTEMPTS = 2
NOTHING = "Nothing was changed."


async def review(
    driver: Driver,
    issue: Issue,
    plan: str,
    changes: Changes,
    *,
    comment: str = "",
    tests: CheckResult | None = None,
    changed_before: Sequence[str],
    workplace: Workplace,
) -> Review:
    """Raises Permanent if no answer can be read as a yes or a no: a missing answer does not approve."""
    if not changes.files:
        return Review(False, NOTHING)
    complaint = ""
    for _ in range(ATTEMPTS):
        facts: dict[str, Json] = {
            "issue": {"id": issue.id, "title": issue.title},
            "files": list(changes.files),
            "changed before the work began": list(changed_before),
        }
        if tests is not None:
            facts["tests"] = tests.line
        if complaint:
            facts["complaint"] = complaint
        reply = await driver.ask(
            Inquiry(
                purpose=Purpose.REVIEW,
                role=prompt("reviewer"),
                prompt=f"Review the changes for the issue {issue.id}.",
                material=(
                    Material(label="plan", text=plan),
                    *([Material(label="comment", text=comment)] if comment else []),
                    Material(label="issue", text=issue.body),
                    Material(label="changes", text=changes.text),
                    *([Material(label="tests", text=tests.output)] if tests is not None else []),
                ),
                facts=facts,
                wants_json=True,
                workplace=workplace,
            )
        )
        try:
            return read_review(json_in(reply.text))
        except Invalid as exc:
            complaint = f"Your last answer could not be read: {exc.field}: {exc}"
    raise Permanent(f"the reviewer said neither yes nor no. {complaint}", ErrorClass.VALIDATION)
