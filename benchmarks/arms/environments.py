"""Python environments of `benchmarks/peers.py`: one for each server, with the versions its requirements file names."""

import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
# Aegra needs 3.12, and all arms run on the same Python.
OLDEST = (3, 12)
NAMES = ("python3.13", "python3.12", "python3")

_ASK = """
import json, importlib.metadata as m, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version()} | found))
"""
# What a reader of the figures wants to know the version of.
TOLD = (
    *("clew-server", "langgraph-cli", "langgraph-api", "langgraph-runtime-inmem", "aegra-api"),
    *("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres"),
    *("langchain-core", "pydantic", "fastapi", "starlette", "uvicorn", "uvloop", "asyncpg", "psycopg"),
)


class Absent(Exception):
    """The arm cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    folder: Path
    versions: dict[str, str] = field(compare=False)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def command(self, name: str) -> Path:
        return self.folder / "bin" / name


def find_python(named: str | None) -> Path:
    """The first Python new enough that can make environments. A shim may lead nowhere, so each is run."""
    candidates = [named] if named else [found for name in NAMES if (found := shutil.which(name))]
    if not named:
        versions = Path.home() / ".pyenv" / "versions"
        candidates += [str(path) for name in NAMES[:2] for path in versions.glob(f"*/bin/{name}")]
    check = f"import ensurepip, sys; sys.exit(sys.version_info < {OLDEST})"
    for candidate in candidates:
        tried = subprocess.run([candidate, "-c", check], capture_output=True, check=False)
        if tried.returncode == 0:
            return Path(candidate)
    raise Absent(
        f"no Python {'.'.join(map(str, OLDEST))} or newer with its venv module; name one with --python"
    )


def prepare(name: str, python: Path) -> Environment:
    """Make the environment unless it is there; raises Absent with what pip said."""
    arguments = _clew_arguments() if name == "clew" else ["-r", str(REQUIREMENTS / f"{name}.txt")]
    folder = FOLDER / f"{name}-{_digest(name, python)}"
    ready = folder / ".ready"
    if not ready.exists():
        print(f"installing {name}", flush=True)
        _run([str(python), "-m", "venv", "--clear", str(folder)], name)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
        _run([*pip, "--disable-pip-version-check", *arguments], name)
        ready.touch()
    asked = subprocess.run(
        [str(folder / "bin" / "python"), "-c", _ASK, *TOLD], capture_output=True, text=True, check=True
    )
    return Environment(folder, json.loads(asked.stdout))


def _clew_arguments() -> list[str]:
    return ["-c", str(ROOT / "constraints.txt"), "-e", f"{ROOT}[postgres]"]


def _digest(name: str, python: Path) -> str:
    parts = [ROOT / "pyproject.toml", ROOT / "constraints.txt"]
    if name != "clew":
        parts = [REQUIREMENTS / f"{name}.txt"]
    made = hashlib.sha256(str(python).encode())
    for part in parts:
        made.update(part.read_bytes())
    return made.hexdigest()[:12]


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["it said nothing"]
        reason = re.sub(r"https?://\S+", "(address)", lines[-1])
        raise Absent(f"{name} could not be installed: {reason}")
