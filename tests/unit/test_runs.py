"""Which runs a log tells of, how each ended, and which question an answer is for."""

from collections.abc import Sequence
from typing import Any

import pytest

from clew.domain.errors import InvalidState
from clew.domain.events import Body, Event, Opening, Redacted, Resolution, RoundFinished, RunSpec, UserMessage
from clew.domain.lifecycle import Change, next_round, open_idle, resume_run, retry_round, start_run, stop
from clew.domain.runs import Run, RunStatus, answers_in, runs_of, still_asked, undone, unquoted
from clew.domain.thread import Status, Thread
from clew.domain.tool_calls import GATE, fold_calls
from tests.samples import ANN, recorded, stamp, waits


def spec(run_id: str, **more: Any) -> RunSpec:
    return RunSpec(run_id=run_id, assistant_id="a", graph="echo", **more)


class Story:
    """A thread and its log, as commands write it."""

    def __init__(self) -> None:
        self.log: list[Event] = []
        self.thread: Thread
        self.add(open_idle("t1", Opening(owner=ANN, graph=""), stamp=stamp()))

    def add(self, change: Change) -> None:
        self.log += change.events
        self.thread = change.thread

    def begins(self, run_id: str, **more: Any) -> None:
        self.add(
            start_run(self.thread, spec(run_id), (), None, graph_input={"run": run_id}, stamp=stamp(), **more)
        )

    def says(self, *bodies: Body) -> None:
        self.add(recorded(self.thread, *bodies))

    def ends(self, status: Status = Status.COMPLETED, reason: str = "", error: str = "") -> None:
        self.says(RoundFinished(status=status, reason=reason, error=error))

    def answers(self, run_id: str, *call_ids: str) -> None:
        bodies: Sequence[Body] = [
            Resolution(
                call_id=call_id, outcome="answered", spec=spec(run_id) if call_id == call_ids[-1] else None
            )
            for call_id in call_ids
        ]
        self.says(*bodies)

    @property
    def told(self) -> list[tuple[str, RunStatus]]:
        return [(run.id, run.status) for run in runs_of(self.log)]


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_thread_that_nothing_was_ordered_of_has_no_runs(story: Story) -> None:
    assert story.thread.status is Status.COMPLETED
    assert runs_of(story.log) == []


@pytest.mark.parametrize(
    ("status", "reason", "told"),
    [
        (Status.COMPLETED, "", RunStatus.SUCCESS),
        (Status.STOPPED, "stopped by user", RunStatus.INTERRUPTED),
        (Status.FAILED, "it broke", RunStatus.ERROR),
        (Status.FAILED, "timeout: too long", RunStatus.TIMEOUT),
    ],
)
def test_a_run_ends_with_its_round(story: Story, status: Status, reason: str, told: RunStatus) -> None:
    story.begins("r1")
    assert story.told == [("r1", RunStatus.RUNNING)]
    story.ends(status, reason, "ValueError: broken")
    (run,) = runs_of(story.log)
    assert (run.status, run.reason, run.error) == (told, reason, "ValueError: broken")
    assert (run.input, run.thread_id, run.spec) == ({"run": "r1"}, "t1", spec("r1"))
    assert story.log[run.first_seq - 1].seq == run.first_seq


def test_runs_follow_each_other(story: Story) -> None:
    for run_id in ("r1", "r2"):
        story.begins(run_id)
        story.says(UserMessage(content="hi"))
        story.ends()
    story.begins("r3")
    assert story.told == [
        ("r1", RunStatus.SUCCESS),
        ("r2", RunStatus.SUCCESS),
        ("r3", RunStatus.RUNNING),
    ]


def test_a_question_ends_a_run_and_an_answer_begins_another(story: Story) -> None:
    story.begins("r1")
    story.says(waits("c1"))
    assert story.told == [("r1", RunStatus.SUCCESS)]
    story.answers("r2", "c1")
    assert story.told == [("r1", RunStatus.SUCCESS), ("r2", RunStatus.RUNNING)]
    story.ends()
    assert story.told[-1] == ("r2", RunStatus.SUCCESS)


def test_a_run_that_answers_only_some_questions_is_over(story: Story) -> None:
    story.begins("r1")
    story.says(waits("c1"), waits("c2"), waits("c3"))
    story.answers("r2", "c2")
    assert story.told[-1] == ("r2", RunStatus.SUCCESS)
    assert story.thread.pending.keys() == {"c1", "c3"}
    story.answers("r3", "c1", "c3")
    assert story.told[-1] == ("r3", RunStatus.RUNNING)
    assert story.thread.status is Status.RUNNING


def test_a_run_goes_on_with_an_answer_that_orders_no_other(story: Story) -> None:
    """Approved on the page, for example."""
    story.begins("r1")
    story.says(waits("c1"), waits("c2"))
    story.says(Resolution(call_id="c1", outcome="answered"))
    assert story.told == [("r1", RunStatus.SUCCESS)]
    story.says(Resolution(call_id="c2", outcome="answered"))
    assert story.told == [("r1", RunStatus.RUNNING)]
    story.ends(Status.STOPPED)
    assert story.told == [("r1", RunStatus.INTERRUPTED)]


