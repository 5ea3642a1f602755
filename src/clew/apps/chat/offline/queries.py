"""Queries by rules: the SQL that answers a question about a table, and a title for what comes out."""

from collections.abc import Sequence
from dataclasses import dataclass

from clew.apps.chat.offline.questions import ColumnFacts, Question, Unsure, is_total
from clew.documents.tables.sql import identifier, literal
from clew.domain.thread import Json
from clew.texts.phrases import Text, say

_MANY = 50
_SQL = {"sum": "sum", "mean": "avg", "median": "median", "max": "max", "min": "min"}
_NAMES = {
    "sum": Text.TOTAL,
    "mean": Text.AVERAGE,
    "median": Text.MEDIAN,
    "max": Text.LARGEST,
    "min": Text.SMALLEST,
}
_KEYS = {
    "day": "strftime({}, '%Y-%m-%d')",
    "month": "strftime({}, '%Y-%m')",
    "quarter": "strftime({0}, '%Y') || ' Q' || quarter({0})",
    "year": "strftime({}, '%Y')",
}


@dataclass(frozen=True, slots=True)
class Key:
    """What groups are made by: a column, or a length of time."""

    sql: str
    name: str
    is_over_time: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    sql: str
    title: str
    is_over_time: bool = False

    def as_json(self, question: Question) -> dict[str, Json]:
        chart = question.chart or ("line" if self.is_over_time and question.period is None else "auto")
        return {
            "table": question.table.label,
            "sql": self.sql,
            "title": self.title,
            "chart": chart,
            "isOverTime": self.is_over_time,
        }


def build_query(question: Question, language: str, *, draws: bool, asks: bool) -> Query:
    """Raises Unsure where more than one computation fits the words."""
    return _QueryBuilder(question, language).build(draws=draws, asks=asks)


