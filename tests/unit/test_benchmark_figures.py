"""What benchmarks work out and how their client reads: a ratio round by round, sections, answers in pieces."""

import asyncio

import pytest

from benchmarks.arms.client import Connection, HttpFailed
from benchmarks.arms.figures import Figures, Goal

pytestmark = pytest.mark.anyio

LENGTH = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'
CHUNKS = (
    b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n3;x=y\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'
)


class Wire(asyncio.Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)


@pytest.mark.parametrize("answer", [LENGTH, CHUNKS])
@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_an_answer_is_read_whole_in_whatever_pieces_it_comes(answer: bytes, size: int) -> None:
    connection, wire, parts = Connection("127.0.0.1:1"), Wire(), list[bytes]()
    connection.connection_made(wire)
    for _ in range(2):  # the second one on the same connection
        asked = asyncio.ensure_future(connection.ask("GET", "/x", on_part=parts.append))
        await asyncio.sleep(0)
        for at in range(0, len(answer), size):
            connection.data_received(answer[at : at + size])
        assert (await asked).strip() == b'{"a":1}'
    assert b"".join(parts).replace(b"\n", b"") == b'{"a":1}' * 2
    assert wire.sent.count(b"GET /x HTTP/1.1\r\n") == 2


async def test_a_connection_that_ends_before_the_answer_is_an_error() -> None:
    connection = Connection("127.0.0.1:1")
    connection.connection_made(Wire())
    asked = asyncio.ensure_future(connection.ask("GET", "/x"))
    await asyncio.sleep(0)
    connection.data_received(LENGTH[:20])
    connection.connection_lost(None)
    with pytest.raises(HttpFailed):
        await asked


def test_a_ratio_is_taken_round_by_round_and_an_absent_arm_has_none() -> None:
    figures = Figures("some")
    figures.begin("cost")
    for ours, theirs in ((1.0, 2.0), (10.0, 40.0), (3.0, 4.0)):
        figures.add("CPU", "ours", ours)
        figures.add("CPU", "theirs", theirs)
    goals = [
        Goal("CPU", ("CPU", "ours"), ("CPU", "theirs"), 1 / 3),
        Goal("absent", ("CPU", "ours"), ("CPU", "absent"), 1),
    ]
    (ratio,) = figures.ratios(goals)
    assert (ratio.median, ratio.low, ratio.high, ratio.rounds) == (0.5, 0.25, 0.75, 3)
    assert not ratio.met
    assert "NOT met" in str(ratio)


def test_a_section_that_is_measured_again_forgets_its_own_figures_only() -> None:
    figures = Figures("some")
    for section in ("cost", "stream", "cost"):
        figures.begin(section)
        figures.add(f"{section} ms", "ours", 1.0)
    assert figures.rounds == {"cost ms": {"ours": [1.0]}, "stream ms": {"ours": [1.0]}}
    assert figures.sections == {"cost": ["cost ms"], "stream": ["stream ms"]}
