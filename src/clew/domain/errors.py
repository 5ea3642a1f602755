"""
Errors of Clew, by class and code.

* ClewError
  x NotFound             NOT_FOUND        it does not exist, or it is not yours: the two look the same
  x InvalidState         INVALID_STATE    the thread's state forbids this command
    - AlreadyReserved    WORKFLOW_CONFLICT    another active workflow holds the reservation
  x AtCapacity           CONCURRENCY_LIMIT    as many are active as may be; try again later
    - QuotaExceeded      QUOTA_EXCEEDED   the tenant stores as much as it may; something must be deleted first
    - BudgetSpent        BUDGET_SPENT     models used as many tokens, or cost as much, as they may in this period
  x Conflict             CONFLICT         another writer was first; read again and decide again
    - LostLease          LOST_LEASE       another runner holds the thread now; write nothing more
  x Duplicate            DUPLICATE        the key was used before, for something else
  x AlreadyDone          REPEATED         this was done before; `answer` is what was said then
  x Invalid              INVALID          a value is not what it must be; `field` names it
    - Contradictory      CONTRADICTORY    two values were given for the same thing
  x Unauthenticated      UNAUTHENTICATED  no credential, or not a good one
  x Forbidden            FORBIDDEN        a good credential that may not do this
  x Unavailable          UNAVAILABLE      the database did not answer in time; try again later
    - StorageFull        STORAGE_FULL     the disk is full; reads still work
  x Drained              DRAINED          the process is going down; the run goes on in another
  x Corrupt              CORRUPT          what was stored cannot be read back; only this thread suffers
  x SchemaMismatch       SCHEMA_MISMATCH  the stored state does not fit the graph's schema; the message says where
  x ConfigError          CONFIG           a setting is wrong; the message names it and what was expected
  x Transient            TRANSIENT        the outside world failed; trying again may help
  x Permanent            PERMANENT        the outside world failed; trying again will not help
    - RetriesExhausted   GIVEN_UP         no attempt is left; the message says how many were made and why
    - LimitExceeded      RESOURCE_LIMIT   a round used more of the machine than it may; the message names the limit

`code` is what a program reads and never changes; the message is for a person. Messages reach clients and
logs: they hold no message text of a conversation, no secret and no connection string.
"""

from dataclasses import dataclass
from typing import ClassVar


class ClewError(Exception):
    """Base of everything Clew raises on purpose; without a message it says the first line of its docstring."""

    code: ClassVar[str] = "ERROR"

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").partition("\n")[0])


class NotFound(ClewError):
    """It does not exist."""

    code = "NOT_FOUND"


class InvalidState(ClewError):
    """The thread's state forbids this command."""

    code = "INVALID_STATE"


class AlreadyReserved(InvalidState):
    """Another active workflow holds a reservation that this one needs."""

    code = "WORKFLOW_CONFLICT"


class AtCapacity(ClewError):
    """As many workflows are active as may be at once; try again later."""

    code = "CONCURRENCY_LIMIT"


class QuotaExceeded(AtCapacity):
    """The tenant stores as much as it may; delete something first."""

    code = "QUOTA_EXCEEDED"


class BudgetSpent(AtCapacity):
    """Models used as many tokens, or cost as much, as they may in this period."""

    code = "BUDGET_SPENT"


class Conflict(ClewError):
    """Another writer was first; read again and decide again."""

    code = "CONFLICT"


class LostLease(Conflict):
    """Another runner holds the thread now."""

    code = "LOST_LEASE"


class Duplicate(ClewError):
    """The key was used before, for something else."""

    code = "DUPLICATE"


class AlreadyDone(ClewError):
    """The same thing was done before.

    Not a failure: `answer` is what was said then, and it is to be said again.
    """

    code = "REPEATED"

    def __init__(self, answer: object, message: str | None = None) -> None:
        super().__init__(message)
        self.answer = answer


class Invalid(ClewError):
    """A value is not what it must be."""

    code = "INVALID"

    def __init__(self, message: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class Contradictory(Invalid):
    """Two values were given for the same thing."""

    code = "CONTRADICTORY"


class Unauthenticated(ClewError):
    """No credential, or not a good one."""

    code = "UNAUTHENTICATED"


class Forbidden(ClewError):
    """The credential may not do that."""

    code = "FORBIDDEN"


class Unavailable(ClewError):
    """The database did not answer in time; try again later."""

    code = "UNAVAILABLE"


class StorageFull(Unavailable):
    """The disk is full; reads still work."""

    code = "STORAGE_FULL"


class Drained(ClewError):
    """The run stopped at a safe point because its process is going down; another continues it."""

    code = "DRAINED"


class Corrupt(ClewError):
    """What was stored cannot be read back."""

    code = "CORRUPT"


class SchemaMismatch(ClewError):
    """The stored state does not fit the graph's schema."""

    code = "SCHEMA_MISMATCH"


class ConfigError(ClewError):
    """A setting is wrong."""

    code = "CONFIG"


@dataclass(frozen=True, slots=True)
class Answered:
    """What the other side answered when it failed, for operators. `text` may quote anything: it is in no log."""

    text: str
    status: int | None = None
    code: str = ""


class Transient(ClewError):
    """The outside world failed; trying again may help.

    `error_class` is one of `clew.domain.retry.ErrorClass`; `retry_after` is in seconds, when the other side said so.
    `detail` is the whole of what failed said, of which the message may be the first line.
    """

    answered: Answered | None = None

    code = "TRANSIENT"

    def __init__(
        self,
        message: str | None = None,
        error_class: str | None = None,
        retry_after: float | None = None,
        *,
        detail: str = "",
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.retry_after = retry_after
        self.detail = detail


class Permanent(ClewError):
    """The outside world failed; trying again will not help. `detail` is as a Transient has it."""

    code = "PERMANENT"
    answered: Answered | None = None

    def __init__(
        self, message: str | None = None, error_class: str | None = None, *, detail: str = ""
    ) -> None:
        super().__init__(message)
        self.error_class = error_class
        self.detail = detail


class RetriesExhausted(Permanent):
    """No attempt is left.

    Callers do not retry it: the message says how many attempts there were, and why there is no other.
    """

    code = "GIVEN_UP"


class LimitExceeded(Permanent):
    """A round used more of the machine than it may."""

    code = "RESOURCE_LIMIT"


def escaped(exc: BaseException) -> Permanent:
    """What `except Exception` does not catch, raised by a graph or an agent, as the failure of its run."""
    first_line = str(exc).partition("\n")[0][:300]
    name = type(exc).__name__
    return Permanent(f"{name}: {first_line}" if first_line else name, "internal")
