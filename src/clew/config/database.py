"""Database URL: which database it means; what is printed of it never holds a user, a password or an option."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import SecretStr

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]*)(?::[0-9]{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """`path` is set for sqlite, `dsn` for postgres, neither for memory."""

    kind: Literal["sqlite", "postgres", "memory"]
    path: Path | None = None
    dsn: SecretStr | None = None
    is_transaction_pooler: bool = False

    def reveal(self) -> str:
        """The whole URL, password included: only for opening connections."""
        return self.dsn.get_secret_value() if self.dsn else str(self)

    def under(self, folder: Path) -> "DatabaseUrl":
        """The same with a relative path made absolute."""
        return replace(self, path=folder / self.path) if self.path else self

    def __str__(self) -> str:
        if self.dsn is None:
            return f"sqlite:///{self.path}" if self.path else "memory://"
        url = urlsplit(self.dsn.get_secret_value())
        return f"postgresql://{_hosts(url.netloc)}{url.path}"


def parse_database_url(text: str) -> DatabaseUrl:
    """Raises ValueError, whose text is not fit to be shown."""
    if not text.isprintable():
        raise ValueError("control characters")
    if text in ("memory://", "sqlite:///:memory:"):
        return DatabaseUrl("memory")
    scheme, _, rest = text.partition("://")
    if scheme == "sqlite" and rest.startswith("/"):
        return DatabaseUrl("sqlite", path=_sqlite_path(rest[1:]))
    if scheme in ("postgres", "postgresql") and rest:
        return _postgres(f"postgresql://{rest}")
    raise ValueError("scheme")


def _sqlite_path(text: str) -> Path:
    # `~` would be a folder of that name, and `?mode=ro` a part of the file's name: better said now than found later.
    if not text or text.startswith("~") or text.endswith("/") or "?" in text:
        raise ValueError("path")
    return Path(text)


def _postgres(text: str) -> DatabaseUrl:
    url = urlsplit(text)
    # A raw / or ? in a password would end the host part early, and the rest of the password be printed as a database.
    if url.fragment or "@" in url.path + url.query or not _HOSTS.fullmatch(_hosts(url.netloc)):
        raise ValueError("host")
    options = parse_qsl(url.query, keep_blank_values=True, strict_parsing=bool(url.query))
    behind_pgbouncer = ("pgbouncer", "true") in options
    if behind_pgbouncer:
        # A hint for clients like us: Postgres itself refuses a parameter it does not know.
        query = urlencode([option for option in options if option[0] != "pgbouncer"])
        text = text.partition("?")[0] + (f"?{query}" if query else "")
    on_supabase_pooler = ":6543" in _hosts(url.netloc)
    return DatabaseUrl(
        "postgres", dsn=SecretStr(text), is_transaction_pooler=behind_pgbouncer or on_supabase_pooler
    )


def _hosts(netloc: str) -> str:
    return netloc.rpartition("@")[2]
