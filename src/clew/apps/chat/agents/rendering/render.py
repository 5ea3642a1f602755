"""Rendering: a document in the format of its label's extension."""

import asyncio
from collections.abc import Mapping

from clew.apps.chat.agents.rendering.blocks import Heading, parse, plain
from clew.domain.documents import split_name
from clew.domain.errors import Permanent

FORMATS = ("md", "txt", "html", "docx", "pdf")


async def render(
    markdown: str, label: str, *, language: str, pictures: Mapping[str, bytes] | None = None
) -> bytes:
    """The bytes of a document, made in a thread because layout is slow. Raises Permanent for other formats."""
    return await asyncio.to_thread(_render, markdown, label, language, pictures or {})


def _render(markdown: str, label: str, language: str, pictures: Mapping[str, bytes]) -> bytes:
    stem, extension = split_name(label)
    if extension in ("md", "markdown", "txt"):
        return markdown.encode(errors="replace")
    blocks = parse(markdown)
    title = next((plain(block.runs) for block in blocks if isinstance(block, Heading)), stem)
    # Imported here: together they take half a second, and most rounds need none or one of them.
    match extension:
        case "html" | "htm":
            from clew.apps.chat.agents.rendering.html import to_html  # noqa: PLC0415 - see above

            return to_html(blocks, pictures, title=title, language=language)
        case "docx":
            from clew.apps.chat.agents.rendering.docx import to_docx  # noqa: PLC0415 - see above

            return to_docx(blocks, pictures, title=title, language=language)
        case "pdf":
            from clew.apps.chat.agents.rendering.pdf import to_pdf  # noqa: PLC0415 - see above

            return to_pdf(blocks, pictures, title=title, language=language)
        case _:
            raise Permanent(
                f"a text cannot be written as .{extension}; there are {', '.join(FORMATS)}", "validation"
            )
