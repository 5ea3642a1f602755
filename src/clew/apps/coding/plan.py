"""Coding values: an issue, the plan for it, the changes, and the review."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from clew.domain.errors import Invalid
from clew.domain.thread import Json

# The graph, and where in a thread's settings its worktree stands. Only a checked start writes there.
CODING = "coding"
WORKTREE = "worktree_path"
# The node whose output names the commit that the work begins at.
ARCHITECT = "architect_node"
# The kind of its reservation: one active workflow a worktree.
WORKTREES = "worktree"

MAX_TITLE = 500
MAX_BODY = 50_000
MAX_PLAN = 20_000
MAX_REMARKS = 10_000
MAX_FILES = 100
MAX_FILE_CHARACTERS = 200_000

_ISSUE_ID = re.compile(r"[A-Za-z0-9#][A-Za-z0-9._/#-]{0,199}")
# Lines, tabs, and the joiners that letters of some scripts need. Others of their kind turn or hide what is beside them.
_SPACES = "\n\t\u200c\u200d"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """An issue as the tracker has it. Untrusted text, never an instruction."""

    id: str
    title: str
    body: str = ""
    url: str = ""

    def as_json(self) -> dict[str, Json]:
        return {"id": self.id, "title": self.title, "body": self.body, "url": self.url}


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs in a worktree from the commit it was compared with. `text` is cut where it is long."""

    files: tuple[str, ...]
    text: str
    # Of everything, also of what `text` leaves out.
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Review:
    approved: bool
    remarks: str


def require_issue_id(issue_id: str | None) -> str:
    """Raises Invalid. What passes is safe in a path of a URL, in a log line and in a file name's place."""
    if issue_id is None:
        raise Invalid("a coding workflow needs the id of an issue", field="issueId")
    if not _ISSUE_ID.fullmatch(issue_id) or ".." in issue_id:
        raise Invalid("expected letters, digits and . _ / # - as in ABC-12 or owner/name#12", field="issueId")
    return issue_id


def issue_of(issue_id: str, text: str) -> Issue:
    """An issue that was given as text: its first line is the title."""
    title, _, body = text.strip().partition("\n")
    return Issue(id=issue_id, title=title.strip()[:MAX_TITLE], body=body.strip()[:MAX_BODY])


def visible(text: str) -> str:
    """Without invisible characters: a model must read the same text as the person who approves it."""
    return "".join(
        character
        for character in text.replace("\r\n", "\n")
        if character in _SPACES or not unicodedata.category(character).startswith("C")
    )


def plan_hash(plan: str) -> str:
    """Hash of a plan: only the plan whose hash was approved runs."""
    return sha256(plan.encode(errors="surrogatepass")).hexdigest()


def require_inside(path: str) -> tuple[str, ...]:
    """The parts of a path that stays inside of a worktree, and out of what is git's. Raises Invalid."""
    parts = path.split("/")
    if (
        not 0 < len(path) <= 500
        or _CONTROLS.search(path)
        or "\\" in path
        or any(part in ("", ".", "..") for part in parts)
        # Also as file systems see it that know no case, or drop dots and spaces at the end.
        or any(part.rstrip(". ").casefold() in (".git", "git~1") for part in parts)
    ):
        raise Invalid("expected a path inside of the worktree, like src/app.py", "files.path")
    return tuple(parts)


def read_review(value: Json) -> Review:
    """Raises Invalid. A rejection must say what is missing, or the developer could not fix it."""
    approved = value.get("approved") if isinstance(value, Mapping) else None
    if not isinstance(approved, bool):
        raise Invalid("expected true or false", "approved")
    remarks = value.get("remarks")
    text = remarks.strip()[:MAX_REMARKS] if isinstance(remarks, str) else ""
    if not approved and not text:
        raise Invalid("expected what is to be changed", "remarks")
    return Review(approved, text)
