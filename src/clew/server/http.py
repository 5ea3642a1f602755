"""HTTP composition: what `http` of langgraph.json says about the server, and the project's own web application."""

import logging

from starlette.applications import Starlette

from clew.api.cors import METHODS, Cors
from clew.api.custom_app import CustomApp
from clew.api.headers import HeaderFilter, log_filter
from clew.api.http import HttpOptions
from clew.api.openapi import SecuritySchemes
from clew.config import Settings, secrets_of
from clew.config.project_code import CodeSource
from clew.config.project_http import CorsRules
from clew.domain.errors import ConfigError
from clew.telemetry.scrub import Scrubber

logger = logging.getLogger(__name__)


def http_options(settings: Settings) -> HttpOptions:
    """Imports the project's application. Raises ConfigError where it cannot be served."""
    http = settings.http
    cors = cors_of(settings)
    if "*" in cors.origins:
        logger.warning(
            "http.cors allows every origin: while no API key is needed, any web page can call this server"
        )
    return HttpOptions(
        cors=cors,
        custom=None if http.app is None else load_custom_app(http.app, settings),
        run_headers=HeaderFilter(http.configurable_headers.includes, http.configurable_headers.excludes),
        logged_headers=log_filter(http.logging_headers.includes, http.logging_headers.excludes),
        mount_prefix=http.mount_prefix,
        disabled=http.disabled,
        security=_security(settings),
    )


def _security(settings: Settings) -> SecuritySchemes | None:
    own = settings.custom_auth
    if own is None:
        return None
    return SecuritySchemes(schemes=own.schemes, security=own.security, paths=own.paths)


def cors_of(settings: Settings) -> Cors:
    """Origins of both, langgraph.json and Clew's own setting; everything else from langgraph.json."""
    own = settings.server.allowed_origins
    rules = settings.http.cors or CorsRules()
    usual = Cors()
    return Cors(
        origins=tuple(dict.fromkeys((*own, *(origin.lower() for origin in rules.origins)))),
        origin_regex=rules.origin_regex,
        methods=METHODS if rules.methods is None else rules.methods,
        headers=usual.headers if rules.headers is None else rules.headers,
        exposed=rules.exposed,
        credentials=rules.credentials,
        max_age=usual.max_age if rules.max_age is None else rules.max_age,
    )


def load_custom_app(source: CodeSource, settings: Settings) -> CustomApp:
    """Raises ConfigError."""
    from clew.graph.registry import find_object, import_from, reason  # noqa: PLC0415 - LangGraph takes seconds

    scrub = Scrubber(secrets_of(settings))  # the message of an exception may quote anything

    def refused(why: str) -> ConfigError:
        return ConfigError(f"{source.where}: {scrub(why)}")

    import_from(settings.import_paths)
    try:
        app = find_object(source)
    except (Exception, SystemExit) as exc:
        raise refused(reason(source, exc)) from exc
    if not isinstance(app, Starlette):
        raise refused(f"{source.written} is no Starlette or FastAPI application but {type(app).__name__}")
    return CustomApp(
        app,
        refused=refused,
        is_guarded=settings.http.custom_route_auth,
        auth_first=settings.http.middleware_order == "auth_first",
    )
