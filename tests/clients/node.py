"""Clients from npm: installed once into .venv, in the versions of the lock beside this file, and run by Node."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.processes import ROOT

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json", ".npmrc")
UNREACHABLE = ("ENOTFOUND", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "EAI_AGAIN", "ENETUNREACH")
SECONDS = 60


def installed() -> Path:
    """The folder with the clients. Skips the test where npm or its registry cannot be reached."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("the clients come from npm, and there is no Node.js here")
    digest = sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:12]
    folder = ROOT / ".venv" / "clients" / digest
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "installed").exists():
            _install(folder)
            (folder / "installed").touch()
    return folder


def _install(folder: Path) -> None:
    for name in FILES:
        shutil.copy(HERE / name, folder)
    done = subprocess.run(["npm", "ci"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode and any(word in done.stderr for word in UNREACHABLE):
        pytest.skip("npm's registry cannot be reached")
    assert not done.returncode, done.stderr


@contextmanager
def scripts(folder: Path) -> Generator[Path]:
    """Copies of our scripts where Node finds the clients: above them."""
    with TemporaryDirectory(dir=folder) as name:
        for path in HERE.glob("*.*js*"):
            if path.suffix in (".mjs", ".jsx"):
                shutil.copy(path, name)
        yield Path(name)


class Script:
    """A script that runs: it prints a line of JSON for each thing that happens."""

    def __init__(self, path: Path, scenario: str, **given: Any) -> None:
        self._process = subprocess.Popen(
            ["node", str(path), scenario, json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Script":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def lines(self) -> Iterator[Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def until(self, name: str) -> Any:
        """What it says under this name."""
        heard = []
        for line in self.lines():
            heard.append(line)
            if name in line:
                return line[name]
        raise AssertionError((heard, self._errors()))

    def all(self) -> dict[str, Any]:
        """Everything it says until its end, by name."""
        told = {name: value for line in self.lines() for name, value in line.items()}
        assert self._process.wait(SECONDS) == 0, (told, self._errors())
        return told

    def _errors(self) -> str:
        self._process.kill()
        return self._process.communicate()[1][-3000:]
