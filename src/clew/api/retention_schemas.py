"""Schemas of retention: usage, deletion and cleanup, in HTTP answers and in the JSON of the command line."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, Self

from clew.api.numbers import OwnerNumbers
from clew.api.schemas import WireModel
from clew.domain.retention import Binned, CleanupJob, Usage
from clew.retention.cleanup import CleanupOutcome


class CleanupRunOut(WireModel):
    id: str
    started_at: datetime
    finished_at: datetime | None
    deleted: int
    errors: int

    @classmethod
    def of(cls, job: CleanupJob) -> Self:
        return cls(
            id=job.id,
            started_at=job.started_at,
            finished_at=job.finished_at,
            deleted=job.deleted,
            errors=job.failed,
        )


class CountsOut(WireModel):
    by_status: Mapping[str, int]


class UsageOut(WireModel):
    threads: int
    by_status: Mapping[str, int]
    by_graph: Mapping[str, int]
    events: int
    oldest: datetime | None
    due: int
    """How many a cleanup would delete now."""
    deleted: int
    """How many are soft-deleted and can still be restored."""
    tables: Mapping[str, int] | None
    """Bytes by table, of all tenants together; only for keys with the scope `admin`."""
    bytes: int | None
    last_cleanup: CleanupRunOut | None

    @classmethod
    def of(cls, usage: Usage, tables: Mapping[str, int] | None, last: CleanupJob | None) -> Self:
        return cls(
            threads=usage.threads,
            by_status=usage.by_status,
            by_graph=usage.by_graph,
            events=usage.events,
            oldest=usage.oldest,
            due=usage.due,
            deleted=usage.deleted,
            tables=tables,
            bytes=None if tables is None else sum(tables.values()),
            last_cleanup=None if last is None else CleanupRunOut.of(last),
        )


class BinnedOut(WireModel):
    id: str
    graph: str
    name: str
    mandate_id: int
    """The number of the tenant."""
    user_id: int
    """The number of the user; 0 without a user."""
    tenant: str
    user: str
    deleted_at: datetime
    gone_at: datetime
    """The time after which it cannot be restored."""

    @classmethod
    def of(cls, thread: Binned, numbers: OwnerNumbers) -> Self:
        return cls(
            id=thread.id,
            graph=thread.graph,
            name=thread.name,
            mandate_id=numbers.tenant,
            user_id=numbers.user,
            tenant=thread.owner.tenant,
            user=thread.owner.user_id,
            deleted_at=thread.deleted_at,
            gone_at=thread.gone_at,
        )


class BinnedListOut(WireModel):
    threads: list[BinnedOut]


class ThreadDeletedOut(WireModel):
    id: str
    status: Literal["deleted"] = "deleted"


class DeletedThreadsOut(WireModel):
    deleted: int
    errors: int
    """How many could not be deleted."""
    due: int
    """How many are left."""
    more: bool
    """Whether the rest is deleted in the background."""
    thread_ids: list[str]
    """Up to a thousand of them; all are in the log."""

    @classmethod
    def of(cls, outcome: CleanupOutcome) -> Self:
        job = outcome.job
        return cls(
            deleted=job.deleted if job else 0,
            errors=job.failed if job else 0,
            due=outcome.due,
            more=outcome.more,
            thread_ids=list(outcome.thread_ids),
        )


class ThreadCleanupOut(WireModel):
    status: Literal["completed", "more", "already_running", "dry_run"]
    deleted: int
    preserved: int
    errors: int
    due: int
    more: bool
    thread_ids: list[str]

    @classmethod
    def of(cls, outcome: CleanupOutcome) -> Self:
        job = outcome.job
        return cls(
            status=outcome.status,
            deleted=job.deleted if job else 0,
            preserved=outcome.preserved,
            errors=job.failed if job else 0,
            due=outcome.due,
            more=outcome.more,
            thread_ids=list(outcome.thread_ids),
        )
