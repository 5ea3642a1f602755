"""Store items of LangGraph for callers outside of a graph."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from clew.domain.errors import ClewError, Invalid, InvalidState
from clew.domain.items import (
    DeleteItem,
    Fields,
    FindItems,
    GetItem,
    Item,
    ItemChange,
    ListNamespaces,
    Namespace,
    Pattern,
    PutItem,
    Question,
    Vector,
    asked_below,
    check_filter,
    is_of_histories,
    shown_below,
    to_path,
    user_label,
)
from clew.domain.thread import Json, Owner
from clew.ports.histories import NAMESPACE
from clew.ports.items import ItemIndex, Items

logger = logging.getLogger(__name__)

# So many bytes of a namespace and a key fit into the index of any database.
MAX_NAME: Final = 2000
# LangGraph keeps this one for itself.
RESERVED: Final = "langgraph"
# Without an index the newest items would be taken for the most similar ones.
NO_INDEX: Final = "this store has no index, so it cannot search by meaning; configure store.index"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreItems:
    """Items are their tenant's, or one user's of it: a key of one user sees what runs of that user keep, and nothing else.
    Chat histories, which graphs see among them, are written by ChatHistory alone: where they are kept, nothing else is."""

    items: Items
    index: ItemIndex | None = None
    ttl: timedelta | None = None
    """Of items that say nothing of their own."""
    refreshes: bool = True
    """Whether reading an item starts its time anew where the reader does not say."""

    async def put(
        self,
        owner: Owner,
        namespace: Namespace,
        key: str,
        value: Json,
        *,
        ttl: timedelta | None = None,
        fields: Fields = None,
    ) -> None:
        """`fields`: what of it is embedded, unless what the index says. Raises Invalid, InvalidState, Unavailable."""
        _require_writable(namespace, key)
        if fields and self.index is None:
            raise Invalid(NO_INDEX, "index")
        changes: list[ItemChange] = [
            PutItem(namespace=(*_root(owner), *namespace), key=key, value=value, ttl=ttl or self.ttl)
        ]
        if self.index is not None:
            changes = await self.index.embed_items([(changes[0], fields)])
        await self.items.change(owner.tenant, [], changes)

    async def delete(self, owner: Owner, namespace: Namespace, key: str) -> None:
        """One that is not there is gone already. Raises InvalidState."""
        _require_writable(namespace, key)
        change = DeleteItem(namespace=(*_root(owner), *namespace), key=key)
        await self.items.change(owner.tenant, [], [change])

    async def get(
        self, owner: Owner, namespace: Namespace, key: str, *, refresh: bool | None = None
    ) -> Item | None:
        """Reading an item restarts its time to live, unless `refresh` is off."""
        found = await self._ask(owner, GetItem(namespace=namespace, key=key))
        if self._is_refreshed(refresh) and isinstance(found, Item):
            await self._refresh(owner, [found])
        return cast("Item | None", found)

    async def find(
        self,
        owner: Owner,
        prefix: Namespace,
        *,
        wanted: Mapping[str, Json] | None = None,
        query: str | None = None,
        limit: int,
        offset: int,
        refresh: bool | None = None,
    ) -> Sequence[Item]:
        """Items in the namespace and below it: the newest change first, or those most similar to the query.

        Raises Invalid for an unknown filter operator and for a query without an index, Unavailable."""
        check_filter(wanted)
        question = FindItems(
            prefix=prefix, near=await self._near(query), filter=wanted or None, limit=limit, offset=offset
        )
        found = cast("Sequence[Item]", await self._ask(owner, question))
        if self._is_refreshed(refresh):
            await self._refresh(owner, found)
        return found

    async def namespaces(
        self,
        owner: Owner,
        *,
        prefix: Namespace = (),
        suffix: Namespace = (),
        max_depth: int | None = None,
        limit: int,
        offset: int,
    ) -> Sequence[Namespace]:
        question = ListNamespaces(
            patterns=(Pattern(at="prefix", labels=prefix), Pattern(at="suffix", labels=suffix)),
            max_depth=max_depth,
            limit=limit,
            offset=offset,
        )
        return cast("Sequence[Namespace]", await self._ask(owner, question))

    def _is_refreshed(self, asked: bool | None) -> bool:
        return self.refreshes if asked is None else asked

    async def _near(self, query: str | None) -> Vector | None:
        if not query:
            return None
        if self.index is None:
            raise Invalid(NO_INDEX, "query")
        return (await self.index.embed_queries([query]))[query]

    async def _ask(self, owner: Owner, question: Question) -> object:
        root = _root(owner)
        (answer,) = await self.items.ask(owner.tenant, [asked_below(question, root)])
        return shown_below(answer, len(root))

    async def _refresh(self, owner: Owner, found: Sequence[Item]) -> None:
        worn = [((*_root(owner), *item.namespace), item.key) for item in found if item.is_worn]
        if not worn:
            return
        try:
            await self.items.refresh(owner.tenant, worn)
        except ClewError as exc:
            # The caller has what it asked for; that it may expire early is no reason to withhold it.
            logger.warning("could not refresh the time to live of %d store items: %s", len(worn), exc.code)


def _root(owner: Owner) -> Namespace:
    return user_label(owner.user_id)


def _require_writable(namespace: Namespace, key: str) -> None:
    if len((to_path(namespace) + key).encode()) > MAX_NAME:
        raise Invalid(f"a namespace and a key have at most {MAX_NAME} bytes together", "key")
    if namespace[0] == RESERVED:
        raise Invalid(f"a namespace does not begin with {RESERVED!r}", "namespace")
    if is_of_histories(namespace, NAMESPACE):
        raise InvalidState(
            "chat histories are kept in this namespace; POST /api/histories/{key}/messages writes them"
        )
