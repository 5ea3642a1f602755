"""Ports of the coding app: issue trackers and worktrees."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from clew.apps.coding.plan import Changes, Issue
from clew.domain.errors import Permanent


@dataclass(frozen=True, slots=True, kw_only=True)
class Edits:
    """Changes of a worktree, each with the text that the file has now."""

    write: Mapping[str, str] = field(default_factory=dict)
    # Of the files to write, those that exist.
    over: Mapping[str, str] = field(default_factory=dict)
    delete: Mapping[str, str] = field(default_factory=dict)
    # By the old path: the new one and the text.
    rename: Mapping[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreePatch:
    """All changes since a commit, as git shows them. `text` is cut where it is long."""

    base: str
    files: tuple[str, ...]
    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """What is committed: exactly this tree, on this branch. `at` and the rest make its name."""

    base: str
    tree: str
    branch: str
    message: str
    author: str
    at: datetime


class TreeChanged(Permanent):
    """The worktree holds other files than those that were approved. Nothing was committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    branch: str
    base: str
    title: str
    body: str


class Tracker(Protocol):
    """Fetches issues, and is told what became of them."""

    async def fetch(self, issue_id: str, text: str | None) -> Issue:
        """The issue as the tracker has it. `text` is the caller's prompt: the issue itself if there is no tracker.

        Raises NotFound for an issue that is not there, Invalid for what is no id of one, Transient when the tracker
        is away, Permanent when it does not let us in.
        """
        ...

    async def comment(self, issue_id: str, text: str, *, mark: str) -> str:
        """Add a comment unless one with the mark is there, a line that only this comment has; its address.

        Raises like `fetch`, and Permanent where there is no tracker.
        """
        ...

    async def pull_request(self, issue_id: str, wanted: PullRequest) -> str:
        """Open a pull request unless the branch has one; its address. Raises like `comment`."""
        ...

    def repository(self, issue_id: str) -> str:
        """Where pull requests for this issue go, like owner/name; empty where there are none."""
        ...


class Commits(Protocol):
    """What a worktree's changes become. Raises Transient or Permanent where git or a remote refuses."""

    async def patch(self, base: str) -> WorktreePatch: ...

    async def tree(self, base: str) -> tuple[str, WorktreePatch]:
        """The name of the tree that a commit would hold, and the patch."""
        ...

    async def free_branch(self, issue_id: str, base: str, *, taken: Collection[str]) -> str:
        """A name for the branch, which is neither in the repository nor `taken`."""
        ...

    async def commit(self, what: Commit) -> str:
        """The commit's name. Made twice, it is the same one. Raises TreeChanged."""
        ...

    async def remote_branches(self, remote: str, token: str) -> Sequence[str]: ...

    async def push(self, remote: str, token: str, *, commit: str, branch: str) -> None: ...


class Worktrees(Protocol):
    """The worktrees that workflows may change."""

    @property
    def has_roots(self) -> bool:
        """Whether the operator set coding.roots."""
        ...

    async def find(self, path: str) -> "Worktree":
        """Raises Invalid for what is not absolute, not there, not allowed, or not the top of a work tree."""
        ...


class Worktree(Protocol):
    """One of them. Raises Transient or Permanent where git cannot be asked."""

    @property
    def path(self) -> str:
        """Its one name: whatever links and spellings lead there."""
        ...

    @property
    def name(self) -> str: ...

    async def base(self) -> str:
        """The commit it stands at now."""
        ...

    async def files(self) -> Sequence[str]:
        """Its files, without those git ignores."""
        ...

    async def changes(self, base: str) -> Changes:
        """What differs from that commit, files that git does not know yet included."""
        ...

    async def read(self, path: str) -> str | None:
        """The whole text of a file; None where there is none, or it is too long or no text."""
        ...

    async def apply(self, edits: Edits) -> None:
        """Carry out edits. Raises Invalid where a file does not have the text that they say, and for a path outside of
        the worktree, also by a link. All are checked before the first is carried out.
        """
        ...

    async def starts(self) -> Sequence[str]:
        """Settings of the repository that make git start programs where git reads them."""
        ...

    def looking(self) -> AbstractAsyncContextManager[Mapping[str, str]]:
        """Variables with which a program's own git calls read none of the repository's settings, and change nothing."""
        ...

    def alone(self) -> AbstractAsyncContextManager[int]:
        """Lock the worktree for one workflow; a program left by an earlier attempt is ended first.

        Gives an open file which a program that works there must keep open. Raises Transient if one cannot be ended.
        """
        ...
