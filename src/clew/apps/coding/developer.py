"""Developer: carries out a plan in a worktree, with a program that edits files or with the edits that a model answers.

A model may read the code first. A file that exists is replaced whole only if all of it was shown to the model; a patch
names a text that stands in the file once.
"""

from collections.abc import Collection
from dataclasses import dataclass

from clew.apps.coding.checks import CheckResult
from clew.apps.coding.edits import edits_of, read_wish
from clew.apps.coding.plan import Changes, Issue
from clew.apps.coding.ports import Worktree
from clew.apps.coding.reading import consult
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, Workplace
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.documents.passages import cut
from clew.domain.errors import Invalid, Permanent
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json

ATTEMPTS = 2
# Limits of the files a plan names, for a model that cannot read the worktree.
_CHARACTERS = 100_000
_SUMMARY = 4_000
_MOST_NAMED = 200


@dataclass(frozen=True, slots=True)
class Known:
    """What a model gets of the worktree: files shown whole, and the names of files too large to show."""

    shown: dict[str, str]
    left_out: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    issue: Issue
    plan: str
    # The changes already in the worktree.
    changes: Changes
    # What the last review asked for.
    remarks: str = ""
    # The comment of the person who approved the plan.
    comment: str = ""
    # The tests as they ended after the last step.
    tests: CheckResult | None = None
    # Whether an earlier attempt was interrupted.
    is_repeated: bool = False


async def develop(driver: Driver, worktree: Worktree, task: Task, workplace: Workplace) -> str:
    """Change the files and return a summary. Raises Permanent for an answer that cannot be applied."""
    if driver.can(Purpose.EDIT):
        reply = await driver.ask(_inquiry(Purpose.EDIT, task, Known({}, []), workplace))
        return cut(reply.text.strip(), _SUMMARY) or "The files were changed."
    complaint = ""
    wanted: set[str] = set()
    for _ in range(ATTEMPTS):
        known = await _known(worktree, task, wanted)
        reply = await consult(driver, worktree, _inquiry(Purpose.CHANGE, task, known, workplace, complaint))
        try:
            answer = json_in(reply.text)
            wish = read_wish(answer)
            wanted |= wish.paths  # files it could not change are shown in the next attempt
            edits = await edits_of(worktree, wish, shown=known.shown, changed=task.changes.files)
            await worktree.apply(edits)
        except Invalid as exc:
            complaint = f"Your last answer could not be carried out: {exc.field}: {exc}"
        else:
            summary = answer.get("summary")
            return cut(summary.strip(), _SUMMARY) if isinstance(summary, str) and summary.strip() else "Done."
    raise Permanent(
        f"the developer gave no edits that can be carried out. {complaint}", ErrorClass.VALIDATION
    )


async def _known(worktree: Worktree, task: Task, wanted: Collection[str]) -> Known:
    """The files the model asked for, those that the plan or the review names, and those that differ already."""
    asked = f"{task.plan}\n{task.remarks}\n{task.comment}"
    files = await worktree.files()
    changed = frozenset(task.changes.files)
    groups = (
        [path for path in files if path in wanted],
        [path for path in files if path in asked],
        [path for path in files if path in changed],
    )
    room = _CHARACTERS
    shown: dict[str, str] = {}
    left_out: list[str] = []
    for path in dict.fromkeys(path for group in groups for path in group):
        text = await worktree.read(path)
        if text is None or len(text) > room:
            left_out.append(path)
        else:
            room -= len(text)
            shown[path] = text
    return Known(shown, left_out)


def _inquiry(
    purpose: Purpose,
    task: Task,
    known: Known,
    workplace: Workplace,
    complaint: str = "",
) -> Inquiry:
    facts: dict[str, Json] = {
        "issue": {"id": task.issue.id, "title": task.issue.title},
        "changed already": list(task.changes.files),
    }
    if task.is_repeated:
        facts["begun before"] = (
            "An earlier attempt at this was cut short, and may have left files half changed. Look at the changes first,"
            " and go on from there."
        )
    if known.left_out:
        facts["not shown"] = list[Json](known.left_out[:_MOST_NAMED])
    if complaint:
        facts["complaint"] = complaint
    material = [Material(label="plan", text=task.plan), Material(label="issue", text=task.issue.body)]
    material += [Material(label=path, text=text) for path, text in known.shown.items()]
    if task.changes.text:
        material.append(Material(label="changes", text=task.changes.text))
    if task.comment:
        material.append(Material(label="comment", text=task.comment))
    if task.tests is not None and not task.tests.passed:
        material.append(Material(label="tests", text=f"{task.tests.line}\n\n{task.tests.output}"))
    if task.remarks:
        material.append(Material(label="review", text=task.remarks))
    wanted = "Carry out the plan" if not task.remarks else "Do what the review asks for, within the plan"
    return Inquiry(
        purpose=purpose,
        role=prompt("developer_edit" if purpose is Purpose.EDIT else "developer"),
        prompt=f"{wanted} for the issue {task.issue.id}.",
        material=tuple(material),
        facts=facts,
        wants_json=purpose is Purpose.CHANGE,
        workplace=workplace,
    )
