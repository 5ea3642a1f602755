"""Record of a coding workflow: what its log says was asked, approved, begun. A caller may write the state, never the log."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from clew.apps.coding.plan import MAX_PLAN, Issue, visible
from clew.domain.errors import Permanent
from clew.domain.events import Event, Level, Log, Resolution, RoundStarted, Suspension
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json, SuspensionKind
from clew.domain.tool_calls import is_yes
from clew.ports.run_context import RunContext


@dataclass(frozen=True, slots=True)
class Approval:
    """A yes of a person in this round: what was shown, what was said, and when."""

    shown: Mapping[str, Json]
    answer: Json
    at: datetime

    @property
    def comment(self) -> str:
        given = self.answer.get("feedback") if isinstance(self.answer, dict) else ""
        return visible(str(given or "")).strip()

    @property
    def edited(self) -> str:
        """The plan as the person changed it; empty if it was approved as it was shown."""
        given = self.answer.get("plan") if isinstance(self.answer, dict) else None
        return visible(given).strip()[:MAX_PLAN] if isinstance(given, str) else ""

    @property
    def plan(self) -> str:
        return self.edited or str(self.shown["plan"])


async def approved_plan(run: RunContext, plan: str | None) -> Approval:
    """Raises Permanent unless a person saw this very plan in this round and approved it, or made it with the approval.

    A caller may write the state past the breakpoint, or send a run past it, but cannot write the log.
    """
    found = _last_answer(await _events(run), run.thread.round, "plan")
    if found is None or plan not in (found.shown["plan"], found.plan):
        raise Permanent("the plan is not the one that was approved", ErrorClass.VALIDATION)
    return found


async def approval_of(run: RunContext, key: str) -> Approval:
    """The yes to the newest question that shows `key`, given since the last step that changed files. Raises Permanent."""
    events = await _events(run)
    begun = [at for at, event in enumerate(events) if _is_line(event, "develop/")]
    found = _last_answer(events[begun[-1] if begun else 0 :], run.thread.round, key)
    if found is None:
        raise Permanent("this was not approved", ErrorClass.VALIDATION)
    return found


async def issue_of_thread(run: RunContext, stored: Json) -> Issue:
    """The issue the workflow was started with, as the log has it: a caller may write another one into the state."""
    begun = [event.body.input for event in await _events(run) if isinstance(event.body, RoundStarted)]
    given = [one["issue"] for one in begun if isinstance(one, dict) and one.get("issue")]
    known = given[0] if given else stored
    if not known:
        raise Permanent("there is no issue to work on: start the workflow anew", ErrorClass.VALIDATION)
    return Issue(**known)


async def is_reviewed(run: RunContext) -> bool:
    """Whether the log has a review in this round."""
    return await _has_line(run, f"review/{run.thread.round}.")


async def is_begun(run: RunContext) -> bool:
    """Whether any round of the thread has begun to change files."""
    return await _has_line(run, "develop/")


async def begin(run: RunContext, number: int) -> int:
    """Log the start of this step; returns how often it was started before without finishing."""
    step = f"develop/{run.thread.round}.{number}/"
    earlier = sum(_is_line(event, step) for event in await _events(run))
    text = f"Developing, step {number}"
    if earlier:
        text += ": begun before and cut short, goes on from what is in the worktree"
    await run.record(
        line(text, 40, "developer", f"{step}{earlier + 1}", level="warning" if earlier else "info")
    )
    return earlier


def session_ref(run: RunContext, number: int) -> str:
    return f"session/{run.thread.round}.{number}/"


async def session_of(run: RunContext, number: int) -> str:
    """The program's session in an attempt at this step that was cut short; empty if there was none."""
    step = session_ref(run, number)
    refs = [event.body.ref for event in await _events(run) if isinstance(event.body, Log)]
    return next((ref.removeprefix(step) for ref in reversed(refs) if ref.startswith(step)), "")


def line(message: str, done: int, agent: str, ref: str, *, level: Level = "info") -> Log:
    return Log(message=message, progress=done, agent=agent, ref=ref, level=level)


def _last_answer(events: Iterable[Event], number: int, key: str) -> Approval | None:
    """The answer to the newest approval that shows `key`, if it is a yes of this round."""
    shown: Suspension | None = None
    given: Approval | None = None
    for event in events:
        match event.body:
            case Suspension(kind=SuspensionKind.APPROVAL, prompt=dict(prompt)) as asked if key in prompt:
                shown, given = asked, None
            case Resolution(call_id=call_id, answer=answer) if shown and call_id == shown.call_id:
                is_ours = event.round == number and is_yes(answer)
                given = Approval(dict(shown.prompt), answer, event.at) if is_ours else None
            case _:
                pass
    return given


async def _events(run: RunContext) -> list[Event]:
    _, events = await run.transcript()
    return list(events)


async def _has_line(run: RunContext, start: str) -> bool:
    return any(_is_line(event, start) for event in await _events(run))


def _is_line(event: Event, start: str) -> bool:
    return isinstance(event.body, Log) and event.body.ref.startswith(start)
