"""`clew serve --processes`: several processes behind one address; one that dies is started again."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import Api
from tests.app import graphs_yaml
from tests.processes import ROOT, clew, lives, one_line, serving, until

pytestmark = pytest.mark.timeout(240)

RUNS = 12


def test_processes_share_an_address_and_a_sqlite_file(tmp_path: Path) -> None:
    (tmp_path / "clew.yaml").write_text(graphs_yaml())
    with serving(tmp_path, "--processes", "2", PYTHONPATH=f"{ROOT / 'src'}:{ROOT}") as server:
        supervisor = psutil.Process(server.process.pid)

        def servers() -> list[int]:
            return [child.pid for child in supervisor.children() if lives(child.pid)]

        until(lambda: server.log.count('"listening"') == 2, 120)
        first = servers()
        assert len(first) == 2
        api = Api(server)
        with ThreadPoolExecutor(RUNS) as threads:
            runs = list(threads.map(lambda _: api.start("two_steps", log=[]), range(RUNS)))
        assert {api.rest(run)["status"] for run in runs} == {"completed"}
        os.kill(first[0], signal.SIGKILL)
        until(lambda: server.log.count('"listening"') == 3, 120)
        assert "started again" in server.log
        second = servers()
        assert len(second) == 2
        assert first[1] in second
        assert api.run("two_steps", log=[])["status"] == "completed"
        server.signal(signal.SIGTERM)
        assert server.wait()[0] == 0
        assert not any(lives(pid) for pid in second)
        assert "Traceback" not in server.log
        assert "Fatal" not in server.log
        assert server.stdout.read_text().count("address") == 1


def test_processes_end_with_their_supervisor(tmp_path: Path) -> None:
    with serving(tmp_path, "--processes", "2") as server:
        children = [child.pid for child in psutil.Process(server.process.pid).children()]
        server.signal(signal.SIGKILL)
        server.wait()
        until(lambda: not any(lives(pid) for pid in children), 60)


@pytest.mark.parametrize(
    ("command", "environ", "said"),
    [
        (
            ("serve", "--processes", "2"),
            {"CLEW_DATABASE_URL": "memory://"},
            "memory://, which only one process sees",
        ),
        (("serve", "--processes", "2", "--reload"), {}, "--reload: expected neither"),
        (("worker",), {"CLEW_DATABASE_URL": "memory://"}, "memory://, which no other process can share"),
        (("worker", "--graphs", ","), {}, "--graphs: expected names of graphs"),
        (("worker", "--graphs", "nope"), {}, "--graphs: no graph 'nope'; there are"),
        (("worker", "--concurrency", "0"), {}, "--concurrency: expected a whole number from 1 to 1000"),
        (("serve",), {"CLEW_RUNNER_KIND": "workers"}, "CLEW_RUNNER_KIND: workers need Postgres"),
        (("serve",), {"CLEW_RUNNER_KIND": "many"}, "CLEW_RUNNER_KIND: expected one of local, workers"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, command: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    refused = clew(tmp_path, *command, **environ)
    assert refused.returncode == 2
    assert said in one_line(refused)
