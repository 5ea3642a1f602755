"""Plans and results: what a model or an agent says is believed only after it was read."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.apps.chat.plan import (
    MAX_DOCUMENTS,
    MAX_TASKS,
    MAX_TEXT,
    checked_label,
    has_failed,
    language_code,
    plan_as_json,
    progress,
    read_plan,
    read_result,
)
from clew.domain.errors import Invalid

AGENTS = {"writer", "analyst"}


def planned(**changes: Any) -> dict[str, Any]:
    return {
        "objFinalDocuments": ["report.docx"],
        "objWorkplan": [
            {
                "agent": "analyst",
                "prompt": "chart it",
                "outputDocuments": [{"label": "chart.png", "description": "a chart"}],
                "inputDocuments": [{"label": "sales.csv"}],
            },
            {
                "agent": "writer",
                "prompt": "write it",
                "outputDocuments": [{"label": "report.docx", "prompt": "all of it"}],
                "inputDocuments": ["chart.png", "sales.csv"],
            },
        ],
        "objUserResponse": "I will.",
        "userLanguage": "de-CH",
    } | changes


def read(value: Any) -> Any:
    return read_plan(value, agents=AGENTS, documents=["sales.csv"])


def test_a_plan_is_read_and_can_be_written_down_again() -> None:
    plan = read(planned())
    assert [task.agent for task in plan.tasks] == ["analyst", "writer"]
    assert [output.description for task in plan.tasks for output in task.outputs] == ["a chart", "all of it"]
    assert (plan.final_documents, plan.response, plan.language) == (("report.docx",), "I will.", "de")
    assert read(plan_as_json(plan)) == plan


def test_a_task_without_inputs_named_gets_what_the_round_brought() -> None:
    (task,) = read(planned(objWorkplan=[{"agent": "writer", "prompt": "x"}])).tasks
    assert task.inputs is None
    assert read(plan_as_json(read(planned(objWorkplan=[{"agent": "writer", "prompt": "x"}])))).tasks == (
        task,
    )


def test_an_answer_without_tasks_is_a_plan() -> None:
    plan = read(planned(objWorkplan=[], objFinalDocuments=[], objUserResponse="42"))
    assert (plan.tasks, plan.response) == ((), "42")


def one(**changes: Any) -> dict[str, Any]:
    return planned(objWorkplan=[{"agent": "writer", "prompt": "x"} | changes])


@pytest.mark.accept("004-20")
@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "plan"),
        ([], "plan"),
        ("{}", "plan"),
        *[
            ({k: v for k, v in planned().items() if k != key}, key)
            for key in ("objFinalDocuments", "objWorkplan", "objUserResponse", "userLanguage")
        ],
        (planned(objWorkplan={}), "objWorkplan"),
        (planned(objWorkplan=[], objUserResponse=" "), "objWorkplan"),
        (planned(objWorkplan=["writer"]), "objWorkplan[0]"),
        (planned(objWorkplan=[{"agent": "writer", "prompt": "x"}] * (MAX_TASKS + 1)), "objWorkplan"),
        (planned(objWorkplan=[{"agent": "writer", "prompt": "x"}] * 1000), "objWorkplan"),
        (one(agent="hacker"), "objWorkplan[0].agent"),
        (one(agent=None), "objWorkplan[0].agent"),
        (one(prompt="  "), "objWorkplan[0].prompt"),
        (one(prompt="x" * (MAX_TEXT + 1)), "objWorkplan[0].prompt"),
        (one(inputDocuments=["later.md"]), "objWorkplan[0].inputDocuments[0]"),
        (one(inputDocuments=[{"name": "sales.csv"}]), "objWorkplan[0].inputDocuments[0]"),
        (one(inputDocuments=["a.md"], outputDocuments=["a.md"]), "objWorkplan[0].inputDocuments[0]"),
        (one(outputDocuments=[{"label": "../x.md"}]), "objWorkplan[0].outputDocuments[0].label"),
        (one(outputDocuments=["a.md"] * (MAX_DOCUMENTS + 1)), "objWorkplan[0].outputDocuments"),
        (planned(objFinalDocuments=["/etc/passwd.md"]), "objFinalDocuments[0]"),
        (planned(objFinalDocuments="report.docx"), "objFinalDocuments"),
        (planned(objUserResponse=7), "objUserResponse"),
        (planned(userLanguage=None), "userLanguage"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_by_name(value: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(value)
    assert refused.value.field == field


def test_tasks_cannot_wait_for_each_other() -> None:
    circle = [
        {"agent": "writer", "prompt": "x", "inputDocuments": ["b.md"], "outputDocuments": ["a.md"]},
        {"agent": "writer", "prompt": "x", "inputDocuments": ["a.md"], "outputDocuments": ["b.md"]},
    ]
    with pytest.raises(Invalid):
        read(planned(objWorkplan=circle))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.fault("F10")
@given(value=JSON, parts=st.dictionaries(st.sampled_from(sorted(planned())), JSON))
def test_whatever_a_model_says_is_a_plan_or_refused(value: Any, parts: dict[str, Any]) -> None:
    for candidate in (value, planned() | parts):
        try:
            plan = read(candidate)
        except Invalid:
            continue
        assert read(plan_as_json(plan)) == plan


@pytest.mark.parametrize("label", ["report.docx", "résumé 2.PDF", "报告.md", "a.b.c.txt", "a-b_c (2).csv"])
def test_a_file_name_is_a_label(label: str) -> None:
    assert checked_label(label, "x") == label


@pytest.mark.parametrize(
    "label",
    [
        "",
        "x",
        ".md",
        "..",
        "../x.md",
        "a/b.md",
        "a\\b.md",
        "C:\\x.md",
        "x.md\n",
        "x\0.md",
        "\u202egpj.md",
        "a" * 200 + ".md",
        " x.md",
        ".x.md",
        7,
        None,
    ],
)
def test_anything_else_is_no_label(label: Any) -> None:
    with pytest.raises(Invalid):
        checked_label(label, "x")


@pytest.mark.fault("F10")
@given(st.text(max_size=60))
def test_no_label_leads_out_of_a_folder(text: str) -> None:
    try:
        label = checked_label(text, "x")
    except Invalid:
        return
    assert not re.search(r"[/\\\0-\x1f]", label)
    assert not label.startswith(".")


@pytest.mark.accept("004-25")
def test_a_result_keeps_bytes_as_they_are() -> None:
    binary = bytes(range(256))
    result = read_result(
        {
            "feedback": "done",
            "documents": [{"label": "a.bin", "content": binary}, {"label": "b.txt", "content": "ü"}],
        },
        max_bytes=1000,
    )
    assert result.feedback == "done"
    assert [document.content for document in result.documents] == [binary, "ü".encode()]
    assert result.size == 258


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "result"),
        ("done", "result"),
        ({}, "feedback"),
        ({"feedback": 1}, "feedback"),
        ({"feedback": "x" * (MAX_TEXT + 1)}, "feedback"),
        ({"feedback": "x", "documents": "y"}, "documents"),
        ({"feedback": "x", "documents": [{}]}, "documents[0].label"),
        ({"feedback": "x", "documents": [{"label": "../../a.md", "content": "x"}]}, "documents[0].label"),
        ({"feedback": "x", "documents": [{"label": "a.md", "content": None}]}, "documents[0].content"),
        ({"feedback": "x", "documents": [{"label": "a.md", "content": "x" * 101}]}, "documents"),
    ],
)
def test_what_is_no_result_is_refused_by_name(value: Any, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_result(value, max_bytes=100)
    assert refused.value.field == field


def test_half_a_surrogate_pair_does_not_reach_the_database() -> None:
    result = read_result(
        {"feedback": "a\ud800b\0", "documents": [{"label": "a.txt", "content": "\udfff"}]}, max_bytes=10
    )
    result.feedback.encode()
    assert "\0" not in result.feedback


@pytest.mark.accept("004-21")
@pytest.mark.parametrize(
    ("failed", "total", "verdict"),
    [(0, 0, False), (0, 3, False), (1, 4, False), (2, 4, False), (3, 4, True), (1, 1, True), (1, 2, False)],
)
def test_more_than_half_is_too_many(failed: int, total: int, verdict: bool) -> None:
    assert has_failed(failed, total) is verdict


@pytest.mark.accept("004-13")
def test_progress_grows_from_30_to_90() -> None:
    for total in range(1, MAX_TASKS + 1):
        steps = [progress(done, total) for done in range(total)]
        assert steps[0] == 30
        assert steps == sorted(steps)
        assert all(30 <= step < 90 for step in steps)


@pytest.mark.parametrize(
    ("text", "code"),
    [("de", "de"), ("DE", "de"), ("pt-BR", "pt"), ("zh_Hans", "zh"), ("German", ""), ("", ""), ("x", "")],
)
def test_a_language_code(text: str, code: str) -> None:
    assert language_code(text) == code
