"""The examples do what they say, each in a folder of its own, by the command line and processes that its users have."""

import asyncio
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.processes import (
    ROOT,
    SECONDS,
    Process,
    Server,
    clew,
    environment,
    nursery,
    serving,
    until,
    working,
)
from tests.terminals import terminal

EXAMPLES = ROOT / "examples"


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the example that the test is named for."""
    return Path(shutil.copytree(EXAMPLES / request.param, tmp_path / "example"))


def example(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("folder", [pytest.param(name, id=name)], indirect=True)


def run_json(folder: Path, *arguments: str, code: int = 0, **environ: str) -> Any:
    ended = clew(folder, *arguments, "--json", **environ)
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout)


def test_every_example_is_on_the_page_and_no_other() -> None:
    listed = set(
        re.findall(r"^\| \[(\S+)\]", (EXAMPLES / "README.md").read_text("utf-8"), flags=re.MULTILINE)
    )
    ignored = {"README.md", "__pycache__"}
    assert listed == {path.name for path in EXAMPLES.iterdir()} - ignored


def be_script(_: Any, *, path: str, arguments: list[str], folder: str, output: str) -> None:
    os.chdir(folder)
    sys.argv = [path, *arguments]
    with Path(output).open("w", encoding="utf-8") as sys.stdout:
        runpy.run_path(path, run_name="__main__")


def run(script: str, *arguments: str, cwd: Path) -> str:
    """What it prints."""
    child = nursery().spawn(
        "tests.acceptance.test_examples:be_script",
        reports=Path(os.devnull),
        path=str(EXAMPLES / script),
        arguments=list(arguments),
        folder=str(cwd),
        output=str(cwd / "output"),
    )
    assert Process(child).wait() == 0
    return (cwd / "output").read_text("utf-8").strip()


def test_a_second_process_remembers_the_first(tmp_path: Path) -> None:
    assert run("remembering_agent.py", "My name is Ada.", cwd=tmp_path) == "I remember []."
    assert "My name is Ada." in run("remembering_agent.py", "Who am I?", cwd=tmp_path)


@example("approval")
def test_a_large_payment_is_approved_through_a_kill_and_made_once(folder: Path) -> None:
    small = run_json(folder, "run", "expenses", "--input", '{"invoice": "A-1", "amount": 20}')
    assert small["state"]["values"]["outcome"] == "paid 20.00"
    with terminal(folder, "run", "expenses", "--input", '{"invoice": "A-2", "amount": 900}') as shown:
        shown.sees("900")
        shown.sees("Approve?")
        shown.kill()
    payments = folder / "payments.txt"
    assert payments.read_text() == "A-1 20.00\n"
    (waiting,) = run_json(folder, "threads", "list", "--status", "blocked")
    with terminal(folder, "approve", waiting["id"], "--follow") as shown:
        shown.sees("paid 900.00")
        assert shown.ends() == 0
    assert payments.read_text() == "A-1 20.00\nA-2 900.00\n"


@example("telegram_bot")
def test_the_bot_takes_an_order_and_asks_for_the_address(folder: Path) -> None:
    shutil.copy(folder / "env.example", folder / ".env")
    said = ["hello", "2 cakes", "and a roll, done", "Castle Street 1"]
    texts = [word for text in said for word in ("--text", text)]
    shown = clew(folder, "channels", "simulate", "bakery", *texts)
    assert shown.returncode == 0, shown.stderr
    assert "We have bread 4.00" in shown.stdout
    assert "2 x cake. Anything else?" in shown.stdout
    assert "Where may we bring it?" in shown.stdout
    assert "2 x cake, 1 x roll to Castle Street 1: 36.80. Thank you!" in shown.stdout


@example("notes")
def test_notes_are_found_by_meaning(folder: Path) -> None:
    with serving(folder) as server:
        assert run("notes/load.py", server.address, cwd=folder) == "5 paragraphs are in the store"
        for question, answer in [
            ("What does a delivery cost?", "Delivery costs three euros"),
            ("When is my refund on the card?", "Refunds go back to the card"),
            ("Who won the cup?", "The notes say nothing about that."),
        ]:
            body = {"graph": "notes", "prompt": question}
            ended = server.post("/api/workflows/start?wait=20", body).raise_for_status().json()
            assert answer in ended["state"]["values"]["messages"][-1]["content"]


@example("coding")
def test_a_plan_is_approved_and_carried_out_in_the_work_tree(folder: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "--quiet", "shop"], cwd=folder, check=True)
    start = [*git, "-C", "shop", "commit", "--quiet", "--allow-empty", "--message", "start"]
    subprocess.run(start, cwd=folder, check=True)
    issue = (folder / "issue.md").read_text("utf-8")
    with terminal(
        folder, "run", "coding", "--issue", "SHOP-7", "--worktree", "shop", "--prompt", issue
    ) as shown:
        shown.sees("return early when the cart is empty")
        shown.sees("Approve?")
        shown.types("y")
        assert shown.ends() == 0
    assert "+++ b/notes/SHOP-7.md" in shown.text
    status = subprocess.run(
        ["git", "status", "--porcelain", "-uall"],
        cwd=folder / "shop",
        capture_output=True,
        text=True,
        check=True,
    )
    assert status.stdout == "?? notes/SHOP-7.md\n"


def be_shop(_: Any, *, folder: str, environ: dict[str, str], log: str, port_file: str) -> None:
    """`uvicorn shop:app --port 0`, in this process."""
    os.chdir(folder)
    os.environ.update(environ)  # noqa: TID251 - a process of its own
    sys.path.insert(0, folder)
    import uvicorn  # noqa: PLC0415 - the tests themselves have no use for it

    from clew.cli.serving import bind  # noqa: PLC0415 - the same

    sys.stderr = Path(log).open("w", buffering=1, encoding="utf-8")  # noqa: SIM115 - to the process's end
    with bind("127.0.0.1", 0) as listener:
        Path(port_file).write_text(str(listener.getsockname()[1]))
        server = uvicorn.Server(uvicorn.Config("shop:app", log_config=None))
        asyncio.run(server.serve([listener]))


@contextmanager
def shop(folder: Path) -> Iterator[tuple[httpx.Client, Process]]:
    port = folder / "port"
    port.unlink(missing_ok=True)
    child = nursery().spawn(
        "tests.acceptance.test_examples:be_shop",
        reports=Path(os.devnull),
        folder=str(folder),
        environ=environment(folder),
        log=str(folder / "log"),
        port_file=str(port),
    )
    process = Process(child)
    try:
        until(lambda: (port.exists() and bool(port.read_text())) or process.poll() is not None)
        with httpx.Client(base_url=f"http://127.0.0.1:{port.read_text()}", timeout=SECONDS) as client:

            def answers() -> bool:
                try:
                    return client.get("/agents/health").is_success
                except httpx.TransportError:
                    return False

            until(answers)
            yield client, process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()


@example("embedded")
def test_an_application_with_clew_inside_survives_a_kill_and_keeps_users_apart(folder: Path) -> None:
    ann, bob = {"x-user": "ann"}, {"x-user": "bob"}
    with shop(folder) as (client, process):
        begun = client.post("/refunds", json={"amount": 42}, headers=ann).raise_for_status().json()
        assert begun["status"] == "blocked"
        path = f"/refunds/{begun['id']}"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    key = run_json(folder, "keys", "create", "--name", "me")["key"]
    with shop(folder) as (client, _):
        assert client.get(path, headers=ann).json() == {"outcome": "waits for an approval"}
        assert client.get(path, headers=bob).status_code == 404
        assert client.post(f"{path}/approve", headers=bob).status_code == 404
        client.post(f"{path}/approve", headers=ann).raise_for_status()
        assert client.get(path, headers=ann).json() == {"outcome": "paid"}
        # Mounted, Clew asks for a key, on loopback too: it cannot see where the application listens.
        assert client.get("/agents/api/threads").status_code == 401
        bearer = {"Authorization": f"Bearer {key}"}
        (thread,) = client.get("/agents/api/threads", headers=bearer).json()["threads"]
        assert thread["id"] == begun["id"]
        assert [
            one["thread_id"] for one in client.post("/agents/threads/search", json={}, headers=bearer).json()
        ]


def started_by(service: dict[str, Any], url: str) -> tuple[list[str], dict[str, str]]:
    """The command of a service of compose.yaml, and its variables for the Postgres of the tests."""
    environ = dict(service["environment"])
    assert environ.pop("CLEW_DATABASE_URL").startswith("postgresql://clew:${POSTGRES_PASSWORD:?")
    return service["command"], {**environ, "CLEW_DATABASE_URL": url}


@example("workers")
def test_two_workers_of_the_compose_file_share_runs_and_one_may_die(
    folder: Path, empty_postgres_url: str
) -> None:
    """No Docker here: the commands and variables of the file, as processes on the Postgres of the tests."""
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert services["worker"]["deploy"]["replicas"] == 2
    command, environ = started_by(services["migrate"], empty_postgres_url)
    migrated = clew(folder, *command, **environ)
    assert migrated.returncode == 0, migrated.stderr
    with ExitStack() as stack:
        (serve, *options), environ = started_by(services["api"], empty_postgres_url)
        assert serve == "serve"
        api = stack.enter_context(serving(folder, *options, port=0, **environ))
        (work, *options), environ = started_by(services["worker"], empty_postgres_url)
        assert work == "worker"
        workers: list[Server] = []
        for name in ("one", "two"):
            place = Path(shutil.copytree(folder, folder.parent / name))
            workers.append(stack.enter_context(working(place, *options, **environ)))
        body = {"graph": "report", "input": {"topic": "tea", "seconds": 0.5}}
        ids = [api.post("/api/workflows/start", body).raise_for_status().json()["id"] for _ in range(6)]
        until(lambda: all("run started" in worker.log for worker in workers))
        workers[0].signal(signal.SIGKILL)
        for thread in ids:
            ended = api.get(f"/api/workflows/{thread}/status?wait=30").raise_for_status().json()
            assert ended["status"] == "completed"
            state = api.get(f"/api/workflows/{thread}/state").json()["values"]
            assert state["sections"] == ["summary of tea", "figures of tea", "outlook of tea"]
