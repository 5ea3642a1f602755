"""Embeddings of store items: the texts of an item and a query become vectors, outside of any transaction."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, TypeVar

from langchain_core.embeddings import Embeddings
from langgraph.store.base import IndexConfig
from langgraph.store.base.embed import ensure_embeddings, get_text_at_path

from clew.domain.errors import ConfigError, Unavailable
from clew.domain.items import Fields, ItemChange, PutItem, Vector
from clew.domain.thread import Json

logger = logging.getLogger(__name__)
T = TypeVar("T")

WHOLE: Final = "$"
SECONDS: Final = 60.0
# As many as pgvector compares, and the largest 32-bit float.
MOST_DIMENSIONS: Final = 16_000
LARGEST: Final = 3.4e38


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedItems:
    """`fields` are paths such as `text` or `facts[*].content`; `$` is the whole item."""

    embeddings: Embeddings
    dims: int
    fields: Sequence[str] = (WHOLE,)

    @classmethod
    def of(cls, config: IndexConfig) -> "EmbeddedItems":
        """From LangGraph's own configuration. Raises ConfigError."""
        dims, embed = config.get("dims"), config.get("embed")
        if not isinstance(dims, int) or not 1 <= dims <= MOST_DIMENSIONS:
            raise ConfigError(
                f"store.index.dims: expected the number of dimensions that `embed` returns, 1 to {MOST_DIMENSIONS}"
            )
        if embed is None:
            raise ConfigError(
                "store.index.embed: expected a function, an Embeddings object or a provider:model"
            )
        try:
            embeddings = ensure_embeddings(embed)
        except (ImportError, ValueError) as exc:
            raise ConfigError(f"store.index.embed: {exc}") from exc
        return cls(embeddings=embeddings, dims=dims, fields=tuple(config.get("fields") or (WHOLE,)))

    async def embed_items(self, changes: Sequence[tuple[ItemChange, Fields]]) -> list[ItemChange]:
        """The changes with the vectors of the items they put; every text is embedded once. Raises Unavailable."""
        texts = [self._texts(change, fields) for change, fields in changes]
        distinct = list(dict.fromkeys(text for some in texts for text in some))
        if not distinct:
            return [change for change, _ in changes]
        vectors = self._checked(distinct, await _in_time(self.embeddings.aembed_documents(distinct)))
        return [
            replace(change, vectors=tuple(vectors[text] for text in some))
            if isinstance(change, PutItem)
            else change
            for (change, _), some in zip(changes, texts, strict=True)
        ]

    async def embed_queries(self, queries: Iterable[str]) -> Mapping[str, Vector]:
        """Raises Unavailable."""
        distinct = list(dict.fromkeys(queries))
        made = await asyncio.gather(*(_in_time(self.embeddings.aembed_query(query)) for query in distinct))
        return self._checked(distinct, made)

    def _texts(self, change: ItemChange, fields: Fields) -> list[str]:
        if not isinstance(change, PutItem) or fields is False:
            return []
        return [
            text for path in (self.fields if fields is None else fields) for text in _at(change.value, path)
        ]

    def _checked(self, texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> dict[str, Vector]:
        if len(vectors) != len(texts) or any(len(vector) != self.dims for vector in vectors):
            raise Unavailable(
                f"the embedding does not return {self.dims} numbers for each text, as store.index says"
            )
        # One that a database refuses to compare would spoil every later search.
        if not all(abs(number) <= LARGEST for vector in vectors for number in vector):
            raise Unavailable("the embedding returned something that is no 32-bit number")
        return {text: tuple(map(float, vector)) for text, vector in zip(texts, vectors, strict=True)}


@cache
def warn_unindexed() -> None:
    """Once in a process: an item names the fields to index, as programs for LangGraph's stores do without an index."""
    logger.warning("an item names fields to index and has no vectors: this store has no index")


def _at(value: Json, path: str) -> list[str]:
    return [text for text in get_text_at_path(value, path) if text]


async def _in_time(work: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(SECONDS):
            return await work
    except TimeoutError:
        raise Unavailable(f"the embedding did not answer within {SECONDS:.0f} seconds") from None
    except Exception as exc:
        # Of the user's function or of a provider: the text it was given may be in the message.
        raise Unavailable(f"the embedding failed: {type(exc).__name__}") from exc
