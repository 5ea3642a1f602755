"""Programs are bounded and leave nothing behind; a lock outlives whoever started the program that has it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clew.apps.drivers.cli import CliDriver
from clew.apps.drivers.inquiries import Inquiry, Material, Purpose, Workplace
from clew.domain.errors import Permanent, Transient
from clew.processes.holders import StillHeld, alone
from clew.processes.run import NotStarted, TimedOut, TooMuch, run
from tests.processes import ROOT, lives, until

pytestmark = pytest.mark.anyio

FAKE = ROOT / "tests" / "fake_claude.py"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: the server runs on uvloop, whose processes differ from asyncio's in small things."""
    return "asyncio", {"use_uvloop": request.param}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def run_here(command: Sequence[str], folder: Path, **more: Any) -> Any:
    bounds: dict[str, Any] = {"seconds": 20, "most": 100_000, **more}
    return await run(command, folder=folder, environment=ENVIRONMENT, **bounds)


def begun(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env={"PYTHONPATH": str(ROOT / "src")}, start_new_session=True)


class TestRunning:
    async def test_a_program_is_told_and_heard(self, tmp_path: Path) -> None:
        code = "import sys; sys.stdout.write(sys.stdin.read().upper()); sys.stderr.write('e'); sys.exit(3)"
        ended = await run_here(python(code), tmp_path, given=b"hello")
        assert (ended.code, ended.out, ended.err) == (3, b"HELLO", b"e")

    @pytest.mark.fault("X4")
    async def test_it_sees_the_folder_and_the_variables_it_is_given_and_no_others(
        self, tmp_path: Path
    ) -> None:
        code = "import json, os; print(json.dumps([os.getcwd(), dict(os.environ)]))"
        cwd, environment = json.loads((await run_here(python(code), tmp_path)).out)
        assert cwd == str(tmp_path)
        assert {name: environment[name] for name in ENVIRONMENT} == ENVIRONMENT
        assert set(environment) <= {*ENVIRONMENT, "LC_CTYPE"}  # Python's own doing

    async def test_one_that_does_not_listen_is_heard_all_the_same(self, tmp_path: Path) -> None:
        ended = await run_here(python("print('done')"), tmp_path, given=b"x" * 10_000_000)
        assert ended.out == b"done\n"

    async def test_one_that_is_not_there_is_said_to_be_so(self, tmp_path: Path) -> None:
        with pytest.raises(NotStarted):
            await run_here(["/no/such/program"], tmp_path)
        with pytest.raises(NotStarted):
            await run_here(python("pass"), tmp_path / "gone")

    @pytest.mark.fault("X3")
    @pytest.mark.parametrize("where", ["stdout", "stderr"])
    async def test_one_that_does_not_stop_talking_is_ended(self, tmp_path: Path, where: str) -> None:
        with pytest.raises(TooMuch):
            await run_here(python(f"import sys\nwhile True: sys.{where}.write('x' * 65536)"), tmp_path)

    @pytest.mark.fault("X3")
    async def test_one_that_does_not_end_is_ended_with_its_children(self, tmp_path: Path) -> None:
        (tmp_path / "mode").write_text("hang")
        running = asyncio.create_task(
            run_here([sys.executable, str(FAKE), str(tmp_path)], tmp_path, seconds=1.5)
        )
        with pytest.raises(TimedOut):
            await running
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        until(lambda: not any(map(lives, pids)))

    async def test_one_that_is_called_off_is_ended_with_its_children(self, tmp_path: Path) -> None:
        (tmp_path / "mode").write_text("hang")
        running = asyncio.create_task(run_here([sys.executable, str(FAKE), str(tmp_path)], tmp_path))
        async with asyncio.timeout(20):
            while not (tmp_path / "pids").exists() or not (tmp_path / "pids").read_text():
                await asyncio.sleep(0.02)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        until(lambda: not any(map(lives, pids)))

    async def test_a_child_left_behind_ends_with_the_program_and_holds_nobody_up(
        self, tmp_path: Path
    ) -> None:
        (tmp_path / "mode").write_text("orphan")
        ended = await run_here([sys.executable, str(FAKE), str(tmp_path)], tmp_path, given=b"hi")
        assert ended.code == 0
        _, child = (int(pid) for pid in (tmp_path / "pids").read_text().split())
        until(lambda: not lives(child))


HOLD = """
import asyncio, os, sys
from pathlib import Path
from clew.processes.holders import alone
from clew.processes.run import run

async def main():
    async with alone(Path(sys.argv[1]), seconds=5) as lock:
        await run([sys.executable, "-c", "import time; time.sleep(600)"], folder=Path("/"),
                  environment={}, seconds=600, most=1000, lock=lock)

asyncio.run(main())
"""


