"""Web page at / and its static files: they contain no user data, so they need no key."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from clew.api.access import PUBLIC
from clew.api.auth import Authenticator
from clew.api.observe import SAFE_HEADERS
from clew.api.routing import Router
from clew.api.schemas import IndexOut
from clew.domain.errors import Forbidden, NotFound

MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".pdf": "application/pdf",
    ".csv": "text/csv; charset=utf-8",
}
# In addition to the headers of every answer: no text can become markup, even if a script of the page has a bug. A picture
# or a PDF in a preview is fetched with the key and shown from memory.
POLICY = f"{SAFE_HEADERS['Content-Security-Policy']}; img-src 'self' blob:; frame-src blob:; require-trusted-types-for 'script'; trusted-types 'none'"
# Revalidated each time, so that one load never mixes the files of two versions; sent again only when changed.
CACHING = "no-cache"

LIBRARIES = "vendor"
SAMPLES = "samples"
NOT_INSTALLED = (
    "The libraries of this page are not installed: `make setup` in Clew's folder does it.\n"
    "The API is there without them; GET /openapi.json describes it.\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    content: bytes
    media: str
    tag: str


def page_router(folder: Path, *, authenticator: Authenticator, version: str) -> APIRouter:
    """Reads the files once: the process serves those it started with, and no other file can be reached."""
    router = Router()
    files = _read(folder)
    libraries = _read(folder / LIBRARIES)
    samples = _read(folder / SAMPLES)

    @router.get("/", dependencies=[PUBLIC], include_in_schema=False)
    async def index(request: Request) -> Response:
        """The page for a browser, which cannot send a key here; a short description for a program that sends one."""
        if "text/html" in request.headers.get("accept", ""):
            if not libraries:
                return PlainTextResponse(NOT_INSTALLED, 503)
            return _answer(request, files["index.html"])
        caller = await authenticator.caller(request.scope)
        if "read" not in caller.scopes:
            raise Forbidden("this needs a key with the scope 'read'")
        about = IndexOut(name="Clew", version=version, openapi="/openapi.json")
        return JSONResponse(about.model_dump(by_alias=True), headers={"Vary": "Accept"})

    @router.get("/web/{name}", dependencies=[PUBLIC], include_in_schema=False)
    async def file(request: Request, name: str) -> Response:
        return _answer(request, _found(files, name))

    @router.get("/web/vendor/{name}", dependencies=[PUBLIC], include_in_schema=False)
    async def library(request: Request, name: str) -> Response:
        return _answer(request, _found(libraries, name))

    @router.get("/web/samples/{name}", dependencies=[PUBLIC], include_in_schema=False)
    async def sample(request: Request, name: str) -> Response:
        return _answer(request, _found(samples, name))

    return router


def _read(folder: Path) -> dict[str, Asset]:
    if not folder.is_dir():
        return {}
    return {
        path.name: _asset(path.read_bytes(), MEDIA[path.suffix])
        for path in sorted(folder.iterdir())
        if path.suffix in MEDIA
    }


def _asset(content: bytes, media: str) -> Asset:
    return Asset(content=content, media=media, tag=f'"{sha256(content).hexdigest()[:32]}"')


def _found(assets: Mapping[str, Asset], name: str) -> Asset:
    try:
        return assets[name]
    except KeyError:
        raise NotFound("no such file") from None


def _answer(request: Request, asset: Asset) -> Response:
    headers = {
        "ETag": asset.tag,
        "Cache-Control": CACHING,
        "Content-Security-Policy": POLICY,
        "Vary": "Accept",
    }
    known = request.headers.get("if-none-match", "")
    if any(tag.strip().removeprefix("W/") == asset.tag for tag in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers={**headers, "Content-Type": asset.media})
