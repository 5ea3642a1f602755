"""Answer middleware: errors become answers, tenant marks leave every answer, and the audit trail records it."""

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from clew.api.audit import Audit
from clew.api.errors import answer_error
from clew.api.tenant_ids import without_marks
from clew.domain.errors import ClewError


class AnswerMiddleware:
    def __init__(self, app: ASGIApp, audit: Audit | None = None) -> None:
        self._app = app
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._audit is None:
            await self._answer(scope, receive, send)
            return
        with self._audit.recording(scope, send) as recorded:
            await self._answer(scope, receive, recorded)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            send = without_marks(scope, send)
        try:
            await self._app(scope, receive, send)
        except (
            ClewError,
            RequestValidationError,
            WebSocketRequestValidationError,
            HTTPException,
        ) as exc:
            await answer_error(scope, receive, send, exc)