class TestLocks:
    @pytest.mark.fault("X5")
    async def test_two_cannot_have_it(self, tmp_path: Path) -> None:
        async with alone(tmp_path / "lock", seconds=1):
            with pytest.raises(StillHeld):
                async with alone(tmp_path / "lock", seconds=0.2):
                    pass
        async with alone(tmp_path / "lock", seconds=1):
            pass

    @pytest.mark.fault("X5")
    async def test_a_program_whose_server_was_killed_is_ended_by_the_next(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        server = begun([*python(HOLD), str(path)])
        until(lambda: path.exists() and path.stat().st_size > 0)
        pid = int(path.read_text().split()[0])
        os.kill(server.pid, signal.SIGKILL)
        server.wait()
        assert lives(pid), "the program outlives its server, or there is nothing to see here"
        async with alone(path, seconds=10):
            assert not lives(pid)

    async def test_a_number_that_is_another_s_now_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        bystander = begun(python("import time; time.sleep(600)"))
        try:
            async with alone(path, seconds=1):
                path.write_text(f"{bystander.pid} 1")  # as if it had begun at another time
                with pytest.raises(StillHeld):
                    async with alone(path, seconds=0.2):
                        pass
            assert lives(bystander.pid)
        finally:
            bystander.kill()
            bystander.wait()

    async def test_a_link_in_its_place_is_not_followed(self, tmp_path: Path) -> None:
        (tmp_path / "precious").write_text("keep")
        (tmp_path / "lock").symlink_to(tmp_path / "precious")
        with pytest.raises(OSError, match="symbolic"):
            async with alone(tmp_path / "lock", seconds=1):
                pass
        assert (tmp_path / "precious").read_text() == "keep"


def driver(folder: Path, *, seconds: float = 20, model: str = "") -> CliDriver:
    return CliDriver(
        "cli:claude",
        [sys.executable, str(FAKE), str(folder)],
        model=model,
        environment=ENVIRONMENT,
        folder=folder,
        seconds=seconds,
    )


def inquiry(prompt: str = "hi", purpose: Purpose = Purpose.WRITE, **more: Any) -> Inquiry:
    return Inquiry(purpose=purpose, role="You are somebody.", prompt=prompt, **more)


def calls(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "calls.jsonl").read_text().splitlines()]


class TestDriver:
    async def test_it_answers_and_counts(self, tmp_path: Path) -> None:
        reply = await driver(tmp_path).ask(inquiry("what is it?"))
        assert "what is it?" in reply.text
        assert (reply.tokens_in, reply.tokens_out) == (11, 7)

    @pytest.mark.fault("X1")
    @pytest.mark.parametrize(
        "text",
        ["--help", "-oProxyCommand=x", "$(id)", "; id", "--settings=/tmp/x", "a\nb", "\u2028", "é", "'\""],
    )
    async def test_nothing_that_is_asked_becomes_an_argument(self, tmp_path: Path, text: str) -> None:
        await driver(tmp_path).ask(inquiry("plain"))
        await driver(tmp_path).ask(inquiry(text, material=(Material(label=text, text=text),)))
        plain, odd = calls(tmp_path)
        assert odd["argv"] == plain["argv"]
        assert text in odd["prompt"]

    async def test_who_only_looks_is_given_no_hands(self, tmp_path: Path) -> None:
        work = tmp_path / "work"
        work.mkdir()
        place = Workplace(folder=str(work))
        await driver(tmp_path, model="opus").ask(inquiry(purpose=Purpose.REVIEW, workplace=place))
        await driver(tmp_path).ask(inquiry(purpose=Purpose.EDIT, workplace=place))
        access, edits = (call["argv"] for call in calls(tmp_path))
        assert "acceptEdits" not in access
        assert access[access.index("--disallowedTools") + 1] == "Edit,Write,NotebookEdit,Bash"
        assert access[access.index("--model") + 1] == "opus"
        assert edits[edits.index("--permission-mode") + 1] == "acceptEdits"
        for argv in (access, edits):
            assert argv[:4] == ["-p", "--output-format", "stream-json", "--verbose"]
            # What the folder itself would like to configure is not heard.
            assert argv[argv.index("--setting-sources") + 1] == "user"
            assert "--strict-mcp-config" in argv
        assert all(call["cwd"] == str(work) for call in calls(tmp_path))

    @pytest.mark.parametrize(
        ("mode", "kind", "error_class"),
        [
            ("overloaded", Transient, "llm_overload"),
            ("rate limit", Transient, "rate_limit"),  # with exit code 0
            ("silence", Transient, "llm_overload"),
            ("login", Permanent, "auth"),
            ("crash", Permanent, "internal"),
            ("nonsense", Permanent, "internal"),
            ("flood", Permanent, "validation"),
        ],
    )
    async def test_failures_have_their_class_and_repeat_nothing(
        self, tmp_path: Path, mode: str, kind: type[Transient | Permanent], error_class: str
    ) -> None:
        (tmp_path / "mode").write_text(mode)
        with pytest.raises(kind) as failed:
            await driver(tmp_path).ask(inquiry())
        assert getattr(failed.value, "error_class", None) == error_class
        assert "secret" not in str(failed.value)

    async def test_its_thoughts_are_no_answer(self, tmp_path: Path) -> None:
        (tmp_path / "mode").write_text("thinks")
        assert (await driver(tmp_path).ask(inquiry())).text == "Four."

    async def test_one_that_takes_too_long_is_a_timeout_of_its_own_kind(self, tmp_path: Path) -> None:
        (tmp_path / "mode").write_text("hang")
        with pytest.raises(Transient) as failed:
            await driver(tmp_path, seconds=1.0).ask(inquiry())
        assert failed.value.error_class == "cli_timeout"

    async def test_one_that_is_not_installed_is_named(self, tmp_path: Path) -> None:
        missing = CliDriver(
            "cli:claude", ["/no/such/claude"], model="", environment={}, folder=tmp_path, seconds=1
        )
        with pytest.raises(Permanent, match="'claude' cannot be started here: install it") as failed:
            await missing.ask(inquiry())
        assert failed.value.error_class == "not_found"
