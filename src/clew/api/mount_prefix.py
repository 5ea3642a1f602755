"""Mount prefix: serves all routes under a path. Health checks and metrics also answer without it."""

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.auth import WITHIN
from clew.api.errors import refuse
from clew.domain.errors import NotFound

# A load balancer that knows no prefix asks for these. As in LangGraph / is one of them.
_WITHOUT_PREFIX = {"/": "/ok", "/ok": "/ok", "/health": "/health", "/ready": "/ready", "/metrics": "/metrics"}


class MountPrefix:
    """Makes the prefix the request's `root_path`: what routes see of the path is the rest."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        root = scope.get("root_path", "")
        path = scope["path"].removeprefix(root)
        if path.startswith(f"{self._prefix}/"):
            scope["root_path"] = root + self._prefix
        elif path == self._prefix and scope["type"] == "http":
            await RedirectResponse(f"{root}{self._prefix}/")(scope, receive, send)
            return
        elif path in _WITHOUT_PREFIX:
            scope["path"] = root + _WITHOUT_PREFIX[path]
        elif WITHIN not in scope:  # a node's own client knows no prefix
            error = NotFound(f"no such route; this server's routes are under {self._prefix}")
            await refuse(scope, receive, send, error)
            return
        await self._app(scope, receive, send)
