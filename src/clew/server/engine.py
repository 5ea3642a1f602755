"""Engine composition: graphs, graph driver, commands, runner and chores on the services of one server."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from clew.apps.drivers.profiles import DEFAULT
from clew.checkpointer.saver import Checkpointer
from clew.config import Settings, secrets_of
from clew.domain.errors import ConfigError
from clew.domain.events import Event, Opening
from clew.domain.lifecycle import Change
from clew.domain.thread import ModelSettings, Status, Thread
from clew.engine.commands import Commands
from clew.engine.notifier import LocalNotifier
from clew.engine.round_traces import RoundTraces
from clew.engine.run_context import RunStores
from clew.engine.searching import FullTextSearch
from clew.engine.step import Step
from clew.engine.stream_parts import LocalStreamParts
from clew.engine.sweeper import Chore, Chores, sweeping
from clew.engine.tokens import LocalTokens
from clew.graph.containment import contained_tasks
from clew.graph.driver import LangGraphDriver
from clew.graph.failures import classify
from clew.graph.introspection import LangGraphIntrospection
from clew.graph.loop_watch import watching_loop
from clew.graph.registry import Registry, import_from, open_registry
from clew.history.model_settings import find_model_settings
from clew.ports.graphs import GraphIntrospection
from clew.ports.notifier import Notifier
from clew.ports.runner import Runner
from clew.ports.streams import StreamParts, Tokens
from clew.ports.threads import Store
from clew.retention.cleanup import Cleanup
from clew.retention.pruning import CheckpointPruning
from clew.runners.absent import AbsentRunner
from clew.runners.dead_processes import DeadProcesses
from clew.runners.local import LocalRunner
from clew.server.apps import OpenApps, open_apps
from clew.server.database import open_checkpoints, open_search, open_space, open_thread_memory
from clew.server.drivers import retry_policy
from clew.server.mcp_servers import mcp_specs
from clew.server.queue import queue_room, spending_room
from clew.server.services import Services
from clew.server.traces import open_sender
from clew.stores.sql.cleanup import CleanupRows
from clew.stores.sql.cluster_state import ClusterStateRows
from clew.stores.sql.database_clock import DatabaseClock
from clew.stores.sql.job_queue import JobQueueRows
from clew.stores.sql.stream_parts import StreamPartRows
from clew.stores.sql.trash import TrashRows
from clew.telemetry import shared_metrics
from clew.telemetry.scrub import Scrubber
from clew.toolsets.mcp_tools import open_mcp_servers

logger = logging.getLogger(__name__)

# Machines' clocks drift by milliseconds in this time, and one may be set.
CLOCK_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRuntime:
    """The graphs of a server, and what runs them."""

    registry: Registry
    apps: OpenApps
    driver: LangGraphDriver
    notifier: LocalNotifier
    live: LocalTokens
    chunks: LocalStreamParts
    memory: RunStores


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The engine, running."""

    commands: Commands
    notifier: Notifier
    live: Tokens
    chunks: StreamParts
    graph_driver: LangGraphDriver
    registry: Registry
    introspection: GraphIntrospection
    cleanup: Cleanup
    search: FullTextSearch | None
    """None where messages are not indexed."""
    apps: OpenApps


@asynccontextmanager
async def open_execution(services: Services) -> AsyncGenerator[Execution]:
    """Start running threads; once `stopping` is set, drain what is under way and leave the rest to others."""
    async with AsyncExitStack() as stack:
        stack.enter_context(contained_tasks(asyncio.get_running_loop()))
        stack.enter_context(watching_loop(shared_metrics().loop_lag.observe))
        graphs = await _open_graphs(services, stack)
        runner = _runner(services, graphs)
        commands = _commands(services, graphs, runner)
        cleanup = _cleanup(services, commands)
        search = _search(services)
        if search is not None:
            await stack.enter_async_context(search.indexing())
        async with (
            sweeping(
                [
                    *_chores(services, commands).all(),
                    *cleanup.chores(),
                    *_memory_chores(services),
                    *_pruning_chores(services, graphs),
                    *([] if search is None else [search.chore()]),
                    *_clock_chores(services),
                ]
            ),
            services.cluster.listening(_heard(graphs, runner), runner.look, graphs.live.receive),
            _tracing(services),
            _watching(services, runner),
            runner.running(services.stopping),
        ):
            yield Execution(
                commands=commands,
                notifier=graphs.notifier,
                live=graphs.live,
                chunks=graphs.chunks,
                graph_driver=graphs.driver,
                registry=graphs.registry,
                introspection=LangGraphIntrospection(graphs.registry.graphs, services.graph_store),
                cleanup=cleanup,
                search=search,
                apps=graphs.apps,
            )


def _heard(graphs: GraphRuntime, runner: Runner) -> Callable[[str, int | None], None]:
    """What another process says of a thread: to readers of its log, and to its run, which may be stopped or read."""

    def heard(thread_id: str, after: int | None) -> None:
        graphs.notifier.ring(thread_id, after)
        graphs.chunks.check(thread_id)
        runner.check(thread_id)

    return heard


