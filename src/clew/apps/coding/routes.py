"""Coding routes: the diff of a workflow's changes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from clew.api.access import needs
from clew.api.guard import Caller
from clew.api.openapi import errors
from clew.api.routing import Router
from clew.api.schemas import WireModel
from clew.apps.app import RouteServices
from clew.apps.coding.plan import ARCHITECT, WORKTREE
from clew.apps.coding.worktrees.commits import GitCommits
from clew.apps.coding.worktrees.git import GitWorktrees
from clew.domain.errors import Invalid, InvalidState, NotFound, Permanent, Transient
from clew.domain.events import Event, StageCompleted

ThreadId = Annotated[str, Path(max_length=256)]


class DiffOut(WireModel):
    base: str
    """The commit the work began at."""
    files: list[str]
    diff: Annotated[str, Field(description="As `git diff` shows it, with new files.")]
    is_cut: bool
    """Whether it is longer than what is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingRoutes:
    services: RouteServices
    worktrees: GitWorktrees

    def router(self) -> APIRouter:
        router = Router(prefix="/api/workflows", tags=["coding"])
        router.get(
            "/{workflow_id}/diff",
            dependencies=[needs("read")],
            responses=errors(Invalid, NotFound, InvalidState, Permanent, Transient),
        )(self.get_diff)
        return router

    async def get_diff(self, caller: Caller, workflow_id: ThreadId) -> DiffOut:
        """What a coding workflow changed in its worktree, as it is there now."""
        thread = await self.services.access.at(workflow_id, caller.owner)
        path = thread.settings.get(WORKTREE)
        base = _base(await self.services.store.read(thread.id, types=(StageCompleted.type,)))
        if not isinstance(path, str) or base is None:
            raise InvalidState(f"workflow {workflow_id!r} has no plan yet, and so no changes")
        worktree = await self.worktrees.find(path)
        patch = await GitCommits(worktree, {}).patch(base)
        return DiffOut(base=patch.base, files=list(patch.files), diff=patch.text, is_cut=patch.is_cut)


def _base(events: Sequence[Event]) -> str | None:
    """The commit of the last plan."""
    outputs = [
        event.body.output
        for event in events
        if isinstance(event.body, StageCompleted) and event.body.stage == ARCHITECT
    ]
    bases = [one["base"] for one in outputs if isinstance(one, dict) and isinstance(one.get("base"), str)]
    return bases[-1] if bases else None
