"""Loading of settings: options over environment over file over LangGraph's own variables over defaults."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pydantic import SecretStr

from clew.config.apps import read_app_sections
from clew.config.budgets import read_prices, require_prices
from clew.config.channels import read_channels
from clew.config.files import read_dotenv, read_json, read_yaml, require_set
from clew.config.graphs import read_graphs, read_langgraph_json
from clew.config.langgraph_environment import check_environment, langgraph_variables, read_mount_prefix
from clew.config.mcp import read_mcp_servers
from clew.config.profiles import read_profiles
from clew.config.project_keys import check_keys
from clew.config.project_ttl import read_store_ttl
from clew.config.project_webhooks import read_webhooks
from clew.config.resolve import (
    choose_database,
    choose_graph_store,
    choose_thread_ttl,
    doubts,
    require_queue_database,
    require_whole_auth,
)
from clew.config.settings import SECTIONS, SETTINGS, Settings
from clew.config.sources import LangGraphVariables, Options, Variables, YamlFile, read_sections
from clew.config.store_index import read_store_index
from clew.config.tree import ConfigNode

CONFIG_FILE = "clew.yaml"
LANGGRAPH_FILE = "langgraph.json"

_IN_FILE = {section: {s.name for s in SETTINGS if s.section == section and s.in_file} for section in SECTIONS}
_BASIC = (
    *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_CONFIG_HOME"),
    *("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"),
)
_TOP = {section for section, names in _IN_FILE.items() if names} | {
    "profiles",
    "prices",
    "mcp",
    "graphs",
    "channels",
    "apps",
    "store",
}


def load_settings(
    environ: Mapping[str, str],
    *,
    cwd: Path,
    config: Path | None = None,
    options: Mapping[str, object] | None = None,
    without: Collection[str] = (),
) -> Settings:
    """Read everything once. `options` are command-line values by key, like {"server.port": 9000}.

    Sections of clew.yaml that are named in `without` are left out: a variable they name need not be set.
    Variables of a `.env` beside clew.yaml count where the environment does not have them, for graphs too. Raises ConfigError naming the variable, option or key that is wrong and what was expected there.
    """
    cwd = cwd.absolute()
    file, project_file = _files(cwd, config)
    beside = read_beside(file)
    environ = {**beside, **environ}
    top = _sections(file, environ, without) if file else {}
    keys = ConfigNode(project_file or cwd, "", read_json(project_file) if project_file else None)
    project = read_langgraph_json(keys)
    sections = {name: place.known(_IN_FILE[name]) for name, place in top.items() if name in _IN_FILE}

    langgraph = langgraph_variables(environ, project.revealed())
    made, sources = read_sections(
        Options(options or {}), Variables(environ), YamlFile(sections), LangGraphVariables(langgraph)
    )
    require_whole_auth(made.auth, sources)
    written = sections.get("database", {}).get("url")
    folder = written.folder if written and written.where == sources.get("database.url") else cwd
    database = choose_database(made.database, made.checkpoints, sources, folder)
    require_queue_database(made.runner.kind, database, sources)

    ttl, cleanup, overruled = choose_thread_ttl(
        keys.below("checkpointer", "ttl"), made.threads, made.cleanup, sources
    )
    nothing = ConfigNode(cwd, "", None)
    prices = read_prices(top.get("prices", nothing))
    require_prices(made.budgets, prices, sources)
    profiles = read_profiles(top.get("profiles", nothing), made.models, sources, environ)
    return Settings(
        **{**dict(made), "database": database, "cleanup": cleanup},
        profiles=MappingProxyType(dict(profiles.named)),
        prices=MappingProxyType(prices),
        profile_keys=MappingProxyType(dict(profiles.keys)),
        custom_auth=project.auth,
        custom_encryption=project.encryption,
        custom_priority=project.priority,
        graphs=MappingProxyType(project.graphs | read_graphs(top.get("graphs", nothing))),
        http=replace(project.http, mount_prefix=read_mount_prefix(langgraph) or project.http.mount_prefix),
        store_index=read_store_index(top.get("store")) or project.store_index,
        mcp_servers=read_mcp_servers(top.get("mcp", nothing)),
        channels=read_channels(top.get("channels", nothing), profiles.named),
        apps=MappingProxyType(read_app_sections(top.get("apps", nothing))),
        graph_store_url=choose_graph_store(made.graph_store, database, sources, cwd),
        store_ttl=read_store_ttl(keys.below("store", "ttl")),
        thread_ttl=ttl,
        webhook_policy=read_webhooks(keys.below("webhooks"), project.revealed() | dict(environ)),
        import_paths=tuple(
            dict.fromkeys([*(path.parent for path in (file, project_file) if path), *project.import_paths])
        ),
        graph_environment=MappingProxyType(
            {name: SecretStr(value) for name, value in beside.items()} | project.environment
        ),
        program_environment=MappingProxyType(_for_programs(environ, made.coding.environment)),
        config_file=file or project_file,
        sources=MappingProxyType(sources),
        warnings=(
            *doubts(database, made.cleanup, sources, environ),
            *profiles.warnings,
            *project.warnings,
            *check_keys(keys),
            *check_environment(langgraph, sources, ignored=made.langgraph.ignore_keys),
            *overruled,
        ),
    )


def read_beside(file: Path | None) -> dict[str, str]:
    """The variables of the `.env` beside clew.yaml, if there is one. Raises ConfigError."""
    found = file.parent / ".env" if file else None
    return read_dotenv(found) if found is not None and found.exists() else {}


def _sections(file: Path, environ: Mapping[str, str], without: Collection[str]) -> dict[str, ConfigNode]:
    document = read_yaml(file, environ)
    if isinstance(document, dict):
        document = {name: value for name, value in document.items() if name not in without}
    require_set(document)
    return ConfigNode(file, "", document).known(_TOP)


def find_config(cwd: Path, config: Path | None) -> Path | None:
    """The clew.yaml of a command, if there is one."""
    return _files(cwd.absolute(), config)[0]


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