async def _open_graphs(services: Services, stack: AsyncExitStack) -> GraphRuntime:
    """The user's graphs and those of apps. Raises ConfigError for a wrong setting of an app."""
    settings, db = services.settings, services.stores.db
    saver = await stack.enter_async_context(aclosing(Checkpointer(open_checkpoints(db))))
    import_from(settings.import_paths)
    tools = await stack.enter_async_context(open_mcp_servers(mcp_specs(settings)))
    registry = await open_registry(settings.graphs.values(), stack, saver=saver, store=services.graph_store)
    for name, reason in registry.broken.items():
        logger.error("graph cannot be loaded: %s", reason, extra={"graph": name})
    apps = await open_apps(services, registry, saver, stack, tools)
    await _warn_of_stranded(services.store, registry)

    notifier = LocalNotifier(beyond=services.cluster.ring)
    live = LocalTokens(beyond=services.cluster.send)
    await stack.enter_async_context(live.sharing())
    chunks = LocalStreamParts(StreamPartRows(db), notifier, services.clock, process=services.new_id())
    await stack.enter_async_context(chunks.sharing())
    driver = LangGraphDriver(
        registry.graphs,
        saver,
        services.graph_store,
        clock=services.clock,
        live=live,
        chunks=chunks,
        verbose=settings.runner.verbose,
        stages=registry.stages,
        shows=apps.breakpoint_values,
        read_round=partial(_read_round, services.store),
    )
    memory = RunStores(
        calls=services.stores.calls,
        summaries=services.stores.summaries,
        audit=services.stores.audit,
        keeps_context=settings.model_calls.record,
        keeps_usage=settings.traces.endpoint is not None,
        scrub=Scrubber(secrets_of(settings)),
        audit_rows=settings.model_calls.rows_per_thread,
    )
    return GraphRuntime(
        registry=registry,
        apps=apps,
        driver=driver,
        notifier=notifier,
        live=live,
        chunks=chunks,
        memory=memory,
    )


async def _read_round(store: Store, thread: Thread) -> Sequence[Event]:
    return await store.read(thread.id, after=thread.round_seq - 1)


async def _warn_of_stranded(store: Store, registry: Registry) -> None:
    """Threads of a graph this server does not have continue when the graph is back."""
    running = await store.find(status=(Status.RUNNING,), limit=1000)
    for graph, count in Counter(t.graph for t in running if t.graph not in registry.graphs).items():
        logger.warning("%d running threads wait for a graph that is not here", count, extra={"graph": graph})


def _runner(services: Services, graphs: GraphRuntime) -> Runner:
    settings, role = services.settings, services.role
    if not role.has_runner:
        return AbsentRunner(services.new_id(), services.cluster.call)
    step = Step(
        store=services.store,
        memory=graphs.memory,
        graph_driver=graphs.driver,
        notifier=graphs.notifier,
        clock=services.clock,
        new_id=services.new_id,
        classify=classify,
        policy=partial(retry_policy, settings),
        max_recoveries=settings.runner.max_recoveries,
        prunes=settings.checkpoints.keep == "latest",
        limit=timedelta(seconds=settings.limits.round_seconds),
        closings=graphs.apps.closings,
    )
    if unknown := sorted(set(role.graphs).difference(graphs.registry.graphs)):
        known = ", ".join(sorted(graphs.registry.graphs))
        raise ConfigError(f"--graphs: no graph {unknown[0]!r}; there are {known}")
    if settings.runner.kind == "workers":
        return _distributed_runner(services, step, role.graphs or graphs.registry.graphs)
    return LocalRunner(
        name=services.process,
        store=services.store,
        open_store=services.open_store,
        step=step,
        lease=services.lease,
        poll_seconds=settings.runner.poll_seconds,
        concurrency=settings.runner.concurrency,
        grace_seconds=settings.server.shutdown_seconds,
        graphs=role.graphs or graphs.registry.graphs,
        call=services.cluster.call,
        is_capped=services.stores.threads.caps is not None,
    )


def _distributed_runner(services: Services, step: Step, graphs: Collection[str]) -> Runner:
    from clew.runners.distributed import DistributedRunner  # noqa: PLC0415 - the extra may be missing

    settings = services.settings
    return DistributedRunner(
        name=services.process,
        dsn=(settings.database.direct_url or settings.database.url).reveal(),
        jobs=JobQueueRows(services.stores.db, services.stores.threads.caps),
        store=services.store,
        open_store=services.open_store,
        step=step,
        lease=services.lease,
        poll_seconds=settings.runner.poll_seconds,
        concurrency=settings.runner.concurrency,
        grace_seconds=settings.server.shutdown_seconds,
        graphs=graphs,
        is_capped=services.stores.threads.caps is not None,
    )


def _watching(services: Services, runner: Runner) -> AbstractAsyncContextManager[None]:
    """Inside the block this process shows that it lives, and ends the leases of dead ones."""
    if services.liveness is None:
        return nullcontext()
    return DeadProcesses(
        services.process, store=services.store, liveness=services.liveness, found=runner.wake
    ).watching()


