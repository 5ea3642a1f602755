"""App: the extension point that chat, coding, interview and apps of third parties are made with.

An installed package offers an app under the entry point group `clew.apps`. See docs/howto/write-an-app.md.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from fastapi import APIRouter
from pydantic import BaseModel

from clew.api.numbers import Numbering
from clew.api.thread_access import ThreadAccess
from clew.api.workflow_apps import NoFields, Prepared, StartCall, View
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Purpose
from clew.apps.drivers.offline import OfflineRule
from clew.documents.documents import Documents
from clew.domain.profile import Budget, Profile
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Status, Thread
from clew.engine.commands import Commands
from clew.ports.clock import Clock
from clew.ports.files import Files
from clew.ports.graphs import Closing, Graphs
from clew.ports.notifier import Notifier
from clew.ports.threads import Store

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

# The entry point group of apps.
GROUP = "clew.apps"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppServices:
    """What the graph of an app, its `prepare` and its `next_round` get."""

    settings: Any
    """An instance of the app's settings model; None for an app without one."""
    store: Store
    """Threads and their logs, to read."""
    documents: Documents
    driver: Callable[[Thread], Driver]
    """The driver of a thread's profile. Without a model, the app's own offline rules answer."""
    policy: Callable[[Thread], RetryPolicy]
    """How a thread's profile repeats a failed model call."""
    budget: Callable[[Thread], Budget | None]
    """What a round may spend on models, by the thread's profile."""
    model: "BaseChatModel | None"
    """The chat model of the default profile, if it has one."""
    tools: "Callable[[], Awaitable[Sequence[BaseTool]]]"
    """The tools of the MCP servers in clew.yaml, as they are now."""
    profiles: Mapping[str, Profile]
    clock: Clock
    new_id: Callable[[], str]

    @property
    def files(self) -> Files:
        return self.documents.files


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteServices:
    """What the routes of an app get: the engine is running when they are made."""

    app: AppServices
    commands: Commands
    access: ThreadAccess
    """Threads by id and owner. Each read postpones the thread's expiry."""
    numbering: Numbering
    notifier: Notifier
    graphs: Graphs
    ttl: timedelta
    """How long a thread is kept where the request does not say."""

    @property
    def store(self) -> Store:
        return self.app.store

    @property
    def files(self) -> Files:
        return self.app.files

    @property
    def clock(self) -> Callable[[], datetime]:
        return self.app.clock


# A StateGraph or a compiled graph; an awaitable or a context manager that gives one. None: it cannot run here.
MakeGraph: TypeAlias = Callable[[AppServices], Any]
Prepare: TypeAlias = Callable[[AppServices, StartCall], Awaitable[Prepared]]
NextRound: TypeAlias = Callable[[AppServices, StartCall, Thread], Awaitable[Prepared | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One application: a graph, and what it adds to the API and to clew.yaml."""

    name: str
    """The name of its graph. A graph of the same name in the user's settings runs in its place."""
    graph: MakeGraph
    start: type[BaseModel] = NoFields
    """Its own fields of POST /api/workflows/start."""
    prepare: Prepare | None = None
    """What a new thread begins with, from the validated fields. Without it, the fields are the graph's input."""
    next_round: NextRound | None = None
    """What a further round begins with; None, or a function that returns None: as for any graph."""
    close: Closing | None = None
    """Events that end a round, written in the same commit as its end."""
    show: View | None = None
    """Its own fields of the workflow object."""
    routes: Callable[[RouteServices], APIRouter] | None = None
    """Routes of its own. Each endpoint states its scope with `needs`."""
    settings: type[BaseModel] | None = None
    """Its section of clew.yaml, `apps.<name>`."""

    status: Callable[[Status], str] = str
    """A status in the words of its clients."""
    breakpoint_values: tuple[str, ...] = ()
    """Keys of the state that a person sees who is asked at one of its graph's breakpoints."""
    reservation_limits: Callable[[Any], Mapping[str, int]] | None = None
    """How many keys of each kind its active threads may hold together, from its settings."""
    uses_profiles: bool = False
    """Whether its graph asks the driver of the thread's profile."""
    offline: Mapping[Purpose, OfflineRule] = field(default_factory=dict)
    """What answers its inquiries in a profile without a model."""
