"""House rules a tool does not check: what may stand in the repository at all."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import clew

ROOT = Path(__file__).parents[2]

# Put together from pieces: this file is read too.
PACKAGE_INDEX = re.compile(
    "|".join(
        [
            r"pypi\." + r"(org|python\.org)",
            r"python" + r"hosted\.",
            r"registry\." + r"(npmjs|yarnpkg)",
            r"https?://\S+/" + r"simple\b",
            r"--(extra-)?" + r"index-url",
            r"deb\." + r"debian\.org",
        ]
    )
)
# Each of these runs code, or can, when it reads bytes somebody else wrote.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}


def tracked(*patterns: str) -> list[Path]:
    """Files git knows and that are still there."""
    # Somebody else may own the clone (a CI container): that is no reason to refuse listing it.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@cache
def imported_names(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def test_no_file_names_a_package_index() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked()
        for number, line in enumerate(path.read_text("utf-8", errors="replace").splitlines(), 1)
        if PACKAGE_INDEX.search(line)
    ]
    assert found == [], "where packages come from is the machine's business"


def test_no_mocks() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in tracked("*.py")
        if any(name.split(".")[:2] == ["unittest", "mock"] for name in imported_names(path))
    ]
    assert found == [], "use the real thing in memory, or a small fake"


def test_nothing_unpickles() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path in tracked("*.py")
        if any(name.split(".")[0] in UNSAFE_MODULES for name in imported_names(path))
    ]
    assert found == [], "no code may run from stored bytes"


@pytest.fixture(scope="module")
def constraints() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_constraints_are_exact_versions_and_nothing_else(constraints: list[str]) -> None:
    assert [line for line in constraints if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line)] == []


@pytest.mark.fault("G11")
def test_every_dependency_is_pinned(constraints: list[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    pinned = {normalised(line) for line in constraints}
    assert {normalised(one) for one in wanted} - pinned - {"clew-server"} == set()


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [
        one for name, extra in project["optional-dependencies"].items() if name != "dev" for one in extra
    ]
    declared = {normalised(one) for one in [*project["dependencies"], *extras]}
    distributions = packages_distributions()
    undeclared = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in tracked("src/*.py")
        for module in {name.split(".")[0] for name in imported_names(path)}
        if module not in sys.stdlib_module_names and module != "clew"
        if declared.isdisjoint(normalised(name) for name in distributions.get(module, []))
    }
    assert undeclared == set(), "what another package happens to bring may leave with it"


def normalised(requirement: str) -> str:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_package_and_the_project_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert clew.__version__ == project["version"]


def test_ci_can_be_executed() -> None:
    mode = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "--stage", ".ci/run"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert mode.startswith("100755")
