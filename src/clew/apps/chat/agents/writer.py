"""Writer agent: writes a model's text, or the contents of a task's documents, as md, txt, html, docx or pdf."""

from clew.apps.chat.agents.rendering.blocks import Picture, parse
from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tables import read_table
from clew.apps.chat.agents.tasks import (
    is_table,
    label_of,
    material,
    picture,
    pictures,
    tables,
    text_of,
    wanted,
)
from clew.apps.chat.plan import AgentResult, AgentTask, TaskDocument
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.prompts import prompt
from clew.documents.passages import cut
from clew.documents.tables.cells import shown
from clew.domain.documents import split_name
from clew.texts.phrases import Text, listed, say

_ROWS = 30
_DECIMALS = 4
_TEXT_CHARACTERS = 200_000


class Writer:
    name = "writer"
    description = (
        "Writes a document (md, txt, html, docx or pdf) from a prompt and from other documents:"
        " texts, tables, and pictures, which it places in the document."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        made = wanted(task, "report.docx")
        placeable = {
            label_of(one): data for one in task["inputDocuments"] if (data := picture(one)) is not None
        }
        text = (
            await self._written(task, list(placeable))
            if self._driver.can(Purpose.WRITE)
            else compose(task, made[0])
        )
        placed = {block.label for block in parse(text) if isinstance(block, Picture)}
        if left := [label for label in placeable if label not in placed]:
            shown_pictures = "\n\n".join(f"![{_title(split_name(label)[0])}](<{label}>)" for label in left)
            text = f"{text}\n\n## {say(Text.FIGURES, language)}\n\n{shown_pictures}\n"
        return {
            "feedback": say(Text.WROTE, language, documents=listed(made, language)),
            "documents": [
                {"label": label, "content": await render(text, label, language=language, pictures=placeable)}
                for label in made
            ],
        }

    async def _written(self, task: AgentTask, placeable: list[str]) -> str:
        reply = await self._driver.ask(
            Inquiry(
                purpose=Purpose.WRITE,
                role=prompt("writer"),
                prompt=task["prompt"],
                language=task["context"]["language"],
                material=material(task),
                pictures=pictures(task, self._driver),
                facts={
                    "pictures": placeable,
                    "document": [dict(output) for output in task["outputSpecifications"]],
                },
            )
        )
        return reply.text.strip()


def compose(task: AgentTask, label: str) -> str:
    """The contents of the documents, one after another, as Markdown."""
    sections = [section for document in task["inputDocuments"] if (section := _section(document))]
    if not sections:
        sections = [task["prompt"]]
    return "\n\n".join([f"# {_title(split_name(label)[0])}", *sections]) + "\n"


def _section(document: TaskDocument) -> str:
    label = label_of(document)
    if picture(document) is not None:
        return f"![{_title(document['name'])}](<{label}>)"
    if is_table(document):
        return _tables(document)
    text = cut(text_of(document).strip(), _TEXT_CHARACTERS)
    if text.startswith("#"):
        # One level down: the new document has a title of its own.
        return "\n".join(f"#{line}" if line.startswith("#") else line for line in text.splitlines())
    return f"## {_title(document['name'])}\n\n{text}" if text else ""


def _tables(document: TaskDocument) -> str:
    """The first rows of its first sheet, with numbers as people write them."""
    for part in tables([document]):
        table = read_table(part.label, part.text, part.delimiter)
        if table is None:
            continue
        rows = [
            [column.name for column in table.columns],
            *(
                [_cell(column.cells[at], column.numbers[at]) for column in table.columns]
                for at in range(min(_ROWS, table.rows))
            ),
        ]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, f"|{' --- |' * len(rows[0])}")
        left = table.all_rows - _ROWS
        title = _title(str(part.content["metadata"].get("sheet") or document["name"]))
        return f"## {title}\n\n" + "\n".join(lines) + (f"\n\n… (+{left})" if left > 0 else "")
    return ""


def _title(name: str) -> str:
    plain = name.replace("_", " ").strip()
    return f"{plain[:1].upper()}{plain[1:]}"


def _cell(text: str, number: float | None) -> str:
    """As it stands there, but without the endless decimals of a computed number."""
    if number is not None and len(text.rpartition(".")[2]) > _DECIMALS and "." in text:
        return shown(number)
    return " ".join(text.replace("|", "/").split())[:200]
