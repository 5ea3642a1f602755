"""Process environment: the one place where environment variables and working directory are read and written."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from clew.config.client import ClientSettings, read_client_settings, read_contexts
from clew.config.database import DatabaseUrl
from clew.config.encryption import EncryptionSettings
from clew.config.kinds import database_url
from clew.config.load import find_config, load_settings, read_beside
from clew.config.settings import Settings
from clew.config.sources import LangGraphVariables, Variables, read_sections
from clew.domain.errors import ConfigError


def load_process_settings(
    config: Path | None = None,
    options: Mapping[str, object] | None = None,
    *,
    without: Collection[str] = (),
) -> Settings:
    """`load_settings` for this process."""
    environ = os.environ  # noqa: TID251 - read here and nowhere else
    return load_settings(environ, cwd=Path.cwd(), config=config, options=options, without=without)


def load_client_settings(config: Path | None = None) -> ClientSettings:
    """The server of the environment, of the `.env` beside clew.yaml, or of the saved context. Raises ConfigError."""
    environ = os.environ  # noqa: TID251 - read here and nowhere else
    file = find_config(Path.cwd(), config)
    named = read_client_settings({**read_beside(file), **environ})
    if named.url is not None:
        return named
    saved = read_contexts(contexts_file()).chosen
    return saved if named.key is None else saved.model_copy(update={"key": named.key})


def contexts_file() -> Path:
    """Where `clew context` saves servers."""
    environ = os.environ  # noqa: TID251 - read here and nowhere else
    folder = environ.get("XDG_CONFIG_HOME", "")
    return (Path(folder) if folder else Path.home() / ".config") / "clew" / "contexts.json"


def export_environment(settings: Settings) -> None:
    """Give graphs the variables that langgraph.json promises them; what is set already stays.

    Sets LangGraph to rebuild only listed types from stored bytes. LangGraph reads that when it is imported, so
    this comes first.
    """
    environ = os.environ  # noqa: TID251 - written here and nowhere else
    environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    for name, value in settings.graph_environment.items():
        environ.setdefault(name, value.get_secret_value())


def load_encryption() -> EncryptionSettings:
    """What the environment says of encryption, for a database named in code. Raises ConfigError."""
    environ = {
        name: value
        for name, value in os.environ.items()  # noqa: TID251 - read here and nowhere else
        if name.startswith(EncryptionSettings.PREFIX) or name == "LANGGRAPH_AES_KEY"
    }
    return read_sections(Variables(environ), LangGraphVariables(environ))[0].encryption


def read_database_url(text: str) -> DatabaseUrl:
    """A database named in code. Raises ConfigError, which does not repeat the text."""
    kind = database_url()
    try:
        return kind.read(text).under(Path.cwd())
    except ValueError:
        raise ConfigError(f"database URL: expected {kind.expected}") from None


def program_search_path() -> dict[str, str]:
    """The environment of a program of the system that a command calls: where it is found, and its language."""
    environ = os.environ  # noqa: TID251 - read here and nowhere else
    return {name: environ[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR") if name in environ}
