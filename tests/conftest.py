"""Fixtures every room may use: the async backend and real Postgres databases."""

import asyncio
import gc
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from clew.stores.postgres import migrate
from tests.databases import SHARED, locate
from tests.faults.report import FaultReport, Trials
from tests.postgres import PostgresServer, postgres_server

# A slow machine is not a failing property. A change is measured by the same examples every time; others are tried with
# `--hypothesis-profile chance`, as `make faults` does.
hypothesis.settings.register_profile("clew", deadline=None, derandomize=True)
hypothesis.settings.register_profile("chance", deadline=None, print_blob=True)
hypothesis.settings.load_profile("clew")

TEMPLATE = "clew_template"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, help="replay a test of chance with the seed it printed")
    parser.addoption(
        "--without-postgres", action="store_true", help="leave out every test that needs a Postgres"
    )
    parser.addoption(
        "--faults", action="store_true", help="print the table of rows of tests/faults/rows.toml"
    )
    parser.addoption(
        "--trials", type=float, default=1.0, help="so many of the trials of random fault tests (0.02)"
    )
    parser.addoption(
        "--budget", type=float, default=math.inf, help="minutes after which no fault test begins"
    )
    parser.addoption(
        "--soak", type=float, default=5.0, help="minutes of load for each test of tests/faults/test_soak.py"
    )
    parser.addoption("--save-faults", type=Path, help="write the counts of the table to this file, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--faults"):
        budget, save_to = config.getoption("--budget"), config.getoption("--save-faults")
        config.pluginmanager.register(FaultReport(budget=60 * budget, save_to=save_to))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--faults"):
        # Those that kill come first: what the budget leaves out is then what is tested with every change anyway.
        items.sort(key=lambda item: "faults" not in item.path.parts)
    for item in items:
        mainly = item.get_closest_marker("mainly_sqlite")
        if mainly is not None and mainly.args != (False,) and "postgres" in _parameters(item):
            item.add_marker(pytest.mark.long)
    if config.getoption("--without-postgres"):
        config.hook.pytest_deselected(items=[item for item in items if _needs_postgres(item)])
        items[:] = [item for item in items if not _needs_postgres(item)]


def _needs_postgres(item: pytest.Item) -> bool:
    """Because of one of its fixtures, or of the database it is parametrized with."""
    return "postgres" in _parameters(item) or any(
        "postgres" in name for name in getattr(item, "fixturenames", ())
    )


def _parameters(item: pytest.Item) -> list[str]:
    called = getattr(item, "callspec", None)
    return [value for value in called.params.values() if isinstance(value, str)] if called else []


def pytest_collection_finish() -> None:
    """What is loaded by now stays: no collection need look at it again. `clew serve` does the same.

    The others are rare, for every test that opens an app makes tens of thousands of objects that stay until its end.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 200)


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """What chance grows from: another one in every run, printed so that a failure can be played again."""
    given: int | None = request.config.getoption("--seed")
    seed = random.SystemRandom().randrange(2**32) if given is None else given
    sys.stdout.write(f"--seed {seed}\n")
    return seed


@pytest.fixture
def trials(request: pytest.FixtureRequest) -> Trials:
    """How often to try, by `--trials`; the number made is in the table of `make faults`."""
    return Trials(request.config.getoption("--trials"))


@pytest.fixture
def soak_seconds(request: pytest.FixtureRequest) -> float:
    minutes: float = request.config.getoption("--soak")
    return 60 * minutes


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """The server whose databases the tests get. Never stop it: take `own_postgres` for that."""
    with postgres_server(fsync=False) as server:
        asyncio.run(migrate(server.create_database(TEMPLATE)))
        yield server


@pytest.fixture
def new_postgres_url(shared_postgres: PostgresServer) -> Iterator[Callable[[str], str]]:
    """Makes as many databases as a test asks for, each a copy of the named template."""
    made: list[str] = []

    def new(template: str) -> str:
        made.append(f"test_{next(_numbers)}")
        return shared_postgres.create_database(made[-1], template=template)

    yield new
    for name in made:
        shared_postgres.drop_database(name)


@pytest.fixture
def postgres_url(new_postgres_url: Callable[[str], str]) -> str:
    """A fresh database with every migration applied."""
    return new_postgres_url(TEMPLATE)


@pytest.fixture
def empty_postgres_url(new_postgres_url: Callable[[str], str]) -> str:
    """A fresh database without tables, for tests of the migrations themselves."""
    return new_postgres_url("template1")


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest) -> str:
    """A fresh database that several processes can open: a SQLite file, and a database of the tests' Postgres.

    `@pytest.mark.parametrize("where", [...], indirect=True)` for others, as `tests.databases.locate` names them.
    """
    return locate(request.param, request)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A server of this test alone, to stop, kill and start as it likes (up in about a second)."""
    with postgres_server() as server:
        yield server


_numbers = itertools.count(1)
