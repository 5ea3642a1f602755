"""Tasks for agents, and drivers that say what they were told to."""

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from clew.apps.chat.plan import AgentTask, TaskDocument
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply
from clew.documents.documents import TaskContent

CSV = (
    "region,month,sales\n"
    "North,2024-01,100\nSouth,2024-01,50\nNorth,2024-02,120.5\nEast,2024-02,75\nSouth,2024-03,25\n"
)


def content(nr: int, data: str, kind: str = "text/plain", **metadata: Any) -> TaskContent:
    return {
        "sequenceNr": nr,
        "name": str(metadata.get("sheet", f"part_{nr}")),
        "ext": "txt",
        "contentType": kind,
        "data": data,
        "metadata": {"isText": not kind.startswith("image/"), "base64Encoded": False} | metadata,
        "summary": "",
    }


def document(label: str, *contents: TaskContent, data: bytes = b"") -> TaskDocument:
    name, _, ext = label.rpartition(".")
    return {
        "id": f"doc_{label}",
        "fileId": 1,
        "name": name,
        "ext": ext,
        "data": b64encode(data).decode(),
        "contents": list(contents),
    }


def text(label: str, *pages: str) -> TaskDocument:
    return document(label, *(content(nr, page, page=nr) for nr, page in enumerate(pages, 1)))


def table(label: str, csv: str = CSV, delimiter: str = ",") -> TaskDocument:
    return document(label, content(1, csv, "text/csv", delimiter=delimiter))


def picture(label: str, data: bytes) -> TaskDocument:
    return document(label, content(1, b64encode(data).decode(), "image/png"), data=data)


def task(
    prompt: str, *documents: TaskDocument, outputs: tuple[str, ...] = (), language: str = "en"
) -> AgentTask:
    return {
        "taskId": "t1",
        "workflowId": "w1",
        "prompt": prompt,
        "inputDocuments": list(documents),
        "outputSpecifications": [{"label": label, "description": ""} for label in outputs],
        "context": {
            "workflowRound": 1,
            "agentType": "x",
            "timestamp": "2026-03-01T12:00:00+00:00",
            "language": language,
        },
    }


class ScriptedDriver:
    """A model that answers by a function of what it is asked, and remembers it."""

    name = "scripted"
    model = "scripted-1"

    def __init__(self, answer: Callable[[Inquiry], str | dict[str, Any]]) -> None:
        self.asked: list[Inquiry] = []
        self._answer = answer

    def can(self, purpose: Purpose) -> bool:
        return True

    async def ask(self, inquiry: Inquiry) -> Reply:
        self.asked.append(inquiry)
        said = self._answer(inquiry)
        text = said if isinstance(said, str) else json.dumps(said)
        return Reply(text=text, tokens_in=10, tokens_out=5)
