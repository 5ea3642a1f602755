"""Keys of langgraph.json: those Clew obeys, those without an effect, and those it refuses to start with."""

from collections.abc import Iterator, Mapping

from clew.config.tree import ConfigNode, suggestion
from clew.domain.errors import ConfigError

# A star stands for any name. Clew has no /mcp, no /a2a and no /ui, so these are switched off as it is.
_OBEYED = (
    *("graphs.*", "graphs.*.path", "graphs.*.description", "dependencies", "env"),
    *("http.disable_mcp", "http.disable_a2a", "http.disable_ui"),
)
# For `langgraph build`, which makes an image. Clew makes none.
_FOR_IMAGES = (
    *("$schema", "python_version", "node_version", "api_version", "_INTERNAL_docker_tag", "base_image"),
    *("image_distro", "dockerfile_lines", "pip_config_file", "pip_installer", "keep_pkg_tools", "source"),
)
_UNSUPPORTED = (
    *("store", "checkpointer", "priority", "ui", "ui_config", "webhooks.env_prefix", "webhooks.headers"),
    *("http.app", "http.cors", "http.configurable_headers", "http.logging_headers", "http.mount_prefix"),
    *("http.middleware_order", "http.enable_custom_route_auth"),
)
_SERVED = (
    "Clew cannot switch these endpoints off yet and would serve them. Remove the key to start with them."
)
# Each promises a protection. A server that starts without it would do what its operator has ruled out.
_REFUSED: Mapping[str, str] = {
    "auth": "Clew does not support custom authentication yet, so callers it would refuse would be let in."
    " Remove the key, and give callers API keys: clew keys create",
    "encryption": "Clew does not support custom encryption yet, so data would be stored unencrypted."
    " Remove the key to start without it.",
    "webhooks.url": "Clew does not support this policy yet. Remove the key, and set CLEW_LANGGRAPH_WEBHOOKS to"
    " public or off.",
    "http.disable_assistants": _SERVED,
    "http.disable_threads": _SERVED,
    "http.disable_runs": _SERVED,
    "http.disable_store": _SERVED,
    "http.disable_meta": _SERVED,
    "http.disable_webhooks": "Clew would still send webhooks. Remove the key, and set CLEW_LANGGRAPH_WEBHOOKS=off.",
}
_SILENT = frozenset((*_OBEYED, *_FOR_IMAGES))
_KNOWN = _SILENT | {*_UNSUPPORTED, *_REFUSED}


def check_keys(project: ConfigNode) -> tuple[str, ...]:
    """Warnings, one for each key without an effect. Raises ConfigError for one that promises a protection."""
    return tuple(_warnings(project, ""))


def _warnings(place: ConfigNode, pattern: str) -> Iterator[str]:
    if not isinstance(place.value, dict):
        return  # what it must be is for the reader of this key to say
    inside = {known.removeprefix(pattern).partition(".")[0] for known in _KNOWN if known.startswith(pattern)}
    for name, entry in place.entries().items():
        known = name if name in inside else "*" if "*" in inside else None
        if known is None:
            yield f"{entry.file}: {entry.key} has no effect: there is no such key{suggestion(name, inside)}"
        elif (key := pattern + known) in _REFUSED and entry.value:
            raise ConfigError(f"{entry.where}: {_REFUSED[key]}")
        elif key in _UNSUPPORTED and entry.value:
            yield f"{entry.file}: {entry.key} has no effect: Clew does not support it yet"
        elif any(longer.startswith(f"{key}.") for longer in _KNOWN):
            yield from _warnings(entry, f"{key}.")
