"""Procrastinate's worker: hands out the jobs of a Postgres, and works on through failures of the database."""

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Any

from procrastinate import App, PsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job, Notification, Status
from procrastinate.manager import JobManager, NotificationCallback
from procrastinate.worker import Worker

from clew.domain.errors import ConfigError

logger = logging.getLogger(__name__)

# Of the table of jobs; clew_enqueue writes it.
TASK = "clew.run_thread"
# As clew_enqueue has it: a longer name would not fit into the name of a channel.
LONGEST_QUEUE = 40
SHORTEST_WAIT = 0.1
LONGEST_WAIT = 2.0
# How long the loop's end may wait for jobs. The runs behind them are drained apart from it, or go on under their leases.
ENDING_SECONDS = 1.0
# Two for jobs that are taken and finished at the same moment; notifications have one of their own.
CONNECTIONS = 2
CONNECT_SECONDS = 5.0


def queue_of(graph: str) -> str:
    name = graph.encode()
    return graph if len(name) <= LONGEST_QUEUE else hashlib.md5(name, usedforsecurity=False).hexdigest()


class ToughJobManager(JobManager):
    """Procrastinate's worker ends at the first error of the database, and loses a job that it cannot finish. Here the
    statements are sent again until they are answered."""

    def __init__(self, connector: PsycopgConnector) -> None:
        super().__init__(connector)
        self._notify: NotificationCallback | None = None
        self._notified = 0

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> Job | None:
        try:
            while True:
                notified = self._notified
                job = await super().fetch_job(queues, worker_id)
                # The worker forgets a notification that arrives meanwhile, and would find its job a polling interval later.
                if job is not None or notified == self._notified:
                    return job
        except ConnectorException as exc:
            # If a job was taken all the same, it is put back: no runner holds its thread.
            logger.warning("cannot fetch a job: %s", _cause(exc))
            return None  # the worker asks again after its polling interval

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        wait = SHORTEST_WAIT
        while True:
            try:
                await super().finish_job(job, status, delete_job)
            except ConnectorException as exc:
                if "Job was not found" in str(exc.__cause__):
                    break  # it was put back meanwhile, or an earlier attempt had taken effect
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)
            else:
                break
        if self._notify is not None:
            # The next job of the same thread could not be taken before, and its own notification has passed.
            await self._notify(channel="", notification={"type": "job_inserted", "job_id": job.id or 0})

    async def update_heartbeat(self, worker_id: int) -> None:
        try:
            await super().update_heartbeat(worker_id)
        except ConnectorException as exc:
            logger.warning("cannot send the heartbeat of the job worker: %s", _cause(exc))

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        async def notify(*, channel: str, notification: Notification) -> None:
            self._notified += 1
            await on_notification(channel=channel, notification=notification)

        self._notify, wait = notify, SHORTEST_WAIT
        while True:
            try:
                await super().listen_for_jobs(on_notification=notify, queues=queues)
            except ConnectorException as exc:
                if wait == SHORTEST_WAIT:
                    logger.warning("no notifications of jobs, they are polled for: %s", _cause(exc))
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


class JobWorker:
    """Calls `run` with the thread id of each job of these graphs, of several at a time."""

    def __init__(
        self,
        dsn: str,
        run: Callable[[str], Awaitable[None]],
        *,
        graphs: Collection[str],
        concurrency: int,
        poll_seconds: float,
    ) -> None:
        self._run = run
        self._queues = sorted(map(queue_of, graphs))
        self._concurrency = concurrency
        self._poll_seconds = poll_seconds
        self._stopping = asyncio.Event()
        self._worker: Worker | None = None
        connector = PsycopgConnector(
            conninfo=dsn,
            min_size=1,
            max_size=CONNECTIONS,
            timeout=CONNECT_SECONDS,
            reconnect_timeout=LONGEST_WAIT,
            kwargs={"application_name": "clew worker", "connect_timeout": round(CONNECT_SECONDS)},
        )
        self._app = App(connector=connector)
        self._app.job_manager = ToughJobManager(connector)
        self._app.task(name=TASK)(self._work)

    @asynccontextmanager
    async def working(self) -> AsyncGenerator[None]:
        """Inside the block jobs are worked on, until `stop`. Raises ConfigError if the database cannot be reached now."""
        for name in ("procrastinate", "psycopg.pool"):
            logging.getLogger(name).setLevel(logging.ERROR)  # our own lines say what concerns users
        try:
            await self._app.open_async()
        except ConnectorException as exc:
            raise ConfigError(
                f"the job worker cannot connect to the Postgres database: {_cause(exc)}"
            ) from exc
        working = asyncio.create_task(self._work_forever())
        try:
            yield
        finally:
            self.stop()
            await working
            await self._app.close_async()

    def stop(self) -> None:
        """Take no more jobs."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]

    async def _work_forever(self) -> None:
        """The loop ends on errors that nothing above knows of; then another begins."""
        wait = SHORTEST_WAIT
        while not self._stopping.is_set():
            self._worker = Worker(
                self._app,
                queues=self._queues,
                concurrency=self._concurrency,
                fetch_job_polling_interval=self._poll_seconds,
                shutdown_graceful_timeout=ENDING_SECONDS,
                delete_jobs=DeleteJobCondition.ALWAYS,
                install_signal_handlers=False,
            )
            began = asyncio.get_running_loop().time()
            try:
                await self._worker.run()  # type: ignore[no-untyped-call]
            except Exception as exc:
                if not self._stopping.is_set():
                    logger.warning("the job worker failed: %s", _cause(exc), exc_info=not _is_database(exc))
            if asyncio.get_running_loop().time() - began > LONGEST_WAIT:
                wait = SHORTEST_WAIT
            if not self._stopping.is_set():
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT)

    async def _work(self, thread_id: str, **_: Any) -> None:
        try:
            await self._run(thread_id)
        except Exception:
            # The thread has no runner then, and is enqueued again.
            logger.exception("a job failed", extra={"thread_id": thread_id})


def _is_database(exc: Exception) -> bool:
    return isinstance(exc, ConnectorException)


def _cause(exc: Exception) -> str:
    """The kind of error: its message may hold the host and the user."""
    return type(exc.__cause__ or exc).__name__
