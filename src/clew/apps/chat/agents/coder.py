"""Coder agent: writes files of code. It never runs one."""

import re

from clew.apps.chat.agents.skeletons import SUMS, skeleton
from clew.apps.chat.agents.tables import Table, read_table
from clew.apps.chat.agents.tasks import material, tables, wanted
from clew.apps.chat.offline.questions import ColumnFacts, TableFacts, Unsure, read_question
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.prompts import prompt
from clew.domain.documents import split_name
from clew.domain.errors import Permanent
from clew.texts.phrases import Text, listed, say

_BINARY = frozenset({"docx", "pdf", "xlsx", "pptx", "png", "jpg", "jpeg", "gif", "zip", "exe"})
_FENCED = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)


class Coder:
    name = "coder"
    description = (
        "Writes source code or other text files (py, js, sql, sh, json, yaml, ...). Does not run them."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        made = wanted(task, "main.py")
        for label in made:
            if split_name(label)[1] in _BINARY:
                raise Permanent(f"{label} is not a text file", "validation")
        if self._driver.can(Purpose.CODE):
            contents = [await self._written(task, label) for label in made]
            text = Text.WROTE
        else:
            table = first_table(task)
            wish = computation(task["prompt"], table, language) if table else None
            contents = [skeleton(label, task["prompt"], table, wish) for label in made]
            does_it = wish is not None and all(split_name(label)[1] == "py" for label in made)
            text = Text.WROTE if does_it else Text.SKELETON
        return {
            "feedback": say(text, language, documents=listed(made, language)),
            "documents": [
                {"label": label, "content": content} for label, content in zip(made, contents, strict=True)
            ],
        }

    async def _written(self, task: AgentTask, label: str) -> str:
        reply = await self._driver.ask(
            Inquiry(
                purpose=Purpose.CODE,
                role=prompt("coder"),
                prompt=task["prompt"],
                language=task["context"]["language"],
                material=material(task),
                facts={"file": label, "files": wanted(task, label)},
            )
        )
        fenced = _FENCED.findall(reply.text)
        return (max(fenced, key=len) if fenced else reply.text).strip() + "\n"


def computation(prompt: str, table: Table, language: str) -> tuple[str, str] | None:
    """How one column is added up, if that is all that the prompt asks for."""
    columns = tuple(ColumnFacts(one.name, str(one.kind), len(set(one.filled))) for one in table.columns)
    try:
        asked = read_question(prompt, TableFacts(table.label, table.all_rows, columns), language)
    except Unsure:
        return None
    others = asked.filters or asked.dims or asked.period or asked.order or asked.is_share or asked.is_sorted
    if others or len(asked.measures) != 1 or asked.aggregate not in SUMS:
        return None
    return asked.aggregate, asked.measures[0].name


def first_table(task: AgentTask) -> Table | None:
    read = (read_table(part.label, part.text, part.delimiter) for part in tables(task["inputDocuments"]))
    return next((table for table in read if table is not None), None)
