"""Trace context: the `traceparent` header of the request that is being handled (W3C Trace Context)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

_HEADER = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")

_caller: ContextVar[str] = ContextVar("clew_trace", default="")


class TraceParent(NamedTuple):
    trace_id: int
    span_id: int
    is_sampled: bool


def parse_traceparent(header: str) -> TraceParent | None:
    """None if it is none: as the standard says, the receiver then begins a trace of its own."""
    found = _HEADER.fullmatch(header)
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return TraceParent(trace_id, span_id, bool(flags & 1))


@contextmanager
def calling(header: str) -> Iterator[None]:
    """Inside the block `caller_trace` is this header, if it can be read."""
    token = _caller.set(header if parse_traceparent(header) else "")
    try:
        yield
    finally:
        _caller.reset(token)


def caller_trace() -> str:
    """The header of the current request, or an empty text."""
    return _caller.get()
