"""The engine, put together: graphs, bridge, commands, runner and chores on the stores of one database."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.language_models import BaseChatModel

from clew.apps.builtin import OUTPUT, Builtin, builtin_graphs
from clew.apps.chat.agents.registry import find_agents
from clew.apps.chat.workers import open_workers
from clew.apps.coding.assignments import Assignments
from clew.apps.coding.plan import CODING, WORKTREES
from clew.apps.coding.ports import Worktrees
from clew.apps.coding.trackers.profiles import TrackerAccess, Trackers
from clew.apps.coding.worktrees.git import GitWorktrees
from clew.apps.drivers.api import ApiDriver, ModelAccess
from clew.apps.drivers.profiles import DEFAULT, Drivers, Programs
from clew.checkpointer.saver import Checkpointer
from clew.config import Settings, secrets_of
from clew.documents.documents import Documents
from clew.documents.extraction.guard import open_extractor
from clew.domain.errors import ConfigError
from clew.domain.events import Opening
from clew.domain.model_settings import ModelSettings
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Status, Thread
from clew.engine.commands import Commands
from clew.engine.notifier import LocalNotifier
from clew.engine.run_context import RunStores
from clew.engine.step import Step
from clew.engine.stream_parts import LocalStreamParts
from clew.engine.sweeper import Chores, sweeping
from clew.engine.tokens import LocalTokens
from clew.graph.containment import contained_tasks
from clew.graph.driver import LangGraphDriver
from clew.graph.failures import classify
from clew.graph.introspection import LangGraphIntrospection
from clew.graph.loop_watch import watching_loop
from clew.graph.registry import Registry, compiled, import_from, open_registry
from clew.history.graph_store import GraphStore
from clew.history.model_settings import find_model_settings
from clew.ports.files import Files
from clew.ports.graphs import GraphIntrospection
from clew.ports.inbox import Inbox
from clew.ports.model_calls import ModelCalls, Summaries
from clew.ports.notifier import ClusterNotifier, Notifier
from clew.ports.streams import StreamParts, Tokens
from clew.ports.threads import Store
from clew.ports.tool_calls import Calls
from clew.retention.cleanup import Cleanup
from clew.runners.local import LocalRunner
from clew.server.database import open_space
from clew.stores.sql.checkpoints import CheckpointRows
from clew.stores.sql.cleanup import CleanupRows
from clew.stores.sql.cluster_state import ClusterStateRows
from clew.stores.sql.stream_parts import StreamPartRows
from clew.stores.sql.trash import TrashRows
from clew.stores.sql.work import Database
from clew.telemetry import shared_metrics
from clew.telemetry.scrub import Scrubber

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineParts:
    """What the engine stands on."""

    db: Database
    # Of the graph store: the same database, unless the settings name another.
    graph_db: Database
    graph_store: GraphStore
    store: Store
    # Another way to the same store for the heartbeat, which lives in a thread and an event loop of its own.
    open_store: Callable[[], AbstractAsyncContextManager[Store]]
    calls: Calls
    summaries: Summaries
    audit: ModelCalls
    files: Files
    inbox: Inbox
    cluster: ClusterNotifier
    clock: Callable[[], datetime]
    new_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    commands: Commands
    notifier: Notifier
    live: Tokens
    chunks: StreamParts
    graph_driver: LangGraphDriver
    registry: Registry
    introspection: GraphIntrospection
    cleanup: Cleanup
    # None where the graph `coding` is somebody's own.
    assignments: Assignments | None


@asynccontextmanager
async def open_execution(
    settings: Settings, parts: EngineParts, stopping: asyncio.Event
) -> AsyncGenerator[Execution]:
    """Start running threads; once `stopping` is set, drain what is under way and leave the rest to others."""
    async with AsyncExitStack() as stack:
        stack.enter_context(contained_tasks(asyncio.get_running_loop()))
        stack.enter_context(watching_loop(shared_metrics().loop_lag.observe))
        saver = await stack.enter_async_context(aclosing(Checkpointer(CheckpointRows(parts.db))))
        import_from(settings.import_paths)
        registry = await open_registry(settings.graphs.values(), stack, saver=saver, store=parts.graph_store)
        for name, reason in registry.broken.items():
            logger.error("graph cannot be loaded: %s", reason, extra={"graph": name})
        worktrees = GitWorktrees(settings.coding.roots, _environment(settings))
        builtin = await _builtin(settings, parts, worktrees, stack)
        has_own_coding = CODING in registry.graphs or CODING in registry.broken
        for name, graph in builtin.graphs.items():
            if name not in registry.graphs and name not in registry.broken:
                registry.graphs[name] = compiled(graph, saver=saver, store=parts.graph_store)

        cluster = parts.cluster
        await _tell_stranded(parts.store, registry)
        notifier = LocalNotifier(beyond=cluster.ring)
        live = LocalTokens()
        chunks = LocalStreamParts(StreamPartRows(parts.db), notifier, parts.clock)
        graph_driver = LangGraphDriver(
            registry.graphs,
            saver,
            parts.graph_store,
            clock=parts.clock,
            live=live,
            chunks=chunks,
            verbose=settings.runner.verbose,
            stages=registry.stages,
            shows={} if has_own_coding else builtin.shows,
        )
        memory = RunStores(
            calls=parts.calls,
            summaries=parts.summaries,
            audit=parts.audit,
            keeps_context=settings.model_calls.record,
            scrub=Scrubber(secrets_of(settings)),
            audit_rows=settings.model_calls.rows_per_thread,
        )
        step = Step(
            store=parts.store,
            memory=memory,
            graph_driver=graph_driver,
            notifier=notifier,
            clock=parts.clock,
            new_id=parts.new_id,
            classify=classify,
            policy=lambda thread: _policy(settings, thread),
            max_recoveries=settings.runner.max_recoveries,
            prunes=settings.checkpoints.keep == "latest",
            limit=timedelta(seconds=settings.limits.round_seconds),
            closings=builtin.closings,
        )
        runner = LocalRunner(
            name=parts.new_id(),
            store=parts.store,
            open_store=parts.open_store,
            step=step,
            lease=timedelta(seconds=settings.runner.lease_seconds),
            poll_seconds=settings.runner.poll_seconds,
            concurrency=settings.runner.concurrency,
            grace_seconds=settings.server.shutdown_seconds,
            graphs=registry.graphs,
            call=cluster.call,
        )
        commands = Commands(
            store=parts.store,
            calls=parts.calls,
            files=parts.files,
            summaries=parts.summaries,
            trash=TrashRows(parts.db),
            graph_driver=graph_driver,
            notifier=notifier,
            clock=parts.clock,
            new_id=parts.new_id,
            wake=lambda: _wake(runner, cluster),
            place=runner.place,
            halt=runner.halt,
            drafts=memory.drafts,
            closings=builtin.closings,
            model_settings=_model_settings(settings, registry, builtin),
            reservation_limits={WORKTREES: settings.coding.concurrent_workflows},
        )
        trackers = await stack.enter_async_context(aclosing(_trackers(settings)))
        assignments = None if has_own_coding else Assignments(worktrees=worktrees, tracker=trackers.of)
        chores = Chores(
            store=parts.store,
            calls=parts.calls,
            audit=parts.audit,
            files=parts.files,
            inbox=parts.inbox,
            commands=commands,
            clock=parts.clock,
            items=parts.graph_store,
            audit_ttl=_days(settings.model_calls.ttl_days),
        )
        cleanup = Cleanup(
            rows=CleanupRows(parts.db),
            memory=CleanupRows(parts.graph_db),
            cluster_state=ClusterStateRows(parts.db),
            store=parts.store,
            calls=parts.calls,
            space=open_space(parts.db, settings.database.url.path),
            clock=parts.clock,
            new_id=parts.new_id,
            evict=_cleaned_up(commands),
            lease=timedelta(seconds=settings.runner.lease_seconds),
            budget_seconds=settings.cleanup.budget_seconds,
            ttl=timedelta(days=settings.threads.ttl_days),
            next_turn=_schedule(settings),
        )
        async with (
            sweeping([*chores.all(), *cleanup.chores()]),
            cluster.listening(notifier.ring, runner.look),
            runner.running(stopping),
        ):
            yield Execution(
                commands=commands,
                notifier=notifier,
                live=live,
                chunks=chunks,
                graph_driver=graph_driver,
                registry=registry,
                introspection=LangGraphIntrospection(registry.graphs),
                cleanup=cleanup,
                assignments=assignments,
            )


async def _tell_stranded(store: Store, registry: Registry) -> None:
    """Threads of graphs that are not here run on when these are back; until then somebody should know."""
    running = await store.find(status=(Status.RUNNING,), limit=1000)
    for graph, count in Counter(t.graph for t in running if t.graph not in registry.graphs).items():
        logger.warning("%d running threads wait for a graph that is not here", count, extra={"graph": graph})


async def _builtin(
    settings: Settings, parts: EngineParts, worktrees: Worktrees, stack: AsyncExitStack
) -> Builtin:
    """The graphs of our own, with the agents there are. Raises ConfigError when two agents have one name."""
    agents = find_agents(settings.agents.folder)
    for source, reason in agents.broken.items():
        logger.error("agent cannot be loaded: %s", reason, extra={"source": source})
    extractor = await stack.enter_async_context(open_extractor())
    workers = await stack.enter_async_context(
        open_workers(
            memory_bytes=settings.limits.task_memory_bytes,
            output_bytes=OUTPUT * settings.limits.upload_bytes,
        )
    )
    models = settings.models
    access = ModelAccess(
        openai_key=models.openai_api_key,
        openai_base_url=models.openai_base_url,
        openai_model=models.openai_model,
        anthropic_key=models.anthropic_api_key,
        anthropic_base_url=models.anthropic_base_url,
        anthropic_model=models.anthropic_model,
        seconds=models.call_seconds,
    )
    programs = Programs(
        environment=_environment(settings),
        folder=Path(stack.enter_context(TemporaryDirectory(prefix="clew-"))),
        seconds=settings.coding.cli_seconds,
    )
    drivers = await stack.enter_async_context(
        aclosing(Drivers(settings.profiles, access, programs, settings.profile_keys))
    )
    return builtin_graphs(
        documents=Documents(files=parts.files, extractor=extractor, clock=parts.clock),
        agents=agents,
        driver=drivers.of,
        policy=lambda thread: _policy(settings, thread),
        max_bytes=settings.limits.upload_bytes,
        cpu_seconds=settings.limits.round_cpu_seconds,
        workers=workers,
        worktrees=worktrees,
        review_rounds=settings.coding.review_rounds,
        model=_default_model(drivers),
    )


def _environment(settings: Settings) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in settings.program_environment.items()}


def _trackers(settings: Settings) -> Trackers:
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
    return Trackers(settings.profiles, access)


def _default_model(drivers: Drivers) -> BaseChatModel | None:
    """What the `agent` graph speaks with: the model of the default profile, if it has one."""
    try:
        driver = drivers.named(DEFAULT)
    except ConfigError as exc:
        logger.warning("no graph `agent`: %s", exc)
        return None
    return driver.chat if isinstance(driver, ApiDriver) else None


def _wake(runner: LocalRunner, cluster: ClusterNotifier) -> None:
    """Whoever has room first takes it: this process, or another one."""
    runner.wake()
    cluster.call()


def _policy(settings: Settings, thread: Thread) -> RetryPolicy:
    profile = settings.profiles.get(str(thread.settings.get("profile", "default")))
    return profile.retry if profile else RetryPolicy()


def _model_settings(
    settings: Settings, registry: Registry, builtin: Builtin
) -> Callable[[Opening], ModelSettings | None]:
    """Of the graph's own model; of the profile's, where the graph asks a driver."""
    own = {name: find_model_settings(graph) for name, graph in registry.graphs.items()}
    defaults = {"api:openai": settings.models.openai_model, "api:anthropic": settings.models.anthropic_model}

    def of(opening: Opening) -> ModelSettings | None:
        if opening.graph not in builtin.asks_drivers or opening.graph in settings.graphs:
            return own.get(opening.graph)
        profile = settings.profiles.get(str(opening.settings.get("profile", DEFAULT)))
        if profile is None:
            return None
        model = profile.model or defaults.get(profile.driver, "")
        return ModelSettings(provider=profile.driver.rpartition(":")[2], model=model)

    return of


def _cleaned_up(commands: Commands) -> Callable[[str], None]:
    deleted = shared_metrics().deleted_threads.labels("cleanup")

    def evict(thread_id: str) -> None:
        commands.evict(thread_id)
        deleted.inc()

    return evict


def _schedule(settings: Settings) -> Callable[[datetime], datetime] | None:
    """When to clean up unasked, after the last time it was done."""
    cleanup = settings.cleanup
    if cleanup.schedule is not None:
        return cleanup.schedule.next_after
    every = timedelta(seconds=cleanup.every_seconds)
    return (lambda last: last + every) if every else None


def _days(days: int | None) -> timedelta | None:
    return None if days is None else timedelta(days=days)
