"""The coding app: starts a workflow with an issue and a worktree, and shows it as its own clients know it."""

from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from clew.api.workflow_apps import Prepared, StartCall, View
from clew.api.workflow_schemas import Given
from clew.apps.app import App, AppServices
from clew.apps.coding.assignments import Assignments
from clew.apps.coding.graph import SHOWN, Coding, CodingState
from clew.apps.coding.notes import RULES
from clew.apps.coding.plan import CODING as NAME
from clew.apps.coding.plan import WORKTREE, WORKTREES
from clew.apps.coding.trackers.profiles import TrackerAccess, Trackers
from clew.apps.coding.views import CodingFields, coding_fields
from clew.apps.coding.worktrees.git import GitWorktrees
from clew.domain.errors import Invalid
from clew.domain.thread import Thread


class CodingStart(Given):
    """Its own fields of a start. A start that has one of them and names no graph means this one."""

    issue_id: Annotated[str, Field(max_length=200, description="the id of an issue")]
    worktree_path: Annotated[str, Field(max_length=4096, description="the absolute path of a git work tree")]


class CodingOptions(BaseModel):
    """What coding workflows are made with."""

    model_config = ConfigDict(frozen=True)

    roots: tuple[Path, ...] = ()
    concurrent_workflows: int = 10
    review_rounds: int = 3
    # Variables that git is started with.
    environment: Mapping[str, SecretStr] = {}
    trackers: TrackerAccess


def make_graph(services: AppServices) -> CompiledStateGraph[CodingState, None, CodingState, CodingState]:
    options: CodingOptions = services.settings
    return Coding(
        worktrees=_worktrees(options),
        driver=services.driver,
        policy=services.policy,
        budget=services.budget,
        review_rounds=options.review_rounds,
    ).graph()


async def prepare(services: AppServices, call: StartCall) -> Prepared:
    """Raises Invalid naming the field, NotFound for an unknown issue, Transient or Permanent of the tracker."""
    _require_no_input(call)
    options: CodingOptions = services.settings
    async with aclosing(Trackers(services.profiles, options.trackers)) as trackers:
        assignments = Assignments(worktrees=_worktrees(options), tracker=trackers.of)
        made = await assignments.make(
            call.fields.issue_id,
            call.fields.worktree_path,
            profile=call.profile,
            text=call.prompt,
            is_local=call.is_local,
        )
    return Prepared(
        graph_input=made.state,
        settings=made.settings,
        reservations={WORKTREES: made.worktree},
        name=made.title,
    )


async def next_round(services: AppServices, call: StartCall, thread: Thread) -> Prepared | None:  # noqa: ARG001 - other apps may need them
    """The worktree and the issue stay the same; the prompt is a person's remark on the plan."""
    if WORKTREE not in thread.settings:
        return None
    _require_no_input(call)
    if call.prompt is None:
        raise Invalid("a prompt is needed: what the new plan must take into account", field="prompt")
    return Prepared(graph_input={"remark": call.prompt})


def _require_no_input(call: StartCall) -> None:
    """What a coding workflow works on comes from checked fields alone."""
    for field, given in (("input", call.input is not None), ("listFileId", bool(call.documents))):
        if given:
            raise Invalid("a coding workflow takes none", field=field)


def _worktrees(options: CodingOptions) -> GitWorktrees:
    variables = {name: value.get_secret_value() for name, value in options.environment.items()}
    return GitWorktrees(options.roots, variables)


CODING = App(
    name=NAME,
    graph=make_graph,
    start=CodingStart,
    prepare=prepare,
    next_round=next_round,
    show=View(model=CodingFields, fields=coding_fields),
    settings=CodingOptions,
    breakpoint_values=SHOWN,
    reservation_limits=lambda options: {WORKTREES: options.concurrent_workflows},
    uses_profiles=True,
    offline=RULES,
)
