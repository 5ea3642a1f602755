"""Files of the evaluation: those in the folder `files`, and those that are made here because they are binary."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path

import docx
import openpyxl
from PIL import Image, ImageDraw
from pptx import Presentation
from pptx.util import Inches
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Flowable, PageBreak, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

FOLDER = Path(__file__).parent / "files"
Rows = Sequence[Sequence[object]]


def read_file(name: str) -> bytes:
    return _MADE[name]() if name in _MADE else (FOLDER / name).read_bytes()


def _word(*blocks: str | Rows) -> bytes:
    document = docx.Document()
    for block in blocks:
        if isinstance(block, str):
            document.add_paragraph(block)
            continue
        table = document.add_table(rows=0, cols=len(block[0]))
        for row in block:
            for cell, value in zip(table.add_row().cells, row, strict=True):
                cell.text = str(value)
    out = BytesIO()
    document.save(out)
    return out.getvalue()


def _pdf(*pages: Sequence[str | Rows]) -> bytes:
    style = getSampleStyleSheet()["BodyText"]
    story: list[Flowable] = []
    for number, blocks in enumerate(pages):
        if number:
            story.append(PageBreak())
        for block in blocks:
            if isinstance(block, str):
                story.append(Paragraph(block, style))
            else:
                grid = Table([list(map(str, row)) for row in block], hAlign="LEFT")
                grid.setStyle(TableStyle([("GRID", (0, 0), (-1, -1), 0.5, colors.grey)]))
                story.append(grid)
            story.append(Spacer(1, 10))
    out = BytesIO()
    SimpleDocTemplate(out, pagesize=A4, invariant=1).build(story)
    return out.getvalue()


def contract() -> bytes:
    return _word(
        "Service agreement",
        "This agreement is made between Northwind Traders Ltd and Bluebird Hosting GmbH on 1 February 2025.",
        "Bluebird provides hosting, support and daily backups for the online shop of Northwind.",
        [["Service", "Fee per month"], ["Hosting", "590"], ["Support", "640"], ["Backup", "185"]],
        "Invoices are sent on the first day of each month and are payable within 14 days.",
        "Either party may end this agreement in writing with a notice period of 60 days to the end of a quarter.",
        "The agreement is governed by the law of England and Wales.",
    )


def offer() -> bytes:
    return _word(
        "Angebot Nr. 2025-118",
        "Sehr geehrte Frau Hartmann, wir bieten Ihnen die folgenden Leistungen an.",
        [
            ["Position", "Leistung", "Preis"],
            ["1", "Einrichtung", "2.450,00 €"],
            ["2", "Wartung", "1.200,00 €"],
            ["3", "Schulung", "890,00 €"],
        ],
        "Das Angebot ist bis zum 31. August 2025 gültig. Alle Preise verstehen sich zuzüglich Umsatzsteuer.",
    )


def report() -> bytes:
    return _pdf(
        [
            "Harbour Foods plc: annual report 2024",
            "Harbour Foods had a good year. Revenue grew by 12% to 18.2 million pounds, mainly because of the new"
            " chilled range. The company opened four shops in the north of England and closed one in Bristol.",
            "The number of employees rose from 310 to 342. Staff turnover fell to 9%, the lowest value since 2016.",
        ],
        [
            "The table shows revenue and operating profit by quarter, in thousands of pounds.",
            [
                ["Quarter", "Revenue", "Operating profit"],
                ["Q1", "4,120", "980"],
                ["Q2", "4,390", "1,105"],
                ["Q3", "4,610", "1,240"],
                ["Q4", "5,080", "1,410"],
            ],
        ],
        [
            "The main risk for 2025 is the price of energy, which makes up a fifth of all costs. The board has"
            " signed a contract that fixes two thirds of the electricity price until 2027.",
            "The board proposes a dividend of 14 pence per share. The annual meeting takes place on 22 May 2025"
            " in Manchester.",
        ],
    )


def french_report() -> bytes:
    return _pdf(
        [
            "Rapport annuel de la coopérative Les Trois Vallées",
            "La coopérative compte 214 adhérents. Une nouvelle fromagerie a été ouverte à Annecy en septembre.",
        ],
        [
            "Chiffres clés, en milliers d'euros",
            [
                ["Indicateur", "2022", "2023", "2024"],
                ["Chiffre d'affaires", "15 200", "16 900", "18 450"],
                ["Résultat net", "610", "720", "845"],
                ["Investissements", "1 300", "980", "2 150"],
            ],
        ],
    )


def roadmap() -> bytes:
    slides = Presentation()
    first = slides.slides.add_slide(slides.slide_layouts[1])
    first.shapes.title.text = "Product roadmap 2025"
    first.placeholders[1].text = "Fewer, larger releases\nMobile first"
    second = slides.slides.add_slide(slides.slide_layouts[5])
    second.shapes.title.text = "Plan"
    rows = [
        ["Feature", "Owner", "Planned"],
        ["Single sign-on", "Kim", "Q1 2025"],
        ["Offline mode", "Jonas", "Q2 2025"],
        ["Mobile app", "Priya", "Q3 2025"],
    ]
    grid = second.shapes.add_table(4, 3, Inches(1), Inches(2), Inches(7), Inches(2)).table
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            grid.cell(at, column).text = value
    out = BytesIO()
    slides.save(out)
    return out.getvalue()


def spanish_sales() -> bytes:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.title = "Ventas"
    sales: list[list[str | float]] = [
        ["Fecha", "Vendedor", "Zona", "Importe"],
        ["2025-01-10", "Marta", "Norte", 2350.5],
        ["2025-01-22", "Pablo", "Norte", 1800],
        ["2025-02-05", "Sofía", "Sur", 4100.75],
        ["2025-02-18", "Marta", "Norte", 5500],
        ["2025-03-03", "Pablo", "Norte", 3320],
        ["2025-03-26", "Sofía", "Sur", 5200],
    ]
    for row in sales:
        sheet.append(row)
    goals = book.create_sheet("Objetivos")
    targets: list[list[str | float]] = [
        ["Vendedor", "Objetivo"],
        ["Marta", 7000],
        ["Pablo", 6000],
        ["Sofía", 9000],
    ]
    for row in targets:
        goals.append(row)
    out = BytesIO()
    book.save(out)
    return out.getvalue()


def scanned() -> bytes:
    """One page that is a picture of text."""
    page = Image.new("RGB", (1240, 600), "white")
    draw = ImageDraw.Draw(page)
    draw.text((100, 100), "Delivery note 5521", fill="black", font_size=48)
    draw.text((100, 200), "Twelve boxes of tiles were delivered to Mill Lane.", fill="black", font_size=36)
    out = BytesIO()
    page.save(out, "PDF", resolution=150)
    return out.getvalue()


def damaged() -> bytes:
    return report()[:700]


_MADE: Mapping[str, Callable[[], bytes]] = {
    "contract.docx": contract,
    "angebot.docx": offer,
    "report.pdf": report,
    "rapport.pdf": french_report,
    "roadmap.pptx": roadmap,
    "ventas.xlsx": spanish_sales,
    "scanned.pdf": scanned,
    "damaged.pdf": damaged,
}
