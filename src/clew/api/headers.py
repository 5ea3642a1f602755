"""Header rules: which headers of a request a run sees in its `configurable`, and which a log line shows."""

import re
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from starlette.types import ASGIApp, Receive, Scope, Send

from clew.domain.events import RunSpec
from clew.domain.runs import is_free
from clew.telemetry.trace_context import caller_trace

# As in LangGraph no pattern matches these for a run: what a run is given is stored with it.
_NEVER_IN_RUNS = frozenset({"authorization", "x-api-key", "x-service-key", "x-tenant-id"})
_NEVER_IN_LOGS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
# These only where a pattern without a star names them.
_ONLY_BY_NAME = frozenset({"cookie", "proxy-authorization"})
_LONGEST_LOGGED = 256

_run_headers: ContextVar[Mapping[str, str]] = ContextVar("run_headers", default=MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class HeaderFilter:
    """Patterns of names in lower case, in which a star stands for any text. Without `includes` no header matches."""

    includes: Collection[str] = ()
    excludes: Collection[str] = ()
    never: Collection[str] = _NEVER_IN_RUNS
    _regexes: list[re.Pattern[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        patterns = ("|".join(map(_regex, of)) or r"(?!)" for of in (self.includes, self.excludes))
        object.__setattr__(self, "_regexes", [re.compile(pattern) for pattern in patterns])

    def __bool__(self) -> bool:
        return bool(self.includes)

    def select(self, scope: Scope) -> dict[str, str]:
        """Of a request's headers those that match; of one sent twice the last."""
        found = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
        return {name: value for name, value in found if self._takes(name)}

    def _takes(self, name: str) -> bool:
        if name in self.never or (name in _ONLY_BY_NAME and name not in self.includes):
            return False
        includes, excludes = self._regexes
        return includes.fullmatch(name) is not None and excludes.fullmatch(name) is None


def log_filter(includes: Collection[str], excludes: Collection[str]) -> HeaderFilter:
    return HeaderFilter(includes, excludes, never=_NEVER_IN_LOGS)


def logged(chosen: HeaderFilter, scope: Scope) -> str:
    """Short and printable, as a log line needs them."""
    found = chosen.select(scope).items()
    return "; ".join(f"{name}={ascii(value)[1:-1][:_LONGEST_LOGGED]}" for name, value in found)


class RunHeaders:
    """Remembers a request's headers for the runs that it starts."""

    def __init__(self, app: ASGIApp, chosen: HeaderFilter) -> None:
        self._app = app
        self._chosen = chosen

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        token = _run_headers.set(self._chosen.select(scope))
        try:
            await self._app(scope, receive, send)
        finally:
            _run_headers.reset(token)


def run_headers() -> dict[str, str]:
    """The headers of this request for the `configurable` of what it starts."""
    return {name: value for name, value in _run_headers.get().items() if is_free(name)}


def with_headers(spec: RunSpec) -> RunSpec:
    """The run with this request's trace, and its headers in its `configurable`. They win over the body, as in LangGraph."""
    if trace := caller_trace():
        spec = replace(spec, trace=trace)
    given = run_headers()
    if not given:
        return spec
    configurable = spec.config.get("configurable")
    known = configurable if isinstance(configurable, dict) else {}
    # What stands in the context too would be taken from there.
    context = (
        {**spec.context, **{name: given[name] for name in given if name in spec.context}}
        if spec.context
        else None
    )
    return replace(spec, config={**spec.config, "configurable": {**known, **given}}, context=context)


def _regex(pattern: str) -> str:
    return ".*".join(re.escape(part) for part in pattern.split("*"))
