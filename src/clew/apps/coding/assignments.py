"""Coding assignments: the checked worktree and the fetched issue that a coding workflow starts with."""

from collections.abc import Callable
from dataclasses import dataclass

from clew.apps.coding.plan import WORKTREE, require_issue_id
from clew.apps.coding.ports import Tracker, Worktrees
from clew.domain.errors import Invalid
from clew.domain.thread import Json


@dataclass(frozen=True, slots=True)
class Assignment:
    """`settings` are the thread's, which never change; `state` is what its graph begins with."""

    worktree: str
    settings: dict[str, Json]
    state: dict[str, Json]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignments:
    worktrees: Worktrees
    # By the name of a profile.
    tracker: Callable[[str], Tracker]

    async def make(
        self, issue_id: str, path: str, *, profile: str, text: str | None, is_local: bool
    ) -> Assignment:
        """Raises Invalid naming the field, NotFound for an unknown issue, Transient or Permanent of the tracker.

        `is_local` is a caller that needs no key, and so is on this machine: only such a caller may name any folder
        if coding.roots is not set.
        """
        issue_id = require_issue_id(issue_id)
        if not self.worktrees.has_roots and not is_local:
            raise Invalid("no folder is open to coding workflows: set coding.roots", field="worktreePath")
        tracker = self.tracker(profile)
        worktree = await self.worktrees.find(path)
        issue = await tracker.fetch(issue_id, text)
        known: dict[str, Json] = {
            "issue_id": issue_id,
            WORKTREE: worktree.path,
            "worktree_name": worktree.name,
        }
        return Assignment(
            worktree=worktree.path,
            settings=known,
            state={**known, "profile": profile, "issue": issue.as_json(), "remark": ""},
            title=f"{issue_id}: {issue.title}",
        )
