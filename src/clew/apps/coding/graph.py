"""Coding graph: an issue becomes a plan, a person approves it, and it is carried out in a worktree.

    architect_node -> human_approval_node -> developer_node [-> tests_approval_node -> tests_node] -> reviewer_node
        -> [publish_approval_node -> publish_node]

The reviewer may send it back to the developer. The nodes in brackets run where the profile asks for them.

The graph stops before `human_approval_node`. What is asked there is the plan itself, and nothing runs but a plan that
was shown and approved, or changed with the approval, as the log has it. The same holds for what is published.

Files cannot be rolled back with a transaction. So a step that changes them logs its start before it changes any.
A worker that repeats it after a crash finds that line, ends programs the crash left running, starts from what is in the
worktree, and tells the developer so. The reviewer always sees all that differs from the commit the work began at.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypedDict

from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

from clew.apps.coding import publishing, record, reviewer
from clew.apps.coding.architect import design
from clew.apps.coding.checks import result_of, run_checks
from clew.apps.coding.developer import Task, develop
from clew.apps.coding.plan import ARCHITECT, WORKTREE, plan_hash
from clew.apps.coding.ports import TreeChanged, Worktree, Worktrees
from clew.apps.coding.publishing import Publisher
from clew.apps.coding.record import line
from clew.apps.drivers.asking import open_session, run_of_thread
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Purpose, Reports, Workplace
from clew.apps.drivers.session import DriverSession, SingleAttempt
from clew.domain.errors import Invalid, Permanent
from clew.domain.events import AssistantMessage
from clew.domain.profile import Budget, CheckCommand
from clew.domain.retry import ErrorClass, RetryPolicy
from clew.domain.thread import Json, Thread
from clew.domain.tool_calls import is_yes
from clew.failpoints import failpoint
from clew.graph.stream import clew_message
from clew.ports.run_context import RunContext

GATE = "human_approval_node"
# The keys of the state that the approving person sees.
SHOWN = ("issue_id", "worktree_path", "plan", "plan_hash")

_MOST_LISTED = 200
# Lines of progress that one step of a program may add to the log.
_MOST_DOINGS = 200


class CodingState(TypedDict, total=False):
    # A node's messages: dropped at the next step, because the log has all of them.
    messages: Annotated[list[Any], EphemeralValue]
    issue_id: str
    worktree_path: str
    worktree_name: str
    profile: str
    issue: dict[str, Json]
    remark: str  # a person's prompt of a new round, on a rejected plan
    base: str  # the commit all changes are compared with
    changed_before: list[str]
    plan: str
    plan_hash: str
    human_approved: bool | None
    comment: str  # the comment of the person who approved the plan
    summary: str
    changed_files: list[str]
    tests_approved: bool
    tests: dict[str, Json]  # the last run of the tests
    reviews: int
    review: dict[str, Json]
    publish_approved: bool
    published: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    worktrees: Worktrees
    driver: Callable[[Thread], Driver]
    policy: Callable[[Thread], RetryPolicy]
    budget: Callable[[Thread], Budget | None] = lambda _: None
    review_rounds: int = 3
    # The tests that the thread's profile names, and the variables they are started with.
    checks: Callable[[Thread], CheckCommand | None] = lambda _: None
    check_variables: Mapping[str, str] = field(default_factory=dict)
    # What the thread's profile publishes, for a worktree.
    publisher: Callable[[Thread, Worktree], AbstractAsyncContextManager[Publisher]] | None = None
    publishes: Callable[[Thread], bool] = lambda _: False

    def graph(self) -> CompiledStateGraph[CodingState, None, CodingState, CodingState]:
        graph = StateGraph(CodingState)
        graph.add_node(ARCHITECT, self.architect_node)
        graph.add_node(GATE, human_approval_node)
        graph.add_node("developer_node", self.developer_node)
        graph.add_node("tests_approval_node", self.tests_approval_node)
        graph.add_node("tests_node", self.tests_node)
        graph.add_node("reviewer_node", self.reviewer_node)
        graph.add_node(publishing.GATE, self.publish_approval_node)
        graph.add_node(publishing.NODE, self.publish_node)
        graph.add_edge(START, ARCHITECT)
        graph.add_edge(ARCHITECT, GATE)
        graph.add_conditional_edges(GATE, _after_gate, ["developer_node", END])
        graph.add_conditional_edges(
            "developer_node", self._after_developer, ["tests_approval_node", "tests_node", "reviewer_node"]
        )
        graph.add_conditional_edges("tests_approval_node", _after_tests_gate, ["tests_node", END])
        graph.add_edge("tests_node", "reviewer_node")
        graph.add_conditional_edges(
            "reviewer_node", self._after_review, ["developer_node", publishing.GATE, END]
        )
        graph.add_conditional_edges(publishing.GATE, _after_publish_gate, [publishing.NODE, END])
        graph.add_conditional_edges(publishing.NODE, _after_publish, [publishing.GATE, END])
        return graph.compile(interrupt_before=[GATE])

    async def architect_node(self, state: CodingState) -> CodingState:
        """Plan. This step changes no files, and checks that none changed."""
        run = run_of_thread()
        issue = await record.issue_of_thread(run, state.get("issue"))
        await run.record(line("Planning", 10, "architect", f"plan/{run.thread.round}"))
        async with self._at_work(run, "architect") as (worktree, here), _reading(worktree, here) as workplace:
            base = await worktree.base()
            session = self._session(run)
            before = await worktree.changes(base)
            if before.files and self.publishes(run.thread) and not await record.is_begun(run):
                raise Permanent(
                    "the worktree has changes of its own, and this profile publishes what is there: commit or stash them"
                    f" first: {', '.join(before.files[:5])}",
                    ErrorClass.VALIDATION,
                )
            plan = await design(session, worktree, issue, remark=state.get("remark", ""), workplace=workplace)
            await _require_untouched(session, worktree, base, before.fingerprint, "plan")
        return {
            "base": base,
            "changed_before": list(before.files[:_MOST_LISTED]),
            "plan": plan,
            "plan_hash": plan_hash(plan),
            # Of a round before this one.
            "comment": "",
            "summary": "",
            "changed_files": [],
            "tests": {},
            "reviews": 0,
            "review": {},
            "published": {},
            "messages": [_message(run, "plan", plan, "architect", session)],
        }

    async def developer_node(self, state: CodingState) -> CodingState:
        """Change the files: once, or after a crash again, from what is there."""
        run = run_of_thread()
        approval = await record.approved_plan(run, state.get("plan"))
        issue = await record.issue_of_thread(run, state.get("issue"))
        number = state["reviews"] + 1
        async with self._at_work(run, "developer", number) as (worktree, workplace):
            begun_in = await record.session_of(run, number)
            earlier = await record.begin(run, number)
            session = self._session(run)
            is_again = await record.is_reviewed(run)
            task = Task(
                issue=issue,
                plan=approval.plan,
                changes=await worktree.changes(state["base"]),
                remarks=str(state["review"].get("remarks", "")) if is_again else "",
                comment=approval.comment,
                tests=result_of(state.get("tests")) if is_again else None,
                is_repeated=earlier > 0,
            )
            # Once: a second attempt must know of the first, so it is the whole step that is tried again.
            summary = await develop(
                SingleAttempt(session), worktree, task, replace(workplace, session=begun_in)
            )
            changed = await worktree.changes(state["base"])
        return {
            "summary": summary,
            "changed_files": list(changed.files[:_MOST_LISTED]),
            "messages": [_message(run, f"develop.{number}", summary, "developer", session)],
        }

    async def tests_approval_node(self, state: CodingState) -> CodingState:  # noqa: ARG002 - LangGraph gives it
        """Ask a person before code that was just written runs."""
        check = self.checks(run_of_thread().thread)
        if check is None:
            return {"tests_approved": True}
        command = list(check.command)
        asked = {"kind": "approval", "message": "Run the tests in the worktree?", "run_tests": command}
        return {"tests_approved": is_yes(interrupt(asked))}

    async def tests_node(self, state: CodingState) -> CodingState:
        """Run the tests that the profile names. How they end is for the reviewer to judge."""
        run = run_of_thread()
        await record.approved_plan(run, state.get("plan"))
        check = self.checks(run.thread)
        if check is None:  # taken out of the profile meanwhile
            return {"tests": {}}
        if check.approval:
            given = await record.approval_of(run, "run_tests")
            if given.shown["run_tests"] != list(check.command):
                raise Permanent("these tests were not approved", ErrorClass.VALIDATION)
        number = state["reviews"] + 1
        await run.record(line("Running the tests", 60, "tests", f"tests/{run.thread.round}.{number}"))
        async with self._at_work(run, "tests") as (_, workplace):
            result = await run_checks(check, workplace.folder, workplace.lock, self.check_variables)
        failpoint("checks_ended")
        level: Literal["info", "warning"] = "info" if result.passed else "warning"
        ref = f"tested/{run.thread.round}.{number}"
        await run.record(line(result.line, 70, "tests", ref, level=level))
        return {"tests": result.as_json()}

    async def reviewer_node(self, state: CodingState) -> CodingState:
        """Review all changes since the commit the work began at."""
        run = run_of_thread()
        approval = await record.approved_plan(run, state.get("plan"))
        number = state["reviews"] + 1
        await run.record(line(f"Review {number}", 80, "reviewer", f"review/{run.thread.round}.{number}"))
        async with self._at_work(run, "reviewer") as (worktree, here), _reading(worktree, here) as workplace:
            session = self._session(run)
            changes = await worktree.changes(state["base"])
            said = await reviewer.review(
                session,
                await record.issue_of_thread(run, state.get("issue")),
                approval.plan,
                changes,
                comment=approval.comment,
                tests=result_of(state.get("tests")) if self.checks(run.thread) else None,
                changed_before=state["changed_before"],
                workplace=workplace,
            )
            await _require_untouched(session, worktree, state["base"], changes.fingerprint, "review")
        name = f"review.{number}"
        if not said.approved and number >= self.review_rounds:
            await run.record(
                AssistantMessage(content=said.remarks, agent="reviewer", ref=f"{run.thread.round}.{name}")
            )
            raise Permanent(
                f"not approved after {_times(number)}; what was done is in the worktree",
                ErrorClass.VALIDATION,
            )
        text = said.remarks or "Approved."
        is_last = said.approved and not self.publishes(run.thread)
        return {
            "reviews": number,
            "review": {"approved": said.approved, "remarks": said.remarks},
            "changed_files": list(changes.files[:_MOST_LISTED]),
            "messages": [_message(run, name, text, "reviewer", session, "last" if is_last else "step")],
        }

    async def publish_approval_node(self, state: CodingState) -> CodingState:
        """Ask a person about exactly what is committed, and where it goes."""
        run = run_of_thread()
        issue = await record.issue_of_thread(run, state.get("issue"))
        async with self._publishing(run) as publisher:
            asked = await publisher.question(
                issue, state["base"], state.get("summary", ""), result_of(state.get("tests"))
            )
        return {"publish_approved": is_yes(interrupt(asked))}

    async def publish_node(self, state: CodingState) -> CodingState:
        """Commit, push, open a pull request, comment: each once, however often the step begins."""
        run = run_of_thread()
        await record.approved_plan(run, state.get("plan"))
        approval = await record.approval_of(run, publishing.ASKED)
        issue = await record.issue_of_thread(run, state.get("issue"))
        number = run.thread.round
        await run.record(line("Publishing", 90, "publisher", f"publish/{number}"))
        try:
            async with self._publishing(run) as publisher:
                done = await publisher.publish(
                    issue,
                    approval,
                    summary=state.get("summary", ""),
                    mark=f"Clew workflow {run.thread.id}, round {number}",
                    tell=lambda step, text: run.note(line(text, 95, "publisher", f"{step}/{number}")),
                )
        except TreeChanged:
            run.note(
                line(
                    "The files changed after the question: asking again", 90, "publisher", "", level="warning"
                )
            )
            return {"publish_approved": False}
        text = publishing.said(done, "")
        return {
            "published": done,
            "messages": [_message(run, "published", text, "publisher", self._session(run), "last")],
        }

    @asynccontextmanager
    async def _publishing(self, run: RunContext) -> AsyncGenerator[Publisher]:
        if self.publisher is None or not self.publishes(run.thread):
            raise Permanent("the profile publishes nothing", ErrorClass.VALIDATION)
        async with (
            self._at_work(run, "publisher") as (worktree, _),
            self.publisher(run.thread, worktree) as publisher,
        ):
            yield publisher

    @asynccontextmanager
    async def _at_work(
        self, run: RunContext, agent: str, step: int = 0
    ) -> AsyncGenerator[tuple[Worktree, Workplace]]:
        """The locked worktree. Its path is in the thread's settings, which no input can change."""
        path = run.thread.settings.get(WORKTREE)
        if not isinstance(path, str):
            raise Permanent(
                "a coding workflow is started with an issueId and a worktreePath", ErrorClass.VALIDATION
            )
        try:
            worktree = await self.worktrees.find(path)
        except Invalid as exc:
            raise Permanent(f"the worktree is gone: {exc}", ErrorClass.VALIDATION) from exc
        if worktree.path != path:
            raise Permanent("the worktree is gone: another folder has its name", ErrorClass.VALIDATION)
        if self.driver(run.thread).can(Purpose.EDIT):
            await _require_harmless(worktree)
        async with worktree.alone() as lock:
            yield worktree, Workplace(folder=path, lock=lock, reports=_reports(run, agent, step))

    def _session(self, run: RunContext) -> DriverSession:
        thread = run.thread
        return open_session(run, self.driver(thread), self.policy(thread), self.budget(thread))

    def _after_developer(self, state: CodingState) -> str:  # noqa: ARG002 - LangGraph gives it
        check = self.checks(run_of_thread().thread)
        if check is None:
            return "reviewer_node"
        return "tests_approval_node" if check.approval else "tests_node"

    def _after_review(self, state: CodingState) -> str:
        if not state["review"]["approved"]:
            return "developer_node"
        return publishing.GATE if self.publishes(run_of_thread().thread) else END


