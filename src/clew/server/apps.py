"""Apps of a server: ours and those of installed packages, found, checked, and opened."""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from shutil import which
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter
from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import BaseModel

from clew.api.access import rules_of
from clew.api.schemas import field_names
from clew.api.workflow_apps import WorkflowApp, WorkflowApps
from clew.api.workflow_schemas import StartIn
from clew.apps.agent import AGENT
from clew.apps.app import GROUP, App, AppServices, RouteServices
from clew.apps.chat.app import CHAT, ChatOptions
from clew.apps.coding.app import CODING, CodingOptions
from clew.apps.coding.trackers.profiles import TrackerAccess
from clew.apps.installed import installed
from clew.apps.interview.app import INTERVIEW
from clew.config import Settings, read_app_section
from clew.documents.documents import Documents
from clew.documents.extraction.guard import open_extractor
from clew.documents.recognition import PROGRAM, RecognizingExtractor
from clew.domain.errors import ConfigError
from clew.domain.events import Body, Event
from clew.domain.thread import Status, Thread
from clew.graph.registry import Registry, compiled, make_graph
from clew.ports.files import Extractor
from clew.ports.graphs import Closing
from clew.server.drivers import budget_of, default_model, open_drivers, retry_policy
from clew.server.services import Services
from clew.toolsets.mcp_tools import McpServers

logger = logging.getLogger(__name__)

# Listed here and not in the package's metadata, so that a checkout has them too.
OURS = (CHAT, CODING, INTERVIEW, AGENT)
# The graph of a workflow that names none.
DEFAULT = CHAT.name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class NotAnApp(Exception):
    """The object of an entry point cannot be served as an app."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenApp:
    """An app with its services. `is_replaced`: a graph of the user's settings has its name, and runs in its place."""

    app: App
    services: AppServices
    is_replaced: bool = False

    def workflow_app(self) -> WorkflowApp:
        app = self.app
        return WorkflowApp(
            name=app.name,
            start=app.start,
            prepare=None if app.prepare is None else partial(app.prepare, self.services),
            next_round=None if app.next_round is None else partial(app.next_round, self.services),
            show=app.show,
        )

    def close(self, thread: Thread, log: Sequence[Event], status: Status, reason: str) -> Sequence[Body]:
        """The app's closing events of a round. A round also ends if the app raises."""
        if self.app.close is None:
            return ()
        try:
            return self.app.close(thread, log, status, reason)
        except Exception as exc:  # noqa: BLE001 - the code of a third party may raise anything
            extra = {"app": self.app.name, "thread_id": thread.id}
            logger.error("app cannot close a round: %s", _reason(exc), extra=extra)  # noqa: TRY400 - the reason says enough
            return ()


@dataclass(frozen=True)
class OpenApps:
    """The apps of a server, and what its parts need of them.

    Where a user's graph runs in place of an app's, the app's start fields, view and breakpoint values do not apply. Its
    closing, the words for its statuses and its routes do: clients know them by the graph's name.
    """

    apps: tuple[OpenApp, ...]

    @cached_property
    def closings(self) -> Mapping[str, Closing]:
        return {one.app.name: one.close for one in self.apps if one.app.close is not None}

    @cached_property
    def breakpoint_values(self) -> Mapping[str, tuple[str, ...]]:
        return {one.app.name: one.app.breakpoint_values for one in self.apps if not one.is_replaced}

    @cached_property
    def reservation_limits(self) -> Mapping[str, int]:
        limits: dict[str, int] = {}
        for one in self.apps:
            if one.app.reservation_limits is not None:
                limits |= one.app.reservation_limits(one.services.settings)
        return limits

    def uses_profiles(self, graph: str) -> bool:
        return any(
            one.app.uses_profiles for one in self.apps if one.app.name == graph and not one.is_replaced
        )

    def workflow_apps(self) -> WorkflowApps:
        statuses: dict[str, Callable[[Status], str]] = {one.app.name: one.app.status for one in self.apps}
        return WorkflowApps(
            default=DEFAULT,
            apps={one.app.name: one.workflow_app() for one in self.apps if not one.is_replaced},
            statuses=statuses,
            closed=frozenset(self.closings),
        )

    def routers(self, services: Callable[[AppServices], RouteServices]) -> list[APIRouter]:
        """Those of all apps. One that cannot be made, or has a route without a scope, is logged and left out."""
        routers = []
        for one in self.apps:
            if one.app.routes is None:
                continue
            try:
                router = one.app.routes(services(one.services))
                rules_of(router.routes)
            except Exception as exc:  # noqa: BLE001 - the code of a third party may raise anything
                logger.error("app has no routes: %s", _reason(exc), extra={"app": one.app.name})  # noqa: TRY400 - the reason says enough
            else:
                routers.append(router)
        return routers


