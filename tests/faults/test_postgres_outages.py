"""A server whose Postgres is restarted, or cuts its connections, again and again: no round fails, and no answer is a 500."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.acceptance.conftest import Api, api_serving
from tests.faults.report import Trials
from tests.postgres import PostgresServer
from tests.processes import Server

CLIENTS = 4
# Answers a client can do something about: it was done, or it is to come back later.
FINE = {200, 503}


def terminate(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'clew'"
        )
    time.sleep(0.2)  # the pause between two faults


def restart(postgres: PostgresServer) -> None:
    postgres.restart("fast")
    time.sleep(0.7)  # the same


FAULTS = {"terminated": terminate, "restarted": restart}
# How often; the long runs are for `make faults`.
TIMES = [4, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]


class Client:
    """Starts runs and reads them, and counts what it is answered."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.answers: Counter[int] = Counter()
        self.started: list[str] = []

    def work(self, is_over: threading.Event) -> None:
        with httpx.Client(base_url=self._server.address, timeout=60, verify=False) as http:
            while not is_over.is_set():
                answer = self._ask(
                    http, "POST", "/api/workflows/start", json={"prompt": PROMPT, "graph": "agent"}
                )
                if answer.status_code == 200:
                    self.started.append(answer.json()["id"])
                    self._ask(http, "GET", f"/api/threads/{self.started[-1]}/events")
                self._ask(http, "GET", "/api/threads")

    def _ask(self, http: httpx.Client, method: str, path: str, **more: Any) -> httpx.Response:
        answer = http.request(method, path, **more)
        self.answers[answer.status_code] += 1
        return answer


PROMPT = "tools: look_up word=x"


@contextmanager
def clients(server: Server) -> Iterator[list[Client]]:
    """At work until the block ends."""
    is_over = threading.Event()
    working = [Client(server) for _ in range(CLIENTS)]
    threads = [threading.Thread(target=one.work, args=(is_over,)) for one in working]
    for thread in threads:
        thread.start()
    try:
        yield working
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.mark.fault("B1")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_no_round_fails_and_no_answer_is_a_500(
    own_postgres: PostgresServer, tmp_path: Path, trials: Trials, fault: str, times: int
) -> None:
    strike: Callable[[PostgresServer], None] = FAULTS[fault]
    url = own_postgres.create_database("struck")
    with api_serving(tmp_path, CLEW_DATABASE_URL=url) as server:
        with clients(server) as working:
            for _ in trials.run(times, seconds=150):
                strike(own_postgres)
        answers = sum((client.answers for client in working), Counter[int]())
        started = [thread_id for client in working for thread_id in client.started]
        assert set(answers) <= FINE, answers
        assert len(started) > trials.made / 4, answers
        api = Api(server)
        for thread_id in started:
            thread = api.rest(thread_id)
            assert thread["status"] == "completed", thread
            assert not [log for log in api.content(thread_id, "log") if log.get("attempt")]
        assert "Traceback" not in server.log
