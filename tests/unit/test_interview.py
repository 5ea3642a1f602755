"""What an interview asks about a document, and that every answer ends up where it belongs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.apps.interview.rules import (
    Improved,
    InterviewQuestion,
    QuestionKind,
    improve,
    is_skipped,
    questions,
)

DOCUMENT = """# Plan for the ACR

We improved the speed of the importer.
- Start date: TBD
- Owner: [name]
"""


def asked(kind: QuestionKind, document: str = DOCUMENT, goal: str = "") -> list[InterviewQuestion]:
    return [one for one in questions(document, goal, most=20) if one.kind is kind]


def answered(document: str, one: InterviewQuestion, answer: str) -> Improved:
    return improve(document, [one], [answer])


def test_a_gap_is_filled_where_it_was() -> None:
    start, owner = asked(QuestionKind.GAP)
    assert "Start date: TBD" in start.text
    assert "- Start date: May 4\n" in answered(DOCUMENT, start, "May 4.").text
    assert "- Owner: Ann\n" in answered(DOCUMENT, owner, "Ann").text
    assert "[name]" in answered(DOCUMENT, start, "May 4").text


def test_a_claim_gets_its_number() -> None:
    (claim,) = asked(QuestionKind.CLAIM)
    assert claim.quote == "We improved the speed of the importer."
    improved = answered(DOCUMENT, claim, "from 9 to 2 minutes")
    assert "We improved the speed of the importer (from 9 to 2 minutes)." in improved.text
    assert improved.changes == ("made specific: We improved the speed of the importer.",)


def test_a_claim_with_a_number_is_not_asked_about() -> None:
    assert asked(QuestionKind.CLAIM, "We improved it by 30 %.") == []


def test_a_term_is_spelled_out_once() -> None:
    (term,) = asked(QuestionKind.TERM)
    assert term.quote == "ACR"
    assert (
        "# Plan for the access control rework (ACR)" in answered(DOCUMENT, term, "access control rework").text
    )
    assert asked(QuestionKind.TERM, "the access control rework (ACR) and the ACR") == []
    assert asked(QuestionKind.TERM, "an API over HTTP") == []


def test_what_the_goal_asks_for_is_added() -> None:
    goal = "We look for somebody with Kubernetes and C++. Experience with Python is nice."
    wanted = asked(QuestionKind.WANTED, "I know Python.", goal)
    assert [one.quote for one in wanted] == ["Kubernetes", "C++"]
    assert answered("I know Python.", wanted[0], "ran 40 clusters").text.endswith(
        "\n\n**Kubernetes.** Ran 40 clusters.\n"
    )


def test_a_capital_that_begins_a_sentence_or_a_point_says_nothing() -> None:
    goal = "Wanted:\n- Experience\n* Patience\nSomebody good! Soon? Berlin would be nice, Experience too"
    assert asked(QuestionKind.WANTED, "I am here.", goal) == []
    assert [one.quote for one in asked(QuestionKind.WANTED, "", f"{goal}, and Kubernetes")] == ["Kubernetes"]


@pytest.mark.timeout(30)
def test_a_very_long_text_is_read_once() -> None:
    """Looked through again for each of its words, it would take minutes."""
    words = " ".join(f"word{n:06}x" for n in range(60_000))
    terms = " ".join(f"Z{n:05X}" for n in range(60_000))
    assert [one.kind for one in questions("A document.", words)] == [QuestionKind.POINT]
    explained = " ".join(f"({term})" for term in terms.split())
    assert [one.kind for one in questions(f"{terms}\n{explained}")] == [QuestionKind.POINT]


def test_the_point_comes_first() -> None:
    (point,) = asked(QuestionKind.POINT)
    assert answered(DOCUMENT, point, "approve the budget").text.startswith(
        "# Plan for the ACR\n\nApprove the budget.\n\nWe improved"
    )
    assert answered("Just text.", point, "approve it").text == "Approve it.\n\nJust text.\n"


@pytest.mark.parametrize("answer", ["", " ", "skip", "Skip.", "n/a", "-", "None"])
def test_what_is_skipped_stays_as_it_was(answer: str) -> None:
    assert is_skipped(answer)
    for one in questions(DOCUMENT, "Kubernetes in a Cluster", most=20):
        assert answered(DOCUMENT, one, answer) == Improved(text=DOCUMENT.strip() + "\n", changes=())


def test_not_too_much_is_asked() -> None:
    many = "We improved it. " * 50 + "AAA BBB CCC DDD TBD\n" * 9
    assert len(questions(many, "Kubernetes", most=6)) == 6
    assert questions(many)[-1].kind is QuestionKind.POINT


@given(st.text(max_size=400), st.text(max_size=200), st.lists(st.text(max_size=60), max_size=8))
def test_whatever_is_said_there_is_a_question_and_an_answer(
    document: str, goal: str, answers: list[str]
) -> None:
    found = questions(document, goal)
    assert 1 <= len(found) <= 6
    improved = improve(document, found, answers)
    used = [answer for answer in answers[: len(found)] if not is_skipped(answer)]
    assert len(improved.changes) == len(used)


@given(st.sampled_from([r"\1 \g<0>", "a\\", "$1", "(x)", "é", "[name]"]))
def test_an_answer_is_text_and_nothing_else(answer: str) -> None:
    for one in questions(DOCUMENT, "Kubernetes in a Cluster", most=20):
        assert answer.rstrip(".")[1:] in answered(DOCUMENT, one, answer).text
