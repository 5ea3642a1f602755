"""Puts the settings together: options over environment over file over defaults."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from clew.config.apps import read_app_sections
from clew.config.channels import read_channels
from clew.config.database import DatabaseUrl
from clew.config.declare import Setting
from clew.config.files import read_yaml
from clew.config.graphs import LangGraphProject, read_graphs, read_langgraph_json
from clew.config.profiles import read_profiles
from clew.config.resolve import choose_database, choose_graph_store, doubts
from clew.config.settings import SECTIONS, SETTINGS, Settings
from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError

CONFIG_FILE = "clew.yaml"
LANGGRAPH_FILE = "langgraph.json"

_IN_FILE = {section: {s.name for s in SETTINGS if s.section == section and s.in_file} for section in SECTIONS}
_BASIC = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CONFIG_HOME"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
)
_TOP = {section for section, names in _IN_FILE.items() if names} | {"profiles", "graphs", "channels", "apps"}


@dataclass(frozen=True, slots=True)
class _Found:
    """A setting's raw value, where it came from, and the folder its relative paths start from."""

    raw: object
    source: str
    base: Path


def load_settings(
    environ: Mapping[str, str],
    *,
    cwd: Path,
    config: Path | None = None,
    options: Mapping[str, object] | None = None,
) -> Settings:
    """Read everything once. `options` are command-line values by key, like {"server.port": 9000}.

    Raises ConfigError naming the variable, option or key that is wrong and what was expected there.
    """
    cwd = cwd.absolute()
    file, project_file = _files(cwd, config)
    top = ConfigNode(file, "", read_yaml(file, environ)).known(_TOP) if file else {}
    project = read_langgraph_json(project_file) if project_file else LangGraphProject()
    sections = {name: place.known(_IN_FILE[name]) for name, place in top.items() if name in _IN_FILE}

    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    sources: dict[str, str] = {}
    for setting in SETTINGS:
        found = _find(setting, options or {}, environ, sections, cwd)
        values[setting.section][setting.name] = _read(setting, found)
        if found is not None and found.source:
            sources[setting.key] = found.source
    made: dict[str, Any] = {section: cls(**values[section]) for section, cls in SECTIONS.items()}
    made["database"] = choose_database(made["database"], made["checkpoints"], sources)

    nothing = ConfigNode(cwd, "", None)
    profiles = read_profiles(top.get("profiles", nothing), made["models"], sources, environ)
    return Settings(
        **made,
        profiles=MappingProxyType(dict(profiles.named)),
        profile_keys=MappingProxyType(dict(profiles.keys)),
        graphs=MappingProxyType(project.graphs | read_graphs(top.get("graphs", nothing))),
        channels=read_channels(top.get("channels", nothing), profiles.named),
        apps=MappingProxyType(read_app_sections(top.get("apps", nothing))),
        graph_store_url=choose_graph_store(made["graph_store"], made["database"], sources, cwd),
        import_paths=tuple(
            dict.fromkeys([*(path.parent for path in (file, project_file) if path), *project.import_paths])
        ),
        graph_environment=MappingProxyType(project.environment),
        program_environment=MappingProxyType(_for_programs(environ, made["coding"].environment)),
        config_file=file or project_file,
        sources=MappingProxyType(sources),
        warnings=(
            *doubts(made["database"], made["cleanup"], sources, environ),
            *profiles.warnings,
            *project.warnings,
        ),
    )


def _for_programs(environ: Mapping[str, str], names: Collection[str]) -> dict[str, SecretStr]:
    """What a program needs to be found, to find its own files and the network, and what it was promised."""
    return {name: SecretStr(environ[name]) for name in (*_BASIC, *names) if name in environ}


def _files(cwd: Path, config: Path | None) -> tuple[Path | None, Path | None]:
    """The clew.yaml and the langgraph.json to read. A file that was asked for must be there."""
    beside = cwd / LANGGRAPH_FILE
    project = beside if beside.exists() else None
    if config is None:
        found = cwd / CONFIG_FILE
        return (found if found.exists() else None), project
    config = cwd / config
    return (None, config) if config.suffix == ".json" else (config, project)


def _find(
    setting: Setting,
    options: Mapping[str, object],
    environ: Mapping[str, str],
    sections: Mapping[str, Mapping[str, ConfigNode]],
    cwd: Path,
) -> _Found | None:
    if (option := options.get(setting.key)) is not None:
        return _Found(option, f"--{setting.name.replace('_', '-')}", cwd)
    for variable in setting.variables:
        if text := environ.get(variable, "").strip():  # an empty variable is one that is not set
            return _Found(text, variable, cwd)
    place = sections.get(setting.section, {}).get(setting.name)
    # Nothing after the colon is a line somebody forgot to finish, unless nothing is what the setting may be.
    if place is not None and not (place.value is None and setting.default is None):
        return _Found(place.value, place.where, place.folder)
    return None if setting.default is None else _Found(setting.default, "", cwd)


def _read(setting: Setting, found: _Found | None) -> object:
    if found is None:
        return None
    try:
        value = setting.kind.read(found.raw)
    except ValueError:
        # `from None`: the ValueError may quote the value, and the value may be a secret.
        raise ConfigError(f"{found.source}: expected {setting.kind.expected}") from None
    return value.under(found.base) if isinstance(value, DatabaseUrl) else value
