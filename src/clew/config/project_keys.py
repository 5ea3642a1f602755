"""Keys of langgraph.json: one line for each says what Clew does with it. docs/howto/langgraph-project.md shows this table."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from clew.config.tree import ConfigNode, suggestion


class KeyOutcome(StrEnum):
    HONOURED = "honoured"
    IMAGE_ONLY = "image only"
    """For `langgraph build`, which makes an image. Clew makes none."""
    WARNED = "warned"
    """Without an effect, and the log says so at start."""


@dataclass(frozen=True, slots=True)
class ProjectKey:
    """A star stands for any name. What holds for a key holds for those below it without a line of their own."""

    key: str
    outcome: KeyOutcome
    about: str


def _honoured(key: str, about: str) -> ProjectKey:
    return ProjectKey(key, KeyOutcome.HONOURED, about)


def _image_only(*keys: str) -> list[ProjectKey]:
    return [ProjectKey(key, KeyOutcome.IMAGE_ONLY, "for `langgraph build`") for key in keys]


def _warned(key: str, about: str = "Clew does not support it yet") -> ProjectKey:
    return ProjectKey(key, KeyOutcome.WARNED, about)


KEYS: tuple[ProjectKey, ...] = (
    _honoured("graphs.*", "`path:attribute`, or an object"),
    _honoured("graphs.*.path", "`path:attribute`"),
    _honoured("graphs.*.description", "shown with the assistant"),
    _honoured("dependencies", "folders are imported from; packages must be installed"),
    _honoured("env", "variables for the graphs, as an object or a file"),
    _honoured("store.index", "`embed`, `dims` and `fields`: `query` searches the store by meaning"),
    _honoured("store.ttl.default_ttl", "minutes an item lives that says nothing of its own"),
    _honoured("store.ttl.refresh_on_read", "whether reading an item starts its time anew; `true` unless set"),
    _honoured("store.ttl.sweep_interval_minutes", "how often expired items are removed; `1` unless set"),
    _warned("store.path", "Clew has a store of its own"),
    _honoured("checkpointer.ttl.strategy", "`delete` the thread, or `keep_latest` of its checkpoints"),
    _honoured("checkpointer.ttl.default_ttl", "minutes after the last access to the thread"),
    _honoured("checkpointer.ttl.sweep_interval_minutes", "how often that is done; `5` unless set"),
    _warned("checkpointer.ttl.sweep_limit", "a sweep is limited by CLEW_CLEANUP_BUDGET_SECONDS"),
    _warned("checkpointer.backend", "Clew has a checkpointer of its own"),
    _warned("checkpointer.path", "Clew has a checkpointer of its own"),
    _warned("checkpointer.uri", "Clew has a checkpointer of its own"),
    _warned("checkpointer.serde", "Clew has a serializer of its own, which never reads pickle"),
    _honoured("auth.path", "the `Auth` object whose handlers every request passes"),
    _honoured("auth.openapi", "added to `/openapi.json`"),
    _honoured("auth.cache", "how long an authenticated caller is remembered"),
    _honoured("auth.disable_studio_auth", "Clew lets no request past the handler"),
    _honoured("encryption.path", "the `Encryption` object whose blob handlers encrypt what people wrote"),
    _honoured("priority.path", "the `Priority` object whose function is asked at the first run of a thread"),
    _honoured("webhooks.url.require_https", "`true` unless set, once there is a `webhooks.url`"),
    _honoured("webhooks.url.allowed_domains", "`hooks.example.com`, or `*.example.com` for those below it"),
    _honoured("webhooks.url.allowed_ports", "80 or 443 where a URL names none"),
    _honoured("webhooks.url.max_url_length", "`2048` unless set"),
    _honoured("webhooks.url.disable_loopback", "`true` unless set; Clew never calls a relative URL"),
    _honoured("webhooks.url.disable_private_ips", "beside what `CLEW_LANGGRAPH_WEBHOOKS` rules out"),
    _honoured("webhooks.headers", "sent with each webhook; `${{ env.NAME }}` is a variable"),
    _honoured("webhooks.env_prefix", "how the names of these variables begin; `LG_WEBHOOK_` unless set"),
    _honoured("webhooks.allowed_fields", "of the body, those that are sent"),
    _honoured("http.app", "a Starlette or FastAPI application: its routes come before Clew's"),
    _honoured("http.cors", "beside `server.allowed_origins`; headers that clients need stay exposed"),
    _honoured("http.configurable_headers", "stored with the run; never `Authorization` or `X-API-Key`"),
    _honoured("http.logging_headers", "in the log line of a request; never a credential or a cookie"),
    _honoured("http.mount_prefix", "`/ok`, `/health`, `/ready` and `/metrics` also answer without it"),
    _honoured("http.middleware_order", "`middleware_first` unless set"),
    _honoured("http.enable_custom_route_auth", "routes of `http.app` are open unless set"),
    _honoured("http.disable_assistants", "removes `/assistants`"),
    _honoured("http.disable_threads", "removes `/threads`, and Clew's own API and page"),
    _honoured("http.disable_runs", "removes runs, crons, `/v1`, and Clew's own API and page"),
    _honoured("http.disable_store", "removes `/store`"),
    _honoured("http.disable_meta", "removes `/info`, `/metrics` and `/openapi.json`"),
    _honoured("http.disable_webhooks", "a run that names a webhook is refused"),
    _honoured("http.disable_mcp", "removes `/mcp`"),
    _honoured("http.disable_event_streaming", "removes the newer streaming protocol of threads"),
    _honoured("http.disable_a2a", "Clew has no `/a2a`"),
    _honoured("http.disable_ui", "Clew has no `/ui`; `http.disable_threads` removes its page"),
    _warned("ui"),
    _warned("ui_config"),
    *_image_only("$schema", "python_version", "node_version", "api_version", "_INTERNAL_docker_tag"),
    *_image_only("base_image", "image_distro", "dockerfile_lines", "pip_config_file", "pip_installer"),
    *_image_only("keep_pkg_tools", "source"),
)
_BY_KEY = {line.key: line for line in KEYS}


def check_keys(project: ConfigNode) -> tuple[str, ...]:
    """Warnings, one for each key without an effect."""
    return tuple(_warnings(project, ""))


def _warnings(place: ConfigNode, pattern: str) -> Iterator[str]:
    if not isinstance(place.value, dict):
        return  # what it must be is for the reader of this key to say
    inside = {key.removeprefix(pattern).partition(".")[0] for key in _BY_KEY if key.startswith(pattern)}
    for name, entry in place.entries().items():
        known = name if name in inside else "*" if "*" in inside else None
        if known is None:
            yield f"{entry.file}: {entry.key} has no effect: there is no such key{suggestion(name, inside)}"
            continue
        key = pattern + known
        line = _BY_KEY.get(key)
        if line is not None and entry.value and line.outcome is KeyOutcome.WARNED:
            yield f"{entry.file}: {entry.key} has no effect: {line.about}"
        elif any(longer.startswith(f"{key}.") for longer in _BY_KEY):
            yield from _warnings(entry, f"{key}.")
