"""Tables as data: kinds of columns, numbers in any notation, groups."""

import pytest

from clew.apps.chat.agents.tables import Groups, Table, fold, read_table
from clew.documents.tables.cells import Column, ColumnKind, shown, to_number
from clew.documents.tables.database import LoadedTable, TableSource, open_tables
from clew.domain.errors import Invalid, Permanent
from tests.tasks import CSV


def read(text: str, delimiter: str = ",") -> Table:
    table = read_table("t.csv", text, delimiter)
    assert table is not None
    return table


def test_columns_know_what_they_are() -> None:
    table = read("id,name,day,price,note\n1,a,2024-01-05,1.50,\n2,b,2024-02-05,2.50,\n")
    assert [column.kind for column in table.columns] == [
        ColumnKind.NUMBER,
        ColumnKind.TEXT,
        ColumnKind.DATE,
        ColumnKind.NUMBER,
        ColumnKind.EMPTY,
    ]
    assert table.rows == 2


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["1", "2.5", "-3"], [1, 2.5, -3]),
        (["1,234", "12,345.50"], [1234, 12345.5]),
        (["1.234,50", "7,25"], [1234.5, 7.25]),
        (["1'234.50", "2 000"], [1234.5, 2000]),
        (["€ 10", "$1,000.00", "5 %", "CHF 3"], [10, 1000, 5, 3]),
        (["(12.00)", "1.00"], [-12, 1]),
        (["007", "12", "x"], [None, 12, None]),
        (["", "1.2.3", "--1", "1e5"], [None, None, None, None]),
    ],
)
def test_numbers_in_any_notation(cells: list[str], numbers: list[float | None]) -> None:
    assert list(Column("c", tuple(cells)).numbers) == numbers


@pytest.mark.parametrize(
    "day", ["2024-02-01", "01.02.2024", "01/02/2024", "2024/02/01", "2024-02-01 10:00:00"]
)
def test_dates_in_any_notation(day: str) -> None:
    column = Column("day", (day,))
    assert column.kind is ColumnKind.DATE
    assert column.dates[0] is not None
    assert (column.dates[0].year, column.dates[0].month) == (2024, 2)


def test_the_notation_that_fits_all_of_a_column_is_taken() -> None:
    dates = Column("day", ("01/02/2024", "12/25/2024")).dates
    assert [date and (date.month, date.day) for date in dates] == [(1, 2), (12, 25)]


def test_what_is_too_much_to_look_at_becomes_one() -> None:
    groups = Groups("k", "n", tuple((f"k{n:02}", float(n)) for n in reversed(range(30))))
    folded = fold(groups, 5, "others", adds_up=True)
    assert [name for name, _ in folded.values] == ["k29", "k28", "k27", "k26", "others"]
    assert sum(value for _, value in folded.values) == sum(range(30))
    averages = fold(groups, 5, "others", adds_up=False)
    assert [name for name, _ in averages.values] == ["k29", "k28", "k27", "k26"]


@pytest.mark.parametrize("text", ["", "a,b\n", "\n\n", "only one line"])
def test_a_header_alone_is_no_table(text: str) -> None:
    assert read_table("t", text) is None


def test_ragged_and_doubled_columns_are_taken_as_they_are() -> None:
    table = read("a,a,\n1,2,3\n4\n5,6,7,8\n")
    assert [column.name for column in table.columns] == ["a", "a (2)", "column 3", "column 4"]
    assert table.columns[1].cells == ("2", "", "6")


def test_a_long_table_is_counted_and_its_first_rows_are_kept() -> None:
    table = read_table("t", "a\n" + "1\n" * 200_001)
    assert table is not None
    assert (table.rows, table.all_rows) == (1_000, 200_001)


def loaded(text: str, delimiter: str = ",") -> LoadedTable:
    with open_tables([TableSource("t.csv", text, delimiter)]) as database:
        (table,) = database.tables
        return table