@dataclass(frozen=True, slots=True)
class _QueryBuilder:
    asked: Question
    language: str

    def build(self, *, draws: bool, asks: bool) -> Query:
        asked = self.asked
        if asked.is_sorted:
            return self._sorted()
        if asked.is_share:
            return self._share()
        if asked.order is not None or asked.aggregate in ("max", "min"):
            return self._ranked(asked.order or ("low" if asked.aggregate == "min" else "top"))
        if asked.aggregate == "count":
            return self._counted()
        if asked.says_nothing and (draws or not asks):
            return self._any_view()
        if draws:
            return self._drawn()
        compared = any(one.how in "<>=<=" and one.how != "=" for one in asked.filters)
        if asked.aggregate is None and (asked.is_list or compared):
            return self._rows(asked.dims if asked.dims and not compared else [])
        if asked.measures or asked.aggregate is not None:
            return self._measured()
        if asked.filters and any(one.how == "=" for one in asked.filters):
            return self._rows(asked.dims)
        if asked.names_rows and (asked.by or asked.period):
            return self._counted()
        if asked.is_list and asked.dims:
            return self._rows(asked.dims)
        raise Unsure

    # Where

    def _where(self, *, aggregates: bool) -> str:
        conditions = [self._condition(one.column, one.how, one.value) for one in self.asked.filters]
        if aggregates:
            conditions += self._without_totals()
        return f" WHERE {' AND '.join(conditions)}" if conditions else ""

    def _condition(self, column: str, how: str, value: str | float) -> str:
        name = identifier(column)
        shown = literal(value) if isinstance(value, str) else f"{value:g}"
        return f"{name} {how} {shown}" if how in ("=", "<", ">", "<=", ">=") else f"{how}({name}) = {shown}"

    def _without_totals(self) -> list[str]:
        """A row of totals is not added up once more."""
        return [
            f"{identifier(column.name)} NOT IN ({', '.join(map(literal, totals))})"
            for column in self.asked.table.columns
            if column.name not in self.asked.filtered
            and (totals := [value for value in column.values if is_total(value)])
        ]

    @property
    def _from(self) -> str:
        return f"FROM {identifier(self.asked.table.label)}"

    # What

    def _key(self, *, any_named: bool = True) -> Key | None:
        asked = self.asked
        if asked.period is not None:
            column = asked.table.dates[0]
            if len(asked.table.dates) > 1:
                raise Unsure
            return Key(
                _KEYS[asked.period].format(identifier(column.name)),
                say(_PERIOD_NAMES[asked.period], self.language),
                is_over_time=True,
            )
        grouping = asked.by or (asked.dims if any_named else [])
        if len(grouping) > 1:
            raise Unsure
        return self._key_of(grouping[0]) if grouping else None

    def _key_of(self, column: ColumnFacts) -> Key:
        name = identifier(column.name)
        if column.kind != "date":
            return Key(name, column.name)
        return Key(_KEYS[column.period].format(name), column.name, is_over_time=True)

    def _measures(self) -> list[ColumnFacts]:
        found = self.asked.measures or self.asked.table.measures
        if not found:
            raise Unsure
        return list(found)

    def _aggregated(self, how: str, column: ColumnFacts) -> str:
        value = f"{_SQL[how]}({identifier(column.name)})"
        # The name of a column alone stands for its sum.
        return f"{value} AS {identifier(column.name if how == 'sum' else self._heading(how, column))}"

    def _heading(self, how: str, column: ColumnFacts) -> str:
        return f"{column.name} ({self._way_name(how)})"

    def _way_name(self, how: str) -> str:
        name = say(_NAMES[how], self.language)
        return name if self.language == "de" else name.lower()  # German nouns are written large

    def _way(self, measures: Sequence[ColumnFacts]) -> str:
        """Sums, unless something else is asked for. Prices are not added up."""
        how = self.asked.aggregate
        if how in _SQL:
            return str(how)
        if any(column.is_rate for column in measures):
            raise Unsure
        return "sum"

    # Forms

    def _sorted(self) -> Query:
        asked = self.asked
        columns = asked.measures or asked.dims
        if len(asked.measures) > 1 or not columns or asked.aggregate:
            raise Unsure
        column = asked.measures[0] if asked.measures else (asked.by or asked.dims)[0]
        is_falling = not asked.is_ascending and (asked.order == "top" or bool(asked.measures))
        way = "DESC" if is_falling else "ASC"
        title = say(Text.SORTED, self.language, document=asked.table.label, column=column.name)
        limit = f" LIMIT {asked.limit}" if asked.limit else ""
        return Query(
            f"SELECT * {self._from}{self._where(aggregates=False)} ORDER BY {identifier(column.name)} {way} NULLS LAST{limit}",
            title,
        )

    def _share(self) -> Query:
        measures = self.asked.measures
        equal = [one for one in self.asked.filters if one.how == "="]
        if len(measures) > 1 or (not measures and not self.asked.names_rows):
            raise Unsure
        value = f"sum({identifier(measures[0].name)})" if measures else "count(*)"
        name = measures[0].name if measures else say(Text.ROWS, self.language)
        heading = identifier(f"{name} (%)")
        title = say(Text.SHARE_OF, self.language, column=name)
        totals = self._without_totals()
        if len(equal) == 1 and len(self.asked.filters) == 1 and not self.asked.dims:
            condition = self._condition(equal[0].column, "=", equal[0].value)
            where = f" WHERE {' AND '.join(totals)}" if totals else ""
            return Query(
                f"SELECT round(100.0 * {value} FILTER (WHERE {condition}) / {value}, 2) AS {heading} {self._from}{where}",
                f"{title}: {equal[0].value}",
            )
        key = self._key()
        if key is None or self.asked.filters:
            raise Unsure
        where = self._where(aggregates=True)
        return Query(
            f"SELECT {key.sql} AS {identifier(key.name)}, round(100.0 * {value} / sum({value}) OVER (), 2) AS {heading}"
            f" {self._from}{where} GROUP BY 1 ORDER BY 2 DESC",
            title,
        )

    def _ranked(self, order: str) -> Query:
        asked = self.asked
        measures = self._measures()
        if len(measures) > 1:
            raise Unsure
        (measure,) = measures
        way = "DESC" if order == "top" else "ASC"
        key = self._key()
        is_row = asked.names_rows and not asked.by
        if key is None and asked.asks_who:
            names = [c for c in asked.table.columns if c.kind == "text" and asked.table.is_key(c)]
            if len(names) != 1:
                raise Unsure
            key = self._key_of(names[0])
        column = next((c for c in asked.table.columns if key is not None and c.name == key.name), None)
        limit = asked.limit or 1
        word = Text.HIGHEST if order == "top" else Text.LOWEST
        title = say(word, self.language, column=measure.name)
        if key is None or is_row or (column is not None and asked.table.is_key(column)):
            if asked.aggregate in ("sum", "mean", "median", "count"):
                raise Unsure
            where = self._where(aggregates=True)
            rank = f"rank() OVER (ORDER BY {identifier(measure.name)} {way} NULLS LAST)"
            return Query(
                f"SELECT * {self._from}{where} QUALIFY {rank} <= {limit} ORDER BY {identifier(measure.name)} {way}",
                title,
            )
        how = (
            asked.aggregate
            if asked.aggregate in ("sum", "mean", "median")
            else "max"
            if measure.is_rate
            else "sum"
        )
        if how == "max" and order == "low":
            how = "min"
        value = self._aggregated(how, measure)
        bare = value.partition(" AS ")[0]
        return Query(
            f"SELECT {key.sql} AS {identifier(key.name)}, {value} {self._from}{self._where(aggregates=True)}"
            f" GROUP BY 1 HAVING {bare} IS NOT NULL QUALIFY rank() OVER (ORDER BY {bare} {way}) <= {limit} ORDER BY 2 {way}",
            say(word, self.language, column=self._heading(how, measure)),
            is_over_time=key.is_over_time,
        )

    def _counted(self) -> Query:
        asked = self.asked
        if len(asked.measures) == 1 and not asked.filtered & {asked.measures[0].name}:
            if asked.measures[0].is_rate:
                raise Unsure
            return self._grouped("sum", asked.measures)
        key = self._key(any_named=False)
        rows = say(Text.ROWS, self.language)
        where = self._where(aggregates=True)
        if key is not None:
            return Query(
                f"SELECT {key.sql} AS {identifier(key.name)}, count(*) AS {identifier(rows)} {self._from}{where}"
                f" GROUP BY 1 ORDER BY {'1' if key.is_over_time else '2 DESC, 1'}",
                say(Text.COUNTED, self.language, group=key.name),
                is_over_time=key.is_over_time,
            )
        if len(asked.dims) == 1 and not asked.names_rows:
            column = asked.dims[0]
            return Query(
                f"SELECT count(DISTINCT {identifier(column.name)}) AS {identifier(column.name)} {self._from}{where}",
                say(Text.DIFFERENT, self.language, column=column.name),
            )
        if asked.dims or not (asked.names_rows or asked.filters):
            raise Unsure
        return Query(f"SELECT count(*) AS {identifier(rows)} {self._from}{where}", rows)

    def _measured(self) -> Query:
        asked = self.asked
        if asked.aggregate is None and self._key(any_named=False) is None:
            if any(one.how == "=" for one in asked.filters) and (
                self._is_one_row() or any(column.is_rate for column in asked.measures)
            ):
                return self._rows([*asked.dims, *asked.measures])
            if asked.dims and any(asked.table.is_key(column) for column in asked.dims):
                return self._rows([*asked.dims, *asked.measures])
        measures = self._measures()
        return self._grouped(self._way(measures), measures)

    def _is_one_row(self) -> bool:
        keys = {column.name for column in self.asked.table.columns if self.asked.table.is_key(column)}
        return any(one.column in keys for one in self.asked.filters if one.how == "=")

    def _grouped(self, how: str, measures: Sequence[ColumnFacts]) -> Query:
        key = self._key()
        values = ", ".join(self._aggregated(how, column) for column in measures)
        where = self._where(aggregates=True)
        named = ", ".join(column.name for column in measures)
        way = self._way_name(how)
        if key is None:
            return Query(f"SELECT {values} {self._from}{where}", f"{named} ({way})")
        order = "1" if key.is_over_time else "2 DESC, 1"
        return Query(
            f"SELECT {key.sql} AS {identifier(key.name)}, {values} {self._from}{where} GROUP BY 1 ORDER BY {order}",
            say(Text.GROUPED, self.language, measure=named, group=key.name, how=way),
            is_over_time=key.is_over_time,
        )

    def _rows(self, columns: Sequence[ColumnFacts]) -> Query:
        """The rows that fit: of named columns with what the rows are called by, or whole."""
        labels = [one.column for one in self.asked.filters if one.how == "="]
        names = list(dict.fromkeys([*labels, *(column.name for column in columns)]))
        shown = ", ".join(map(identifier, names)) if columns else "*"
        title = say(Text.ROWS_OF, self.language, document=self.asked.table.label)
        if labels and columns:
            values = ", ".join(str(one.value) for one in self.asked.filters if one.how == "=")
            title = f"{values}: {', '.join(column.name for column in columns)}"
        return Query(f"SELECT {shown} {self._from}{self._where(aggregates=False)}", title)

    def _drawn(self) -> Query:
        """A chart needs groups; where none are named, the first column that sorts things."""
        measures = self.asked.measures[:1] or self.asked.table.measures[:1]
        key = self._key() or self._any_key()
        if self.asked.names_rows and not self.asked.measures:
            return self._counts(key)
        if len(self.asked.measures) > 1 or not measures:
            raise Unsure
        if not self.asked.measures and len(self.asked.table.measures) > 1:
            raise Unsure
        rated = measures[0].is_rate and self.asked.aggregate is None
        column = next((c for c in self.asked.table.columns if c.name == key.name), None)
        if rated and not (column is not None and self.asked.table.is_key(column)):
            raise Unsure
        return self._view(key, measures[0], "sum" if rated else self._way(measures))

    def _any_view(self) -> Query:
        key = self._any_key()
        measures = [column for column in self.asked.table.measures if column.name != key.name]
        return self._view(key, measures[0], "sum") if measures else self._counts(key)

    def _view(self, key: Key, measure: ColumnFacts, how: str) -> Query:
        return Query(
            f"SELECT {key.sql} AS {identifier(key.name)}, {self._aggregated(how, measure)} {self._from}"
            f"{self._where(aggregates=True)} GROUP BY 1 ORDER BY {'1' if key.is_over_time else '2 DESC, 1'}",
            say(
                Text.GROUPED,
                self.language,
                measure=measure.name,
                group=key.name,
                how=self._way_name(how),
            ),
            is_over_time=key.is_over_time,
        )

    def _counts(self, key: Key) -> Query:
        rows = identifier(say(Text.ROWS, self.language))
        return Query(
            f"SELECT {key.sql} AS {identifier(key.name)}, count(*) AS {rows} {self._from}"
            f"{self._where(aggregates=True)} GROUP BY 1 ORDER BY {'1' if key.is_over_time else '2 DESC, 1'}",
            say(Text.COUNTED, self.language, group=key.name),
            is_over_time=key.is_over_time,
        )

    def _any_key(self) -> Key:
        # A column of few different values sorts things; one where every row is different names them.
        left = [c for c in self.asked.table.columns if c.name not in self.asked.filtered]
        sorts = [c for c in left if c.kind == "text" and 1 < c.distinct <= _MANY]
        others = [c for c in left if not c.is_measure]
        found = [*sorts, *(c for c in left if c.kind == "date"), *others, *left]
        if not found:
            raise Unsure
        return self._key_of(found[0])


_PERIOD_NAMES = {"day": Text.DAY, "month": Text.MONTH, "quarter": Text.QUARTER, "year": Text.YEAR}