def _reports(run: RunContext, agent: str, step: int) -> Reports:
    """What a program does, as lines of the log; and its session, by which a later attempt goes on."""
    left = _MOST_DOINGS

    def doing(text: str) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            run.note(line(text, 40, agent, ""))

    def session(name: str) -> None:
        if step:
            run.note(line("Session of the program", 40, agent, f"{record.session_ref(run, step)}{name}"))

    return Reports(doing=doing, session=session)


@asynccontextmanager
async def _reading(worktree: Worktree, workplace: Workplace) -> AsyncGenerator[Workplace]:
    """For a step that changes nothing: a program's own git reads no settings of the repository there."""
    async with worktree.looking() as given:
        yield replace(workplace, variables=given)


async def _require_harmless(worktree: Worktree) -> None:
    """Raises Permanent if the repository's git settings would make a program's git start other programs."""
    if names := await worktree.starts():
        raise Permanent(
            f"the git configuration of the worktree starts programs: {', '.join(names[:10])}. Remove this from the"
            " repository, or move it to your own global configuration if you trust it",
            ErrorClass.VALIDATION,
        )


async def human_approval_node(state: CodingState) -> CodingState:
    """Whether this plan is the one that was approved, according to the log; and the plan as the person changed it."""
    approved = state.get("human_approved") is True
    if not approved:
        return {"human_approved": False, "comment": ""}
    given = await record.approved_plan(run_of_thread(), state.get("plan"))
    return {
        "human_approved": True,
        "comment": given.comment,
        "plan": given.plan,
        "plan_hash": plan_hash(given.plan),
    }


