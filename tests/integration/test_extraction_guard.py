"""Files are read in a process of their own: nothing in them harms the server, and nothing outlives its limits."""

import asyncio
import contextlib
import errno
import os
import platform
import random
import socket
import sys
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clew.documents.extraction import guard
from clew.documents.extraction.guard import GuardedExtractor, open_extractor
from clew.documents.extraction.limits import ExtractionLimits
from clew.domain.documents import Extraction
from clew.domain.errors import Permanent, Transient
from clew.ports.files import Extractor
from tests.made_files import giant_png, image, one_of_each, packed, pdf, read_here
from tests.waiting import until

pytestmark = pytest.mark.anyio

HOSTILE = "tests.malicious_files:read"
SMALL = ExtractionLimits(cpu_seconds=1, wall_seconds=60, memory_bytes=256 * 2**20, output_bytes=4 * 2**20)
SHORT = replace(SMALL, wall_seconds=3)  # enough for one that does nothing, on a busy machine too
FILTERED = sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64")


async def parts(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 2**20):
        yield data[start : start + 2**20]


@asynccontextmanager
async def hostile(limits: ExtractionLimits = SMALL, workers: int = 2) -> AsyncGenerator[GuardedExtractor]:
    async with open_extractor(limits, reader=HOSTILE, workers=workers) as extractor:
        yield extractor


async def attempt(extractor: Extractor, what: str) -> Extraction:
    return await extractor.extract("x.txt", parts(what.encode()))


async def outcome(extractor: Extractor, what: str) -> str:
    found = await attempt(extractor, what)
    assert found.warnings == ()
    return found.contents[1].data


_others: set[int] = set()


@pytest.fixture(autouse=True)
def others() -> None:
    """Children that other tests of this process have left at work, such as a Postgres."""
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())


