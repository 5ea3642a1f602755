"""Process environment: the one place where environment variables and working directory are read and written."""

import os
from collections.abc import Mapping
from pathlib import Path

from clew.config.database import DatabaseUrl
from clew.config.kinds import database_url
from clew.config.load import load_settings
from clew.config.settings import Settings
from clew.domain.errors import ConfigError


def load_process_settings(
    config: Path | None = None, options: Mapping[str, object] | None = None
) -> Settings:
    """`load_settings` for this process."""
    environ = os.environ  # noqa: TID251 - read here and nowhere else
    return load_settings(environ, cwd=Path.cwd(), config=config, options=options)


def export_environment(settings: Settings) -> None:
    """Give graphs the variables that langgraph.json promises them; what is set already stays.

    Sets LangGraph to rebuild only listed types from stored bytes. LangGraph reads that when it is imported, so
    this comes first.
    """
    environ = os.environ  # noqa: TID251 - written here and nowhere else
    environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    for name, value in settings.graph_environment.items():
        environ.setdefault(name, value.get_secret_value())


def read_database_url(text: str) -> DatabaseUrl:
    """A database named in code. Raises ConfigError, which does not repeat the text."""
    kind = database_url()
    try:
        return kind.read(text).under(Path.cwd())
    except ValueError:
        raise ConfigError(f"database URL: expected {kind.expected}") from None
