"""Tables as data: kinds of columns, numbers in any notation, groups."""

import pytest

from clew.apps.chat.agents.tables import (
    Column,
    ColumnKind,
    How,
    Table,
    fold,
    group,
    read_table,
    shown,
    to_number,
)
from clew.domain.errors import Permanent
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
    assert (table.rows, table.columns[1].distinct) == (2, 2)


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


def test_groups_are_added_up_and_the_largest_comes_first() -> None:
    groups = group(read(CSV), "region", "sales", How.SUM)
    assert groups.values == (("North", 220.5), ("East", 75.0), ("South", 75.0))


@pytest.mark.parametrize(
    ("how", "north"),
    [(How.MEAN, 110.25), (How.MEDIAN, 110.25), (How.MIN, 100), (How.MAX, 120.5), (How.COUNT, 2)],
)
def test_every_way_to_add_up(how: How, north: float) -> None:
    assert dict(group(read(CSV), "region", "sales", how).values)["North"] == north


def test_time_goes_forward() -> None:
    groups = group(read(CSV), "month", "sales", How.SUM)
    assert groups.is_over_time
    assert [name for name, _ in groups.values] == ["2024-01-01", "2024-02-01", "2024-03-01"]
    long = "day,n\n" + "".join(f"{2000 + year}-06-01,1\n" for year in range(20))
    assert [name for name, _ in group(read(long), "day", "n", How.SUM).values][:2] == ["2000", "2001"]


def test_years_are_in_their_order() -> None:
    groups = group(read("year,n\n2023,1\n2021,5\n2022,2\n"), "year", "n", How.SUM)
    assert [name for name, _ in groups.values] == ["2021", "2022", "2023"]


def test_what_is_too_much_to_look_at_becomes_one() -> None:
    groups = group(read("k,n\n" + "".join(f"k{n:02},{n}\n" for n in range(30))), "k", "n", How.SUM)
    folded = fold(groups, 5, "others")
    assert [name for name, _ in folded.values] == ["k29", "k28", "k27", "k26", "others"]
    assert sum(value for _, value in folded.values) == sum(range(30))


@pytest.mark.parametrize("text", ["", "a,b\n", "\n\n", "only one line"])
def test_a_header_alone_is_no_table(text: str) -> None:
    assert read_table("t", text) is None


def test_ragged_and_doubled_columns_are_taken_as_they_are() -> None:
    table = read("a,a,\n1,2,3\n4\n5,6,7,8\n")
    assert [column.name for column in table.columns] == ["a", "a (2)", "column 3", "column 4"]
    assert table.columns[1].cells == ("2", "", "6")


def test_a_column_that_is_not_there_is_named() -> None:
    with pytest.raises(Permanent, match="nope"):
        group(read(CSV), "nope", None, How.COUNT)


def test_a_huge_table_is_refused() -> None:
    with pytest.raises(Permanent, match="too much"):
        read_table("t", "a\n" + "1\n" * 200_001)


@pytest.mark.parametrize(
    ("number", "text"), [(1234.0, "1,234"), (1234.567, "1,234.57"), (-2.5, "-2.50"), (0.0, "0")]
)
def test_numbers_as_people_write_them(number: float, text: str) -> None:
    assert shown(number) == text
    assert to_number(text) == pytest.approx(number, abs=0.01)
