"""API keys: their text, the stored hash, and their scopes."""

import re
import secrets
from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from clew.domain.errors import Forbidden
from clew.domain.records import ApiKey
from clew.domain.thread import Json, Owner
from clew.ports.authorization import FilteredOwner
from clew.ports.users import AuthUser

# `approve` answers approvals, `admin` is for one tenant, `operator` for the whole installation.
SCOPES = ("read", "write", "approve", "admin", "operator", "metrics")
# Of a new key that names none.
USUAL_SCOPES = ("read", "write", "approve")
TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}")
MAX_USER = 256

# Under this key a request's scope says who is calling.
PRINCIPAL = "clew.principal"

_PREFIX_BYTES = 5
_SECRET_BYTES = 20  # 160 bits
_SHAPE = re.compile(r"clew_[a-z2-7]{8}_[a-z2-7]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who is calling: everything a request may do is decided from this and from nothing else in the request."""

    tenant: str
    user_id: str
    scopes: frozenset[str]
    key_id: str
    # Of a caller that the project's own authentication handler has let in.
    user: AuthUser | None = field(default=None, repr=False, compare=False)
    # What of that user a run keeps: no credentials.
    stored_user: Mapping[str, Json] | None = field(default=None, repr=False, compare=False)
    # What the project's authorization handlers let that user see. Before they are asked, nothing.
    filtered: FilteredOwner | None = field(default=None, repr=False, compare=False)

    @property
    def owner(self) -> Owner:
        """Whose data the caller sees. A key without a user sees its whole tenant, a user of custom authentication what
        the project's handlers show of it."""
        if self.user is not None:
            return self.filtered or FilteredOwner(tenant=self.tenant)
        return self.itself

    @property
    def itself(self) -> Owner:
        """The owner of what handlers know nothing of: files, and chat histories read over HTTP."""
        return Owner(tenant=self.tenant, user_id=self.user_id)

    def require(self, scope: str) -> None:
        """Raises Forbidden."""
        if scope not in self.scopes:
            raise Forbidden(f"this needs a key with the scope {scope!r}")


def mint(
    *, name: str, owner: Owner, scopes: frozenset[str], now: datetime, lifetime: timedelta | None
) -> tuple[str, ApiKey]:
    """A new key: its text, which is shown once and never stored, and what is stored of it."""
    prefix, secret = _random(_PREFIX_BYTES), _random(_SECRET_BYTES)
    text = f"clew_{prefix}_{secret}"
    key = ApiKey(
        id=f"key_{prefix}",
        hash=fingerprint(text),
        prefix=prefix,
        name=name,
        owner=owner,
        scopes=scopes,
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    return text, key


def is_user(text: str) -> bool:
    """Whether the text can be the id of a user; an empty one stands for the whole tenant."""
    return text.isprintable() and len(text) <= MAX_USER


def is_key(text: str) -> bool:
    """Whether the text can be a key at all; what cannot is not worth asking the database."""
    return _SHAPE.fullmatch(text) is not None


def fingerprint(text: str) -> str:
    """The stored hash of a key. The key is random and long, so a plain hash cannot be brute-forced."""
    return sha256(text.encode()).hexdigest()


def _random(count: int) -> str:
    return b32encode(secrets.token_bytes(count)).decode().lower()
