"""`store.index` of clew.yaml and langgraph.json: with what the items of the graph store are embedded."""

import re
from dataclasses import dataclass
from pathlib import Path

from clew.config.tree import ConfigNode

# As many as pgvector compares.
MOST_DIMENSIONS = 16_000
_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)", re.ASCII)
_MODEL = re.compile(r"[A-Za-z_][\w-]*:[^\s:].*", re.ASCII)
_EXPECTED = "provider:model, such as openai:text-embedding-3-small, or ./file.py:function"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreIndexSource:
    """`attribute` of the file `path`, or the model `written`: a function, an Embeddings object, or provider:model."""

    written: str
    dims: int
    fields: tuple[str, ...]
    where: str
    attribute: str = ""
    path: Path | None = None
    module: str | None = None
    name: str = "store_index"


def read_store_index(store: ConfigNode | None, *, is_ours: bool = True) -> StoreIndexSource | None:
    """The `index` of a `store` section, if it has one. Raises ConfigError."""
    if store is None:
        return None
    place = (store.known(("index",)) if is_ours else store.entries()).get("index")
    if place is None or place.value is None:
        return None
    given = place.known(("embed", "dims", "fields"))
    written = given["embed"].text(_EXPECTED) if "embed" in given else ""
    file = _FILE.fullmatch(written)
    if file is None and _MODEL.fullmatch(written) is None:
        raise (given.get("embed") or ConfigNode(place.file, f"{place.key}.embed", None)).expected(_EXPECTED)
    return StoreIndexSource(
        written=written,
        dims=_dims(given.get("dims") or ConfigNode(place.file, f"{place.key}.dims", None)),
        fields=_fields(given.get("fields")),
        where=given["embed"].where,
        attribute=file[2] if file else "",
        path=place.folder / file[1] if file else None,
    )


def _dims(place: ConfigNode) -> int:
    if type(place.value) is not int or not 1 <= place.value <= MOST_DIMENSIONS:
        raise place.expected(f"the number of dimensions of a vector, 1 to {MOST_DIMENSIONS}")
    return place.value


def _fields(place: ConfigNode | None) -> tuple[str, ...]:
    if place is None or place.value is None:
        return ("$",)
    if not isinstance(place.value, list) or not all(isinstance(one, str) and one for one in place.value):
        raise place.expected("a list of fields, such as [text] or [$] for the whole item")
    return tuple(place.value)
