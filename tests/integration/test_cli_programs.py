"""Claude Code, Codex CLI and Gemini CLI behind one driver: transcripts in the form that each documents, replayed."""

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clew.apps.drivers.cli import CliDriver
from clew.apps.drivers.inquiries import Inquiry, Purpose, Reports, Workplace
from clew.domain.errors import Permanent, Transient
from clew.domain.profile import CLI_DRIVERS
from tests.processes import ROOT

pytestmark = pytest.mark.anyio

TRANSCRIPTS = ROOT / "tests" / "transcripts"
ANSWER = "An empty cart now has the total 0."
SESSIONS = {
    "cli:claude": "5b0c7a52-4f2e-4b51-9a7e-1c1f3f6a9d10",
    "cli:codex": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "cli:gemini": "7d1f3c0e-52aa-4c3e-9f0d-3a3f1d2b9c11",
}
TOKENS = {"cli:claude": (3336, 161), "cli:codex": (24763, 122), "cli:gemini": (5100, 130)}
DOINGS = {
    "cli:claude": ["Read /home/ann/code/shop/cart.py", "Edit /home/ann/code/shop/cart.py"],
    "cli:codex": ["run bash -lc 'cat cart.py'", "update cart.py"],
    "cli:gemini": ["read_file cart.py", "replace cart.py"],
}


@dataclass
class Program:
    """One of them in a folder, which says what it is told to say."""

    name: str
    folder: Path
    doings: list[str] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)

    async def ask(self, transcript: str | None = None, *, edits: bool = True, session: str = "") -> Any:
        file = self.folder / "transcript.jsonl"
        recorded = (TRANSCRIPTS / f"{self.name.partition(':')[2]}.jsonl").read_text()
        file.write_text(recorded if transcript is None else transcript)
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        driver = CliDriver(
            self.name,
            [sys.executable, str(ROOT / "tests" / "replay.py"), str(file), str(self.note)],
            model="a-model",
            environment={"PATH": os.environ["PATH"]},  # noqa: TID251 - a child's
            folder=self.folder,
            seconds=30,
        )
        place = Workplace(
            folder=str(work),
            session=session,
            reports=Reports(doing=self.doings.append, session=self.sessions.append),
        )
        purpose = Purpose.EDIT if edits else Purpose.REVIEW
        return await driver.ask(
            Inquiry(purpose=purpose, role="You are the developer.", prompt="Mend it", workplace=place)
        )

    @property
    def note(self) -> Path:
        return self.folder / "calls.jsonl"

    @property
    def calls(self) -> list[Any]:
        return [json.loads(line) for line in self.note.read_text().splitlines()]


@pytest.fixture(params=CLI_DRIVERS)
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Program:
    return Program(request.param, tmp_path)


async def test_a_transcript_gives_the_answer_its_tokens_its_session_and_what_was_done(
    program: Program,
) -> None:
    reply = await program.ask()
    assert reply.text == ANSWER
    assert (reply.tokens_in, reply.tokens_out) == TOKENS[program.name]
    assert program.sessions == [SESSIONS[program.name]]
    assert program.doings == DOINGS[program.name]


async def test_the_prompt_is_on_stdin_and_the_options_say_what_it_may_do(program: Program) -> None:
    await program.ask()
    await program.ask(edits=False)
    first, second = program.calls
    assert "Mend it" in first["prompt"]
    assert not [option for option in first["options"] if "Mend it" in option]
    allowed = {
        "cli:claude": ("acceptEdits", "Edit,Write,NotebookEdit,Bash"),
        "cli:codex": ("workspace-write", "read-only"),
        "cli:gemini": ("auto_edit", "default"),
    }[program.name]
    assert (allowed[0] in first["options"], allowed[0] in second["options"]) == (True, False)
    assert allowed[1] in second["options"]
    assert "a-model" in first["options"]


async def test_a_session_is_gone_on_with_by_its_name(program: Program) -> None:
    await program.ask(session="an-earlier-one")
    (call,) = program.calls
    at = call["options"].index("an-earlier-one")
    assert call["options"][at - 1] in ("--resume", "resume")


async def test_a_session_that_the_program_does_not_know_is_begun_anew(program: Program) -> None:
    with pytest.raises(Permanent):
        await program.ask("No conversation found\n", session="unknown")
    first, second = program.calls
    assert "unknown" in first["options"]
    assert "unknown" not in second["options"]


async def test_a_transcript_that_ends_in_the_middle_is_no_answer(program: Program) -> None:
    recorded = (TRANSCRIPTS / f"{program.name.partition(':')[2]}.jsonl").read_text()
    with pytest.raises((Permanent, Transient), match="without a result"):
        await program.ask("".join(recorded.splitlines(keepends=True)[:-1]))


FAILURES = {
    "cli:claude": '{"type":"result","subtype":"success","is_error":true,"result":"API Error: Rate limit reached"}',
    "cli:codex": '{"type":"turn.failed","error":{"message":"Rate limit reached"}}',
    "cli:gemini": '{"type":"result","status":"error","error":{"type":"x","message":"Rate limit reached"}}',
}


async def test_a_failure_has_its_class_and_its_words_are_kept_apart(program: Program) -> None:
    with pytest.raises(Transient) as failed:
        await program.ask(FAILURES[program.name])
    assert failed.value.error_class == "rate_limit"
    assert "reached" not in str(failed.value)
    assert failed.value.answered is not None
    assert "Rate limit reached" in failed.value.answered.text


@pytest.mark.parametrize(
    ("name", "file"), [("cli:codex", ".codex/config.toml"), ("cli:gemini", ".gemini/settings.json")]
)
async def test_settings_of_the_folder_that_start_programs_are_refused(
    tmp_path: Path, name: str, file: str
) -> None:
    path = tmp_path / "work" / file
    path.parent.mkdir(parents=True)
    path.write_text("")
    program = Program(name, tmp_path)
    with pytest.raises(Permanent, match=file):
        await program.ask()
    assert not program.note.exists()