def family() -> list[psutil.Process]:
    """Every process this test started that still lives."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        if child.pid not in _others:
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [child, *child.children(recursive=True)]
    return [one for one in found if lives(one)]


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_every_format_gives_the_same_inside_its_cage() -> None:
    """Nothing a reader needs is missing there: no file, no import, no memory."""
    async with open_extractor() as extractor:
        for name, data in one_of_each().items():
            found = await extractor.extract(name, parts(data))
            assert found == read_here(name, data), name
            assert found.contents
            assert found.warnings == (), name


async def test_a_port_is_kept() -> None:
    extractor: Extractor
    async with open_extractor() as extractor:
        assert (await extractor.extract("a.txt", parts(b"x"))).contents[0].data == "x"


@pytest.mark.parametrize(
    ("limits", "what", "warning"),
    [
        (SHORT, "sleep", "stopped after 3 seconds"),
        (SHORT, "stop_ignoring_signals", "stopped after 3 seconds"),
        (SMALL, "compute", "1 seconds of computing"),
        (SMALL, "memory", "more memory"),
        (SMALL, "segfault", "stops its reader"),
        (SMALL, "exit", "stops its reader"),
        (SMALL, "hang_up", "stops its reader"),
        (SMALL, "output", "more than may be kept"),
        (SMALL, "endless", "sent invalid data|more than may be kept"),
        (SMALL, "nonsense", "more than may be kept|sent invalid data"),
        (SMALL, "forgery", "sent invalid data"),
    ],
)
async def test_a_reader_that_misbehaves_is_stopped_and_the_next_file_is_read(
    limits: ExtractionLimits, what: str, warning: str
) -> None:
    async with hostile(limits) as extractor:
        found = await attempt(extractor, what)
        assert found.contents[0].data == "before", "what was read before stays"
        assert any(part in found.warnings[-1] for part in warning.split("|")), found.warnings
        assert await outcome(extractor, "nothing") == "done"
        await until(lambda: len(family()) == 1)  # only the nursery is left
    assert family() == []


async def test_why_a_reader_ended_is_known_however_late_its_end_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "_DYING_SECONDS", 0)
    async with hostile() as extractor:
        assert (await attempt(extractor, "compute")).warnings == (
            "reading stopped after 1 seconds of computing",
        )


@pytest.mark.skipif(not FILTERED, reason="the kernel's filter is known for Linux on x86-64 and ARM64 only")
async def test_a_reader_that_is_taken_over_can_do_nothing(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        async with hostile() as extractor:
            for what in (
                f"read {secret}",
                f"write {tmp_path / 'new'}",
                f"write {secret}",
                f"delete {secret}",
                f"connect {port}",
                "fork",
                "run",
                "replace",
                f"kill {os.getpid()}",
                "limits",
            ):
                assert (await outcome(extractor, what)).startswith("refused"), what
    assert secret.read_text() == "mine"
    assert os.listdir(tmp_path) == ["secret"]


@pytest.mark.skipif(not FILTERED, reason="the kernel's filter is known for Linux on x86-64 and ARM64 only")
async def test_a_reader_reaches_no_system_call_but_those_it_needs() -> None:
    """1,024 numbers are more than the kernel has: what it gains later is refused too."""
    async with hostile() as extractor:
        assert await outcome(extractor, "every_call") == "reached: []"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers below are those of x86-64")
@pytest.mark.parametrize(
    "call",
    [
        "200 {pid} 0",  # tkill
        "234 {pid} {pid} 0",  # tgkill of another process
        "129 {pid} 0 0",  # rt_sigqueueinfo
        "203 {pid} 0 0",  # sched_setaffinity
        "140 0 {pid}",  # getpriority
        "452 -100 0 0 0",  # fchmodat2
        "188 0 0 0 0 0",  # setxattr
        "56 17",  # clone of a process: SIGCHLD alone
        "72 3 8 1",  # fcntl F_SETOWN
        "72 3 10 9",  # fcntl F_SETSIG
        "16 3 35074 0",  # ioctl SIOCSPGRP
        "157 4 1",  # prctl PR_SET_DUMPABLE
        "1073741825 1 0 0",  # write, by its number for 32-bit pointers
    ],
)
async def test_a_call_that_would_reach_another_process_or_file_is_refused(call: str) -> None:
    async with hostile() as extractor:
        assert await outcome(extractor, f"call {call.format(pid=os.getpid())}") == str(errno.EPERM)


async def test_no_secret_and_no_open_file_reaches_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLEW_CANARY_SECRET", "s3cret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        os.set_inheritable(server.fileno(), True)
        async with hostile() as extractor:
            names = await outcome(extractor, "environment")
            assert "CANARY" not in names
            assert "PYTHONPATH" in names
            for process in family():
                assert "CLEW_CANARY_SECRET" not in process.environ()
            # Standard input, output and error lead nowhere; the fourth is the connection.
            assert await outcome(extractor, "descriptors") == "4"


async def test_what_a_library_prints_disturbs_nothing() -> None:
    async with hostile() as extractor:
        assert await outcome(extractor, "print") == "printed"
        assert await outcome(extractor, "nothing") == "done"


async def test_progress_is_heard() -> None:
    heard: list[tuple[int, int]] = []
    async with hostile() as extractor:
        await extractor.extract(
            "x", parts(b"progress"), progress=lambda done, total: heard.append((done, total))
        )
    assert heard == [(1, 3), (2, 3), (3, 3)]


async def test_the_loop_goes_on_while_files_are_read() -> None:
    served = 0

    async def others() -> None:
        nonlocal served
        while True:
            await asyncio.sleep(0.01)
            served += 1

    big = "Ein Satz mit Umlauten: äöü. ".encode() * 700_000
    async with open_extractor() as extractor:
        await extractor.extract("warm.txt", parts(b"x"))
        watcher = asyncio.create_task(others())
        found = await extractor.extract("big.txt", parts(big))
        watcher.cancel()
    assert found.contents[0].data == big.decode()
    assert served > 10, "20 MB came back while others were served"


async def test_only_so_many_files_are_read_at_once() -> None:
    async with hostile(ExtractionLimits(wall_seconds=1), workers=2) as extractor:
        await attempt(extractor, "nothing")
        jobs = [asyncio.create_task(attempt(extractor, "sleep")) for _ in range(4)]
        most = 0
        async with asyncio.timeout(30):
            while not all(job.done() for job in jobs):
                most = max(most, len(family()) - 1)
                await asyncio.sleep(0.02)
    assert most == 2


async def test_files_of_a_tenant_that_take_long_delay_no_other_tenant() -> None:
    async with hostile(ExtractionLimits(wall_seconds=60)) as extractor:
        await attempt(extractor, "nothing")
        slow = [asyncio.create_task(extractor.extract("x", parts(b"sleep"), tenant="many")) for _ in range(6)]
        await asyncio.sleep(0.1)
        found = await extractor.extract("x", parts(b"nothing"), tenant="single")
        assert found.contents[1].data == "done"
        assert not any(job.done() for job in slow)
        for job in slow:
            job.cancel()
        await asyncio.gather(*slow, return_exceptions=True)


async def test_a_reading_that_is_cancelled_leaves_no_process() -> None:
    async with hostile(ExtractionLimits(wall_seconds=60)) as extractor:
        await attempt(extractor, "nothing")
        job = asyncio.create_task(attempt(extractor, "sleep"))
        await until(lambda: len(family()) == 2)
        job.cancel()
        await until(lambda: len(family()) == 1)
        with pytest.raises(asyncio.CancelledError):
            await job
        assert await outcome(extractor, "nothing") == "done"


async def test_a_nursery_that_was_killed_is_replaced() -> None:
    async with hostile(ExtractionLimits(wall_seconds=60)) as extractor:
        await attempt(extractor, "nothing")
        job = asyncio.create_task(attempt(extractor, "sleep"))
        await until(lambda: len(family()) == 2)
        nursery, child = family()
        nursery.kill()
        with pytest.raises(Transient):
            await job
        assert await outcome(extractor, "nothing") == "done"
        await until(lambda: not lives(child))


async def test_a_signal_to_all_processes_leaves_the_reading_to_the_server() -> None:
    async with hostile() as extractor:

        def stop_all(done: int, total: int) -> None:
            """Called while the child is at work."""
            for process in family():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.terminate()

        found = await extractor.extract("x", parts(b"progress"), progress=stop_all)
        assert found.contents[1].data == "done"


async def test_bytes_that_do_not_come_are_not_the_files_fault() -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"some"
        raise TimeoutError("the database hangs")

    async with open_extractor() as extractor:
        with pytest.raises(TimeoutError):
            await extractor.extract("a.txt", broken())
        assert (await extractor.extract("a.txt", parts(b"x"))).contents


async def test_readers_that_cannot_be_loaded_are_said() -> None:
    async with open_extractor(reader="tests.no_such_module:read") as extractor:
        with pytest.raises(Permanent, match="clew-server\\[documents\\]"):
            await extractor.extract("a.txt", parts(b"x"))


async def test_children_die_with_the_server(tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(
        "import asyncio\n"
        "from clew.documents.extraction.guard import open_extractor\n"
        "async def parts():\n"
        "    yield b'sleep'\n"
        "async def main():\n"
        "    async with open_extractor(reader='tests.malicious_files:read') as extractor:\n"
        "        await extractor.extract('x', parts())\n"
        "asyncio.run(main())\n"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    server = await asyncio.create_subprocess_exec(sys.executable, str(script), env={"PYTHONPATH": paths})
    # The nursery, and the child that sleeps in it.
    await until(lambda: len(psutil.Process(server.pid).children(recursive=True)) == 2)
    descendants = psutil.Process(server.pid).children(recursive=True)
    server.kill()
    await server.wait()
    await until(lambda: not any(map(lives, descendants)))


def swollen_pdf() -> bytes:
    """A page whose content is packed twice: 100 MB in a few hundred bytes."""
    packed_once = zlib.compress(b" " * 100_000_000, 9)
    stream = zlib.compress(packed_once, 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R>>",
        b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(stream), stream),
    ]
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj%s endobj\n" % one for one in enumerate(objects, 1))
    return body + b"trailer<</Root 1 0 R/Size 5>>"


def lying_xlsx() -> bytes:
    """Its directory says 100 bytes where 72 MB come out."""
    strings = b"<sst>" + b"<si><t>aaaaaaaaaaaaaaaaaaaa</t></si>" * 2_000_000
    data = packed(
        {
            "[Content_Types].xml": b"<Types/>",
            "xl/workbook.xml": b"<workbook><sheets><sheet name='a' sheetId='1'/></sheets></workbook>",
            "xl/sharedStrings.xml": strings,
        }
    )
    size = len(strings).to_bytes(4, "little")
    assert data.count(size) == 2
    return data.replace(size, (100).to_bytes(4, "little"))


BOMBS: dict[str, Callable[[], bytes]] = {
    "zeros.zip": lambda: packed({"zeros.bin": b"\0" * 50_000_000}),
    "bomb.docx": lambda: packed({"[Content_Types].xml": b"<T/>", "word/document.xml": b"\0" * 50_000_000}),
    "liar.xlsx": lying_xlsx,
    "giant.png": giant_png,
    "swollen.pdf": swollen_pdf,
}


@pytest.mark.fault("F7")
@pytest.mark.parametrize("name", BOMBS)
async def test_bombs_do_not_go_off(name: str) -> None:
    data = BOMBS[name]()
    async with open_extractor() as extractor:
        await extractor.extract("warm.txt", parts(b"x"))
        async with asyncio.timeout(60):
            found = await extractor.extract(name, parts(data))
        assert sum(len(item.data) for item in found.contents) < 1000
        assert found.warnings
        assert (await extractor.extract("a.txt", parts(b"x"))).contents


class Caged:
    """An extractor for tests that are not async, which hypothesis needs."""

    def __init__(self, runner: asyncio.Runner, extractor: Extractor) -> None:
        self._runner = runner
        self._extractor = extractor

    def read(self, name: str, data: bytes) -> Extraction:
        return self._runner.run(self._extractor.extract(name, parts(data)))


@pytest.fixture(scope="module")
def cage() -> Iterator[Caged]:
    with asyncio.Runner() as runner:
        opened = open_extractor(ExtractionLimits(cpu_seconds=5, wall_seconds=20))
        yield Caged(runner, runner.run(opened.__aenter__()))
        runner.run(opened.__aexit__(None, None, None))


SEEDS = {name: data for name, data in one_of_each().items() if name not in ("old.txt", "read.me.md")}
damage = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(min_size=0, max_size=6), st.integers(0, 40)),
    min_size=1,
    max_size=8,
)


def mutated(data: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    """Pieces cut out and others put in their place, anywhere."""
    for where, new, gone in changes:
        start = int(where * len(data))
        data = data[:start] + new + data[start + gone :]
    return data


@pytest.mark.fault("F6")
@pytest.mark.parametrize("name", SEEDS)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=damage)
def test_damaged_files_end_in_items_and_warnings(
    cage: Caged, name: str, changes: list[tuple[float, bytes, int]]
) -> None:
    check(cage.read(name, mutated(SEEDS[name], changes)))


def check(found: Extraction) -> None:
    """What holds of every file, however damaged. A reader must also never miss what its cage keeps from it."""
    assert found.contents or found.warnings
    assert not any("PermissionError" in warning or "ImportError" in warning for warning in found.warnings)
    for item in found.contents:
        assert "\0" not in item.data
        assert item.summary
        assert {"isText", "base64Encoded", "aiProcessed"} <= set(item.metadata)


@pytest.mark.fault("F6")
@pytest.mark.long
@pytest.mark.parametrize("name", SEEDS)
async def test_ten_thousand_damaged_files_of_each_format(name: str) -> None:
    """FAULTS F6: no crash of the parent, nothing past its limits. Zero in 10,000 bounds the rate to 3 in 10,000."""
    chance = random.Random(f"{name} 1")
    own = psutil.Process()

    def damaged() -> bytes:
        changes = [
            (chance.random(), chance.randbytes(chance.randrange(7)), chance.randrange(41))
            for _ in range(chance.randrange(1, 9))
        ]
        return mutated(SEEDS[name], changes)

    async with open_extractor() as extractor:
        before = own.memory_info().rss
        for _ in range(2500):
            jobs = (extractor.extract(name, parts(damaged())) for _ in range(4))
            for found in await asyncio.gather(*jobs):
                check(found)
        assert own.memory_info().rss - before < 100 * 2**20
    assert family() == []


def test_a_picture_in_an_archive_survives_as_it_is(cage: Caged) -> None:
    found = cage.read("a.zip", packed({"x/y.png": image(), "r.pdf": pdf("a page")}))
    assert [item.name for item in found.contents] == ["a", "x/y", "r/page_1"]
