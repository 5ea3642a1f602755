"""`http` of langgraph.json: the project's own web application, and rules for the routes of the server."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from clew.config.project_code import CodeSource, read_code
from clew.config.tree import ConfigNode

MiddlewareOrder = Literal["auth_first", "middleware_first"]

_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){1,8}")
_ORDERS = ("auth_first", "middleware_first")
_SWITCHES = (
    *("assistants", "threads", "runs", "store", "meta", "webhooks", "mcp", "event_streaming"),
    *("a2a", "ui"),
)
_HEADERS = ("includes", "include", "excludes", "exclude")
_CORS = (
    *("allow_origins", "allow_origin_regex", "allow_methods", "allow_headers", "allow_credentials"),
    *("expose_headers", "max_age"),
)


@dataclass(frozen=True, slots=True)
class HeaderRules:
    """Patterns of header names in lower case; a star stands for any text. `excludes` count first."""

    includes: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CorsRules:
    """None where the project leaves it to Clew."""

    origins: tuple[str, ...] = ()
    origin_regex: str | None = None
    methods: tuple[str, ...] | None = None
    headers: tuple[str, ...] | None = None
    exposed: tuple[str, ...] = ()
    credentials: bool = False
    max_age: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHttp:
    app: CodeSource | None = None
    middleware_order: MiddlewareOrder = "middleware_first"
    custom_route_auth: bool = False
    cors: CorsRules | None = None
    configurable_headers: HeaderRules = field(default_factory=HeaderRules)
    logging_headers: HeaderRules = field(default_factory=HeaderRules)
    disabled: frozenset[str] = frozenset()
    """Of `disable_store` the word `store`."""
    mount_prefix: str = ""


def read_project_http(place: ConfigNode) -> ProjectHttp:
    """Raises ConfigError. Keys that do not exist are for `check_keys` to name."""
    given = {name: entry for name, entry in place.entries().items() if entry.value is not None}
    return ProjectHttp(
        app=_app(given.get("app")),
        middleware_order=_order(given.get("middleware_order")),
        custom_route_auth=_flag(given.get("enable_custom_route_auth")),
        cors=_cors(given["cors"]) if "cors" in given else None,
        configurable_headers=_headers(given.get("configurable_headers")),
        logging_headers=_headers(given.get("logging_headers")),
        disabled=frozenset(name for name in _SWITCHES if _flag(given.get(f"disable_{name}"))),
        mount_prefix=_prefix(given.get("mount_prefix")),
    )


def _app(place: ConfigNode | None) -> CodeSource | None:
    return None if place is None else read_code("app", place, "a Starlette or FastAPI application")


def _order(place: ConfigNode | None) -> MiddlewareOrder:
    if place is None:
        return "middleware_first"
    if place.value not in _ORDERS:
        raise place.expected(" or ".join(_ORDERS))
    return cast(MiddlewareOrder, place.value)


def _prefix(place: ConfigNode | None) -> str:
    if place is None or place.value == "":
        return ""
    if not isinstance(place.value, str) or not _PREFIX.fullmatch(place.value):
        raise place.expected("a path like /agents, without a slash at its end")
    return place.value


def _cors(place: ConfigNode) -> CorsRules:
    given = place.known(_CORS)
    return CorsRules(
        origins=_texts(given.get("allow_origins")) or (),
        origin_regex=_regex(given.get("allow_origin_regex")),
        methods=_texts(given.get("allow_methods")),
        headers=_texts(given.get("allow_headers")),
        exposed=_texts(given.get("expose_headers")) or (),
        credentials=_flag(given.get("allow_credentials")),
        max_age=_seconds(given.get("max_age")),
    )


def _headers(place: ConfigNode | None) -> HeaderRules:
    """`include` and `exclude` are other spellings of LangGraph's."""
    given: Mapping[str, ConfigNode] = {} if place is None else place.known(_HEADERS)
    named = [_texts(given.get(name)) for name in _HEADERS]
    includes, excludes = named[0] or named[1] or (), named[2] or named[3] or ()
    return HeaderRules(tuple(map(str.lower, includes)), tuple(map(str.lower, excludes)))


def _flag(place: ConfigNode | None) -> bool:
    if place is None or place.value is None:
        return False
    if not isinstance(place.value, bool):
        raise place.expected("true or false")
    return place.value


def _texts(place: ConfigNode | None) -> tuple[str, ...] | None:
    if place is None or place.value is None:
        return None
    if not isinstance(place.value, list) or not all(isinstance(one, str) and one for one in place.value):
        raise place.expected("a list of texts")
    return tuple(place.value)


def _regex(place: ConfigNode | None) -> str | None:
    if place is None or place.value is None:
        return None
    try:
        re.compile(place.text("a regular expression"))
    except re.error:
        raise place.expected("a regular expression") from None
    return str(place.value)


def _seconds(place: ConfigNode | None) -> int | None:
    if place is None or place.value is None:
        return None
    if not isinstance(place.value, int) or isinstance(place.value, bool) or place.value < 0:
        raise place.expected("a whole number of seconds")
    return place.value
