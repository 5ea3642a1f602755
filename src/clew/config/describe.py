"""Description of the settings: what may be shown of them, and what must never be."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from clew.config.database import DatabaseUrl
from clew.config.declare import Setting
from clew.config.settings import SETTINGS, Settings
from clew.domain.profile import Profile

_SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "DSN", "URL")


@dataclass(frozen=True, slots=True)
class Described:
    """One setting for a person: `source` is the variable, option or file it came from, or `default`."""

    key: str
    value: str
    source: str


def describe(settings: Settings) -> list[Described]:
    """Every setting with its value, fit for a terminal and a bug report."""
    described = [
        Described(
            setting.key,
            _shown(_value(settings, setting)),
            settings.sources.get(setting.key, "default"),
        )
        for setting in SETTINGS
    ]
    if found := settings.sources.get("threads.ttl"):
        described.append(Described("threads.ttl", str(settings.thread_ttl.delete_after), found))
    file = str(settings.config_file) if settings.config_file else "default"
    described += [
        Described(f"profiles.{name}", _profile(settings, profile), file)
        for name, profile in settings.profiles.items()
    ]
    described += [Described(f"graphs.{name}", str(graph), file) for name, graph in settings.graphs.items()]
    described += [Described(f"channels.{c.kind}.{c.name}", "set", file) for c in settings.channels]
    described += [Described(f"mcp.servers.{server.name}", "set", file) for server in settings.mcp_servers]
    described += [Described(f"apps.{name}", "set", file) for name in settings.apps]
    return described


def _value(settings: Settings, setting: Setting) -> object:
    return getattr(getattr(settings, setting.section), setting.name)


def _profile(settings: Settings, profile: Profile) -> str:
    own = ", a key of its own" if profile.name in settings.profile_keys else ""
    return f"{profile.driver}, tracker {profile.tracker}{own}"


def secrets_of(settings: Settings) -> frozenset[str]:
    """The values that must not appear in a log line."""
    return frozenset(_secrets(settings))


def _secrets(settings: Settings) -> Iterator[str]:
    for value in (_value(settings, setting) for setting in SETTINGS):
        if isinstance(value, DatabaseUrl) and value.dsn is not None:
            yield value.reveal()
            if password := urlsplit(value.reveal()).password:
                yield from (password, unquote(password))
        elif isinstance(value, SecretStr):
            yield value.get_secret_value()
    yield from (key.get_secret_value() for key in settings.profile_keys.values())
    for profile in settings.profiles.values():
        yield from profile.headers.values()
    yield from settings.webhook_policy.headers.values()
    for server in settings.mcp_servers:
        yield from (*server.environment.values(), *server.headers.values())
    for channel in settings.channels:
        yield from (o.get_secret_value() for o in channel.options.values() if isinstance(o, SecretStr))
    for section in settings.apps.values():
        for name, given in section.values.items():
            if isinstance(given, str) and any(word in name.upper() for word in _SECRET_NAMES):
                yield given
    for name, value in (*settings.graph_environment.items(), *settings.program_environment.items()):
        if any(word in name.upper() for word in _SECRET_NAMES):
            yield value.get_secret_value()


def _shown(value: object) -> str:
    match value:
        case None:
            return "not set"
        case SecretStr():
            return "set"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return ", ".join(map(str, value)) or "none"
        case DatabaseUrl() | _:
            return str(value)
