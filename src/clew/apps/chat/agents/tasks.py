"""Task inputs: the texts, tables and pictures among a task's documents."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clew.apps.chat.plan import AgentTask, TaskDocument
from clew.apps.drivers.inquiries import Material
from clew.documents.documents import TaskContent
from clew.documents.passages import cut

TABLES = frozenset({"text/csv", "text/tab-separated-values"})
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# How much of all documents together a model gets: some 15,000 tokens.
SHOWN_CHARACTERS = 60_000


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a document that has a place of its own: a page, a slide, a sheet, or all of it."""

    label: str
    content: TaskContent

    @property
    def text(self) -> str:
        return self.content["data"]

    @property
    def delimiter(self) -> str:
        return str(self.content["metadata"].get("delimiter", ","))

    @property
    def place(self) -> tuple[str, int | str] | None:
        """`("page", 3)`; None for a document of one piece."""
        for kind in ("page", "slide", "sheet"):
            if (place := self.content["metadata"].get(kind)) is not None:
                return kind, place
        return None


def label_of(document: TaskDocument) -> str:
    return f"{document['name']}.{document['ext']}" if document["ext"] else document["name"]


def labels(task: AgentTask) -> list[str]:
    return [label_of(document) for document in task["inputDocuments"]]


def wanted(task: AgentTask, *default: str) -> list[str]:
    """The labels of the documents to make."""
    return [output["label"] for output in task["outputSpecifications"]] or list(default)


def texts(document: TaskDocument) -> list[Part]:
    """The readable items of a document. Tables only if there is no text: a text already contains them."""
    parts = [
        Part(label_of(document), content)
        for content in document["contents"]
        if content["metadata"].get("isText") and content["data"].strip()
    ]
    prose = [part for part in parts if part.content["contentType"] not in TABLES]
    return prose or parts


def text_of(document: TaskDocument) -> str:
    return "\n\n".join(part.text for part in texts(document))


def tables(documents: Sequence[TaskDocument]) -> Iterator[Part]:
    for document in documents:
        for content in document["contents"]:
            if content["contentType"] in TABLES and content["data"].strip():
                yield Part(label_of(document), content)


def is_table(document: TaskDocument) -> bool:
    """Whether a document is a table, rather than a text with tables in it."""
    readable = [c["contentType"] for c in document["contents"] if c["metadata"].get("isText")]
    return bool(readable) and all(kind in TABLES for kind in readable)


def picture(document: TaskDocument) -> bytes | None:
    """The bytes of a document that is one picture."""
    for content in document["contents"]:
        if content["contentType"] in PICTURES and len(document["contents"]) == 1:
            return b64decode(document["data"])
    return None


def material(task: AgentTask, *, limit: int = SHOWN_CHARACTERS) -> tuple[Material, ...]:
    """The texts of a task's documents as a model gets them, each with an equal share of the size limit.

    A document too long for its share is replaced by the parts that matter for this task.
    """
    readable = [(label_of(document), document, text_of(document)) for document in task["inputDocuments"]]
    readable = [one for one in readable if one[2]]
    share = limit // max(1, len(readable))
    return tuple(
        Material(label=label, text=text if len(text) <= share else cut(_extracted(document) or text, share))
        for label, document, text in readable
    )


def _extracted(document: TaskDocument) -> str:
    return "\n\n".join(
        extracted for part in texts(document) if (extracted := part.content.get("dataExtracted", ""))
    )
