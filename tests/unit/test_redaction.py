"""What is taken back, what goes with it, and what is left for others to see."""

from datetime import timedelta

import pytest

from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import (
    AssistantMessage,
    Body,
    Content,
    DocumentAdded,
    Event,
    Opening,
    Redacted,
    RoundFinished,
    RoundStarted,
    StageCompleted,
    UserMessage,
)
from clew.domain.lifecycle import record, redact
from clew.domain.records import Document
from clew.domain.redaction import (
    require_unredacted,
    shown_body,
    shown_documents,
    taken_back,
    texts_of,
    without,
)
from clew.domain.thread import Status, Thread
from tests.samples import ANN, NOW, stamp

DOCUMENTS = [
    Document(
        id=f"doc_{name}",
        thread_id="t1",
        file_id=f"file_{name}" if name != "made" else "doc_made",
        name=name,
        ext="txt",
        mime="text/plain",
        size=1,
        sha256=name,
        created_at=NOW + timedelta(seconds=1),
    )
    for name in ("one", "two", "made")
]


def conversation() -> tuple[Thread, list[Event]]:
    """Two files are brought, a document is made, and shown by whoever made it and at the end."""
    opening = Opening(owner=ANN, graph="chat", name="my secret")
    bodies: list[Body] = [
        RoundStarted(round=1, opening=opening, input={"messages": ["my secret plan"]}),
        UserMessage(content="  my secret plan\nis this", documents=("file_one", "file_two")),
        DocumentAdded(document_id="doc_one", name="one", ext="txt"),
        StageCompleted(stage="intake", output={"prompt": "my secret plan"}),
        AssistantMessage(content="made it", agent="ann", documents=("doc_made",)),
        AssistantMessage(content="done", agent="ann", documents=("doc_made",), marker="last"),
        RoundFinished(status=Status.COMPLETED),
    ]
    change = record(None, bodies, stamp=stamp(), thread_id="t1")
    return change.thread, list(change.events)


def hide(thread: Thread, what: Redacted) -> Thread:
    return redact(
        thread,
        what.message_id,
        document_id=what.document_id,
        hides=what.hides,
        unnames=what.unnames,
        stamp=stamp(),
    ).thread


def test_with_a_message_go_its_documents_and_the_name_it_gave() -> None:
    thread, log = conversation()
    what = taken_back(thread, log, DOCUMENTS, log[1].id)
    assert (what.document_id, what.hides, what.unnames) == ("", ("doc_one", "doc_two"), True)
    hidden = hide(thread, what)
    assert hidden.name == ""
    assert [one.id for one in shown_documents(hidden, DOCUMENTS)] == ["doc_made"]
    told = [shown_body(hidden, event) for event in log]
    assert "secret" not in repr(told)
    assert [body is None for body in told] == [False, True, True, False, False, False, False]
    with pytest.raises(NotFound):
        taken_back(hidden, log, DOCUMENTS, log[1].id)


@pytest.mark.parametrize("name", ["file_one", "doc_one"])
def test_a_file_of_a_message_is_known_by_both_names(name: str) -> None:
    thread, log = conversation()
    what = taken_back(thread, log, DOCUMENTS, log[1].id, name)
    assert (what.document_id, what.hides, what.unnames) == ("file_one", ("doc_one",), False)
    hidden = hide(thread, what)
    message = shown_body(hidden, log[1])
    assert isinstance(message, UserMessage)
    assert message.documents == ("file_two",)
    assert shown_body(hidden, log[2]) is None, "its name may say what it was"
    assert shown_body(hidden, log[3]) == log[3].body, "no message is missing"
    with pytest.raises(NotFound):
        taken_back(hidden, log, DOCUMENTS, log[1].id, name)


def test_what_another_message_shows_stays_until_that_one_goes_too() -> None:
    thread, log = conversation()
    thread = hide(thread, taken_back(thread, log, DOCUMENTS, log[5].id, "doc_made"))
    assert [one.id for one in shown_documents(thread, DOCUMENTS)] == ["doc_one", "doc_two", "doc_made"]
    what = taken_back(thread, log, DOCUMENTS, log[4].id)
    assert (what.hides, what.unnames) == (("doc_made",), False)


@pytest.mark.parametrize(("message", "file"), [(1, "doc_made"), (4, "file_one"), (0, ""), (3, "")])
def test_what_is_not_there_is_not_found(message: int, file: str) -> None:
    thread, log = conversation()
    with pytest.raises(NotFound):
        taken_back(thread, log, DOCUMENTS, log[message].id, file)


@pytest.mark.parametrize(("message", "file"), [(1, ""), (1, "file_two"), (1, "doc_one")])
def test_a_round_is_not_taken_up_without_what_it_was_given(message: int, file: str) -> None:
    thread, log = conversation()
    require_unredacted(thread, log)
    hidden = hide(thread, taken_back(thread, log, DOCUMENTS, log[message].id, file))
    with pytest.raises(InvalidState, match=r"t1.*a file of the message" if file else r"t1.*: the message"):
        require_unredacted(hidden, log)


def test_a_round_is_taken_up_without_what_it_said_itself() -> None:
    thread, log = conversation()
    hidden = hide(thread, taken_back(thread, log, DOCUMENTS, log[4].id))
    assert hidden.redacted
    require_unredacted(hidden, log)


def test_a_document_that_is_brought_again_is_shown_again() -> None:
    thread, log = conversation()
    thread = hide(thread, taken_back(thread, log, DOCUMENTS, log[1].id, "file_one"))
    again: list[Body] = [
        RoundStarted(round=2),
        UserMessage(content="again", documents=("file_one",)),
        DocumentAdded(document_id="doc_one", name="one", ext="txt"),
    ]
    thread = record(thread, again, stamp=stamp()).thread
    assert [one.id for one in shown_documents(thread, DOCUMENTS)] == ["doc_one", "doc_two", "doc_made"]
    message = shown_body(thread, log[1])
    assert isinstance(message, UserMessage)
    assert message.documents == ("file_two",), "but not where it was taken back"


def test_a_message_of_parts_is_its_texts_and_its_images() -> None:
    image = "iVBORw0KGgo" * 10
    parts: Content = [
        {"type": "text", "text": " look "},
        {"type": "image", "source": {"kind": "base64", "data": image}},
    ]
    assert texts_of(parts) == {"look", image}
    assert texts_of(" look ") == {"look"}
    assert texts_of("  ") == set()


def test_words_are_hidden_wherever_they_stand() -> None:
    state = {"prompt": " my plan ", "tasks": [{"prompt": "do: my plan, now"}, 7], "ok": "ok", "token": "ok!"}
    assert without(state, ["my plan", "ok"]) == {
        "prompt": "[redacted]",
        "tasks": [{"prompt": "do: [redacted], now"}, 7],
        "ok": "[redacted]",
        "token": "ok!",
    }
    assert without(state, []) == state