def test_a_run_goes_on_with_its_failed_round(story: Story) -> None:
    story.begins("r1")
    story.ends(Status.FAILED, "it broke", "ValueError: broken")
    story.add(retry_round(story.thread, stamp=stamp()))
    (run,) = runs_of(story.log)
    assert (run.status, run.reason, run.error) == (RunStatus.RUNNING, "", "")


def test_a_run_is_over_whatever_rounds_come_after_it(story: Story) -> None:
    story.begins("r1")
    story.ends()
    story.add(next_round(story.thread, "more", stamp=stamp()))
    story.says(waits("c1"))
    story.says(Resolution(call_id="c1", outcome="answered"))
    assert story.told == [("r1", RunStatus.SUCCESS)]


def test_a_run_whose_question_is_cancelled_stays_over(story: Story) -> None:
    story.begins("r1")
    story.says(waits("c1"))
    open_calls = list(fold_calls({}, story.log).values())
    story.add(stop(story.thread, open_calls, stamp=stamp()))
    assert story.told == [("r1", RunStatus.SUCCESS)]


def test_a_run_in_place_of_an_answer_begins_a_round(story: Story) -> None:
    story.begins("r1")
    story.says(waits("c1"))
    story.begins("r2")
    assert story.thread.pending == {}
    assert story.told == [("r1", RunStatus.SUCCESS), ("r2", RunStatus.RUNNING)]


def test_a_thread_that_runs_begins_no_other_run(story: Story) -> None:
    story.begins("r1")
    with pytest.raises(InvalidState):
        story.begins("r2")


def test_a_run_is_undone_by_the_change_that_stops_it(story: Story) -> None:
    story.begins("r1")
    change = stop(story.thread, (), stamp=stamp(), undoes="r1")
    assert change.thread.status is Status.STOPPED
    assert change.thread.redacted == {"r1", undone("r1")}
    assert [type(event.body) for event in change.events] == [RoundFinished, Redacted]


def test_what_a_run_was_given_can_be_left_out() -> None:
    run = Run(
        thread_id="t1",
        spec=spec("r1", command={"update": {"secret": 1}}, metadata={"kept": 1}),
        input={"secret": 1},
        status=RunStatus.SUCCESS,
        created_at=stamp().now,
        updated_at=stamp().now,
    )
    assert "secret" not in str(unquoted(run))
    assert unquoted(run).spec.metadata == {"kept": 1}


def asking(story: Story, *call_ids: str) -> Thread:
    story.begins("r1")
    story.says(*(waits(call_id) for call_id in call_ids))
    return story.thread


def test_one_question_is_answered_without_its_id(story: Story) -> None:
    thread = asking(story, "c1")
    assert answers_in(thread, "yes") == {"c1": "yes"}
    assert answers_in(thread, {"other": 1}) == {"c1": {"other": 1}}
    assert answers_in(thread, {}) == {"c1": {}}
    assert answers_in(thread, {"c1": None}) == {"c1": None}


def test_several_questions_are_answered_by_their_ids(story: Story) -> None:
    thread = asking(story, "c1", "c2")
    assert answers_in(thread, {"c1": 1, "c2": 2}) == {"c1": 1, "c2": 2}
    assert answers_in(thread, {"c2": 2}) == {"c2": 2}
    for wrong in ("yes", {"c1": 1, "c9": 2}, {}, None):
        with pytest.raises(InvalidState):
            answers_in(thread, wrong)


def test_what_is_still_asked_is_what_the_thread_waits_for(story: Story) -> None:
    thread = asking(story, "c1", "c2", "c3", f"{GATE}x")
    asked = [{"id": call_id, "value": "?"} for call_id in ("c1", "c2")]
    # LangGraph knows nothing of c3, which stopped beside c1.
    beside = {"id": "c3", "value": thread.pending["c3"].prompt}
    assert still_asked(thread, asked) == [*asked, beside]
    story.answers("r2", "c1")
    assert still_asked(story.thread, asked) == [asked[1], beside]
    # LangGraph has forgotten all of it, since the state was written by hand.
    assert [one["id"] for one in still_asked(story.thread, [])] == ["c2", "c3"]


def test_a_thread_that_asked_nothing_takes_no_answer(story: Story) -> None:
    with pytest.raises(InvalidState):
        answers_in(story.thread, "yes")


def test_the_order_of_a_run_is_on_the_last_of_its_answers(story: Story) -> None:
    thread = asking(story, "c1", "c2")
    given = [(call, "yes") for call in fold_calls({}, story.log).values()]
    change = resume_run(thread, given, spec("r2"), stamp=stamp())
    orders = [event.body.spec for event in change.events if isinstance(event.body, Resolution)]
    assert orders == [None, spec("r2")]
    assert change.thread.status is Status.RUNNING
