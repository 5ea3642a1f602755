"""Text, CSV, JSON and HTML."""

import base64
import codecs
import json

import pytest

from tests.made_files import HTML, image, read_here


def test_a_text_is_one_item() -> None:
    (item,) = read_here("notes.txt", b"First line.\nSecond line.").contents
    assert (item.sequence_nr, item.name, item.ext) == (1, "notes", "txt")
    assert item.content_type == "text/plain"
    assert item.data == "First line.\nSecond line."
    assert item.summary == "First line. Second line."
    assert item.metadata == {
        "isText": True,
        "base64Encoded": False,
        "aiProcessed": False,
        "encoding": "utf-8",
        "characters": 24,
        "lines": 2,
    }


def test_an_empty_file_is_an_empty_text() -> None:
    found = read_here("empty.txt", b"")
    assert [(item.data, item.summary) for item in found.contents] == [("", "(no text)")]
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (codecs.BOM_UTF8 + "Grüße".encode(), "Grüße"),
        ("Grüße".encode("utf-16"), "Grüße"),
        (codecs.BOM_UTF16_BE + "Grüße".encode("utf-16-be"), "Grüße"),
        ("Grüße".encode("utf-32"), "Grüße"),
        (
            "Привет, мир! Это довольно длинный русский текст для проверки.".encode("cp1251"),
            "Привет, мир! Это довольно длинный русский текст для проверки.",
        ),
        (
            "これは日本語の文章です。とても長い文章です。".encode("shift_jis"),
            "これは日本語の文章です。とても長い文章です。",
        ),
    ],
    ids=["utf-8-sig", "utf-16", "utf-16-be", "utf-32", "cp1251", "shift_jis"],
)
def test_encodings_are_found(data: bytes, text: str) -> None:
    assert read_here("a.txt", data).contents[0].data == text


def test_bytes_that_fit_no_encoding_are_replaced() -> None:
    (item,) = read_here("a.txt", b"good \xc3\x28 text that is mostly fine " * 10).contents
    item.data.encode()
    assert "text that is mostly fine" in item.data


def test_markdown_and_unknown_texts_are_texts() -> None:
    assert read_here("a.md", b"# T").contents[0].content_type == "text/markdown"
    (code,) = read_here("tool.py", b"print('x')\n").contents
    assert (code.ext, code.content_type) == ("py", "text/plain")
    (drawing,) = read_here("x.svg", b"<svg><script>alert(1)</script></svg>").contents
    assert (drawing.content_type, drawing.metadata["isText"]) == ("image/svg+xml", True)


def test_a_text_too_long_to_keep_is_cut_and_says_so() -> None:
    found = read_here("a.txt", "é".encode() * 1000, output_bytes=501)
    (item,) = found.contents
    assert item.data == "é" * 250
    assert item.metadata["truncated"] is True
    assert "cut after 250 characters" in found.warnings[0]


@pytest.mark.parametrize(
    ("data", "delimiter"),
    [
        (b"a,b,c\n1,2,3\n4,5,6\n", ","),
        (b"a;b;c\n1,5;2;3\n4;5;6\n", ";"),
        (b"a\tb\tc\n1\t2\t3\n4\t5\t6\n", "\t"),
        (b"a|b|c\n1|2|3\n4|5|6\n", "|"),
        (b'a,b,c\n"1,1",2,3\n"x\ny",5,6\n', ","),
    ],
)
def test_a_table_is_known_by_its_shape(data: bytes, delimiter: str) -> None:
    (item,) = read_here("t.csv", data).contents
    assert item.data == data.decode()
    about = {key: item.metadata[key] for key in ("delimiter", "rows", "columns", "header")}
    assert about == {"delimiter": delimiter, "rows": 2, "columns": 3, "header": ["a", "b", "c"]}
    assert item.summary == "2 x 3: a, b, c"


def test_a_huge_cell_and_an_unclosed_quote_are_still_csv() -> None:
    (item,) = read_here("t.csv", b"a,b\n" + b"x" * 300_000 + b",1\n").contents
    assert item.metadata["rows"] == 1
    assert read_here("t.csv", b'a,b\n"never closed').contents[0].data == 'a,b\n"never closed'
    assert read_here("t.csv", b"").contents[0].summary == "0 x 0"


def test_json_keeps_its_text_and_tells_its_shape() -> None:
    text = '{"name": "x", "list": [1, 2]}'
    (item,) = read_here("a.json", text.encode()).contents
    assert item.data == text
    assert item.content_type == "application/json"
    assert item.metadata["keys"] == ["name", "list"]
    (rows,) = read_here("a.json", json.dumps([{"a": 1}] * 3).encode()).contents
    assert rows.summary == "3 x {a}"
    assert rows.metadata["length"] == 3


@pytest.mark.parametrize("data", [b"{", b"[" * 100_000, b"nope"], ids=["cut off", "deep", "word"])
def test_what_is_not_json_is_kept_as_text(data: bytes) -> None:
    found = read_here("a.json", data)
    assert found.contents[0].content_type == "text/plain"
    assert found.contents[0].data.encode() == data
    assert "not valid JSON" in found.warnings[0]


def test_html_is_what_a_reader_sees() -> None:
    (item,) = read_here("page.html", HTML).contents
    assert item.data == "Head\nOne bold word.\nleft\nright\n1\t2"
    assert item.metadata["title"] == "A & B"
    assert "steal" not in item.data
    (unnamed,) = read_here("page", HTML).contents
    assert unnamed.data == item.data


def test_lines_are_where_a_browser_would_break_them() -> None:
    html = (
        "<p>one\n  <i>two</i><br>three</p>four<ul><li>a<ul><li>b</ul>c</ul>"
        "<pre>x = 1\n  y</pre><table><tr><th>h<th>i<tr><td><p>1</p><td>2</table>end"
    )
    item, table = read_here("p.html", html.encode()).contents
    assert table.data == "h,i\n1,2\n"
    assert item.data == "one two\nthree\nfour\na\nb\nc\nx = 1\ny\nh\ti\n1\n2\nend"


def test_images_inside_a_page_are_items() -> None:
    picture = image()
    inline = base64.b64encode(picture).decode()
    html = f"<p>x</p><img src='data:image/png;base64,{inline}'><img src='http://elsewhere/x.png'><img src='data:image/png;base64,%%'>"
    text, found = read_here("page.html", html.encode()).contents
    assert text.data == "x"
    assert (found.name, found.ext, base64.b64decode(found.data)) == ("image_1", "png", picture)


def test_a_page_says_its_encoding() -> None:
    html = "<html><head><meta charset='iso-8859-2'></head><body>Žluťoučký kůň</body></html>"
    assert read_here("p.html", html.encode("iso-8859-2")).contents[0].data == "Žluťoučký kůň"
    assert read_here("p.html", b"<meta charset='no-such'><p>x</p>").contents[0].data == "x"


def test_a_deep_page_is_read() -> None:
    assert read_here("p.html", b"<div>" * 20_000 + b"deep").contents[0].data == "deep"


@pytest.mark.parametrize(
    ("name", "data"),
    [("a.bin", b"\0\1\2\3" * 100), ("a.txt", bytes(range(256)) * 10), ("old.doc", b"\xd0\xcf\x11\xe0\0\0\0")],
)
def test_what_nobody_can_read_is_said(name: str, data: bytes) -> None:
    found = read_here(name, data)
    assert found.contents == ()
    assert found.warnings == ("there is no reader for this kind of file",)
