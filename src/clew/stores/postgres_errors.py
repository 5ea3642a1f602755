"""Errors of asyncpg and of Postgres as Clew's: an outage, two transactions that collided, or a refused value."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import asyncpg

from clew.domain.errors import ClewError, Conflict, Invalid, StorageFull, Unavailable

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# The server or the way to it is gone, or this connection is of no more use. Another connection may do, now or later.
OUTAGES = (
    asyncpg.PostgresConnectionError,  # class 08
    asyncpg.InsufficientResourcesError,  # class 53
    asyncpg.OperatorInterventionError,  # class 57: shutdown, crash, not ready yet, cancelled by an administrator
    asyncpg.PostgresSystemError,  # class 58
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    # A standby that has not been promoted yet, or a primary that no longer is one.
    asyncpg.ReadOnlySQLTransactionError,
    # The tables were migrated under this connection.
    asyncpg.InvalidCachedStatementError,
    # asyncpg's own: the connection is closed, is closing, or was cut off between an error and the end of the stream.
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    EOFError,
)
MET = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
# After an error of this severity Postgres closes the connection, whatever the error was.
LAST_WORDS = frozenset({"FATAL", "PANIC"})


class Met(Exception):
    """Two transactions collided and this one was rolled back. The same work may be tried again."""


@contextmanager
def in_our_words(connection: Connection) -> Generator[None]:
    """Around calls of asyncpg: what they raise leaves as an error of ours."""
    try:
        yield
    except Exception as exc:
        error = translated(exc, lost=is_lost(connection))
        if error is exc:
            raise
        if isinstance(error, Invalid):
            # The driver's own text would quote the value, and messages are private.
            raise error from None
        raise error from exc


def is_lost(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:
        return True  # one that the server has closed returns to the pool by itself


def translated(exc: Exception, *, lost: bool) -> Exception:
    """The error as the rest of Clew knows it; the same error if no class of ours fits.

    On a connection that is `lost` every error says only that, whatever its class.
    """
    match exc:
        case ClewError():
            return exc
        case _ if isinstance(exc, MET) and not lost:
            return Met()
        case asyncpg.DiskFullError():
            return StorageFull("the database's disk is full; nothing was written")
        case _ if lost or isinstance(exc, OUTAGES) or _severity(exc) in LAST_WORDS:
            return unreachable(exc)
        case asyncpg.IntegrityConstraintViolationError():
            return Conflict(f"the database refused a duplicate or missing value ({type(exc).__name__})")
        case asyncpg.DataError():
            return Invalid("not storable: a text with a NUL or half of a surrogate pair, or a number too big")
        case _:
            return exc


def unreachable(exc: Exception) -> Unavailable:
    return Unavailable(f"the database cannot be reached ({type(exc).__name__})")


def _severity(exc: Exception) -> object:
    return getattr(exc, "severity_en", None) or getattr(exc, "severity", None)