class TestQueries:
    def test_numbers_and_dates_are_values_in_any_notation(self) -> None:
        text = "Tag;Ort;Umsatz\n01.02.2024;Bern;1.234,50 €\n15.02.2024;Zug;(7,25)\n03.03.2024;;\n"
        with open_tables([TableSource("u.csv", text, ";")]) as database:
            assert database.query('SELECT sum("Umsatz"), max(month("Tag")) FROM "u.csv"').rows == (
                (1227.25, 3),
            )
            kinds = [column.kind for column in database.tables[0].columns]
        assert kinds == ["date", "text", "number"]

    def test_cells_that_do_not_fit_their_column_are_counted(self) -> None:
        table = loaded("n\n" + "1\n" * 50 + "n/a\n")
        assert (table.columns[0].kind, table.columns[0].left_out, table.rows) == ("number", 1, 51)

    def test_a_large_table_is_computed_whole(self) -> None:
        rows = 300_000
        text = "k,n\n" + "".join(f"k{n % 7},{n}\n" for n in range(rows))
        with open_tables([TableSource("big.csv", text)]) as database:
            assert database.tables[0].rows == rows
            (counted,) = database.query('SELECT count(*), sum(n) FROM "big.csv"').rows
        assert counted == (rows, rows * (rows - 1) / 2)

    def test_quotes_line_breaks_and_ragged_rows_are_rows(self) -> None:
        with open_tables([TableSource("t.csv", 'a,b\n1,"x\n y"\n2\n3,4,5\n\n4,"say ""hi"""\n')]) as database:
            rows = database.query('SELECT * FROM "t.csv"').rows
        assert rows == ((1.0, "x\n y", None), (2.0, None, None), (3.0, "4", 5.0), (4.0, 'say "hi"', None))

    @pytest.mark.parametrize(
        "sql",
        [
            'DROP TABLE "t.csv"',
            "SELECT 1; SELECT 2",
            "COPY \"t.csv\" TO '/tmp/clew-copied.csv'",
            "SELECT * FROM read_csv('/etc/passwd')",
            "SELECT * FROM read_text('/etc/passwd')",
            "SELECT * FROM glob('/*')",
            "SELECT * FROM 'http://127.0.0.1/x.csv'",
            "ATTACH '/tmp/clew-attached.db'",
            "INSTALL httpfs",
            "SET enable_external_access = true",
            'SELECT nothing FROM "t.csv"',
            "not a query",
        ],
    )
    def test_a_query_reads_the_tables_and_nothing_else(self, sql: str) -> None:
        with open_tables([TableSource("t.csv", CSV)]) as database, pytest.raises(Invalid):
            database.query(sql)

    def test_a_query_takes_no_more_than_its_time_and_rows(self) -> None:
        with open_tables([TableSource("t.csv", CSV)]) as database:
            with pytest.raises(Permanent, match="longer than"):
                database.query("SELECT count(*) FROM range(100000000000) a, range(1000) b", seconds=0.2)
            result = database.query("SELECT * FROM range(1000)", max_rows=10)
        assert (len(result.rows), result.is_cut) == (10, True)

    def test_a_query_takes_no_more_than_its_memory(self) -> None:
        with open_tables([TableSource("t.csv", CSV)]) as database, pytest.raises(Permanent, match="memory"):
            database.query("SELECT list(range) FROM range(100000000)")

    @pytest.mark.parametrize("text", ["", "a,b\n", "\n\n", "only one line"])
    def test_a_header_alone_is_no_table(self, text: str) -> None:
        with open_tables([TableSource("t", text)]) as database:
            assert database.tables == ()


@pytest.mark.parametrize(
    ("language", "text"),
    [("en", "1,234.50"), ("zh", "1,234.50"), ("de", "1.234,50"), ("pt", "1.234,50"), ("fr", "1\u202f234,50")],
)
def test_numbers_are_written_as_the_language_writes_them(language: str, text: str) -> None:
    assert shown(1234.5, language) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1234.0, "1,234"), (1234.567, "1,234.57"), (-2.5, "-2.50"), (0.0, "0")]
)
def test_numbers_as_people_write_them(number: float, text: str) -> None:
    assert shown(number) == text
    assert to_number(text) == pytest.approx(number, abs=0.01)
