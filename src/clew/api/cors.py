"""Cross-origin rules: which web pages of other origins may call the API, and what they may send and read."""

import re
from dataclasses import dataclass

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from clew.api.observe import REQUEST_ID
from clew.api.sdk.wire import NEXT, TOTAL

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# What a page of another origin may read of an answer's headers.
EXPOSED = ("Content-Location", "Location", "ETag", "Retry-After", "WWW-Authenticate", REQUEST_ID, TOTAL, NEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cors:
    """`*` among the origins stands for all of them. `exposed` headers are added to those that clients need."""

    origins: tuple[str, ...] = ()
    origin_regex: str | None = None
    methods: tuple[str, ...] = METHODS
    # Clients and proxies have headers of their own; none of them proves anything to us.
    headers: tuple[str, ...] = ("*",)
    exposed: tuple[str, ...] = ()
    credentials: bool = False
    max_age: int = 600

    def __contains__(self, origin: object) -> bool:
        if not isinstance(origin, str):
            return False
        if origin in self.origins or "*" in self.origins:
            return True
        return self.origin_regex is not None and re.fullmatch(self.origin_regex, origin) is not None

    def wrap(self, app: ASGIApp) -> ASGIApp:
        if not self.origins and self.origin_regex is None:
            return app
        return CORSMiddleware(
            app,
            allow_origins=self.origins,
            allow_origin_regex=self.origin_regex,
            allow_methods=self.methods,
            allow_headers=self.headers,
            allow_credentials=self.credentials,
            expose_headers=(*EXPOSED, *self.exposed),
            max_age=self.max_age,
        )
