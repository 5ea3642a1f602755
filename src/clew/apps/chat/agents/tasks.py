"""Task inputs: the texts, tables and pictures among a task's documents."""

from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from clew.apps.chat.plan import AgentTask, TaskDocument
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Material, Purpose, ShownPicture
from clew.documents.documents import OCR, TaskContent
from clew.documents.passages import cut

TABLES = frozenset({"text/csv", "text/tab-separated-values"})
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
# How much of all documents together a model gets: some 15,000 tokens.
SHOWN_CHARACTERS = 60_000
# How many pictures a model gets, and how large one may be, as most providers allow.
SHOWN_PICTURES = 10
_PICTURE_BYTES = 3_500_000
_PICTURE_PIXELS = 2000


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
    contents = [content for content in document["contents"] if not content["metadata"].get(OCR)]
    for content in contents:
        if content["contentType"] in PICTURES and len(contents) == 1:
            return b64decode(document["data"])
    return None


def pictures(task: AgentTask, driver: Driver) -> tuple[ShownPicture, ...]:
    """The pictures of a task for a model that sees: files that are pictures, and pages without text."""
    if not driver.can(Purpose.SEE):
        return ()
    found = [one for document in task["inputDocuments"] for one in _pictures(document)]
    return tuple(_fitting(one) for one in found[:SHOWN_PICTURES])


def _pictures(document: TaskDocument) -> Iterator[ShownPicture]:
    contents, label = document["contents"], label_of(document)
    written = {
        content["metadata"].get("page")
        for content in contents
        if content["metadata"].get("isText") and content["data"].strip() and not content["metadata"].get(OCR)
    }
    for content in contents:
        page = content["metadata"].get("page") or _page_in(content["name"])
        if content["contentType"] not in PICTURES or (page in written if page else written):
            continue
        place = label if page is None else f"{label}, page {page}"
        data = b64decode(document["data"] if len(contents) == 1 else content["data"])
        yield ShownPicture(label=place, mime=content["contentType"], data=data)


def _page_in(name: str) -> int | None:
    """Of `page_3_image_1`, as extraction names the pictures of a page."""
    kind, _, rest = name.partition("_")
    number = rest.partition("_")[0]
    return int(number) if kind == "page" and number.isdigit() else None


def _fitting(one: ShownPicture) -> ShownPicture:
    if len(one.data) <= _PICTURE_BYTES:
        return one
    from PIL import Image  # noqa: PLC0415 - few tasks need it

    with Image.open(BytesIO(one.data)) as image:
        image.draft("RGB", (_PICTURE_PIXELS, _PICTURE_PIXELS))
        small = image.convert("RGB")
    small.thumbnail((_PICTURE_PIXELS, _PICTURE_PIXELS))
    out = BytesIO()
    small.save(out, "JPEG", quality=85)
    return ShownPicture(label=one.label, mime="image/jpeg", data=out.getvalue())


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
