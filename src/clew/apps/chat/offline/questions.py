"""Questions about a table, read by rules: which columns and rows a prompt means, and what to compute of them.

A rule answers only if it knows what every word of the prompt is for. What it does not know makes it unsure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from clew.apps.chat.offline.scan import PACKAGE, Hit, Scan, fold, same, tokens
from clew.documents.tables.cells import to_number
from clew.domain.documents import split_name
from clew.domain.thread import Json
from clew.texts.catalog import SUPPORTED, merge_words, read_language

_AGGREGATES = ("mean", "median", "count", "sum", "max", "min")
_CHARTS = ("pie", "line", "bar")
_PERIODS = ("day", "month", "quarter", "year")
_COMPARISONS = {"least": ">=", "most": "<=", "more": ">", "less": "<"}
_YEAR = re.compile(r"(?:19|20)\d\d")
_QUARTER = re.compile(r"q([1-4])")
_IN_BRACKETS = re.compile(r"\([^)]*\)")
# Numbers of these kinds of columns are not added up.
_RATES = frozenset({"price", "salary"})
# "Per year" is a price, not a year.
_BY = frozenset({"per", "pro", "je", "par", "por"})
_GENERIC = frozenset({"revenue", "cost", "amount"})
_TOTALS = frozenset(
    {
        "total",
        "totals",
        "sum",
        "summe",
        "gesamt",
        "gesamtsumme",
        "totale",
        "totaux",
        "suma",
        "somma",
        "soma",
        "合计",
        "总计",
    }
)
_MOST_LINES = 1_000
_LONG_COUNT = 4


def is_total(value: str) -> bool:
    """Whether a row under this name adds the others up."""
    return fold(value).strip(" :") in _TOTALS or fold(value).startswith(("total ", "grand total"))


class Unsure(Exception):
    """The rules do not know for certain what to compute; `words` are those they do not understand."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        super().__init__(" ".join(words))
        self.words = tuple(words)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as the rules see it."""

    label: str
    rows: int
    columns: tuple["ColumnFacts", ...]

    @classmethod
    def of(cls, told: Mapping[str, Json]) -> "TableFacts":
        columns = tuple(ColumnFacts.of(one) for one in told["columns"])
        return cls(str(told["label"]), int(told.get("rows", 0)), columns)

    @property
    def measures(self) -> list["ColumnFacts"]:
        return [column for column in self.columns if column.is_measure]

    @property
    def dates(self) -> list["ColumnFacts"]:
        return [column for column in self.columns if column.kind == "date"]

    def is_key(self, column: "ColumnFacts") -> bool:
        """Whether every row has another value there."""
        return 0 < self.rows <= column.distinct


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    name: str
    kind: str
    distinct: int
    values: tuple[str, ...] = ()
    # Of dates, the length of time that makes as many groups as a chart can show.
    period: str = "day"

    @classmethod
    def of(cls, told: Mapping[str, Json]) -> "ColumnFacts":
        values = tuple(told.get("values") or ())
        period = str(told.get("period") or "day")
        return cls(str(told["name"]), str(told["kind"]), int(told["distinct"]), values, period)

    @property
    def words(self) -> tuple[str, ...]:
        return tokens(_IN_BRACKETS.sub(" ", self.name)) or tokens(self.name)

    @property
    def is_measure(self) -> bool:
        labels = {fold(word) for word in merge_words(PACKAGE, "columns")["labels"]}
        return self.kind == "number" and not (
            len(self.words) <= 2 and self.words[0] not in _BY and set(self.words) & labels
        )

    @property
    def is_rate(self) -> bool:
        return any(self.means(concept) for concept in _RATES) and not any(
            self.means(concept) for concept in ("revenue", "units")
        )

    def means(self, concept: str) -> bool:
        """Whether its name has a word for the concept, in any language."""
        return any(Scan(self.words, (code,)).take_list("concepts", concept) for code in SUPPORTED)


@dataclass(frozen=True, slots=True)
class Filter:
    column: str
    # One of = < > <= >= year month quarter
    how: str
    value: str | float


@dataclass(slots=True)
class Question:
    """What a prompt asks of one table."""

    table: TableFacts
    filters: list[Filter] = field(default_factory=list)
    measures: list[ColumnFacts] = field(default_factory=list)
    # Columns of texts or dates that are named, in the order of the prompt.
    dims: list[ColumnFacts] = field(default_factory=list)
    # Those that follow "by", "per", "each".
    by: list[ColumnFacts] = field(default_factory=list)
    period: str | None = None
    aggregate: str | None = None
    order: str | None = None
    limit: int | None = None
    chart: str | None = None
    is_share: bool = False
    is_sorted: bool = False
    is_ascending: bool = False
    is_list: bool = False
    asks_who: bool = False
    names_rows: bool = False

    @property
    def filtered(self) -> set[str]:
        return {one.column for one in self.filters}

    @property
    def says_nothing(self) -> bool:
        """Whether the prompt names nothing of the table: then any view of it will do."""
        named = self.filters or self.measures or self.dims or self.period or self.aggregate or self.order
        return not (named or self.is_share or self.is_sorted or self.is_list or self.asks_who)


def read_question(prompt: str, table: TableFacts, language: str | None) -> Question:
    """Raises Unsure, with the words that are not understood."""
    whole = Scan.of(prompt, language)
    if len(whole.words) > _MOST_LINES:
        raise Unsure
    reader = _QuestionReader(prompt, table, whole)
    return reader.read()


@dataclass(slots=True)
class _QuestionReader:
    prompt: str
    table: TableFacts
    scan: Scan
    found: Question = field(init=False)
    places: dict[str, int] = field(default_factory=dict)
    filtered_places: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.found = Question(self.table)

    def read(self) -> Question:
        by = [hit.end for hit in self.scan.copy().take_list("columns", "by")]
        self._values()
        self._comparisons()
        self._columns(exactly=True)
        self._orders()
        self._aggregates()
        self._columns(exactly=False)
        self._dates(by)
        self._years()
        self._concepts()
        self._rest()
        self._partial_values()
        left = [word for _, word in self.scan.free()]
        if left:
            raise Unsure(left)
        self._sort_out(by)
        return self.found

    def _values(self) -> None:
        """Rows the prompt names by a text in them, the longest text first."""
        named = {word for column in self.table.columns for word in column.words}
        values = [(column, value, tokens(value)) for column in self.table.columns for value in column.values]
        for column, value, words in sorted(values, key=lambda one: -len(one[2])):
            is_a_name = len(words) == 1 and words[0] in named
            if not words or len("".join(words)) < 2 or is_a_name:
                continue
            if hit := self._exactly(words, gap=2 if len(words) > 1 else 0):
                twins = [
                    other.name
                    for other in self.table.columns
                    if other is not column and value in other.values
                ]
                if twins:
                    raise Unsure((value,))
                self.found.filters.append(Filter(column.name, "=", value))
                self.filtered_places[column.name] = hit.start

    def _exactly(self, words: Sequence[str], *, gap: int) -> Hit | None:
        hit = self.scan.copy().take_words(words, gap=gap)
        # "West" is not "western": of a value every letter counts.
        if hit is None or not set(words) <= set(self.scan.words[hit.start : hit.end]):
            return None
        return self.scan.take_words(words, gap=gap)

    def _partial_values(self) -> None:
        """A word that stands in one text of the table alone means its row."""
        for place, word in list(self.scan.free()):
            if len(word) < _LONG_COUNT:
                continue
            hits = [
                (column, value)
                for column in self.table.columns
                for value in column.values
                if word in tokens(value)
            ]
            if len(hits) == 1 and hits[0][0].name not in self.found.filtered:
                column, value = hits[0]
                self.scan.take_at(place)
                self.found.filters.append(Filter(column.name, "=", value))

    def _comparisons(self) -> None:
        """`more than 70000`: of the one column of numbers that the prompt names."""
        for name, sign in _COMPARISONS.items():
            for hit in self.scan.copy().take_list("question", name):
                number = self._number(hit.end)
                if number is None:
                    continue
                if not all(self.scan.is_free(place) for place in range(hit.start, hit.end + 1)):
                    continue
                for place in range(hit.start, hit.end + 1):
                    self.scan.take_at(place)
                self.found.filters.append(Filter("", sign, number))

    def _number(self, place: int) -> float | None:
        if place >= len(self.scan.words) or not self.scan.words[place][0].isdigit():
            return None
        comma = self.scan.languages[0] not in ("en", "zh")
        return to_number(self.scan.words[place], decimal="," if comma else ".")

    def _columns(self, *, exactly: bool) -> None:
        for column in sorted(self.table.columns, key=lambda one: -len(one.words)):
            if column.name in self.places or not column.words:
                continue
            hit = self._exactly(column.words, gap=0) if exactly else self.scan.take_words(column.words)
            if hit is not None:
                self._name(column, hit.start)

    def _name(self, column: ColumnFacts, place: int) -> None:
        self.places.setdefault(column.name, place)

    def _orders(self) -> None:
        for order in ("top", "low"):
            for hit in self.scan.take_list("orders", order):
                if self.found.order not in (None, order):
                    raise Unsure
                self.found.order = order
                for place in (hit.end, hit.start - 1):
                    near = self.scan.words[place] if self.scan.is_free(place) else ""
                    if near.isdigit() and 0 < int(near) <= _MOST_LINES:
                        self.scan.take_at(place)
                        self.found.limit = int(near)
        if self.scan.take_list("question", "down"):
            self.found.is_sorted = True
        if self.scan.take_list("question", "up"):
            self.found.is_sorted = self.found.is_ascending = True
        if self.scan.take_list("question", "sort"):
            self.found.is_sorted = True

    def _aggregates(self) -> None:
        named = [name for name in _AGGREGATES if self.scan.take_list("aggregates", name)]
        if len(named) > 1 and set(named) != {"sum", "count"}:
            raise Unsure
        self.found.aggregate = "count" if "count" in named else named[0] if named else None
        self.found.chart = next((one for one in _CHARTS if self.scan.take_list("charts", one)), None)
        self.found.is_share = bool(self.scan.take_list("question", "share"))
        self.found.is_list = bool(self.scan.take_list("question", "list"))
        self.found.asks_who = bool(self.scan.take_list("question", "who"))

    def _dates(self, by: Sequence[int]) -> None:
        self._months()
        for period in _PERIODS:
            hits = self.scan.take_list("periods", period)
            if not hits:
                continue
            # "In the month of March" groups nothing.
            if any(
                one.how in (period, "year") and period in ("month", "year") for one in self.found.filters
            ) and not any(0 <= hit.start - at <= 1 for hit in hits for at in by):
                continue
            words = {fold(w) for code in SUPPORTED for w in read_language(PACKAGE, code)["periods"][period]}
            named = [one for one in self.table.columns if any(same(w, o) for w in one.words for o in words)]
            if not self.table.dates and len(named) == 1:
                self._name(named[0], hits[0].start)
            elif self.table.dates and self.found.period is None:
                self.found.period = period
            else:
                raise Unsure([hit.entry for hit in hits])

    def _months(self) -> None:
        found: list[int] = []
        for code in self.scan.languages:
            for number, name in enumerate(read_language(PACKAGE, code)["periods"]["months"], 1):
                # "May I ask" names no month.
                if name == "may" and not ("May" in self.prompt or " in may" in self.prompt):
                    continue
                if self.scan.take((name,)):
                    found.append(number)
        for place, word in list(self.scan.free()):
            if word == "月" and (count := self._number(place - 1)) and self.scan.is_free(place - 1):
                self.scan.take_at(place)
                self.scan.take_at(place - 1)
                found.append(int(count))
        self._filter_dates("month", found)

    def _years(self) -> None:
        years, quarters = list[int](), list[int]()
        labels = [c for c in self.table.columns if c.kind == "number" and not c.is_measure]
        for place, word in list(self.scan.free()):
            if _YEAR.fullmatch(word):
                self.scan.take_at(place)
                if self.scan.is_free(place + 1) and self.scan.words[place + 1] == "年":
                    self.scan.take_at(place + 1)
                if not self.table.dates and len(labels) == 1:
                    self.found.filters.append(Filter(labels[0].name, "=", float(word)))
                else:
                    years.append(int(word))
            elif quarter := _QUARTER.fullmatch(word):
                self.scan.take_at(place)
                quarters.append(int(quarter[1]))
        self._filter_dates("year", years)
        self._filter_dates("quarter", quarters)

    def _filter_dates(self, how: str, values: Sequence[int]) -> None:
        if not values:
            return
        if len(self.table.dates) != 1 or len(set(values)) > 1:
            raise Unsure([str(value) for value in values])
        self.found.filters.append(Filter(self.table.dates[0].name, how, values[0]))

    def _concepts(self) -> None:
        """Other words for a column, such as "spent" for the amounts of a list of expenses."""
        verbs = {
            fold(word)
            for code in self.scan.languages
            for word in read_language(PACKAGE, code)["question"]["verbs"]
        }
        for concept in read_language(PACKAGE, "en")["concepts"]:
            looked = self.scan.copy()
            looked._is_free = list(self.scan._is_free)
            hits = looked.take_list("concepts", concept)
            if not hits:
                continue
            fitting = [column for column in self.table.columns if column.means(concept)]
            known = [column for column in fitting if column.name in self.places]
            numbers = [column for column in fitting if column.is_measure]
            if not fitting:
                continue
            self.scan.take_list("concepts", concept)
            if known:
                continue
            if all(hit.entry in verbs for hit in hits) and any(
                column.is_measure for column in self.table.columns if column.name in self.places
            ):
                continue
            chosen = numbers if numbers and concept != "name" else fitting
            if len(chosen) > 1 and concept in _GENERIC:
                own = [c for c in chosen if not any(c.means(o) for o in ("price", "units", "budget"))]
                chosen = own or chosen
            if len(chosen) != 1:
                raise Unsure([hit.entry for hit in hits])
            counted = [column for column in self.table.measures if column.means("units")]
            by_verb = all(self.scan.words[hit.start] in verbs for hit in hits)
            if by_verb and counted and chosen[0] not in counted and self.found.order is None:
                raise Unsure([hit.entry for hit in hits])  # "how much was sold": pieces, or money
            self._name(chosen[0], hits[0].start)

    def _rest(self) -> None:
        stem, _ = split_name(self.table.label.partition(": ")[0])
        if self.scan.take_list("question", "rows"):
            self.found.names_rows = True
        has_measure = any(c.is_measure for c in self.table.columns if c.name in self.places)
        if has_measure:
            self.scan.take_list("question", "verbs")
        self.scan.take_list("talk", "greeting")
        self.scan.take_list("question", "filler")
        for word in tokens(stem):
            if self.scan.take((word,)):
                # "How many employees" of employees.csv means its rows.
                self.found.names_rows = self.found.names_rows or self.found.aggregate == "count"
        for place, word in list(self.scan.free()):
            if any(same(word, one) for one in tokens(stem)):
                self.scan.take_at(place)

    def _sort_out(self, by: Sequence[int]) -> None:
        """Who is measured, who groups, who is filtered."""
        columns = {column.name: column for column in self.table.columns}
        named = sorted(self.places, key=lambda name: self.places[name])
        self.found.measures = [columns[name] for name in named if columns[name].is_measure]
        self.found.dims = [
            columns[name]
            for name in named
            if not columns[name].is_measure and name not in self.found.filtered
        ]
        self.found.by = [
            column for column in self.found.dims if any(0 <= self.places[column.name] - at <= 1 for at in by)
        ]
        compared = [one for one in self.found.filters if not one.column]
        if compared:
            numbers = self.found.measures or (self.table.measures if len(self.table.measures) == 1 else [])
            if len(numbers) != 1:
                raise Unsure
            self.found.filters = [
                Filter(one.column or numbers[0].name, one.how, one.value) for one in self.found.filters
            ]
        several = [one.column for one in self.found.filters if one.how == "="]
        if len(several) != len(set(several)):
            raise Unsure
