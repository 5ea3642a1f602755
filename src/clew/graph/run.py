"""Run of a node: how code inside a graph reaches the log of its thread, if there is one."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from clew.ports.run_context import RunContext

# A context variable, not a config value: LangGraph copies config values into checkpoints.
_current: ContextVar[RunContext | None] = ContextVar("clew_run", default=None)


def current_run() -> RunContext | None:
    """The run this code is part of; None outside of Clew's own runner."""
    return _current.get()


@contextmanager
def running(run: RunContext) -> Generator[None]:
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)
