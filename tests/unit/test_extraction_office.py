"""Word, Excel and PowerPoint."""

import base64
import io
import random
import zipfile

import docx
import pytest
from openpyxl import Workbook

from tests.made_files import giant_png, image, packed, read_here, slides, word, workbook


def changed(data: bytes, part: str, old: bytes, new: bytes) -> bytes:
    """The same package with one part edited."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert old in files[part]
    return packed(files | {part: files[part].replace(old, new)})


def with_file(data: bytes, name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return packed({one: archive.read(one) for one in archive.namelist()} | {name: content})


def test_a_word_document_is_its_text_its_tables_and_its_images() -> None:
    picture = image()
    found = read_here("letter.docx", word(images=[picture]))
    body, table, drawn = found.contents
    assert body.name == "letter"
    assert body.content_type == "text/markdown"
    assert body.data == (
        "# Quarterly report\n\nSales rose in the north.\n\n- a point\n\n"
        "| region | sales |\n| --- | --- |\n| north | 12 |\n| a/b |  |\n\nThe end."
    )
    assert (table.name, table.content_type) == ("table_1", "text/csv")
    assert table.data == "region,sales\nnorth,12\na|b,\n"
    assert table.summary == "2 x 2: region, sales"
    assert (drawn.name, base64.b64decode(drawn.data)) == ("image_1", picture)
    assert found.warnings == ()


def test_insertions_count_and_deletions_do_not() -> None:
    data = changed(
        word(),
        "word/document.xml",
        b"<w:t>Sales rose in the north.</w:t>",
        b"<w:t>Sales</w:t></w:r><w:ins><w:r><w:tab/><w:t>fell</w:t></w:r></w:ins>"
        b"<w:del><w:r><w:delText>rose</w:delText><w:t>gone</w:t></w:r></w:del><w:r><w:t>.</w:t>",
    )
    assert "Sales\tfell." in read_here("a.docx", data).contents[0].data


def test_merged_cells_keep_the_columns_in_line() -> None:
    document = docx.Document()
    table = document.add_table(2, 3)
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(0, 2).text = "c"
    for n in range(3):
        table.cell(1, n).text = str(n)
    out = io.BytesIO()
    document.save(out)
    assert read_here("a.docx", out.getvalue()).contents[1].data == "wide,,c\n0,1,2\n"


def test_macros_are_ignored_and_mentioned() -> None:
    data = changed(
        word(),
        "[Content_Types].xml",
        b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
        b"application/vnd.ms-word.document.macroEnabled.main+xml",
    )
    found = read_here("evil.docm", with_file(data, "word/vbaProject.bin", b"Sub AutoOpen()"))
    assert found.contents[0].data.startswith("# Quarterly report")
    assert found.warnings == ("it holds macros; they are ignored",)


def test_a_workbook_is_a_table_a_sheet() -> None:
    picture = image()
    sales, notes, drawn = read_here("sheet.xlsx", workbook(images=[picture])).contents
    assert (sales.name, sales.content_type) == ("Sales", "text/csv")
    assert sales.data == "region,units,day\nnorth,3,2026-01-02\nsüd,2.5,\n"
    assert sales.summary == "2 x 3: region, units, day"
    assert (sales.metadata["rows"], sales.metadata["sheets"], sales.metadata["hidden"]) == (2, 2, False)
    assert (notes.name, notes.metadata["hidden"]) == ("Notes", True)
    assert drawn.content_type == "image/png"


def test_a_sheet_begins_where_its_first_cell_is() -> None:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet["C3"], sheet["D3"], sheet["D5"] = "a", "b", 2
    out = io.BytesIO()
    book.save(out)
    (item,) = read_here("a.xlsx", out.getvalue()).contents
    assert item.data == "a,b\n,\n,2\n"


def test_a_sheet_name_is_only_a_label() -> None:
    book = Workbook()
    sheet = book.active
    assert sheet is not None
    sheet.title = "..%2f.. <b>"
    sheet.append(["x"])
    out = io.BytesIO()
    book.save(out)
    (item,) = read_here("a.xlsx", out.getvalue()).contents
    assert item.name == "..%2f.. <b>"


def test_slides_have_their_texts_notes_and_pictures() -> None:
    picture = image()
    found = read_here("show.pptx", slides("First", "Second", images=[picture])).contents
    assert [item.name for item in found] == ["slide_1", "slide_1_image_1", "slide_2"]
    assert found[0].data == "First\n\none\ntwo\n\nsay it slowly"
    assert found[2].data == "Second\n\none\ntwo\n\nsay it slowly"
    assert base64.b64decode(found[1].data) == picture
    assert (found[0].metadata["slide"], found[0].metadata["slides"]) == (1, 2)


@pytest.mark.parametrize("name", ["a.docx", "a.xlsx", "a.pptx", "a.zip"])
@pytest.mark.parametrize("cut", [10, 1000, -30])
def test_a_cut_off_package_gives_a_warning(name: str, cut: int) -> None:
    made = {
        "docx": word(),
        "xlsx": workbook(),
        "pptx": slides("x"),
        "zip": packed({"a.txt": random.Random(1).randbytes(5000)}),
    }
    found = read_here(name, made[name[2:]][:cut])
    assert found.contents == ()
    assert "damaged" in found.warnings[0]


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.docx", word(), "word/document.xml"),
        ("a.pptx", slides("x"), "ppt/presentation.xml"),
        ("a.xlsx", workbook(), "xl/workbook.xml"),
    ],
)
def test_a_package_without_its_main_part_gives_a_warning(name: str, data: bytes, part: str) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {one: archive.read(one) for one in archive.namelist() if one != part}
    found = read_here(name, packed(files))
    assert found.contents == ()
    assert found.warnings


def test_entities_are_not_expanded() -> None:
    laughs = b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 9))
    data = changed(
        word(),
        "word/document.xml",
        b"<w:document ",
        b'<!DOCTYPE x [<!ENTITY l0 "ha"><!ENTITY file SYSTEM "file:///etc/passwd">'
        + laughs
        + b"]><w:document ",
    )
    data = changed(data, "word/document.xml", b"Sales rose", b"&l8;&file;Sales rose")
    found = read_here("a.docx", data)
    assert "haha" not in str(found)
    assert "root:" not in str(found)


def test_an_image_of_a_document_can_be_a_bomb_alone() -> None:
    data = with_file(workbook(), "xl/media/image9.png", giant_png())
    found = read_here("a.xlsx", data)
    assert [item.name for item in found.contents] == ["Sales", "Notes"]
    assert "64 million" in found.warnings[0]
