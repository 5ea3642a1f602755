"""The coding app: starts a workflow with an issue and a worktree, and shows it as its own clients know it."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, cast

from fastapi import APIRouter
from langgraph.graph.state import CompiledStateGraph
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from clew.api.workflow_apps import Prepared, StartCall, View
from clew.api.workflow_schemas import Given
from clew.apps.app import App, AppServices, RouteServices
from clew.apps.coding.assignments import Assignments
from clew.apps.coding.graph import SHOWN, Coding, CodingState
from clew.apps.coding.notes import RULES
from clew.apps.coding.plan import CODING as NAME
from clew.apps.coding.plan import WORKTREE, WORKTREES
from clew.apps.coding.ports import Worktree
from clew.apps.coding.publishing import Publisher, token_for
from clew.apps.coding.routes import CodingRoutes
from clew.apps.coding.trackers.profiles import TrackerAccess, Trackers
from clew.apps.coding.views import CodingFields, coding_fields
from clew.apps.coding.worktrees.commits import GitCommits
from clew.apps.coding.worktrees.git import GitWorktree, GitWorktrees
from clew.apps.drivers.profiles import DEFAULT
from clew.domain.errors import ConfigError, Invalid
from clew.domain.profile import Profile, Publication
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
    # Variables that git is started with, and those of tests: without what programs are promised beside.
    environment: Mapping[str, SecretStr] = {}
    check_environment: Mapping[str, SecretStr] = {}
    trackers: TrackerAccess


# What a git that reaches a remote is given of the environment.
_NETWORK = (
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSH_AUTH_SOCK"),
)


def make_graph(services: AppServices) -> CompiledStateGraph[CodingState, None, CodingState, CodingState]:
    options: CodingOptions = services.settings
    return Coding(
        worktrees=_worktrees(options),
        driver=services.driver,
        policy=services.policy,
        budget=services.budget,
        review_rounds=options.review_rounds,
        checks=lambda thread: _profile(services, thread).tests,
        check_variables=_revealed(options.check_environment),
        publishes=lambda thread: _profile(services, thread).publish is not None,
        publisher=partial(_publisher, services),
    ).graph()


@asynccontextmanager
async def _publisher(services: AppServices, thread: Thread, worktree: Worktree) -> AsyncGenerator[Publisher]:
    options: CodingOptions = services.settings
    profile = _profile(services, thread)
    wanted = profile.publish or Publication()
    access = options.trackers
    token = access.github_token.get_secret_value() if access.github_token is not None else ""
    network = {name: value for name, value in _revealed(options.environment).items() if name in _NETWORK}
    async with aclosing(Trackers(services.profiles, access)) as trackers:
        yield Publisher(
            wanted=wanted,
            commits=GitCommits(cast(GitWorktree, worktree), network),
            tracker=trackers.of(profile.name),
            token=token_for(wanted.remote, access.github_url, token),
        )


def _profile(services: AppServices, thread: Thread) -> Profile:
    """The thread's profile. Raises ConfigError where it is gone."""
    name = str(thread.settings.get("profile", DEFAULT))
    if name not in services.profiles:
        raise ConfigError(f"there is no profile {name!r} any more")
    return services.profiles[name]


def make_routes(services: RouteServices) -> APIRouter:
    return CodingRoutes(services=services, worktrees=_worktrees(services.app.settings)).router()


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
    return GitWorktrees(options.roots, _revealed(options.environment))


def _revealed(variables: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in variables.items()}


CODING = App(
    name=NAME,
    graph=make_graph,
    start=CodingStart,
    prepare=prepare,
    next_round=next_round,
    show=View(model=CodingFields, fields=coding_fields),
    routes=make_routes,
    settings=CodingOptions,
    breakpoint_values=SHOWN,
    reservation_limits=lambda options: {WORKTREES: options.concurrent_workflows},
    uses_profiles=True,
    offline=RULES,
)
