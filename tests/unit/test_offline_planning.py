"""Plans by rules: what a prompt in any of our languages leads to, with the documents at hand."""

import json

import pytest

from clew.apps.chat.agents.language import LanguageDetector
from clew.apps.chat.agents.registry import find_agents
from clew.apps.chat.offline.charting import choose_query
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
        ("What does the report say about margins?", [PDF, TABLE], ["researcher"], ()),
        ("What does the report say about margins? As docx", [PDF], ["researcher"], ("findings.docx",)),
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
    assert "Attach documents" in f"{plan.response} {plan.closing}"


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
        "rows": 500,
        "columns": [
            {"name": "order id", "kind": "number", "distinct": 500},
            {"name": "Region", "kind": "text", "distinct": 3, "values": ["North", "South", "West"]},
            {"name": "sales rep", "kind": "text", "distinct": 40},
            {"name": "day", "kind": "date", "distinct": 90, "period": "month"},
            {"name": "units", "kind": "number", "distinct": 30},
            {"name": "sales", "kind": "number", "distinct": 400},
        ],
    }
]
SALES = 'sum("sales") AS "sales" FROM "sales.csv"'
REGIONS = 'SELECT "Region" AS "Region"'


@pytest.mark.parametrize(
    ("prompt", "sql"),
    [
        ("Chart sales by region", f"{REGIONS}, {SALES} GROUP BY 1 ORDER BY 2 DESC, 1"),
        ("What were total sales in the North?", f"SELECT {SALES} WHERE \"Region\" = 'North'"),
        ("sales in March 2025", f'SELECT {SALES} WHERE month("day") = 3 AND year("day") = 2025'),
        (
            "how many orders by region",
            f'{REGIONS}, count(*) AS "Rows" FROM "sales.csv" GROUP BY 1 ORDER BY 2 DESC, 1',
        ),
        ("how many regions are there?", 'SELECT count(DISTINCT "Region") AS "Region" FROM "sales.csv"'),
        ("How many units did we sell?", 'SELECT sum("units") AS "units" FROM "sales.csv"'),
        (
            "Draw sales per quarter",
            f'SELECT strftime("day", \'%Y\') || \' Q\' || quarter("day") AS "Quarter", {SALES} GROUP BY 1 ORDER BY 1',
        ),
        (
            "list orders with sales over 1000",
            'SELECT * FROM "sales.csv" WHERE "sales" > 1000',
        ),
        ("Durchschnitt der units nach Region", f'{REGIONS}, avg("units") AS "units (mean)"'),
        ("Moyenne des sales par region", f'{REGIONS}, avg("sales") AS "sales (mean)"'),
    ],
)
def test_what_a_prompt_computes(prompt: str, sql: str) -> None:
    chosen = choose_query(prompt, TABLES)
    assert "unsure" not in chosen, chosen
    assert chosen["sql"].startswith(sql)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Which customer bought the most?", ["customer", "bought"]),
        ("What is the profit margin per region?", ["profit", "margin"]),
        ("sales by region without the North", ["without"]),
        ("Forecast the sales of July", ["forecast"]),
        ("How did sales grow between January and March?", []),
        ("sales in May 2024 and May 2025", []),
        ("do something odd", ["odd"]),
        ("sales of region 7", ["7"]),
        ("How much did the North sell?", ["sell"]),
        ("Which region has the highest sales and the lowest units?", []),
    ],
)
def test_what_the_rules_do_not_understand_is_not_computed(prompt: str, words: list[str]) -> None:
    chosen = choose_query(prompt, TABLES, "en")
    assert set(words) <= set(chosen["unsure"])
    assert "sql" not in chosen


def test_of_several_tables_the_one_that_the_words_fit_is_taken() -> None:
    staff = {
        "label": "staff.csv",
        "rows": 9,
        "columns": [
            {"name": "Name", "kind": "text", "distinct": 9, "values": ["Ann", "Bob"]},
            {"name": "Salary", "kind": "number", "distinct": 9},
        ],
    }
    assert choose_query("Who earns the most?", [*TABLES, staff], "en")["table"] == "staff.csv"
    assert choose_query("total sales", [staff, *TABLES], "en")["table"] == "sales.csv"
    twin = {**TABLES[0], "label": "other.csv"}
    assert "unsure" in choose_query("total sales", [*TABLES, twin], "en")


def test_a_row_of_totals_is_not_added_up_once_more() -> None:
    fees = {
        "label": "fees.docx",
        "rows": 3,
        "columns": [
            {"name": "Service", "kind": "text", "distinct": 3, "values": ["Backup", "Hosting", "Total"]},
            {"name": "Fee", "kind": "number", "distinct": 3},
        ],
    }
    assert "NOT IN ('Total')" in choose_query("What is the sum of the fees?", [fees], "en")["sql"]
