"""Encryption keys of a database: which ones its values are encrypted with. A process without one of them does not open it."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from clew.domain.errors import ConfigError, Corrupt
from clew.ports.cipher import Cipher
from clew.stores.sql.private import PRIVATE
from clew.stores.sql.work import Database, Rows, Statement, Work

logger = logging.getLogger(__name__)

# Stands among the keys for values that are not encrypted.
NONE: Final = "none"
# And for values that the handlers of the project encrypted.
HANDLERS: Final = "handlers"
_CHECK: Final = "encryption_keys.check_value"


async def require_keys(db: Database) -> None:
    """Raises ConfigError if the database has values that this process cannot read. A first key is written down."""
    known = await db.read(_known)
    require_readable(known, db.cipher)
    if db.cipher.is_active and db.cipher.current not in dict(known):
        known = await db.write(lambda: _add(db.cipher))
    if NONE in dict(known):
        logger.warning(
            "the database has values from before encryption, which anyone who has its files can read: run `clew encrypt`"
        )


def _known() -> Work[Rows]:
    return (yield Statement("SELECT id, check_value FROM encryption_keys ORDER BY id"))


def require_readable(known: Iterable[Sequence[Any]], cipher: Cipher) -> None:
    """Of the rows of `encryption_keys`, each an id and a check value. Raises ConfigError."""
    for key, check in known:
        if key == NONE:
            continue
        if key == HANDLERS and key not in cipher.key_ids:
            raise ConfigError(
                "the database is encrypted by the handlers of a project: start Clew with the langgraph.json whose"
                " encryption.path names them"
            )
        if not cipher.is_active:
            raise ConfigError(
                f"the database is encrypted (key {key}), and no key was given: set CLEW_ENCRYPTION_KEY"
                " or CLEW_ENCRYPTION_KEY_COMMAND"
            )
        if key == HANDLERS and not _opens(check, cipher):
            raise ConfigError("the handlers of encryption.path do not open what is in the database")
        if key not in cipher.key_ids or not _opens(check, cipher):
            raise ConfigError(
                f"the database has values encrypted with key {key}, which is not among the keys given"
                f" ({', '.join(cipher.key_ids)}): add it to CLEW_ENCRYPTION_KEY, after a comma"
            )


def _opens(check: str, cipher: Cipher) -> bool:
    try:
        return cipher.open(check, _CHECK) == _CHECK
    except Corrupt:
        return False


def _add(cipher: Cipher) -> Work[Rows]:
    """Write down the current key, and with the first one whether there were values before it."""
    known = yield from _known()
    if not known and (yield from _has_values()):
        yield _insert(NONE, "")
    yield _insert(cipher.current, cipher.seal(_CHECK, _CHECK))
    return (yield from _known())


def _insert(key: str, check: str) -> Statement:
    return Statement(
        "INSERT INTO encryption_keys (id, check_value, added_at) VALUES ($1, $2, clew_now())"
        " ON CONFLICT (id) DO NOTHING",
        (key, check),
    )


def _has_values() -> Work[bool]:
    either = " OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in PRIVATE)
    rows = yield Statement(f"SELECT CASE WHEN {either} THEN 1 ELSE 0 END")
    return bool(rows[0][0])


def retire_others(current: str) -> Work[None]:
    """Forget all keys but this one: no value is encrypted with them any more."""
    yield Statement("DELETE FROM encryption_keys WHERE id <> $1", (current,))
