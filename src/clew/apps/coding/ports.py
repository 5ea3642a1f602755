"""Ports of the coding app: issue trackers and worktrees."""

from collections.abc import (
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from clew.apps.coding.plan import Changes, Issue


class Tracker(Protocol):
    """Fetches issues."""

    async def fetch(self, issue_id: str, text: str | None) -> Issue:
        """The issue as the tracker has it. `text` is the caller's prompt: the issue itself if there is no tracker.

        Raises NotFound for an issue that is not there, Invalid for what is no id of one, Transient when the tracker
        is away, Permanent when it does not let us in.
        """
        ...


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

    async def write(self, new: Mapping[str, str], *, over: Mapping[str, str]) -> None:
        """Whole files by their paths. `over` has the text that each of them has now; the others do not exist.

        Raises Invalid where that is not so, and for a path outside of the worktree, also by a link. All are checked
        before the first is written.
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
