"""Analyst agent: describes tables, groups and adds up numbers, makes charts and workbooks.

A model, if one is configured, chooses the columns. The figures are always computed here.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tables import (
    Column,
    ColumnKind,
    Groups,
    How,
    Row,
    Table,
    fold,
    group,
    read_table,
    shown,
)
from clew.apps.chat.agents.tasks import tables, wanted
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.replies import json_in
from clew.apps.prompts import prompt
from clew.domain.documents import split_name
from clew.domain.errors import Invalid, Permanent
from clew.domain.thread import Json
from clew.texts.phrases import Text, say

CHARTS = ("auto", "bar", "line", "pie")
_SHOWN_GROUPS = 20
_MAX_TABLES = 20


@dataclass(frozen=True, slots=True)
class TableView:
    """A view of a table: one column added up by another, and how to draw it."""

    table: Table
    by: str
    measure: str | None
    how: How
    chart: str


class Analyst:
    name = "analyst"
    description = (
        "Evaluates tables (csv, xlsx): describes columns, groups and adds up numbers."
        " Makes a chart (png), a workbook (xlsx), a table (csv) or a report (md, html, docx, pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        found = await asyncio.to_thread(_read, task)
        if not found:
            raise Permanent(say(Text.NO_TABLE, language), "validation")
        view = await self._view(task, found)
        groups = await asyncio.to_thread(group, view.table, view.by, view.measure, view.how)
        if not groups.values:
            raise Permanent(say(Text.NO_TABLE, language), "validation")
        sight = Sight(view, groups, language)
        return {
            "feedback": sight.feedback(),
            "documents": [
                {"label": label, "content": await sight.made(label)}
                for label in wanted(task, "chart.png", "table.xlsx")
            ],
        }

    async def _view(self, task: AgentTask, found: Sequence[Table]) -> TableView:
        complaint = ""
        for _ in range(2):
            reply = await self._driver.ask(
                Inquiry(
                    purpose=Purpose.CHART,
                    role=prompt("analyst"),
                    prompt=f"{task['prompt']}{complaint}",
                    language=task["context"]["language"],
                    facts={"tables": [_described(table) for table in found]},
                    wants_json=True,
                )
            )
            try:
                return read_view(json_in(reply.text), found)
            except Invalid as exc:
                complaint = f"\n\nYour last answer could not be used: {exc.field}: {exc}"
        raise Permanent(f"the model chose no existing view of the table{complaint}", "validation")


@dataclass(frozen=True, slots=True)
class Sight:
    """One view of a table, in every form it can be asked for."""

    view: TableView
    groups: Groups
    language: str

    @property
    def title(self) -> str:
        if self.groups.measure is None:
            return say(Text.COUNTED, self.language, group=self.groups.group)
        how = {How.MEAN: Text.AVERAGE, How.MIN: Text.SMALLEST, How.MAX: Text.LARGEST, How.SUM: Text.TOTAL}
        text = how.get(self.groups.how)
        named = say(text, self.language).lower() if text else str(self.groups.how)
        return say(
            Text.GROUPED, self.language, measure=self.groups.measure, group=self.groups.group, how=named
        )

    def feedback(self) -> str:
        table = self.view.table
        shape = say(
            Text.SHAPE, self.language, document=table.label, rows=table.rows, columns=len(table.columns)
        )
        folded = fold(self.groups, _SHOWN_GROUPS, say(Text.OTHERS, self.language))
        return f"{self.title}\n\n{_markdown(self._rows(folded))}\n\n{shape}"

    async def made(self, label: str) -> bytes:
        match split_name(label)[1]:
            case "png":
                return await asyncio.to_thread(self._chart)
            case "xlsx":
                return await asyncio.to_thread(self._workbook)
            case "csv":
                return "".join(
                    f"{_csv_cell(str(a))},{_csv_cell(str(b))}\n" for a, b in self._rows(self.groups)
                ).encode()
            case "json":
                return json.dumps(dict(self.groups.values), ensure_ascii=False, indent=2).encode()
            case _:
                text = f"# {self.title}\n\n![{self.title}](chart.png)\n\n{self.feedback()}\n\n{self._profile_text()}\n"
                pictures = {"chart.png": await asyncio.to_thread(self._chart)}
                return await render(text, label, language=self.language, pictures=pictures)

    def _chart(self) -> bytes:
        from clew.apps.chat.agents.charts import draw  # noqa: PLC0415 - matplotlib is slow to import; most rounds draw nothing

        return draw(
            fold(self.groups, _SHOWN_GROUPS, say(Text.OTHERS, self.language)),
            self.title,
            kind=self.view.chart,
        )

    def _workbook(self) -> bytes:
        from clew.apps.chat.agents.sheets import workbook  # noqa: PLC0415 - openpyxl is slow to import; most rounds make no workbook

        return workbook(
            [(self.title, self._rows(self.groups)), (say(Text.COLUMNS, self.language), self._profile())]
        )

    def _rows(self, groups: Groups) -> list[tuple[str, str | float]]:
        measure = groups.measure or say(Text.TOTAL, self.language)
        return [(groups.group, measure), *groups.values]

    def _profile(self) -> list[Row]:
        names = (
            Text.COLUMN,
            Text.KIND,
            Text.FILLED,
            Text.DISTINCT,
            Text.SMALLEST,
            Text.LARGEST,
            Text.AVERAGE,
            Text.TOTAL,
        )
        return [
            [say(name, self.language) for name in names],
            *(_profile_of(c) for c in self.view.table.columns),
        ]

    def _profile_text(self) -> str:
        header, *rows = self._profile()
        lines = [f"| {' | '.join(map(str, header))} |", f"|{' --- |' * len(header)}"]
        lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
        return f"## {say(Text.COLUMNS, self.language)}\n\n" + "\n".join(lines)


def read_view(value: Json, found: Sequence[Table]) -> TableView:
    """The view that a model or a rule chose. Raises Invalid if it does not exist."""
    if not isinstance(value, Mapping):
        raise Invalid("expected an object", "view")
    labelled = {table.label: table for table in found}
    table = labelled.get(value.get("table") or found[0].label)
    if table is None:
        raise Invalid(f"expected one of {', '.join(labelled)}", "table")
    columns = {column.name: column for column in table.columns}
    by, measure = value.get("groupBy"), value.get("measure") or None
    if by not in columns:
        raise Invalid(f"expected one of {', '.join(columns)}", "groupBy")
    how = value.get("aggregate") or (How.SUM if measure else How.COUNT)
    if how not in set(How):
        raise Invalid(f"expected one of {', '.join(How)}", "aggregate")
    if measure is not None and (measure not in columns or columns[measure].kind is not ColumnKind.NUMBER):
        numbers = [name for name, column in columns.items() if column.kind is ColumnKind.NUMBER]
        raise Invalid(f"expected one of {', '.join(numbers) or 'none: there are no numbers'}", "measure")
    chart = value.get("chart") or "auto"
    return TableView(
        table, by, measure, How(how) if measure else How.COUNT, chart if chart in CHARTS else "auto"
    )


def _read(task: AgentTask) -> list[Table]:
    parts = list(tables(task["inputDocuments"]))[:_MAX_TABLES]
    several = Counter(part.label for part in parts)
    found: list[Table] = []
    for part in parts:
        label = part.label if several[part.label] == 1 else f"{part.label}: {part.content['name']}"
        table = read_table(label, part.text, part.delimiter)
        if table is not None:
            _ = [column.kind for column in table.columns]  # computed here, outside of the event loop
            found.append(table)
    return found


def _described(table: Table) -> dict[str, Json]:
    return {
        "label": table.label,
        "rows": table.rows,
        "columns": [
            {
                "name": column.name,
                "kind": str(column.kind),
                "distinct": column.distinct,
                "common": column.common,
            }
            for column in table.columns
        ],
    }


def _profile_of(column: Column) -> Row:
    described: list[str | float | int] = [column.name, str(column.kind), len(column.filled), column.distinct]
    numbers = column.known_numbers
    if column.kind is ColumnKind.NUMBER and numbers:
        return [*described, min(numbers), max(numbers), sum(numbers) / len(numbers), sum(numbers)]
    return [*described, min(column.filled, default=""), max(column.filled, default=""), "", ""]


def _markdown(rows: Sequence[tuple[str, str | float]]) -> str:
    (group_name, measure), *values = rows
    lines = [f"| {_cell(group_name)} | {_cell(measure)} |", "| --- | --- |"]
    return "\n".join([*lines, *(f"| {_cell(name)} | {_cell(value)} |" for name, value in values)])


def _cell(value: str | float) -> str:
    return shown(value) if isinstance(value, int | float) else " ".join(value.replace("|", "/").split())[:120]


def _csv_cell(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text
