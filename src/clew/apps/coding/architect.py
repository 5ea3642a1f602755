"""Architect: reads the code and plans how to solve an issue, before any file is changed."""

from clew.apps.coding.plan import MAX_PLAN, Issue, visible
from clew.apps.coding.ports import Worktree
from clew.apps.coding.reading import consult
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, Workplace
from clew.apps.prompts import prompt
from clew.documents.passages import cut
from clew.domain.thread import Json

MOST_FILES = 2_000


async def design(
    driver: Driver, worktree: Worktree, issue: Issue, *, remark: str, workplace: Workplace
) -> str:
    """The plan in Markdown. It is cut and cleaned of invisible characters before it is shown: the text shown is the whole plan."""
    files = await worktree.files()
    facts: dict[str, Json] = {
        "issue": {"id": issue.id, "title": issue.title},
        "files": list[Json](files[:MOST_FILES]),
        "remark": remark,
    }
    if len(files) > MOST_FILES:
        facts["files that are not listed"] = len(files) - MOST_FILES
    reply = await consult(
        driver,
        worktree,
        Inquiry(
            purpose=Purpose.DESIGN,
            role=prompt("architect"),
            prompt=f"Plan how to solve the issue {issue.id}: {issue.title}",
            material=(Material(label="issue", text=issue.body),),
            facts=facts,
            workplace=workplace,
        ),
    )
    return cut(visible(reply.text).strip(), MAX_PLAN)
