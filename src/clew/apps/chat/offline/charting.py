"""Column matching: which columns of a table a prompt means, by the words they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from clew.documents.passages import words
from clew.domain.thread import Json
from clew.texts.catalog import merge_words

_PACKAGE = "clew.apps.chat.offline"

# Of those a prompt names, the first is taken.
_AGGREGATES = ("mean", "median", "count", "max", "min")
_CHARTS = ("pie", "line", "bar")
_CLOSE = 0.8
_MANY = 50


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    kind: str
    distinct: int

    @property
    def is_measure(self) -> bool:
        return (
            self.kind == "number" and not set(words(self.name)) & merge_words(_PACKAGE, "columns")["labels"]
        )


def choose_view(prompt: str, tables: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    """The table whose columns the prompt names most often, and of them what to group by and what to add up."""
    asked = words(prompt)
    spoken = prompt.casefold()
    best = max(tables, key=lambda table: len(_mentioned(_columns(table), asked)))
    columns = _columns(best)
    mentioned = _mentioned(columns, asked)
    how = _first_named(_AGGREGATES, merge_words(_PACKAGE, "aggregates"), spoken) or "sum"
    group = _group(columns, mentioned, asked)
    measure = _measure(columns, mentioned, group)
    return {
        "table": best["label"],
        "groupBy": group.name,
        "measure": None if how == "count" or measure is None else measure.name,
        "aggregate": how if measure is not None else "count",
        "chart": _first_named(_CHARTS, merge_words(_PACKAGE, "charts"), spoken) or "auto",
    }


def _first_named(names: Sequence[str], words: Mapping[str, frozenset[str]], spoken: str) -> str | None:
    return next((name for name in names if any(word in spoken for word in words[name])), None)


def _columns(table: Mapping[str, Json]) -> list[_Column]:
    return [_Column(str(c["name"]), str(c["kind"]), int(c["distinct"])) for c in table["columns"]]


def _mentioned(columns: Sequence[_Column], asked: Sequence[str]) -> dict[str, int]:
    """Columns the prompt names, and where."""
    found: dict[str, int] = {}
    for column in columns:
        places = [_place(word, asked) for word in words(column.name)]
        if places and all(place is not None for place in places):
            found[column.name] = next(place for place in places if place is not None)
    return found


def _place(word: str, asked: Sequence[str]) -> int | None:
    for place, other in enumerate(asked):
        if word == other or (len(word) > 3 and _is_close(word, other)):
            return place
    return None


def _is_close(word: str, other: str) -> bool:
    # By their lengths alone most words are too different, and comparing letters takes long.
    both = len(word) + len(other)
    return 2 * min(len(word), len(other)) >= _CLOSE * both and (
        SequenceMatcher(None, word, other).ratio() >= _CLOSE
    )


def _group(columns: Sequence[_Column], mentioned: Mapping[str, int], asked: Sequence[str]) -> _Column:
    by_words = merge_words(_PACKAGE, "columns")["by"]
    after = [place + 1 for place, word in enumerate(asked) if word in by_words]
    by = [c for c in columns if c.name in mentioned and any(0 <= mentioned[c.name] - at <= 1 for at in after)]
    named = [c for c in columns if c.name in mentioned and not c.is_measure]
    # A column of few different values sorts things; one where every row is different names them.
    sorts = [c for c in columns if c.kind == "text" and 1 < c.distinct <= _MANY]
    dates = [c for c in columns if c.kind == "date"]
    others = [c for c in columns if not c.is_measure]
    return next(iter([*by, *named, *sorts, *dates, *others, *columns]))


def _measure(columns: Sequence[_Column], mentioned: Mapping[str, int], group: _Column) -> _Column | None:
    numbers = [c for c in columns if c.kind == "number" and c is not group]
    named = [c for c in numbers if c.name in mentioned]
    return next(iter([*named, *(c for c in numbers if c.is_measure)]), None)
