"""Coding without a model: rules split an issue into steps and write them as notes.

Nothing is programmed, and the plan says so.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.offline import OfflineRule
from clew.documents.passages import sentences

_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?(\S.*)$")
_STEP = re.compile(r"^\d{1,2}\. (\S.*)$")
_TARGET = re.compile(r"^- write `([^`]+)`$")
_TITLE = re.compile(r"^# (\S.*)$")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST_STEPS = 20
_FEW = 7
_STEP_CHARACTERS = 300

OFFLINE = (
    "No language model is configured, so no code is written: this plan is kept as notes in the worktree,"
    " for the person who does the work."
)


def plan(inquiry: Inquiry) -> str:
    """The issue's list items or sentences as steps, and the file to write them to."""
    issue = inquiry.facts["issue"]
    steps = _steps(_material(inquiry, "issue")) or [f"Do what the title says: {issue['title']}"]
    if remark := " ".join(str(inquiry.facts.get("remark") or "").split()):
        steps.append(f"Mind the remark: {remark[:_STEP_CHARACTERS]}")
    numbered = "\n".join(f"{number}. {step}" for number, step in enumerate(steps, 1))
    target = _free(str(issue["id"]), inquiry.facts.get("files") or ())
    title = " ".join(f"{issue['id']}: {issue['title']}".split())
    return f"# {title}\n\n{OFFLINE}\n\n## Steps\n\n{numbered}\n\n## Change\n\n- write `{target}`\n"


def change(inquiry: Inquiry) -> str:
    """The notes, as the plan says."""
    lines = _material(inquiry, "plan").splitlines()
    title = next((found[1] for line in lines if (found := _TITLE.match(line))), "Notes")
    content = "".join(f"- [ ] {step}\n" for step in _found(_STEP, lines))
    targets = _found(_TARGET, lines)[:1]
    files = [{"path": path, "content": f"# {title}\n\n{content}"} for path in targets]
    return json.dumps({"files": files, "summary": f"Wrote {', '.join(targets)}"}, ensure_ascii=False)


def review(inquiry: Inquiry) -> str:
    """Whether the file is there and has every step, and no test failed."""
    lines = _material(inquiry, "plan").splitlines()
    changed = _material(inquiry, "changes")
    missing = [path for path in _found(_TARGET, lines) if path not in (inquiry.facts.get("files") or ())]
    missing += [step for step in _found(_STEP, lines) if f"- [ ] {step}" not in changed]
    tests = str(inquiry.facts.get("tests") or "")
    remarks = f"Missing: {'; '.join(missing)}" if missing else "Every step of the plan is in the notes."
    if has_failed := tests.startswith("Tests failed"):
        remarks = f"{remarks} {tests}."
    return json.dumps({"approved": not missing and not has_failed, "remarks": remarks}, ensure_ascii=False)


def _steps(text: str) -> list[str]:
    listed = [" ".join(found[1].split()) for line in text.splitlines() if (found := _ITEM.match(line))]
    return [step[:_STEP_CHARACTERS] for step in (listed[:_MOST_STEPS] or sentences(text)[:_FEW])]


def _free(issue_id: str, taken: Collection[str]) -> str:
    """An unused file name: an existing file is not overwritten."""
    stem = _UNSAFE.sub("-", issue_id).strip("-.") or "issue"
    candidate, number = f"notes/{stem}.md", 2
    while candidate in taken:
        candidate, number = f"notes/{stem}-{number}.md", number + 1
    return candidate


def _found(pattern: re.Pattern[str], lines: Sequence[str]) -> list[str]:
    return [found[1] for line in lines if (found := pattern.match(line))]


def _material(inquiry: Inquiry, label: str) -> str:
    return next((one.text for one in inquiry.material if one.label == label), "")


RULES: Final[Mapping[Purpose, OfflineRule]] = {
    Purpose.DESIGN: plan,
    Purpose.CHANGE: change,
    Purpose.REVIEW: review,
}
