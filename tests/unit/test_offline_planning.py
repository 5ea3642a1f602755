"""Plans by rules: what a prompt in any of our languages leads to, with the documents at hand."""

import json

import pytest

from clew.apps.chat.agents.language import LanguageDetector
from clew.apps.chat.agents.registry import find_agents
from clew.apps.chat.offline.charting import choose_view
from clew.apps.chat.offline.planning import Held, Planner
from clew.apps.chat.offline.rules import RULES as CHAT_RULES
from clew.apps.chat.plan import WorkPlan, read_plan
from clew.apps.coding.notes import RULES as CODING_RULES
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.offline import OfflineDriver

AGENTS = frozenset(find_agents().roles)
PDF = Held("report.pdf", "text", 1, is_made=False)
TABLE = Held("sales.csv", "table", 1, is_made=False)
MADE = [PDF, Held("summary.md", "text", 1, is_made=True), Held("report.docx", "text", 1, is_made=True)]

detect = LanguageDetector()
pytestmark = pytest.mark.anyio


def planned(prompt: str, *documents: Held, round: int = 1) -> WorkPlan:
    return Planner(prompt, detect(prompt), AGENTS, documents, round).plan()


def steps(plan: WorkPlan) -> list[tuple[str, list[str], list[str]]]:
    return [(task.agent, list(task.inputs or ()), [one.label for one in task.outputs]) for task in plan.tasks]


def test_a_file_that_is_named_hides_no_other_that_the_rest_of_the_wish_is_about() -> None:
    tram, tickets = (
        Held("tram.txt", "text", 1, is_made=False),
        Held("tickets.csv", "table", 1, is_made=False),
    )
    plan = planned("Summarize tram.txt and chart tickets by canton as brief.docx", tram, tickets)
    assert steps(plan) == [
        ("summarizer", ["tram.txt"], ["summary.md"]),
        ("analyst", ["tickets.csv"], ["tickets_chart.png", "tickets_table.xlsx"]),
        ("writer", ["summary.md", "tickets_chart.png", "tickets_table.xlsx"], ["brief.docx"]),
    ]
    other_half = planned("Chart tickets.csv and summarize the tram report", tram, tickets)
    assert [(agent, given) for agent, given, _ in steps(other_half)] == [
        ("summarizer", ["tram.txt"]),
        ("analyst", ["tickets.csv"]),
    ]
    searched = planned("What does tram.txt say about noon? Also chart tickets by canton", tram, tickets)
    assert [(agent, given) for agent, given, _ in steps(searched)] == [
        ("analyst", ["tickets.csv"]),
        ("researcher", ["tram.txt"]),
    ]
    reversed_ = planned("Chart tickets.csv and find out what the report says about noon", tram, tickets)
    assert [(agent, given) for agent, given, _ in steps(reversed_)] == [
        ("analyst", ["tickets.csv"]),
        ("researcher", ["tram.txt"]),
    ]
    translated = planned("Translate tram.txt into German and chart tickets by canton", tram, tickets)
    assert [(agent, given) for agent, given, _ in steps(translated)] == [("analyst", ["tickets.csv"])]
    # What is named and cannot be charted is not silently replaced by something else.
    assert steps(planned("Chart tram.txt", tram, tickets)) == []


ALL_OF_IT = [
    ("summarizer", ["report.pdf"], ["summary.md"]),
    ("analyst", ["sales.csv"], ["sales_chart.png", "sales_table.xlsx"]),
]


@pytest.mark.parametrize(
    ("language", "prompt", "label"),
    [
        ("en", "Summarize the report and chart sales by region as report.docx", "report.docx"),
        (
            "de",
            "Fasse den Bericht zusammen und erstelle ein Diagramm der Umsätze als bericht.docx",
            "bericht.docx",
        ),
        (
            "fr",
            "Résume le rapport et fais un graphique des ventes par région dans rapport.docx",
            "rapport.docx",
        ),
        ("es", "Resume el informe y haz un gráfico de las ventas por región en informe.docx", "informe.docx"),
        (
            "it",
            "Riassumi il rapporto e fai un grafico delle vendite per regione in relazione.docx",
            "relazione.docx",
        ),
        (
            "pt",
            "Resuma o relatório e faça um gráfico das vendas por região em relatorio.docx",
            "relatorio.docx",
        ),
        ("zh", "总结报告并绘制各地区销售图表，写入 报告.docx", "报告.docx"),  # noqa: RUF001
    ],
)
def test_the_same_wish_in_every_language(language: str, prompt: str, label: str) -> None:
    plan = planned(prompt, PDF, TABLE)
    assert plan.language == language
    assert steps(plan) == [
        *ALL_OF_IT,
        ("writer", ["summary.md", "sales_chart.png", "sales_table.xlsx"], [label]),
    ]
    assert plan.final_documents == (label,)


