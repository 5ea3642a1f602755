"""Translator agent: translates documents. It needs a model."""

from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tasks import label_of, text_of, wanted
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.apps.prompts import prompt
from clew.documents.passages import paragraphs
from clew.domain.errors import Permanent
from clew.texts.phrases import Text, listed, say

# Models shorten long texts, so they get one piece after another.
PIECE_CHARACTERS = 6_000
MAX_PIECES = 60


class Translator:
    name = "translator"
    description = (
        "Translates the text of one document into the language the prompt names. Needs a language model."
        " Makes one document (md, txt, html, docx or pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        if not self._driver.can(Purpose.TRANSLATE):
            raise Permanent(say(Text.NO_TRANSLATION, language), "validation")
        pieces = [piece for document in task["inputDocuments"] for piece in _pieces(text_of(document))]
        pieces = pieces or [task["prompt"]]
        if len(pieces) > MAX_PIECES:
            raise Permanent(f"more than {MAX_PIECES * PIECE_CHARACTERS} characters in one task", "validation")
        translated = [await self._translate(task, piece) for piece in pieces]
        text = "\n\n".join(translated)
        default = f"{_stem(task)}.translated.md"
        made = wanted(task, default)
        return {
            "feedback": say(Text.WROTE, language, documents=listed(made, language)),
            "documents": [
                {"label": label, "content": await render(text, label, language=language)} for label in made
            ],
        }

    async def _translate(self, task: AgentTask, piece: str) -> str:
        reply = await self._driver.ask(
            Inquiry(
                purpose=Purpose.TRANSLATE,
                role=prompt("translator"),
                prompt=task["prompt"],
                language=task["context"]["language"],
                material=(Material(label="text", text=piece),),
            )
        )
        return reply.text.strip()


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for paragraph in paragraphs(text):
        for start in range(0, len(paragraph), PIECE_CHARACTERS):
            part = paragraph[start : start + PIECE_CHARACTERS]
            if pieces and len(pieces[-1]) + len(part) < PIECE_CHARACTERS:
                pieces[-1] += f"\n\n{part}"
            else:
                pieces.append(part)
    return pieces


def _stem(task: AgentTask) -> str:
    return label_of(task["inputDocuments"][0]).rpartition(".")[0] if task["inputDocuments"] else "text"
