"""Coding graph: an issue becomes a plan, a person approves it, and it is carried out in a worktree.

    architect_node -> human_approval_node -> developer_node <-> reviewer_node

The graph stops before `human_approval_node`. What is asked there is the plan itself, and nothing runs but a plan that
was shown and approved, as the log has it.

Files cannot be rolled back with a transaction. So a step that changes them logs its start before it changes any.
A worker that repeats it after a crash finds that line, ends programs the crash left running, starts from what is in the
worktree, and tells the developer so. The reviewer always sees all that differs from the commit the work began at.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypedDict

from langgraph.channels import EphemeralValue
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from clew.apps.coding import reviewer
from clew.apps.coding.architect import design
from clew.apps.coding.developer import Task, develop
from clew.apps.coding.plan import WORKTREE, Issue, plan_hash, visible
from clew.apps.coding.ports import Worktree, Worktrees
from clew.apps.drivers.asking import open_session, run_of_thread
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Purpose, Workplace
from clew.apps.drivers.session import DriverSession, SingleAttempt
from clew.domain.errors import Invalid, Permanent
from clew.domain.events import AssistantMessage, Level, Log, Resolution, RoundStarted, Suspension
from clew.domain.profile import Budget
from clew.domain.retry import ErrorClass, RetryPolicy
from clew.domain.thread import Json, SuspensionKind, Thread
from clew.domain.tool_calls import is_yes
from clew.graph.stream import clew_message
from clew.ports.run_context import RunContext

GATE = "human_approval_node"
# The keys of the state that the approving person sees.
SHOWN = ("issue_id", "worktree_path", "plan", "plan_hash")

_MOST_LISTED = 200


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
    reviews: int
    review: dict[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    worktrees: Worktrees
    driver: Callable[[Thread], Driver]
    policy: Callable[[Thread], RetryPolicy]
    budget: Callable[[Thread], Budget | None] = lambda _: None
    review_rounds: int = 3

    def graph(self) -> CompiledStateGraph[CodingState, None, CodingState, CodingState]:
        graph = StateGraph(CodingState)
        graph.add_node("architect_node", self.architect_node)
        graph.add_node(GATE, human_approval_node)
        graph.add_node("developer_node", self.developer_node)
        graph.add_node("reviewer_node", self.reviewer_node)
        graph.add_edge(START, "architect_node")
        graph.add_edge("architect_node", GATE)
        graph.add_conditional_edges(GATE, _after_gate, ["developer_node", END])
        graph.add_edge("developer_node", "reviewer_node")
        graph.add_conditional_edges("reviewer_node", _after_review, ["developer_node", END])
        return graph.compile(interrupt_before=[GATE])

    async def architect_node(self, state: CodingState) -> CodingState:
        """Plan. This step changes no files, and checks that none changed."""
        run = run_of_thread()
        issue = await _issue(run, state)
        await run.record(_line("Planning", 10, "architect", f"plan/{run.thread.round}"))
        async with self._at_work(run) as (worktree, workplace), _reading(worktree, workplace) as workplace:
            base = await worktree.base()
            session = self._session(run)
            before = await worktree.changes(base)
            plan = await design(
                session, issue, await worktree.files(), remark=state.get("remark", ""), workplace=workplace
            )
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
            "reviews": 0,
            "review": {},
            "messages": [_message(run, "plan", plan, "architect", session)],
        }

    async def developer_node(self, state: CodingState) -> CodingState:
        """Change the files: once, or after a crash again, from what is there."""
        run = run_of_thread()
        comment = await _approved(run, state)
        issue = await _issue(run, state)
        number = state["reviews"] + 1
        async with self._at_work(run) as (worktree, workplace):
            earlier = await _begin(run, number)
            session = self._session(run)
            task = Task(
                issue=issue,
                plan=state["plan"],
                changes=await worktree.changes(state["base"]),
                remarks=await _remarks(run, state),
                comment=comment,
                is_repeated=earlier > 0,
            )
            # Once: a second attempt must know of the first, so it is the whole step that is tried again.
            summary = await develop(SingleAttempt(session), worktree, task, workplace)
            changed = await worktree.changes(state["base"])
        return {
            "summary": summary,
            "changed_files": list(changed.files[:_MOST_LISTED]),
            "messages": [_message(run, f"develop.{number}", summary, "developer", session)],
        }

    async def reviewer_node(self, state: CodingState) -> CodingState:
        """Review all changes since the commit the work began at."""
        run = run_of_thread()
        comment = await _approved(run, state)
        number = state["reviews"] + 1
        await run.record(_line(f"Review {number}", 80, "reviewer", f"review/{run.thread.round}.{number}"))
        async with self._at_work(run) as (worktree, workplace), _reading(worktree, workplace) as workplace:
            session = self._session(run)
            changes = await worktree.changes(state["base"])
            said = await reviewer.review(
                session,
                await _issue(run, state),
                state["plan"],
                changes,
                comment=comment,
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
        marker: Literal["last", "step"] = "last" if said.approved else "step"
        return {
            "reviews": number,
            "review": {"approved": said.approved, "remarks": said.remarks},
            "changed_files": list(changes.files[:_MOST_LISTED]),
            "messages": [_message(run, name, text, "reviewer", session, marker)],
        }

    @asynccontextmanager
    async def _at_work(self, run: RunContext) -> AsyncGenerator[tuple[Worktree, Workplace]]:
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
            yield worktree, Workplace(folder=path, lock=lock)

    def _session(self, run: RunContext) -> DriverSession:
        thread = run.thread
        return open_session(run, self.driver(thread), self.policy(thread), self.budget(thread))


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
    """Whether this plan is the one that was approved, according to the log."""
    approved = state.get("human_approved") is True
    comment = ""
    if approved:
        comment = await _approved(run_of_thread(), state)
    return {"human_approved": approved, "comment": comment}


async def _approved(run: RunContext, state: CodingState) -> str:
    """The approval's comment. Raises Permanent unless a person saw this very plan in this round and approved it.

    A caller may write the state past the breakpoint, or send a run past it, but cannot write the log.
    """
    _, events = await run.transcript()
    shown: Suspension | None = None
    given: Json = None
    for event in events:
        match event.body:
            case Suspension(kind=SuspensionKind.APPROVAL, prompt=dict(prompt)) as asked if "plan" in prompt:
                shown, given = asked, None
            case Resolution(call_id=call_id, answer=answer) if shown and call_id == shown.call_id:
                given = answer if event.round == run.thread.round else None
            case _:
                pass
    if shown is None or not is_yes(given) or shown.prompt["plan"] != state.get("plan"):
        raise Permanent("the plan is not the one that was approved", ErrorClass.VALIDATION)
    return visible(str(given.get("feedback") or "")).strip() if isinstance(given, dict) else ""


async def _begin(run: RunContext, number: int) -> int:
    """Log the start of this step; returns how often it was started before without finishing."""
    step = f"develop/{run.thread.round}.{number}/"
    _, events = await run.transcript()
    earlier = sum(isinstance(event.body, Log) and event.body.ref.startswith(step) for event in events)
    text = f"Developing, step {number}"
    if earlier:
        text += ": begun before and cut short, goes on from what is in the worktree"
    await run.record(
        _line(text, 40, "developer", f"{step}{earlier + 1}", level="warning" if earlier else "info")
    )
    return earlier


async def _require_untouched(driver: Driver, worktree: Worktree, base: str, before: str, what: str) -> None:
    """Raises Permanent if files changed in a read-only step. Only a driver that can edit files is checked."""
    if driver.can(Purpose.EDIT) and (await worktree.changes(base)).fingerprint != before:
        raise Permanent(
            f"files changed during the {what}, which changes none: check the worktree",
            ErrorClass.VALIDATION,
        )


def _after_gate(state: CodingState) -> str:
    return "developer_node" if state.get("human_approved") is True else END


def _after_review(state: CodingState) -> str:
    return END if state["review"]["approved"] else "developer_node"


async def _issue(run: RunContext, state: CodingState) -> Issue:
    """The issue the workflow was started with, as the log has it: a caller may write another one into the state."""
    _, events = await run.transcript()
    begun = [event.body.input for event in events if isinstance(event.body, RoundStarted)]
    given = [one["issue"] for one in begun if isinstance(one, dict) and one.get("issue")]
    stored = given[0] if given else state.get("issue")
    if not stored:
        raise Permanent("there is no issue to work on: start the workflow anew", ErrorClass.VALIDATION)
    return Issue(**stored)


async def _remarks(run: RunContext, state: CodingState) -> str:
    """What the last review asks for; empty if the log has no review in this round."""
    _, events = await run.transcript()
    step = f"review/{run.thread.round}."
    is_reviewed = any(isinstance(event.body, Log) and event.body.ref.startswith(step) for event in events)
    return str(state["review"].get("remarks", "")) if is_reviewed else ""


def _line(message: str, done: int, agent: str, ref: str, *, level: Level = "info") -> Log:
    return Log(message=message, progress=done, agent=agent, ref=ref, level=level)


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