async def _require_untouched(driver: Driver, worktree: Worktree, base: str, before: str, what: str) -> None:
    """Raises Permanent if files changed in a read-only step. Only a driver that can edit files is checked."""
    if driver.can(Purpose.EDIT) and (await worktree.changes(base)).fingerprint != before:
        raise Permanent(
            f"files changed during the {what}, which changes none: check the worktree",
            ErrorClass.VALIDATION,
        )


def _after_gate(state: CodingState) -> str:
    return "developer_node" if state.get("human_approved") is True else END


def _after_tests_gate(state: CodingState) -> str:
    return "tests_node" if state.get("tests_approved") is True else END


def _after_publish_gate(state: CodingState) -> str:
    return publishing.NODE if state.get("publish_approved") is True else END


def _after_publish(state: CodingState) -> str:
    """Files that changed after the question are not published before a person has seen them."""
    return END if state.get("publish_approved") is True else publishing.GATE


def _message(
    run: RunContext,
    name: str,
    text: str,
    agent: str,
    session: DriverSession,
    marker: Literal["step", "last"] = "step",
) -> Any:
    tokens = (session.tokens_in, session.tokens_out)
    return clew_message(
        text,
        id=f"{run.thread.round}.{name}",
        agent=agent,
        marker=marker,
        tokens=tokens,
        model=session.model,
    )


def _times(number: int) -> str:
    return "1 review" if number == 1 else f"{number} reviews"
