"""The evaluation of the chat: a few of its cases through a real server, and its own scores."""

import pytest

from evals.__main__ import run, run_with_model
from evals.cases import MODEL_CASES, Case, load_cases
from evals.recorded import RecordedModel, load_recordings
from evals.scoring import Answer, Verdict, score

CASES = {case.id: case for case in load_cases()}
QUICK = {
    "en-total-by-region": Verdict.USEFUL,
    "en-email": Verdict.REFUSED,
    "en-empty": Verdict.REFUSED,
    "de-deadline": Verdict.USEFUL,
    "fr-pdf-table": Verdict.USEFUL,
    "pt-export": Verdict.USEFUL,
    "zh-best-region": Verdict.USEFUL,
}


def test_there_are_sixty_cases_of_seven_languages() -> None:
    assert len(CASES) == 60
    assert {case.language for case in CASES.values()} == {"en", "de", "fr", "es", "it", "pt", "zh"}


@pytest.mark.timeout(300)
def test_a_few_cases_without_a_model() -> None:
    scored = run([CASES[name] for name in QUICK], {})
    assert {case.id: its.verdict for case, _, its in scored} == QUICK, [its.problems for *_, its in scored]


@pytest.mark.timeout(300)
def test_with_a_recorded_model_every_answer_is_useful() -> None:
    model = RecordedModel(load_recordings())
    scored = run_with_model(load_cases(MODEL_CASES), model)
    assert {case.id: its.problems for case, _, its in scored if its.verdict is not Verdict.USEFUL} == {}
    assert model.problems == []


def answered(case: Case, text: str, last: str = "", **files: bytes) -> Verdict:
    made = {name.replace("__", "."): data for name, data in files.items()}
    return score(case, Answer(text=text, last=last or text, files=made), 1_000).verdict


class TestScores:
    def test_a_wrong_figure_is_wrong_and_a_right_one_in_any_notation_useful(self) -> None:
        case = Case(id="en-x", kind="x", prompt="?", says=("6223.5",))
        assert answered(case, "The total is 6,223.50.") is Verdict.USEFUL
        assert answered(case, "The total is 2,094.00.") is Verdict.WRONG

    def test_done_for_another_wish_is_wrong(self) -> None:
        case = Case(id="en-x", kind="x", prompt="?", refuse="due")
        assert answered(case, "Done. Delivered: report.docx.", report__docx=b"x") is Verdict.WRONG
        assert answered(case, "I did not do this; the reason is above.") is Verdict.REFUSED
        assert answered(case, "I did not do this.", report__docx=b"x") is Verdict.WRONG

    def test_another_language_is_wrong(self) -> None:
        case = Case(id="de-x", kind="x", prompt="?", says=("42",))
        assert answered(case, "The answer to this question is 42.") is Verdict.WRONG
        assert answered(case, "Die Antwort auf diese Frage ist 42.") is Verdict.USEFUL