@pytest.mark.parametrize(
    ("prompt", "documents", "agents", "finals"),
    [
        ("Summarize report.pdf", [PDF, TABLE], ["summarizer"], ("summary.md",)),
        ("Summarize this as a PDF", [PDF], ["summarizer"], ("summary.pdf",)),
        ("Summarize this as notes.html", [PDF], ["summarizer"], ("notes.html",)),
        ("Write a report", [PDF, TABLE], ["summarizer", "analyst", "writer"], ("report.docx",)),
        ("What does the report say about margins?", [PDF, TABLE], ["researcher"], ("findings.md",)),
        ("Chart the sales", [TABLE], ["analyst"], ("sales_chart.png", "sales_table.xlsx")),
        ("Average sales per month as t.xlsx and c.png", [TABLE], ["analyst"], ("t.xlsx", "c.png")),
        ("Convert report.pdf to html", [PDF], ["writer"], ("report.html",)),
        ("Write a python script that reads sales.csv", [TABLE], ["coder"], ("main.py",)),
        ("Hello", [PDF], ["summarizer"], ("summary.md",)),
        ("Hello", [TABLE], ["analyst"], ("sales_chart.png", "sales_table.xlsx")),
    ],
)  # fmt: skip
def test_wishes(prompt: str, documents: list[Held], agents: list[str], finals: tuple[str, ...]) -> None:
    plan = planned(prompt, *documents)
    assert [task.agent for task in plan.tasks] == agents
    assert plan.final_documents == finals


@pytest.mark.parametrize("prompt", ["Hello", "Write a poem about the sea", "Chart it", "?"])
def test_without_documents_there_is_nothing_to_do_and_that_is_said(prompt: str) -> None:
    plan = planned(prompt)
    assert plan.tasks == ()
    assert "No language model is configured" in plan.response
    assert "Attach documents" in plan.response


def test_what_needs_a_model_is_said_and_not_tried() -> None:
    plan = planned("Translate the report into German", PDF)
    assert plan.tasks == ()
    assert "Translating needs a language model" in plan.response


def test_a_chart_of_nothing_is_said() -> None:
    assert "None of the documents holds a table" in planned("Chart the sales", PDF).response


def test_a_follow_up_means_what_was_made() -> None:
    assert steps(planned("Now as PDF", *MADE, round=2)) == [("writer", ["report.docx"], ["report_2.pdf"])]
    assert steps(planned("Summarize it again", *MADE, round=2)) == [
        ("summarizer", ["report.pdf"], ["summary.md"])
    ]


def test_nothing_of_the_users_is_overwritten() -> None:
    mine = Held("summary.md", "text", 1, is_made=False)
    ((_, _, made),) = steps(planned("Summarize this", mine))
    assert made == ["summary_2.md"]


def test_an_agent_that_is_not_there_is_not_asked() -> None:
    planner = Planner("Write a report", "en", frozenset({"analyst"}), [PDF, TABLE], 1)
    assert [task.agent for task in planner.plan().tasks] == ["analyst"]


@pytest.mark.parametrize(
    "prompt",
    [
        "../../etc/passwd.docx",
        "x" * 100_000,
        "a.docx " * 500,
        "write " + ".md" * 50,
        "\u202e.docx",
        "summarize " * 9000,
    ],
)
async def test_odd_prompts_still_make_plans_that_can_be_carried_out(prompt: str) -> None:
    for documents in ((), (PDF, TABLE)):
        described = [
            {"label": one.label, "kind": one.kind, "round": 1, "origin": "user"} for one in documents
        ]
        inquiry = Inquiry(
            purpose=Purpose.PLAN,
            role="",
            prompt=prompt,
            facts={"agents": [{"name": name} for name in AGENTS], "documents": described, "round": 1},
        )
        said = json.loads((await OfflineDriver(CHAT_RULES).ask(inquiry)).text)
        plan = read_plan(said, agents=AGENTS, documents=[one.label for one in documents])
        assert plan.tasks or plan.response
        assert {task.agent for task in plan.tasks} <= set(AGENTS)


async def test_offline_says_what_it_cannot_do() -> None:
    driver = OfflineDriver({**CHAT_RULES, **CODING_RULES})
    assert [purpose for purpose in Purpose if driver.can(purpose)] == [
        Purpose.PLAN,
        Purpose.CHART,
        Purpose.SUMMARIZE,
        Purpose.DESIGN,
        Purpose.CHANGE,
        Purpose.REVIEW,
    ]


TABLES = [
    {
        "label": "sales.csv",
        "columns": [
            {"name": "order id", "kind": "number", "distinct": 500},
            {"name": "Region", "kind": "text", "distinct": 4},
            {"name": "sales rep", "kind": "text", "distinct": 40},
            {"name": "day", "kind": "date", "distinct": 90},
            {"name": "units", "kind": "number", "distinct": 30},
            {"name": "sales", "kind": "number", "distinct": 400},
        ],
    }
]


@pytest.mark.parametrize(
    ("prompt", "group", "measure", "how", "chart"),
    [
        ("Chart sales by region", "Region", "sales", "sum", "auto"),
        ("average units per sales rep", "sales rep", "units", "mean", "auto"),
        ("how many orders by region", "Region", None, "count", "auto"),
        ("sales over the days as a line", "day", "sales", "sum", "line"),
        ("pie chart of units by regions", "Region", "units", "sum", "pie"),
        ("Durchschnitt der units nach Region", "Region", "units", "mean", "auto"),
        ("Moyenne des sales par region", "Region", "sales", "mean", "auto"),
        ("do something", "Region", "units", "sum", "auto"),
    ],
)
def test_which_columns_a_prompt_means(
    prompt: str, group: str, measure: str | None, how: str, chart: str
) -> None:
    view = choose_view(prompt, TABLES)
    assert (view["groupBy"], view["measure"], view["aggregate"], view["chart"]) == (
        group,
        measure,
        how,
        chart,
    )
