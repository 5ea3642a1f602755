"""Carries a plan out in a worktree: through a program that edits files, or by writing what a model says."""

from dataclasses import dataclass

from clew.agents.prompts import prompt
from clew.agents.replies import json_in
from clew.domain.coding import Changes, Issue, read_files
from clew.domain.errors import Invalid, Permanent
from clew.domain.inquiries import Inquiry, Material, Purpose, Workplace
from clew.domain.passages import cut
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json
from clew.ports import Driver, Worktree

ATTEMPTS = 2
# Of the files a plan names, for a model that cannot look for itself.
_CHARACTERS = 100_000
_SUMMARY = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    issue: Issue
    plan: str
    # What stands in the worktree already.
    changes: Changes
    # What the last review asked for.
    remarks: str = ""
    # Whether this was begun before and did not come to its end.
    is_repeated: bool = False


async def develop(driver: Driver, worktree: Worktree, task: Task, workplace: Workplace) -> str:
    """Change the files, and say what was done. Raises Permanent for an answer that cannot be carried out."""
    if driver.can(Purpose.EDIT):
        reply = await driver.ask(_inquiry(Purpose.EDIT, task, await _named(worktree, task, 0), workplace))
        return cut(reply.text.strip(), _SUMMARY) or "The files were changed."
    complaint = ""
    for _ in range(ATTEMPTS):
        named = await _named(worktree, task, _CHARACTERS)
        reply = await driver.ask(_inquiry(Purpose.CHANGE, task, named, workplace, complaint))
        try:
            answer = json_in(reply.text)
            for file in read_files(answer):
                await worktree.write(file.path, file.content)
        except Invalid as exc:
            complaint = f"Your last answer could not be carried out: {exc.field}: {exc}"
        else:
            summary = answer.get("summary")
            return cut(summary.strip(), _SUMMARY) if isinstance(summary, str) and summary.strip() else "Done."
    raise Permanent(f"the developer gave no files that can be written. {complaint}", ErrorClass.VALIDATION)


async def _named(worktree: Worktree, task: Task, room: int) -> tuple[Material, ...]:
    """The files that the plan or the review names, as far as there is room."""
    asked = f"{task.plan}\n{task.remarks}"
    found: list[Material] = []
    for path in await worktree.files() if room else ():
        text = await worktree.read(path) if path in asked else None
        if text is not None and len(text) <= room:
            room -= len(text)
            found.append(Material(label=path, text=text))
    return tuple(found)


def _inquiry(
    purpose: Purpose,
    task: Task,
    named: tuple[Material, ...],
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
    if complaint:
        facts["complaint"] = complaint
    material = [Material(label="plan", text=task.plan), Material(label="issue", text=task.issue.body), *named]
    if task.changes.text:
        material.append(Material(label="changes", text=task.changes.text))
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
