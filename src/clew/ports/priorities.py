"""Priorities port: decides the priority of a thread's runs when the first of them starts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from clew.domain.events import RunSpec
from clew.domain.thread import Json, Owner


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRun:
    """A run of a thread that has no priority yet."""

    thread_id: str | None  # None for a thread that the run creates, with an id of the server's
    owner: Owner
    metadata: Mapping[str, Json]  # of the thread
    spec: RunSpec
    cron_id: str = ""


class Priorities(Protocol):
    async def of(self, first: FirstRun) -> int | None:
        """The priority that the thread keeps. None leaves it open: its next run asks again."""
        ...


class NoPriorities:
    async def of(self, first: FirstRun) -> int | None:  # noqa: ARG002 - the port's
        return None
