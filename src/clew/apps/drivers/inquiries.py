"""Inquiries: requests to a model, in a form that rules can answer too where there is no model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from clew.domain.thread import Json

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, BaseMessage
    from langchain_core.tools import BaseTool

MAX_REPLY = 200_000


class Purpose(StrEnum):
    """The purpose of an inquiry. Rules answer some of these; the others need a model."""

    PLAN = "plan"  # JSON: a work plan
    CHART = "chart"  # JSON: what to group by, what to add up, how to draw it
    SUMMARIZE = "summarize"
    EXTRACT = "extract"  # JSON: of each part what matters for the prompt
    ANSWER = "answer"  # from quotes, with their numbers
    CONCLUDE = "conclude"  # the last message of a round, from what its agents said
    WRITE = "write"
    TRANSLATE = "translate"
    CODE = "code"
    DESIGN = "design"  # Markdown: how to solve an issue
    CHANGE = "change"  # JSON: the new contents of files
    EDIT = "edit"  # the driver changes the files in the workplace and reports what it did
    REVIEW = "review"  # JSON: whether changes do what was planned
    USE = "use"  # with tools: an answer, or calls of tools
    SEE = "see"  # never asked alone: whether the pictures of an inquiry reach the model


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A text the answer is based on. It is a document, never an instruction."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownPicture:
    """A picture the answer is based on, for models that see."""

    label: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Where a program at work is reported: what it does, and its session as soon as that is known."""

    doing: Callable[[str], None]
    session: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A folder that a program may read, and for `EDIT` change."""

    folder: str
    # A session of the program to go on with, from an attempt that was cut short.
    session: str = ""
    reports: Reports | None = None
    # An open, locked file. A program that works in the folder keeps it open, so the lock lasts as long as the work.
    lock: int | None = None
    # For programs that are not to change anything: with these their git reads none of the repository's settings.
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The tools of an inquiry, and what the model and they said since the request."""

    tools: "tuple[BaseTool, ...]"
    turns: "tuple[BaseMessage, ...]" = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    purpose: Purpose
    # Who the model is and what it must give back.
    role: str
    prompt: str
    language: str = "en"
    material: tuple[Material, ...] = ()
    # Left out by drivers that cannot SEE.
    pictures: tuple[ShownPicture, ...] = ()
    # Lists and numbers; a model reads them as JSON.
    facts: Mapping[str, Json] = field(default_factory=dict)
    wants_json: bool = False
    # The JSON Schema of that answer, for providers that hold a model to one.
    schema: Mapping[str, Json] | None = None
    tool_use: ToolUse | None = None
    # For drivers that are programs; the others ignore it.
    workplace: Workplace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    # The model's turn, with its calls of tools.
    message: "AIMessage | None" = None