def _observe(services: Services, committed: Callable[[Change], None]) -> None:
    if services.stores.threads.metrics is not None:
        services.stores.threads.metrics.observers.append(committed)


@asynccontextmanager
async def _tracing(services: Services) -> AsyncGenerator[None]:
    """Inside the block each round that ends is sent to the collector, if the settings name one."""
    if services.settings.traces.endpoint is None:
        yield
        return
    sender = open_sender(services.settings)
    traces = RoundTraces(services.store, services.stores.audit, sender)
    _observe(services, traces.committed)
    async with traces.sending():
        yield
    sender.close()


def _search(services: Services) -> FullTextSearch | None:
    # Words that can be searched are plain text: with an encryption key there is no index.
    if not services.settings.search.index or services.stores.db.cipher.is_active:
        return None
    search = FullTextSearch(services.store, open_search(services.stores.db))
    _observe(services, search.committed)
    return search


def _commands(services: Services, graphs: GraphRuntime, runner: Runner) -> Commands:
    stores = services.stores
    return Commands(
        store=services.store,
        calls=stores.calls,
        files=stores.files,
        summaries=stores.summaries,
        trash=TrashRows(stores.db),
        graph_driver=graphs.driver,
        notifier=graphs.notifier,
        clock=services.clock,
        new_id=services.new_id,
        runner=runner,
        drafts=graphs.memory.drafts,
        closings=graphs.apps.closings,
        model_settings=_model_settings(services.settings, graphs.registry, graphs.apps),
        reservation_limits=graphs.apps.reservation_limits,
        room=queue_room(services.settings.queue),
        budget=spending_room(services.settings),
    )


def _chores(services: Services, commands: Commands) -> Chores:
    stores, days = services.stores, services.settings.model_calls.ttl_days
    return Chores(
        store=services.store,
        calls=stores.calls,
        audit=stores.audit,
        files=stores.files,
        inbox=stores.inbox,
        commands=commands,
        clock=services.clock,
        items=services.graph_store,
        items_seconds=services.settings.store_ttl.sweep.total_seconds(),
        audit_ttl=None if days is None else timedelta(days=days),
    )


def _pruning_chores(services: Services, graphs: GraphRuntime) -> list[Chore]:
    ttl = services.settings.thread_ttl
    pruning = CheckpointPruning(
        rows=CleanupRows(services.stores.db),
        prune=graphs.driver.prune,
        clock=services.clock,
        after=ttl.prune_after,
    )
    return [Chore(name="prune_checkpoints", seconds=ttl.prune_every.total_seconds(), do=pruning.prune_due)]


def _clock_chores(services: Services) -> list[Chore]:
    clock = services.clock
    if not isinstance(clock, DatabaseClock):
        return []
    return [Chore(name="measure_clock", seconds=CLOCK_SECONDS, do=clock.measure)]


def _memory_chores(services: Services) -> list[Chore]:
    """Where chat histories are in the database of the threads, they are purged with them."""
    memory = open_thread_memory(services.stores.db, services.graph_db)
    return [] if memory is None else memory.chores()


def _cleanup(services: Services, commands: Commands) -> Cleanup:
    settings, db = services.settings, services.stores.db
    return Cleanup(
        rows=CleanupRows(db),
        memory=CleanupRows(services.graph_db),
        cluster_state=ClusterStateRows(db),
        store=services.store,
        calls=services.stores.calls,
        space=open_space(db, settings.database.url.path),
        clock=services.clock,
        new_id=services.new_id,
        evict=_evict_cleaned_up(commands),
        lease=services.lease,
        budget_seconds=settings.cleanup.budget_seconds,
        ttl=timedelta(days=settings.threads.ttl_days),
        next_turn=_cleanup_schedule(settings),
    )


def _model_settings(
    settings: Settings, registry: Registry, apps: OpenApps
) -> Callable[[Opening], ModelSettings | None]:
    """Of the graph's own model, or of the profile's where the graph uses a driver."""
    own = {name: find_model_settings(graph) for name, graph in registry.graphs.items()}
    defaults = {"api:openai": settings.models.openai_model, "api:anthropic": settings.models.anthropic_model}

    def of(opening: Opening) -> ModelSettings | None:
        if not apps.uses_profiles(opening.graph):
            return own.get(opening.graph)
        profile = settings.profiles.get(str(opening.settings.get("profile", DEFAULT)))
        if profile is None:
            return None
        model = profile.model or defaults.get(profile.driver, "")
        return ModelSettings(provider=profile.driver.rpartition(":")[2], model=model)

    return of


def _evict_cleaned_up(commands: Commands) -> Callable[[str], None]:
    deleted = shared_metrics().deleted_threads.labels("cleanup")

    def evict(thread_id: str) -> None:
        commands.evict(thread_id)
        deleted.inc()

    return evict


def _cleanup_schedule(settings: Settings) -> Callable[[datetime], datetime] | None:
    """When the next scheduled cleanup is, after the last one. None without a schedule."""
    cleanup = settings.cleanup
    if cleanup.schedule is not None:
        return cleanup.schedule.next_after
    every = timedelta(seconds=cleanup.every_seconds)
    return (lambda last: last + every) if every else None
