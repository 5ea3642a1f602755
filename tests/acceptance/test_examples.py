"""The examples do what they say, each run a process of its own."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]


async def run(example: str, *arguments: str, cwd: Path) -> str:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        str(ROOT / "examples" / example),
        *arguments,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},  # noqa: TID251 - a child inherits what we have
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    assert child.returncode == 0
    return out.decode().strip()


async def test_a_second_process_remembers_the_first(tmp_path: Path) -> None:
    assert await run("remembering_agent.py", "My name is Ada.", cwd=tmp_path) == "I remember []."
    assert "My name is Ada." in await run("remembering_agent.py", "Who am I?", cwd=tmp_path)
