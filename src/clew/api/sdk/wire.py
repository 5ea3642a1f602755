"""Wire formats shared by the SDK API's routes: times, pages."""

from datetime import datetime
from typing import Annotated

from pydantic import PlainSerializer, WithJsonSchema
from starlette.responses import Response

TOTAL = "X-Pagination-Total"
NEXT = "X-Pagination-Next"

# As LangGraph Server writes it, with an offset: what ends in Z is not a time to every client.
Moment = Annotated[
    datetime,
    PlainSerializer(datetime.isoformat, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def tell_page(response: Response, *, offset: int, limit: int, total: int) -> None:
    """How many there are in all, and where the next page begins if there is one."""
    response.headers[TOTAL] = str(total)
    if offset + limit < total:
        response.headers[NEXT] = str(offset + limit)
