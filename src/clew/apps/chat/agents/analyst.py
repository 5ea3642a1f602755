"""Analyst agent: answers questions about tables, makes charts and workbooks.

A model, or a rule, says what to compute, as SQL. It is computed here, and shown.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tables import Groups, Row, fold, sources
from clew.apps.chat.agents.tasks import wanted
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.documents.tables.cells import shown
from clew.documents.tables.sql import identifier
from clew.domain.documents import split_name
from clew.domain.errors import Invalid, Permanent
from clew.domain.thread import Json
from clew.texts.phrases import Text, say

if TYPE_CHECKING:
    from clew.documents.tables.database import LoadedTable, QueryResult, TableDatabase

CHARTS = ("auto", "bar", "line", "pie")
_SHOWN_ROWS = 30
_SHOWN_GROUPS = 20
_FUNCTIONS = {"sum": "sum", "mean": "avg", "median": "median", "min": "min", "max": "max", "count": "count"}
_ADDS_UP = ("sum(", "count(")


class Analyst:
    name = "analyst"
    description = (
        "Evaluates tables (csv, xlsx, and tables inside documents): computes what is asked and shows the query."
        " Makes a chart (png), a workbook (xlsx), a table (csv) or a report (md, html, docx, pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        from clew.documents.tables.database import open_tables  # noqa: PLC0415 - 65 MB; most rounds compute nothing

        language = task["context"]["language"]
        with open_tables(sources(task["inputDocuments"], language)) as database:
            if not database.tables:
                raise Permanent(say(Text.NO_TABLE, language), "validation")
            found = await self._computed(task, database)
        if isinstance(found, str):
            return {"feedback": found, "documents": [], "refused": True}
        # A model's plan says which documents it wants; a rule asks for a look at a table.
        is_answer = found.view.answer_only or self._driver.model
        labels = wanted(task, *(() if is_answer else ("chart.png", "table.xlsx")))
        result: AgentResult = {
            "feedback": f"{found.answer}\n\n{found.evidence}",
            "documents": [{"label": label, "content": await found.made(label)} for label in labels],
        }
        if not labels and not self._driver.model:
            result["feedback"], result["answer"] = found.evidence, found.answer
        return result

    async def _computed(self, task: AgentTask, database: "TableDatabase") -> "Finding | str":
        """What was computed, or why nothing was."""
        language = task["context"]["language"]
        is_offline = not self._driver.model
        complaint = ""
        for _ in range(2):
            reply = await self._driver.ask(
                Inquiry(
                    purpose=Purpose.CHART,
                    role=prompt("analyst"),
                    prompt=f"{task['prompt']}{complaint}",
                    language=language,
                    facts={"tables": [one.described(with_values=is_offline) for one in database.tables]},
                    wants_json=True,
                )
            )
            try:
                value = json_in(reply.text)
                if is_offline and "unsure" in value:
                    return unsure(value, database.tables, language)
                view = read_view(value, database.tables)
                result = database.query(view.sql)
            except Invalid as exc:
                complaint = f"\n\nYour last answer could not be used: {exc.field}: {exc}"
                continue
            if all(cell is None for row in result.rows for cell in row):
                return say(Text.NO_ROWS, language, document=view.table.label, query=view.sql)
            return Finding(view, result, language)
        raise Permanent(f"the model chose no existing view of the table{complaint}", "validation")


def unsure(value: Mapping[str, Json], tables: "Sequence[LoadedTable]", language: str) -> str:
    """The refusal: the words that are not understood, and the columns there are."""
    table = next((one for one in tables if one.label == value.get("table")), tables[0])
    columns = ", ".join(column.name for column in table.columns)
    said = [say(Text.UNSURE, language, document=table.label, columns=columns)]
    if value["unsure"]:
        words = ", ".join(map(str, value["unsure"]))[:300]
        said.insert(0, say(Text.NOT_UNDERSTOOD, language, words=words))
    return " ".join(said)


@dataclass(frozen=True, slots=True)
class TableView:
    """A query, and how to show what comes out."""

    table: "LoadedTable"
    sql: str
    title: str = ""
    chart: str = "auto"
    answer_only: bool = False
    is_over_time: bool = False


def read_view(value: Json, tables: "Sequence[LoadedTable]") -> TableView:
    """The view that a model or a rule chose. Raises Invalid if it does not exist."""
    if not isinstance(value, Mapping):
        raise Invalid("expected an object", "view")
    labelled = {table.label: table for table in tables}
    table = labelled.get(value.get("table") or tables[0].label)
    if table is None:
        raise Invalid(f"expected one of {', '.join(labelled)}", "table")
    chart = value.get("chart")
    sql = value.get("sql")
    return TableView(
        table=table,
        sql=sql.strip().rstrip(";") if isinstance(sql, str) and sql.strip() else _grouped(value, table),
        title=str(value.get("title") or ""),
        chart=chart if chart in CHARTS else "auto",
        answer_only=bool(value.get("answerOnly")),
        is_over_time=bool(value.get("isOverTime")),
    )


def _grouped(value: Mapping[str, Json], table: "LoadedTable") -> str:
    """A query by the names of columns, for models that write no SQL."""
    columns = {column.name: column for column in table.columns}
    by, measure = value.get("groupBy"), value.get("measure") or None
    if by not in columns:
        raise Invalid(f"expected one of {', '.join(columns)}", "groupBy")
    how = value.get("aggregate") or ("sum" if measure else "count")
    if how not in _FUNCTIONS:
        raise Invalid(f"expected one of {', '.join(_FUNCTIONS)}", "aggregate")
    if measure is not None and (measure not in columns or columns[measure].kind != "number"):
        numbers = [name for name, column in columns.items() if column.kind == "number"]
        raise Invalid(f"expected one of {', '.join(numbers) or 'none: there are no numbers'}", "measure")
    what = f"{_FUNCTIONS[how]}({identifier(measure)})" if measure and how != "count" else "count(*)"
    name = measure if measure and how != "count" else "count"
    order = "1" if columns[by].kind in ("date", "number") else "2 DESC, 1"
    return (
        f"SELECT {identifier(by)}, {what} AS {identifier(name)} FROM {identifier(table.label)}"
        f" WHERE {identifier(by)} IS NOT NULL GROUP BY 1 ORDER BY {order}"
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """What a query gave, in every form it can be asked for."""

    view: TableView
    result: "QueryResult"
    language: str

    @property
    def title(self) -> str:
        return self.view.title or ", ".join(self.result.columns)[:120]

    @property
    def answer(self) -> str:
        """One row as a sentence, several as a table."""
        rows = self.result.rows
        if len(rows) == 1 and len(self.result.columns) == 1:
            return f"{self.title}: **{self._cell(rows[0][0])}**"
        if len(rows) == 1:
            cells = zip(self.result.columns, rows[0], strict=True)
            return f"{self.title}\n\n" + "\n".join(
                f"- {name}: **{self._cell(cell)}**" for name, cell in cells
            )
        said = f"{self.title}\n\n{self._markdown(_SHOWN_ROWS)}"
        if len(rows) > _SHOWN_ROWS or self.result.is_cut:
            said += f"\n\n{say(Text.CUT_ROWS, self.language, count=min(len(rows), _SHOWN_ROWS))}"
        return said

    @property
    def evidence(self) -> str:
        """What the answer was computed from, and how; and what could not be read."""
        table = self.view.table
        said = [
            say(
                Text.SHAPE,
                self.language,
                document=table.label,
                rows=shown(table.rows, self.language),
                columns=len(table.columns),
            ),
            f"{say(Text.COMPUTED, self.language, document=table.label)} `{self.view.sql}`",
        ]
        said += [
            say(Text.LEFT_OUT, self.language, count=column.left_out, column=column.name)
            for column in table.columns
            if column.left_out and column.name in self.view.sql
        ]
        if table.left_out:
            said.append(say(Text.LEFT_OUT, self.language, count=table.left_out, column=table.label))
        return "\n\n".join(said)

    async def made(self, label: str) -> bytes:
        match split_name(label)[1]:
            case "png":
                return await asyncio.to_thread(self._chart)
            case "xlsx":
                return await asyncio.to_thread(self._workbook)
            case "csv":
                return "".join(f"{','.join(map(_csv_cell, row))}\n" for row in self._rows()).encode()
            case "json":
                return json.dumps(self._as_json(), ensure_ascii=False, indent=2).encode()
            case _:
                text = f"# {self.title}\n\n![{self.title}](chart.png)\n\n{self._markdown(_SHOWN_ROWS)}\n\n{self.evidence}\n"
                pictures = {"chart.png": await asyncio.to_thread(self._chart)}
                return await render(text, label, language=self.language, pictures=pictures)

    def _groups(self) -> Groups:
        """Texts in the first column and numbers in a later one: what a chart can show."""
        at = next(
            (
                at
                for at in range(1, len(self.result.columns))
                if all(isinstance(row[at], int | float | None) for row in self.result.rows)
            ),
            None,
        )
        if at is None:
            raise Permanent(say(Text.NO_TABLE, self.language), "validation")
        values = tuple(
            (str(row[0]), float(cast("float", row[at])))
            for row in self.result.rows
            if row[0] is not None and row[at] is not None
        )
        return Groups(self.result.columns[0], self.result.columns[at], values, self.view.is_over_time)

    def _chart(self) -> bytes:
        from clew.apps.chat.agents.charts import draw  # noqa: PLC0415 - matplotlib is slow to import; most rounds draw nothing

        adds_up = any(name in self.view.sql for name in _ADDS_UP)
        groups = fold(self._groups(), _SHOWN_GROUPS, say(Text.OTHERS, self.language), adds_up=adds_up)
        return draw(groups, self.title, kind=self.view.chart, language=self.language)

    def _workbook(self) -> bytes:
        from clew.apps.chat.agents.sheets import workbook  # noqa: PLC0415 - openpyxl is slow to import; most rounds make no workbook

        return workbook([(self.title, self._rows()), (say(Text.COLUMNS, self.language), self._profile())])

    def _rows(self) -> list[Row]:
        return [self.result.columns, *self.result.rows]

    def _as_json(self) -> Json:
        if len(self.result.columns) == 2:
            return {str(name): value for name, value in self.result.rows}
        return [dict(zip(self.result.columns, row, strict=True)) for row in self.result.rows]

    def _profile(self) -> list[Row]:
        names = (Text.COLUMN, Text.KIND, Text.FILLED, Text.DISTINCT)
        rows: list[Row] = [[say(name, self.language) for name in names]]
        rows += [
            [column.name, str(column.kind), column.filled, column.distinct]
            for column in self.view.table.columns
        ]
        return rows

    def _markdown(self, most: int) -> str:
        lines = [f"| {' | '.join(_flat(name) for name in self.result.columns)} |"]
        lines.append(f"|{' --- |' * len(self.result.columns)}")
        lines += [f"| {' | '.join(map(self._cell, row))} |" for row in self.result.rows[:most]]
        return "\n".join(lines)

    def _cell(self, value: str | float | None) -> str:
        if value is None:
            return ""
        return shown(value, self.language) if isinstance(value, int | float) else _flat(value)


def _flat(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:200]


def _csv_cell(value: str | float | None) -> str:
    text = (
        ""
        if value is None
        else f"{value:g}"
        if isinstance(value, float) and value == int(value)
        else str(value)
    )
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text
