"""Which language a prompt is in, and what Clew says in it."""

import tomllib

import pytest

from clew.apps.chat.agents.language import LanguageDetector
from clew.texts.catalog import DEFAULT
from clew.texts.language import by_script, choose, spoken
from clew.texts.phrases import Text, listed, say
from tests.processes import ROOT

PROMPTS = {
    "en": [
        "Summarize the report and chart sales by region as report.docx",
        "What does the contract say about notice periods?",
        "Please compare the two spreadsheets",
        "Write a short memo for the board",
        "Revenue per month",
        "Total per product",
        "Average price per region",
        "Compare plan and actual",
        "Margin per store",
        "Growth per annum",
        "Sum per category",
        "Budget per team",
        "Profit per item",
        "Hours per project",
        "Errors per server",
        "Margin per client",
    ],
    "de": [
        "Fasse den Bericht zusammen und zeichne den Umsatz nach Region",
        "Was steht im Vertrag über Kündigungsfristen?",
        "Bitte vergleiche die beiden Tabellen",
        "Schreibe eine kurze Notiz für den Vorstand",
        "Umsatz pro Monat",
        "Kosten je Quartal",
    ],
    "fr": [
        "Résume le rapport et fais un graphique des ventes par région",
        "Que dit le contrat sur les délais de préavis ?",
        "Compare les deux tableaux s'il te plaît",
        "Rédige une courte note pour la direction",
        "Ventes par mois",
    ],
    "es": [
        "Resume el informe y haz un gráfico de las ventas por región",
        "¿Qué dice el contrato sobre los plazos de preaviso?",
        "Compara las dos tablas por favor",
        "Escribe una nota breve para la dirección",
        "Ingresos por mes",
        "Ventas por cliente",
    ],
    "it": [
        "Riassumi il rapporto e fai un grafico delle vendite per regione",
        "Che cosa dice il contratto sui termini di preavviso?",
        "Confronta le due tabelle per favore",
        "Scrivi una breve nota per la direzione",
        "Ricavi per mese",
        "Totale per prodotto",
    ],
    "pt": [
        "Resuma o relatório e faça um gráfico das vendas por região",
        "O que diz o contrato sobre os prazos de aviso prévio?",
        "Compare as duas tabelas por favor, não esqueça os totais",
        "Escreva uma nota curta para a direção",
        "Receita por mês",
        "Vendas por cliente",
        "Total por produto",
        "Qual é o total de vendas?",
        "Resuma o documento",
        "Resuma o texto",
        "Lucro por trimestre",
        "Custo por unidade",
    ],
    "zh": [
        "总结报告并按地区绘制销售图表",
        "合同中关于通知期限是怎么说的",
        "请比较这两个表格",
        "写一份简短的备忘录",
    ],
}
detect = LanguageDetector()


@pytest.mark.accept("004-27")
@pytest.mark.parametrize(
    ("language", "prompt"), [(code, text) for code, texts in PROMPTS.items() for text in texts]
)
def test_a_prompt_is_recognised_whatever_was_spoken_before(language: str, prompt: str) -> None:
    assert detect(prompt) == language
    assert detect(prompt, "en") == language
    assert detect(prompt, "de") == language


@pytest.mark.parametrize("before", [None, "en", "de", "it"])
def test_of_three_hundred_short_prompts_97_in_100_are_recognised(before: str | None) -> None:
    prompts = tomllib.loads((ROOT / "evals" / "sentences.toml").read_text("utf-8"))
    asked = [(language, text) for language, texts in prompts.items() for text in texts]
    assert len(asked) >= 300
    assert len({text for _, text in asked}) == len(asked)
    known = () if before is None else (before,)
    wrong = [text for language, text in asked if detect(text, *known) != language]
    assert len(wrong) <= 0.03 * len(asked), wrong


@pytest.mark.parametrize(
    "prompt", ["", "ok", "sales.csv", "12345", "???", "https://example.com/bericht", "`SELECT 1`"]
)
def test_what_says_little_changes_nothing(prompt: str) -> None:
    assert detect(prompt) == DEFAULT
    assert detect(prompt, "fr") == "fr"
    assert detect(prompt, "de") == "de"


def test_file_names_do_not_speak() -> None:
    assert (
        spoken("Fasse quarterly_report_final.docx und https://a.example/read/me zusammen")
        == "Fasse und zusammen"
    )
    assert detect("Fasse the_quarterly_report_of_the_company.docx zusammen") == "de"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("总结", "zh"),
        ("日本語で要約して", None),
        ("한국어", None),
        ("hello", None),
        ("Please read 报告", None),
        ("", None),
    ],
)
def test_scripts(text: str, code: str | None) -> None:
    assert by_script(text) == code


def test_a_language_we_do_not_speak_is_answered_in_the_one_before() -> None:
    assert choose("Vat dit rapport samen", {"de": 0.05, "en": 0.02}, previous="it") == "it"
    assert choose("Vat dit rapport samen", {"de": 0.05, "en": 0.02}) == DEFAULT


def test_another_language_is_answered_in_english() -> None:
    assert say(Text.DONE, "ja") == say(Text.DONE, "en")


def test_values_are_not_read_as_templates() -> None:
    assert say(Text.FAILED, "en", reason="{documents} {0.__class__}").endswith("{documents} {0.__class__}")


def test_lists_are_written_as_the_language_does() -> None:
    assert listed(["a", "b"], "de") == "a, b"
    assert listed(["a", "b"], "zh") == "a、b"
