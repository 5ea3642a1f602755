"""Coding views: a coding workflow as its own clients know it, with underscores beside the names of every workflow."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from clew.api.schemas import WireModel
from clew.apps.coding.plan import WORKTREE
from clew.domain.thread import Json, Thread


class CodingFields(WireModel):
    issue_id: Annotated[str, Field(alias="issue_id")]
    worktree_path: Annotated[str, Field(alias="worktree_path")]
    """Without links: its one name."""
    worktree_name: Annotated[str, Field(alias="worktree_name")]
    workflow_status: Annotated[str, Field(alias="workflow_status")]
    current_stage: Annotated[str, Field(alias="current_stage")]
    begun_at: Annotated[datetime, Field(alias="started_at")]
    completed_at: Annotated[datetime | None, Field(alias="completed_at")]
    """When its round ended."""
    reason: Annotated[str | None, Field(alias="failure_reason")]
    execution_state: Annotated[Json, Field(alias="execution_state")]
    """The values of the graph's state: issue, plan, human_approved, review and the rest."""


def coding_fields(thread: Thread, values: Json, completed_at: datetime | None) -> dict[str, Any] | None:
    """None for a thread that was started without a worktree, as another API may do."""
    settings = thread.settings
    if WORKTREE not in settings:
        return None
    known = {name: settings[name] for name in ("issue_id", WORKTREE, "worktree_name")}
    return {
        **known,
        "workflow_status": str(thread.status),
        "current_stage": thread.stage,
        "completed_at": completed_at if thread.status.is_terminal else None,
        # The workflow's own messages include these.
        "execution_state": known
        | {name: value for name, value in (values or {}).items() if name != "messages"},
    }
