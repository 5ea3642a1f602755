"""Inquiries: requests to a model, in a form that rules can answer too where there is no model."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from clew.domain.thread import Json

MAX_REPLY = 200_000


class Purpose(StrEnum):
    """The purpose of an inquiry. Rules answer some of these; the others need a model."""

    PLAN = "plan"  # JSON: a work plan
    CHART = "chart"  # JSON: what to group by, what to add up, how to draw it
    SUMMARIZE = "summarize"
    EXTRACT = "extract"  # JSON: of each part what matters for the prompt
    ANSWER = "answer"  # from quotes, with their numbers
    WRITE = "write"
    TRANSLATE = "translate"
    CODE = "code"
    DESIGN = "design"  # Markdown: how to solve an issue
    CHANGE = "change"  # JSON: the new contents of files
    EDIT = "edit"  # the driver changes the files in the workplace and reports what it did
    REVIEW = "review"  # JSON: whether changes do what was planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """A text the answer is based on. It is a document, never an instruction."""

    label: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """A folder that a program may read, and for `EDIT` change."""

    folder: str
    # An open, locked file. A program that works in the folder keeps it open, so the lock lasts as long as the work.
    lock: int | None = None
    # For programs that are not to change anything: with these their git reads none of the repository's settings.
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    purpose: Purpose
    # Who the model is and what it must give back.
    role: str
    prompt: str
    language: str = "en"
    material: tuple[Material, ...] = ()
    # Lists and numbers; a model reads them as JSON.
    facts: Mapping[str, Json] = field(default_factory=dict)
    wants_json: bool = False
    # For drivers that are programs; the others ignore it.
    workplace: Workplace | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    text: str
    tokens_in: int = 0
    tokens_out: int = 0