async def open_apps(
    services: Services,
    registry: Registry,
    saver: BaseCheckpointSaver[Any],
    stack: AsyncExitStack,
    tools: McpServers,
) -> OpenApps:
    """Open every app and add its graph to the registry. One that fails is logged by name and stops no other.

    Raises ConfigError for a wrong setting, as any other setting does.
    """
    settings = services.settings
    found = find_apps()
    for name in settings.apps.keys() - {app.name for app in found}:
        logger.warning(
            "%s has no effect: the app is not installed", settings.apps[name].where, extra={"app": name}
        )
    extractor = _recognizing(settings, await stack.enter_async_context(open_extractor()))
    documents = Documents(
        files=services.stores.files,
        extractor=extractor,
        clock=services.clock,
        numbers=services.stores.numbers,
    )
    drivers = await stack.enter_async_context(open_drivers(settings))
    model = default_model(drivers)
    opened = []
    for app in found:
        app_services = AppServices(
            settings=_app_settings(app, settings),
            store=services.store,
            documents=documents,
            driver=partial(drivers.of, rules=app.offline),
            policy=partial(retry_policy, settings),
            budget=partial(budget_of, settings),
            model=model,
            tools=tools.tools,
            profiles=settings.profiles,
            clock=services.clock,
            new_id=services.new_id,
        )
        is_replaced = app.name in registry.graphs or app.name in registry.broken
        if is_replaced or await _add_graph(app, app_services, registry, saver, services, stack):
            opened.append(OpenApp(app=app, services=app_services, is_replaced=is_replaced))
    return OpenApps(tuple(opened))


def _recognizing(settings: Settings, extractor: Extractor) -> Extractor:
    """With Tesseract, where the settings name its languages. Raises ConfigError if the program is not there."""
    languages = settings.documents.ocr_languages
    if languages is None:
        return extractor
    environment = {name: value.get_secret_value() for name, value in settings.program_environment.items()}
    program = which(PROGRAM, path=environment.get("PATH", ""))
    if program is None:
        raise ConfigError(
            f"{settings.sources['documents.ocr_languages']}: the program {PROGRAM} is not there; install it, with the"
            " data of its languages"
        )
    return RecognizingExtractor.around(
        extractor, program=program, languages=languages, environment=environment
    )


async def _add_graph(
    app: App,
    app_services: AppServices,
    registry: Registry,
    saver: BaseCheckpointSaver[Any],
    services: Services,
    stack: AsyncExitStack,
) -> bool:
    """Whether the app was opened. Its graph may report that it cannot run with these settings."""
    try:
        made = await make_graph(partial(app.graph, app_services), stack)
        if made is None:
            return False
        registry.graphs[app.name] = compiled(made, saver=saver, store=services.graph_store)
    except ConfigError:
        raise
    except Exception as exc:  # noqa: BLE001 - the code of a third party may raise anything
        registry.broken[app.name] = _reason(exc)
        logger.error("app cannot be opened: %s", _reason(exc), extra={"app": app.name})  # noqa: TRY400 - the reason says enough
        return False
    return True


