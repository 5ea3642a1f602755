"""Client settings: the server that commands call, from the environment or a saved context.

They are read alone: a command that calls a server needs no other setting of this machine.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import SecretStr

from clew.config.declare import Section, declared_in, setting
from clew.config.files import read_json
from clew.config.kinds import http_url, secret
from clew.domain.errors import ConfigError, Invalid, NotFound


class ClientSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_"

    url: Annotated[str | None, http_url()] = setting(
        None, "Server that commands call; default: the local database.", in_file=False
    )
    key: Annotated[SecretStr | None, secret()] = setting(
        None, "API key that commands send to that server.", in_file=False
    )


@dataclass(frozen=True, slots=True)
class SavedContexts:
    """Servers by name, and which of them commands use; none: the local database."""

    servers: Mapping[str, ClientSettings] = field(default_factory=dict)
    current: str | None = None

    @property
    def chosen(self) -> ClientSettings:
        return self.servers[self.current] if self.current else ClientSettings()

    def using(self, name: str | None) -> "SavedContexts":
        """Raises NotFound."""
        if name is not None and name not in self.servers:
            known = ", ".join(sorted(self.servers)) or "none yet"
            raise NotFound(f"no context {name!r}; there are: {known}")
        return SavedContexts(self.servers, name)

    def with_server(self, name: str, server: ClientSettings) -> "SavedContexts":
        return SavedContexts({**self.servers, name: server}, name)

    def without(self, name: str) -> "SavedContexts":
        """Raises NotFound."""
        self.using(name)
        rest = {known: server for known, server in self.servers.items() if known != name}
        return SavedContexts(rest, self.current if self.current != name else None)


def read_client_settings(environ: Mapping[str, str]) -> ClientSettings:
    """Raises ConfigError, which does not repeat the value."""
    return _client(
        {one.name: environ.get(one.env, "").strip() for one in declared_in("client", ClientSettings)}
    )


def client_settings(url: str | None, key: str | None) -> ClientSettings:
    """Of options. Raises Invalid."""
    try:
        return _client({"url": url or "", "key": key or ""}, named=lambda one: f"--{one}")
    except ConfigError as exc:
        raise Invalid(str(exc)) from None


def read_contexts(path: Path) -> SavedContexts:
    """Raises ConfigError."""
    if not path.exists():
        return SavedContexts()
    match read_json(path):
        case {"servers": dict(servers), "current": str() | None as current} if (
            current is None or current in servers
        ):
            return SavedContexts({name: _saved(path, value) for name, value in servers.items()}, current)
        case _:
            raise ConfigError(f"{path}: these are no contexts; `clew context set` writes them")


def write_contexts(path: Path, contexts: SavedContexts) -> None:
    """Readable by its owner only: it has keys in it. Raises Invalid."""
    servers = {
        name: {"url": one.url, "key": None if one.key is None else one.key.get_secret_value()}
        for name, one in contexts.servers.items()
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(
            json.dumps({"current": contexts.current, "servers": servers}, indent=2) + "\n", "utf-8"
        )
        new.replace(path)
    except OSError as exc:
        raise Invalid(f"cannot write {path}: {exc.strerror}") from exc


def _saved(path: Path, value: object) -> ClientSettings:
    match value:
        case {"url": str(url), "key": str() | None as key}:
            return _client({"url": url, "key": key or ""})
        case _:
            raise ConfigError(f"{path}: expected a url and a key for each server")


def _client(given: Mapping[str, str], named: Callable[[str], str] | None = None) -> ClientSettings:
    values: dict[str, Any] = {}
    for one in declared_in("client", ClientSettings):
        if text := given[one.name]:
            try:
                values[one.name] = one.kind.read(text)
            except ValueError:
                name = named(one.name) if named else one.env
                raise ConfigError(f"{name}: expected {one.kind.expected}") from None
    return ClientSettings.model_construct(**values)
