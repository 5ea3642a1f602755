"""/store: read and write the items of the graph store over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from clew.api.guard import Caller
from clew.api.routing import Router
from clew.api.sdk.errors import errors, needs
from clew.api.sdk.wire import Moment, RequestBody
from clew.domain.errors import Invalid, InvalidState, Unavailable
from clew.domain.items import Item, Namespace
from clew.domain.retention import LONGEST_MINUTES, minutes
from clew.history.store_items import StoreItems

MAX_OFFSET = 2**31 - 1

Label = Annotated[str, Field(pattern=r"^[^.]+$")]
Labels = Annotated[list[Label], Field(max_length=64)]
Key = Annotated[str, Field(min_length=1)]
Limit = Annotated[int, Field(ge=1, le=1000, strict=True)]
Offset = Annotated[int, Field(ge=0, le=MAX_OFFSET, strict=True)]


class ItemNameIn(RequestBody):
    namespace: Annotated[Labels, Field(min_length=1)]
    key: Key


class ItemIn(ItemNameIn):
    value: dict[str, Any]
    index: Literal[False] | Annotated[list[str], Field(max_length=64)] | None = None
    """Which fields are embedded, if not those of the store's index; false: none."""
    ttl: Annotated[float, Field(gt=0, le=LONGEST_MINUTES)] | None = None
    """In minutes, from the last time it was written or read."""


class ItemSearchIn(RequestBody):
    namespace_prefix: Labels | None = None
    filter: dict[str, Any] | None = None
    limit: Limit = 10
    offset: Offset = 0
    query: str | None = None
    """The most similar items come first; without it, the newest ones."""
    refresh_ttl: bool | None = None


class NamespacesIn(RequestBody):
    prefix: Labels | None = None
    suffix: Labels | None = None
    max_depth: Annotated[int, Field(ge=1, le=64, strict=True)] | None = None
    limit: Limit = 100
    offset: Offset = 0


class ItemOut(BaseModel):
    namespace: list[str]
    key: str
    value: dict[str, Any]
    created_at: Moment
    updated_at: Moment

    @classmethod
    def of(cls, item: Item) -> Self:
        return cls(
            namespace=list(item.namespace),
            key=item.key,
            value=item.value,
            created_at=item.created_at,
            updated_at=item.updated_at,
        )


class FoundItemOut(ItemOut):
    score: float | None = None

    @classmethod
    def of(cls, item: Item) -> Self:
        return cls(**dict(ItemOut.of(item)), score=item.score)


class ItemsOut(BaseModel):
    items: list[FoundItemOut]


class NamespacesOut(BaseModel):
    namespaces: Sequence[Namespace]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreRoutes:
    shelf: StoreItems

    def router(self) -> APIRouter:
        router = Router(prefix="/store", tags=["langgraph"])
        router.put(
            "/items",
            dependencies=[needs("write")],
            status_code=204,
            responses=errors(Invalid, InvalidState, Unavailable),
        )(self.put_item)
        router.get("/items", dependencies=[needs("read")], responses=errors(Invalid))(self.get_item)
        router.delete(
            "/items", dependencies=[needs("write")], status_code=204, responses=errors(Invalid, InvalidState)
        )(self.delete_item)
        router.post("/items/search", dependencies=[needs("read")], responses=errors(Invalid, Unavailable))(
            self.search_items
        )
        router.post("/namespaces", dependencies=[needs("read")], responses=errors(Invalid))(
            self.list_namespaces
        )
        return router

    async def put_item(self, caller: Caller, body: ItemIn) -> None:
        """Create or replace an item."""
        ttl = None if body.ttl is None else minutes(body.ttl, field="ttl")
        await self.shelf.put(
            caller.owner, tuple(body.namespace), body.key, body.value, ttl=ttl, fields=body.index
        )

    async def get_item(
        self,
        caller: Caller,
        namespace: Annotated[str, Query(pattern=r"^[^.]+(\.[^.]+)*$")],
        key: Annotated[str, Query(min_length=1)],
        refresh_ttl: bool | None = None,
    ) -> ItemOut | None:
        """An item; null if there is none."""
        labels = tuple(namespace.split("."))
        item = await self.shelf.get(caller.owner, labels, key, refresh=refresh_ttl)
        return None if item is None else ItemOut.of(item)

    async def delete_item(self, caller: Caller, body: ItemNameIn) -> None:
        """Delete an item. Deleting one that does not exist succeeds."""
        await self.shelf.delete(caller.owner, tuple(body.namespace), body.key)

    async def search_items(self, caller: Caller, body: ItemSearchIn) -> ItemsOut:
        """Items in a namespace and below it: the newest change first, or those most similar to the query."""
        found = await self.shelf.find(
            caller.owner,
            tuple(body.namespace_prefix or ()),
            wanted=body.filter,
            query=body.query,
            limit=body.limit,
            offset=body.offset,
            refresh=body.refresh_ttl,
        )
        return ItemsOut(items=[FoundItemOut.of(item) for item in found])

    async def list_namespaces(self, caller: Caller, body: NamespacesIn) -> NamespacesOut:
        """Namespaces that hold items; `*` in a prefix or a suffix matches any one label."""
        found = await self.shelf.namespaces(
            caller.owner,
            prefix=tuple(body.prefix or ()),
            suffix=tuple(body.suffix or ()),
            max_depth=body.max_depth,
            limit=body.limit,
            offset=body.offset,
        )
        return NamespacesOut(namespaces=found)


def store_router(shelf: StoreItems) -> APIRouter:
    return StoreRoutes(shelf=shelf).router()
