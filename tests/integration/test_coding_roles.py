"""What the roles make of odd answers, on a real worktree; and that nothing runs but the plan that was shown."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from clew.apps.coding.architect import design
from clew.apps.coding.developer import Task, develop
from clew.apps.coding.graph import human_approval_node
from clew.apps.coding.plan import MAX_PLAN, Changes, Issue, plan_hash
from clew.apps.coding.ports import Edits
from clew.apps.coding.reviewer import NOTHING, review
from clew.apps.coding.worktrees.git import GitWorktree, GitWorktrees
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reply, Workplace
from clew.domain.errors import Permanent
from clew.domain.events import Body, Event, Resolution, Suspension
from clew.domain.thread import Executor, SuspensionKind, Thread
from clew.graph.run import running
from clew.ports.run_context import RunContext
from tests.repositories import repository
from tests.samples import NOW, opened

pytestmark = pytest.mark.anyio

ISSUE = Issue(id="A-1", title="Fix it", body="It is broken.")
UNCHANGED = Changes((), "", "")
CHANGED = Changes(("a.txt",), "+a", "1")


@dataclass
class Scripted:
    """Answers as it was told to, and remembers what it was asked."""

    answers: list[str]
    asked: list[Inquiry] = field(default_factory=list)
    name = "scripted"
    model = "scripted"

    def can(self, purpose: Purpose) -> bool:
        return purpose is not Purpose.EDIT

    async def ask(self, inquiry: Inquiry) -> Reply:
        self.asked.append(inquiry)
        return Reply(text=self.answers.pop(0))


@pytest.fixture
async def worktree(tmp_path: Path) -> GitWorktree:
    environment = {"PATH": os.environ["PATH"]}  # noqa: TID251 - a child's
    return await GitWorktrees((), environment).find(str(repository(tmp_path / "shop")))


def files(*named: tuple[str, str]) -> str:
    return json.dumps({"files": [{"path": path, "content": text} for path, text in named], "summary": "done"})


async def developed(worktree: GitWorktree, driver: Scripted, **more: Any) -> str:
    task = Task(issue=ISSUE, plan="Change README.md.", **{"changes": UNCHANGED, **more})
    return await develop(driver, worktree, task, Workplace(folder=worktree.path))


class TestDeveloper:
    async def test_what_a_model_says_is_written(self, worktree: GitWorktree) -> None:
        driver = Scripted([f"Sure:\n```json\n{files(('README.md', 'new'), ('src/a.py', 'x = 1'))}\n```"])
        assert await developed(worktree, driver) == "done"
        assert (worktree.folder / "README.md").read_text() == "new"
        assert (worktree.folder / "src/a.py").read_text() == "x = 1"

    async def test_it_is_shown_the_files_that_the_plan_names(self, worktree: GitWorktree) -> None:
        await worktree.apply(Edits(write={"other.md": "not named"}))
        driver = Scripted([files(("a", "b"))])
        await developed(worktree, driver)
        material = {one.label: one.text for one in driver.asked[0].material}
        assert material["README.md"] == "# Sample\n"
        assert "other.md" not in material

    @pytest.mark.parametrize(
        "bad",
        [
            "no JSON",
            "{}",
            files(("../out", "x")),
            files((".git/hooks/pre-commit", "x")),
            files(("link/x", "y")),
        ],
    )
    async def test_what_cannot_be_written_is_asked_for_once_more(
        self, tmp_path: Path, worktree: GitWorktree, bad: str
    ) -> None:
        (tmp_path / "elsewhere").mkdir()
        (worktree.folder / "link").symlink_to(tmp_path / "elsewhere")
        driver = Scripted([bad, files(("a.txt", "a"))])
        await developed(worktree, driver)
        assert "could not be carried out" in driver.asked[1].facts["complaint"]
        assert (worktree.folder / "a.txt").exists()
        with pytest.raises(Permanent):
            await developed(worktree, Scripted([bad, bad]))
        assert list((tmp_path / "elsewhere").iterdir()) == []
        assert not (tmp_path / "out").exists()

    async def test_it_is_told_of_an_earlier_attempt_and_of_the_review(self, worktree: GitWorktree) -> None:
        driver = Scripted([files(("a", "b"))] * 2)
        await developed(worktree, driver)
        await developed(worktree, driver, changes=CHANGED, remarks="more tests", is_repeated=True)
        first, second = driver.asked
        assert "begun before" not in first.facts
        assert "cut short" in second.facts["begun before"]
        assert {one.label: one.text for one in second.material}["review"] == "more tests"
        assert second.facts["changed already"] == ["a.txt"]


class TestReviewer:
    async def said(self, driver: Scripted, changes: Changes = CHANGED) -> Any:
        return await review(
            driver, ISSUE, "the plan", changes, changed_before=(), workplace=Workplace(folder="/")
        )

    async def test_nothing_changed_is_no_work_whatever_anybody_says(self) -> None:
        driver = Scripted([])
        said = await self.said(driver, UNCHANGED)
        assert (said.approved, said.remarks) == (False, NOTHING)
        assert driver.asked == []

    async def test_what_is_neither_yes_nor_no_is_asked_once_more_and_is_never_a_yes(self) -> None:
        assert (await self.said(Scripted(["hm", '{"approved": true}']))).approved
        with pytest.raises(Permanent):
            await self.said(Scripted(["LGTM", '{"approved": "true"}']))


async def test_a_plan_is_cut_before_anybody_sees_it(worktree: GitWorktree) -> None:
    plan = await design(Scripted(["x" * 50_000]), worktree, ISSUE, remark="", workplace=Workplace(folder="/"))
    assert len(plan) <= MAX_PLAN


@dataclass
class Remembered:
    """As much of a run as the gate looks at."""

    events: Sequence[Event]
    thread: Thread = field(default_factory=lambda: replace(opened().thread, round=2))

    async def transcript(self) -> tuple[None, Sequence[Event]]:
        return None, self.events


def event(seq: int, body: Body, number: int = 2) -> Event:
    return Event(thread_id="t", seq=seq, id=str(seq), round=number, at=NOW, body=body)


def asked(plan: str, seq: int = 1) -> Event:
    prompt = {"before": ["human_approval_node"], "plan": plan, "plan_hash": plan_hash(plan)}
    return event(
        seq,
        Suspension(
            call_id=f"gate_{seq}", executor=Executor.HUMAN, kind=SuspensionKind.APPROVAL, prompt=prompt
        ),
    )


def shown(plan: str) -> dict[str, str]:
    return {"plan": plan, "plan_hash": plan_hash(plan)}


def answered(gate: int, *, yes: bool = True, number: int = 2, plan: str = "") -> Event:
    answer = {"approved": yes} | ({"plan": plan} if plan else {})
    return event(10 + gate, Resolution(call_id=f"gate_{gate}", outcome="answered", answer=answer), number)


class TestTheGate:
    async def passed(self, plan: str, *events: Event, approved: bool | None = True) -> Any:
        with running(cast(RunContext, Remembered(events))):
            return await human_approval_node({"plan": plan, "human_approved": approved})

    async def test_the_plan_that_was_shown_last_and_approved_may_run(self) -> None:
        events = (asked("a"), answered(1), asked("b", 2), answered(2))
        assert await self.passed("b", *events) == {"human_approved": True, "comment": "", **shown("b")}

    async def test_a_plan_that_was_changed_with_the_approval_runs_in_place_of_the_shown_one(self) -> None:
        events = (asked("a"), answered(1, plan="better"))
        assert await self.passed("a", *events) == {"human_approved": True, "comment": "", **shown("better")}
        # As after a crash: the state has the new plan already.
        assert await self.passed("better", *events) == {
            "human_approved": True,
            "comment": "",
            **shown("better"),
        }

    @pytest.mark.parametrize(
        "events",
        [
            (),
            (asked("a"), answered(1)),
            (asked("b"), answered(1), asked("a", 2), answered(2)),
            (asked("b"), answered(1), asked("b", 2)),
            (asked("b"), answered(1, yes=False)),
            (asked("b"), answered(1, number=1)),
        ],
        ids=["nothing", "another", "shown before another", "not answered", "refused", "another round"],
    )
    async def test_any_other_does_not(self, events: tuple[Event, ...]) -> None:
        with pytest.raises(Permanent, match="not the one that was approved"):
            await self.passed("b", *events)

    @pytest.mark.parametrize("approved", [False, None])
    async def test_no_and_silence_are_no(self, approved: bool | None) -> None:
        assert await self.passed("a", asked("a"), approved=approved) == {
            "human_approved": False,
            "comment": "",
        }
