"""What others see of a thread: messages, log lines, and its status in each contract's words."""

from dataclasses import replace
from datetime import timedelta

import pytest

from clew.domain.events import AssistantMessage, Log, RoundFinished, RoundStarted, UserMessage
from clew.domain.lifecycle import finish, redact
from clew.domain.thread import Status, SuspensionKind
from clew.domain.views import (
    WIRE_TYPES,
    chat_status,
    conversation_status,
    logs,
    messages,
    retention_status,
    wire_type,
)
from tests.samples import EVERY_BODY, NOW, asks, opened, recorded, stamp, waits


def test_messages_are_the_log_without_everything_else() -> None:
    first = opened(message="hello")
    then = recorded(
        first.thread,
        Log(message="working"),
        asks(),
        AssistantMessage(content=[{"type": "text", "text": "hi"}], agent="architect", documents=("d1",)),
    )
    shown = list(messages(then.thread, [*first.events, *then.events]))
    assert [(one.seq, one.number, one.role, one.agent, one.marker) for one in shown] == [
        (2, 1, "user", "", "first"),
        (5, 2, "assistant", "architect", "step"),
    ]
    assert (shown[0].content, shown[1].documents) == ("hello", ("d1",))
    assert shown[0].id == first.events[1].id


def test_what_was_redacted_is_not_shown_and_the_others_keep_their_numbers() -> None:
    first = opened(message="secret")
    then = recorded(first.thread, UserMessage(content="open", documents=("d1", "d2")))
    thread = finish(then.thread, Status.COMPLETED, stamp=stamp()).thread
    log = [*first.events, *then.events]
    hidden = redact(thread, first.events[1].id, stamp=stamp()).thread
    (left,) = messages(hidden, log)
    assert (left.number, left.documents) == (2, ("d1", "d2"))
    part = redact(thread, then.events[0].id, stamp=stamp(), document_id="d1").thread
    assert [one.documents for one in messages(part, log)] == [(), ("d2",)]


def test_log_lines_carry_progress_level_and_the_status_of_their_moment() -> None:
    change = recorded(
        opened().thread, Log(message="half", progress=50, agent="developer"), Log(message="oh", level="error")
    )
    first, second = logs(change.events)
    assert (first.message, first.progress, first.agent, first.level) == ("half", 50, "developer", "info")
    assert (second.progress, second.level, second.status) == (None, "error", Status.RUNNING)


def test_every_status_has_a_word_in_every_contract() -> None:
    thread = opened().thread
    words = {
        status: (chat_status(status), conversation_status(replace(thread, status=status)))
        for status in Status
    }
    assert words == {
        Status.PENDING: ("running", "idle"),
        Status.RUNNING: ("running", "active"),
        Status.BLOCKED: ("running", "suspended"),
        Status.COMPLETED: ("completed", "idle"),
        Status.FAILED: ("failed", "idle"),
        Status.STOPPED: ("stopped", "ended"),
    }


@pytest.mark.parametrize(
    ("status", "expires_in", "word"),
    [
        (Status.COMPLETED, 1, "completed"),
        (Status.COMPLETED, 0, "expired"),
        (Status.COMPLETED, None, "completed"),
        (Status.FAILED, 1, "active"),
        (Status.FAILED, -1, "expired"),
        (Status.RUNNING, -1, "active"),
    ],
)
def test_a_running_thread_never_looks_expired(status: Status, expires_in: int | None, word: str) -> None:
    expires_at = None if expires_in is None else NOW + timedelta(seconds=expires_in)
    thread = replace(opened().thread, status=status, expires_at=expires_at)
    assert retention_status(thread, now=NOW) == word


def test_the_names_those_who_watch_know_are_these_and_no_others() -> None:
    bodies = [
        *EVERY_BODY,
        *(RoundStarted(round=1, held=held) for held in (True, False)),
        *(RoundFinished(status=status) for status in Status if status.is_terminal),
        *(waits(kind=kind) for kind in SuspensionKind if kind is not SuspensionKind.NONE),
    ]
    assert {wire_type(body) for body in bodies} == WIRE_TYPES
