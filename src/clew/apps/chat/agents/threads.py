"""Agent threads: each task of a third-party agent runs in a thread with its own event loop.

An agent that blocks, computes or exits delays only its own task. Its model calls run on the event loop it
was started from.
"""

import asyncio
import ctypes
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context

from clew.apps.chat.agents.agent import ChatAgent
from clew.apps.chat.cpu_budget import CpuBudget
from clew.apps.chat.plan import AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.domain.errors import escaped

logger = logging.getLogger(__name__)

# How often the computing time of a thread is read.
_LOOK_SECONDS = 0.25
# How long a cancelled agent may take to clean up before its thread is interrupted.
GRACE_SECONDS = 1.0


class Stopped(BaseException):
    """Raised inside an agent's thread when it must end; not an Exception, so that agents do not catch it by accident."""


async def process_in_thread(
    make: Callable[[Driver], ChatAgent], driver: Driver, task: AgentTask, cpu: CpuBudget
) -> object:
    """What the agent returned. Cancelling this ends the agent too.

    Raises what the agent raised, as Permanent if that is no Exception; LimitExceeded if it computes for too long.
    """
    left = cpu.left
    work = _Work(make, driver, task)
    work.start()
    try:
        while not await work.ended(_LOOK_SECONDS):
            if work.cpu_seconds() > left:
                raise cpu.exceeded()
        return work.done.result()
    finally:
        cpu.spend(work.cpu_seconds())
        if not work.done.done():
            await work.stop()


class _Work:
    """One task in its thread."""

    def __init__(self, make: Callable[[Driver], ChatAgent], driver: Driver, task: AgentTask) -> None:
        self._make = make
        self._home = asyncio.get_running_loop()
        self._driver = _DriverFromAfar(driver, self._home)
        self._task = task
        self._running: asyncio.Task[object] | None = None
        self._cpu: float | None = None
        self._is_stopping = False
        self.done: asyncio.Future[object] = self._home.create_future()
        name = f"clew-agent-{task['context']['agentType']}"
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def ended(self, seconds: float) -> bool:
        await asyncio.wait([self.done], timeout=seconds)
        return self.done.done()

    def cpu_seconds(self) -> float:
        """CPU time of the thread while it runs; 0 where the system does not report it."""
        if self._cpu is None and self._thread.ident is not None and hasattr(time, "pthread_getcpuclockid"):
            with suppress(OSError):  # the thread has just ended
                return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))
        return self._cpu or 0.0

    async def stop(self) -> None:
        """Cancel the agent; interrupt its thread if it continues. A thread in a system call ends when that returns."""
        self._is_stopping = True
        running = self._running
        if running is not None:
            with suppress(RuntimeError):  # its loop is closed: it has just ended
                running.get_loop().call_soon_threadsafe(running.cancel)
        with suppress(asyncio.CancelledError):
            if await asyncio.shield(self.ended(GRACE_SECONDS)):
                return
        if self._thread.ident is not None and self._thread.is_alive():
            logger.warning("agent did not end after it was cancelled", extra={"source": self._thread.name})
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(Stopped)
            )

    def _run(self) -> None:
        outcome: object = None
        failure: Exception | None = None
        try:
            with asyncio.Runner() as runner:
                outcome = runner.run(self._process())
        except BaseException as exc:  # noqa: BLE001 - third-party code may raise anything; its task has failed
            failure = exc if isinstance(exc, Exception) else escaped(exc)
        self._cpu = time.thread_time()
        with suppress(RuntimeError):  # the server's loop is closed: no caller waits any more
            self._home.call_soon_threadsafe(self._tell, outcome, failure)

    async def _process(self) -> object:
        self._running = asyncio.current_task()
        if self._is_stopping:
            raise asyncio.CancelledError
        return await self._make(self._driver).process_task(self._task)

    def _tell(self, outcome: object, failure: Exception | None) -> None:
        if self.done.done():
            return
        if failure is None:
            self.done.set_result(outcome)
        else:
            self.done.set_exception(failure)
            self.done.exception()  # retrieved: there may be no caller left that awaits it


class _DriverFromAfar:
    """The driver for code on another event loop."""

    def __init__(self, driver: Driver, home: asyncio.AbstractEventLoop) -> None:
        self._driver = driver
        self._home = home

    @property
    def name(self) -> str:
        return self._driver.name

    @property
    def model(self) -> str:
        return self._driver.model

    def can(self, purpose: Purpose) -> bool:
        return self._driver.can(purpose)

    async def ask(self, inquiry: Inquiry) -> Reply:
        asking = asyncio.run_coroutine_threadsafe(self._driver.ask(inquiry), self._home)
        return await asyncio.wrap_future(asking)
