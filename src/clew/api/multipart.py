"""Multipart upload: a form with one file, read as a stream; neither the form nor the file is ever whole in memory."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from clew.api.errors import TooLarge, TooSlow
from clew.domain.errors import Invalid

# How long the next piece of a body may take.
PIECE_SECONDS = 30.0
# An upload that comes more slowly than this, on average and after a first allowance, is ended.
SLOWEST_BYTES_A_SECOND = 16 * 1024
ALLOWANCE_SECONDS = 30.0
# What a form may have beside its file: boundaries, headers, a few small fields.
OVERHEAD_BYTES = 64 * 1024


class FileForm:
    """The file of a form under one field name; every other field is passed over."""

    def __init__(
        self,
        request: Request,
        *,
        field: str,
        max_bytes: int,
        piece_seconds: float = PIECE_SECONDS,
        allowance_seconds: float = ALLOWANCE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises Invalid for a body that is no form, TooLarge when its Content-Length is too large."""
        self._field = field
        self._max_bytes = max_bytes
        self._piece_seconds = piece_seconds
        self._allowance = allowance_seconds
        self._monotonic = monotonic
        self._waited = 0.0
        self._body = aiter(request.stream())
        self._read = 0
        self._size = 0
        self._check(int(request.headers.get("content-length", "0")), max_bytes + OVERHEAD_BYTES)
        self._parser = MultipartParser(
            _boundary(request),
            {
                "on_part_begin": self._begin,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_end,
                "on_headers_finished": self._headers_end,
                "on_part_data": self._data,
                "on_part_end": self._part_end,
                "on_end": self._form_end,
            },
        )
        self._headers: dict[bytes, bytes] = {}
        self._header = (b"", b"")
        self._pieces: deque[bytes] = deque()
        self._name: str | None = None
        self._is_inside = False
        self._is_complete = False

    async def name(self) -> str:
        """What the client calls the file. Raises Invalid when the form has no such field."""
        while self._name is None:
            if self._is_complete:
                raise Invalid(f"the form has no field {self._field!r}", field=self._field)
            await self._more()
        return self._name

    async def data(self) -> AsyncIterator[bytes]:
        """The bytes of the file, once; it ends when the whole form was seen to be in order."""
        while True:
            while self._pieces:
                yield self._pieces.popleft()
            if self._is_complete:
                return
            await self._more()

    async def _more(self) -> None:
        try:
            piece = await self._next_piece()
            self._parser.write(piece)
        except (StopAsyncIteration, ClientDisconnect):
            raise Invalid("the form ends before it is complete", field=self._field) from None
        except FormParserError:
            raise Invalid("the form is damaged", field=self._field) from None
        self._read += len(piece)
        self._check(self._size, self._max_bytes)
        if self._read - self._size > OVERHEAD_BYTES:
            raise Invalid("the form has too much beside its file", field=self._field)

    async def _next_piece(self) -> bytes:
        """Only the client's own time counts, not the time taken to write earlier pieces."""
        left = self._allowance + self._read / SLOWEST_BYTES_A_SECOND - self._waited
        began = self._monotonic()
        try:
            async with asyncio.timeout(min(self._piece_seconds, left)):
                return await anext(self._body)
        except TimeoutError:
            if left < self._piece_seconds:
                raise TooSlow(
                    f"the upload came more slowly than {SLOWEST_BYTES_A_SECOND} bytes a second"
                ) from None
            raise TooSlow(f"nothing came for {self._piece_seconds:g} seconds") from None
        finally:
            self._waited += self._monotonic() - began

    def _check(self, size: int, limit: int) -> None:
        if size > limit:
            raise TooLarge(f"a file may have at most {self._max_bytes} bytes")

    # What the parser calls.

    def _begin(self) -> None:
        self._headers = {}

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0] + data[start:end], self._header[1])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header = (self._header[0], self._header[1] + data[start:end])

    def _header_end(self) -> None:
        name, value = self._header
        self._headers[name.lower()] = value
        self._header = (b"", b"")

    def _headers_end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._is_inside = options.get(b"name") == self._field.encode()
        if self._is_inside:
            if self._name is not None:
                raise Invalid("one file at a time", field=self._field)
            self._name = options.get(b"filename", b"").decode(errors="replace")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._is_inside:
            self._size += end - start
            self._pieces.append(data[start:end])

    def _part_end(self) -> None:
        self._is_inside = False

    def _form_end(self) -> None:
        self._is_complete = True


def _boundary(request: Request) -> bytes:
    kind, options = parse_options_header(request.headers.get("content-type"))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary or len(boundary) > 200:
        raise Invalid("expected multipart/form-data with a boundary", field="Content-Type")
    return boundary
