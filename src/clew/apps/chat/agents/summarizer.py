"""Summarizer agent: sums documents up in a model's words, or by their most central sentences."""

from clew.apps.chat.agents.rendering.render import render
from clew.apps.chat.agents.tasks import label_of, labels, material, pictures, text_of, wanted
from clew.apps.chat.plan import AgentResult, AgentTask
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose
from clew.apps.prompts import prompt
from clew.domain.errors import Permanent
from clew.texts.phrases import Text, listed, say


class Summarizer:
    name = "summarizer"
    description = (
        "Sums up documents: their text and, with a model that sees, pictures and scanned pages."
        " Makes one document (md, txt, html, docx or pdf)."
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def process_task(self, task: AgentTask) -> AgentResult:
        language = task["context"]["language"]
        shown = material(task) if self._driver.model else _whole(task)
        seen = pictures(task, self._driver)
        if not shown and not seen:
            named = listed(labels(task), language) or "…"
            raise Permanent(say(Text.NOTHING_TO_SUMMARIZE, language, documents=named), "validation")
        reply = await self._driver.ask(
            Inquiry(
                purpose=Purpose.SUMMARIZE,
                role=prompt("summarizer"),
                prompt=task["prompt"],
                language=language,
                material=shown,
                pictures=seen,
            )
        )
        names = [*(one.label for one in shown), *(one.label for one in seen)]
        title = say(Text.SUMMARY_OF, language, documents=listed(names, language))
        text = f"# {title}\n\n{reply.text.strip()}\n"
        return {
            "feedback": f"{title}\n\n{reply.text.strip()}",
            "documents": [
                {"label": label, "content": await render(text, label, language=language)}
                for label in wanted(task, "summary.md")
            ],
        }


def _whole(task: AgentTask) -> tuple[Material, ...]:
    """Rules read the whole text: an important sentence may be at the end."""
    read = [Material(label=label_of(one), text=text_of(one)) for one in task["inputDocuments"]]
    return tuple(one for one in read if one.text)