def find_apps() -> list[App]:
    """Ours, then those of installed packages. One that cannot be loaded is logged by name and left out."""
    found = {app.name: app for app in OURS}
    for point in installed(GROUP):
        try:
            app = _checked(point.load(), found)
        except (Exception, SystemExit) as exc:  # noqa: BLE001 - the code of a third party may raise anything
            extra = {"app": point.name, "source": point.value}
            logger.error("app cannot be loaded: %s", _reason(exc), extra=extra)  # noqa: TRY400 - the reason says enough
        else:
            found[app.name] = app
    return list(found.values())


def _checked(app: object, others: Mapping[str, App]) -> App:
    """Raises NotAnApp."""
    if not isinstance(app, App):
        raise NotAnApp(f"expected a clew.App, got {type(app).__name__}")
    if not _NAME.fullmatch(app.name):
        raise NotAnApp("its name must be letters, digits, - and _, at most 64")
    if app.name in others:
        raise NotAnApp(f"another app is called {app.name!r}")
    if not issubclass(app.start, BaseModel):
        raise NotAnApp("its start fields must be a pydantic model")
    for name, names in _start_names(app.start).items():
        if clashes := _others_named(names, StartIn):
            raise NotAnApp(f"its start field {name!r} is taken: every start has a {clashes[0]!r}")
        for other in others.values():
            if any(one != name for one in _others_named(names, other.start)):
                raise NotAnApp(f"its start field {name!r} is taken: the app {other.name!r} has one like it")
    return app


def _others_named(names: Collection[str], model: type[BaseModel]) -> list[str]:
    """The fields of a model that share a spelling with these."""
    return [name for name, spelled in _start_names(model).items() if {*spelled} & {*names}]


def _start_names(model: type[BaseModel]) -> dict[str, list[str]]:
    """How each field may be spelled in a request, by its name in the model."""
    return {name: field_names(name, info) for name, info in model.model_fields.items()}


def _app_settings(app: App, settings: Settings) -> BaseModel | None:
    """Of ours from sections of their own; of others from `apps.<name>`. Raises ConfigError."""
    section = settings.apps.get(app.name)
    if any(app is one for one in OURS):
        if section is not None:
            raise ConfigError(f"{section.where}: no such key; this app is Clew's own")
        return _own_settings(settings).get(app.name)
    if app.settings is not None:
        return read_app_section(section, app.settings, app.name)
    if section is not None:
        raise ConfigError(f"{section.where}: no such key; this app has no settings")
    return None


def _own_settings(settings: Settings) -> Mapping[str, BaseModel]:
    trackers = settings.trackers
    access = TrackerAccess(
        github_url=trackers.github_url,
        github_repository=trackers.github_repository or "",
        github_token=trackers.github_token,
        jira_url=trackers.jira_url,
        jira_user=trackers.jira_user,
        jira_token=trackers.jira_token,
        seconds=trackers.call_seconds,
    )
    chat = ChatOptions(
        agents_folder=settings.agents.folder,
        agents_in_processes=settings.agents.processes,
        environment=settings.program_environment,
        upload_bytes=settings.limits.upload_bytes,
        cpu_seconds=settings.limits.round_cpu_seconds,
        task_memory_bytes=settings.limits.task_memory_bytes,
    )
    coding = CodingOptions(
        roots=settings.coding.roots,
        concurrent_workflows=settings.coding.concurrent_workflows,
        review_rounds=settings.coding.review_rounds,
        environment=settings.program_environment,
        check_environment={
            name: value
            for name, value in settings.program_environment.items()
            if name not in settings.coding.environment
        },
        trackers=access,
    )
    return MappingProxyType({CHAT.name: chat, CODING.name: coding})


def _reason(exc: BaseException) -> str:
    return str(exc) if isinstance(exc, NotAnApp) else f"{type(exc).__name__}: {exc}"
