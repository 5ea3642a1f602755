"""Failpoints: named places where a test can make the process die, fail or hang; no-ops unless armed.

`failpoint("tool_after_effect")` stands in product code at a crash window. `install("tool_after_effect:kill@2")` (the
setting CLEW_FAILPOINTS) arms it: the second time a process passes it, it logs the failpoint and kills itself.
"""

import asyncio
import errno
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from clew.domain.errors import ConfigError

logger = logging.getLogger(__name__)

NAMES = frozenset(
    {
        "accept_before_commit",
        "accept_after_commit_before_reply",
        "lease_taken",
        "llm_before",
        "llm_after_before_commit",
        "toolcall_logged",
        "tool_before_effect",
        "tool_after_effect",
        "tool_result_logged",
        "interrupt_logged",
        "decision_committed_before_resume",
        "checkpoint_put",
        "event_published_before_sse",
        "summary_written",
        "cleanup_mid_thread",
        "delete_mid_tables",
        "migration_mid",
        "backup_mid",
        "restore_before_replace",
        "expiry_fired",
        # between a chat and its thread
        "delivery_admitted",
        "updates_admitted",
        "answer_before_send",
        "answer_after_send",
        # of runs and crons
        "run_stopped_before_undone",
        "state_written_before_asked",
        "cron_begun_before_advance",
        "thread_created_before_queued",
        "webhook_before_send",
        "webhook_after_send",
        # of coding workflows
        "checks_ended",
        "publish_committed",
        "publish_pushed",
        "publish_pull_request_opened",
        "publish_commented",
        # inside the stores, around one transaction
        "commit_begun",
        "commit_written",
        "commit_done",
    }
)

_SPEC = re.compile(
    r"(?P<name>[a-z_]+):(?P<action>kill|raise|cancel|io_error|sleep\((?P<seconds>\d{1,5}(?:\.\d{1,6})?)\))"
    r"(?:@(?P<hit>[1-9]\d{0,8}))?"
)


class FailpointHit(Exception):
    """A failpoint armed with `raise` was passed."""


@dataclass(frozen=True, slots=True)
class Failpoint:
    """Do `action` the `hit`-th time `name` is passed."""

    name: str
    action: str
    hit: int = 1
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.name}:{self.action}@{self.hit}"


class _Armed:
    def __init__(self, failpoints: tuple[Failpoint, ...]) -> None:
        self._failpoints = failpoints
        self._hits = dict.fromkeys(NAMES, 0)
        self._lock = threading.Lock()

    def due(self, name: str) -> Failpoint | None:
        with self._lock:
            self._hits[name] += 1
            hits = self._hits[name]
        return next((point for point in self._failpoints if (point.name, point.hit) == (name, hits)), None)


_armed: _Armed | None = None


def failpoint(name: str) -> None:
    """Pass a named place. Costs one comparison when nothing is installed."""
    if _armed is not None and (point := _armed.due(name)) is not None:
        _fire(point)


def install(spec: str) -> None:
    """Arm what `name:action@n,...` says and count from zero; an empty spec disarms everything.

    Actions: kill, raise, cancel, io_error, sleep(seconds). `@n` is the passage that fires, the first if left out.
    Raises ConfigError for anything else.
    """
    global _armed
    failpoints = parse(spec)
    _armed = _Armed(failpoints) if failpoints else None


@contextmanager
def installed(spec: str) -> Iterator[None]:
    """Arm for the length of a block."""
    install(spec)
    try:
        yield
    finally:
        install("")


def parse(spec: str) -> tuple[Failpoint, ...]:
    return tuple(_parse_one(part.strip()) for part in spec.split(",")) if spec.strip() else ()


def _parse_one(text: str) -> Failpoint:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"CLEW_FAILPOINTS: {text[:80]!r}: expected name:action or name:action@n, "
            "action one of kill, raise, cancel, io_error, sleep(seconds)"
        )
    if match["name"] not in NAMES:
        raise ConfigError(
            f"CLEW_FAILPOINTS: no failpoint {match['name'][:80]!r}; there are {', '.join(sorted(NAMES))}"
        )
    return Failpoint(
        name=match["name"],
        action=match["action"].partition("(")[0],
        hit=int(match["hit"] or 1),
        seconds=float(match["seconds"] or 0),
    )


def _fire(point: Failpoint) -> None:
    # A test must see that its fault happened: without this line a failpoint that was never passed goes unnoticed.
    logger.warning("failpoint %s fires", point)
    match point.action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(point.seconds)  # blocks the event loop too: that is the fault being staged
        case "cancel":
            _cancel()
        case "io_error":
            raise OSError(errno.EIO, f"failpoint {point.name}")
        case _:
            raise FailpointHit(point.name)


def _cancel() -> None:
    # As when a caller disconnects: the task is cancelled at its next await. A plain thread has no task to cancel.
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise asyncio.CancelledError
    task.cancel()
