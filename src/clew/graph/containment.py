"""Containment: an exception that would end the process, raised by code of a graph, fails the run instead.

asyncio lets SystemExit and KeyboardInterrupt out of any task and out of the event loop, so it is not enough to catch
them where a graph is awaited: LangGraph runs each node in a task, and nodes start tasks of their own.
"""

import asyncio
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from types import FrameType, TracebackType
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

from clew.domain.errors import escaped

# Whether the code that runs here belongs to a graph; tasks inherit it.
_is_contained: ContextVar[bool] = ContextVar("clew_contained", default=False)


class Contained:
    """A block of a graph's code. Raises Permanent in place of what is neither an Exception nor a cancellation."""

    def __enter__(self) -> None:
        self._token = _is_contained.set(True)

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        _is_contained.reset(self._token)
        if exc is None or isinstance(exc, Exception | asyncio.CancelledError):
            return
        if isinstance(exc, GeneratorExit) and (trace is None or trace.tb_next is None):
            return  # raised in this very block: the generator or coroutine around it is being closed
        raise escaped(exc) from exc


@contextmanager
def contained_tasks(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Inside this block each task that a contained block starts is contained as well."""
    before = loop.get_task_factory()

    def create(
        loop: asyncio.AbstractEventLoop, coroutine: Any, *, context: Context | None = None, **more: Any
    ) -> Any:
        is_contained = _is_contained.get() if context is None else context.get(_is_contained, False)
        if not (is_contained and asyncio.iscoroutine(coroutine)):
            return start(loop, coroutine, context, more)
        config = (
            var_child_runnable_config.get() if context is None else context.get(var_child_runnable_config)
        )
        task = start(loop, _contain(coroutine, config), context, more)
        # A task that is cancelled before its first step never awaits it.
        task.add_done_callback(lambda _: coroutine.close())
        return task

    def start(
        loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None, more: dict[str, Any]
    ) -> Any:
        if before is None:
            return asyncio.Task(coroutine, loop=loop, context=context, **more)
        given = more if context is None else {**more, "context": context}
        return before(loop, coroutine, **given)

    loop.set_task_factory(create)
    try:
        yield
    finally:
        if loop.get_task_factory() is create:
            loop.set_task_factory(before)


async def _contain(coroutine: Coroutine[Any, Any, Any], config: Any) -> Any:  # noqa: ARG001 - `node_of` finds it here
    with Contained():
        return await coroutine


def node_of(frame: FrameType) -> tuple[str, str] | None:
    """The thread and the node whose task this frame is the outermost of; None if it is of something else."""
    if frame.f_code is not _contain.__code__:
        return None
    config = frame.f_locals.get("config") or {}
    node = config.get("metadata", {}).get("langgraph_node")
    return (str(config.get("configurable", {}).get("thread_id", "")), str(node)) if node else None
