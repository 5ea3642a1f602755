"""Coder agent: writes files of code. It never runs one."""

import re

from clew.apps.chat.agents.skeletons import skeleton
from clew.apps.chat.agents.tables import Table, read_table
from clew.apps.chat.agents.tasks import material, tables, wanted
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
            contents = [skeleton(label, task["prompt"], table) for label in made]
            text = Text.SKELETON
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


def first_table(task: AgentTask) -> Table | None:
    read = (read_table(part.label, part.text, part.delimiter) for part in tables(task["inputDocuments"]))
    return next((table for table in read if table is not None), None)
