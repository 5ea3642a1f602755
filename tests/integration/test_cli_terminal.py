"""`clew run`, `chat`, `approve` and `threads tail` in a terminal of 80 columns, through kills."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Server, clew, one_line, port_to_keep, serving, until
from tests.terminals import COLUMNS, terminal

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

GRAPHS = """
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt


class Refund(TypedDict, total=False):
    amount: int
    outcome: str


def decide(state: Refund) -> Refund:
    answer = interrupt({"question": f"Pay {state['amount']} back?"})
    return {"outcome": "paid" if answer["approved"] else answer["feedback"]}


def ask(state: Refund) -> Refund:
    return {"outcome": interrupt({"kind": "elicitation", "question": "Which account?"})}


def fail(state: Refund) -> Refund:
    raise ValueError("no such account")


def one(node):
    graph = StateGraph(Refund)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph


refund, question, failing = one(decide), one(ask), one(fail)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(GRAPHS)
    names = ("refund", "question", "failing")
    (tmp_path / "clew.yaml").write_text("graphs:\n" + "".join(f"  {n}: ./agent.py:{n}\n" for n in names))
    return tmp_path


def run_json(folder: Path, *arguments: str, code: int = 0, **environ: str) -> Any:
    ended = clew(folder, *arguments, "--json", **environ)
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout)


def start(server: Server, graph: str, **input: Any) -> str:
    started = run_json(
        Path(server.stdout).parent,
        "run",
        graph,
        "--input",
        json.dumps(input),
        "--url",
        server.address,
        code=4,
    )
    return str(started["id"])


def test_run_asks_in_the_terminal_and_shows_the_result(project: Path) -> None:
    with terminal(project, "run", "refund", "--input", '{"amount": 42}') as shown:
        shown.sees("? Pay 42 back?")
        shown.types("y")
        assert shown.ends() == 0
    assert '"outcome": "paid"' in shown.text
    assert ID.search(shown.text)
    assert max(map(len, shown.text.splitlines())) <= COLUMNS


def test_a_killed_run_is_taken_up_by_the_beginning_of_its_id(project: Path) -> None:
    with terminal(project, "run", "refund", "--input", '{"amount": 42}') as shown:
        shown.sees("Approve?")
        shown.kill()
    found = ID.search(shown.text)
    assert found
    with terminal(project, "run", "--thread", found[0][:20]) as again:
        again.sees("Approve?")
        again.types("too much")
        assert again.ends() == 5  # a graph that ends after a rejection has failed
    assert "failed: too much" in again.text
    assert run_json(project, "threads", "show", found[0])["thread"]["status"] == "failed"


def test_ctrl_c_leaves_a_thread_that_can_be_continued(project: Path) -> None:
    with terminal(project, "run", "question", "--input", "{}") as shown:
        shown.sees("Which account?")
        shown.presses(b"\x03")
        assert shown.ends() == 130
    found = ID.search(shown.text)
    assert found
    assert f"clew run --thread {found[0]}" in shown.text
    assert "Traceback" not in shown.text
    answered = clew(project, "answer", found[0], "savings", "--follow")
    assert (answered.returncode, "is answered" in answered.stdout) == (0, True)
    with terminal(project, "run", "--thread", found[0]) as again:
        assert again.ends() == 0


def test_exit_codes_of_a_run(project: Path) -> None:
    waits = clew(project, "run", "refund", "--input", '{"amount": 1}')
    assert (waits.returncode, "clew pending" in waits.stdout) == (4, True)
    failed = clew(project, "run", "failing", "--input", "{}")
    assert (failed.returncode, "no such account" in failed.stdout) == (5, True)
    for arguments in (("run", "nothing", "--prompt", "x"), ("run", "refund", "--input", "{")):
        refused = clew(project, *arguments)
        assert refused.returncode == 1
        assert refused.stderr.startswith("clew: ")
    gone = clew(project, "threads", "list", "--url", "http://127.0.0.1:9")
    assert (gone.returncode, "cannot be reached" in one_line(gone)) == (69, True)
    assert clew(project, "threads", "list", "--url", "no address").returncode == 1


def test_chat_with_a_file_continues_after_a_kill(project: Path) -> None:
    (project / "notes.md").write_text("# Offers\n\nThe first offer costs 100. The second offer costs 90.\n")
    with terminal(project, "chat") as shown:
        shown.sees("> ")
        shown.types("/file notes.md")
        shown.sees("goes with the next message")
        shown.types("Summarize the file as summary.txt")
        shown.sees("saved summary.txt")
        shown.types("/id")
        until(lambda: ID.search(shown.text) is not None)
        shown.kill()
    assert (project / "summary.txt").read_text()
    found = ID.search(shown.text)
    assert found
    with terminal(project, "chat", "--thread", found[0][:20]) as again:
        again.sees("Summarize the file as summary.txt")
        again.types("Summarize it again as again.txt")
        again.sees("saved again.txt")
        again.types("/quit")
        assert again.ends() == 0
    assert f"clew chat --thread {found[0]}" in again.text
    assert run_json(project, "threads", "show", found[0])["thread"]["round"] == 2


def test_approve_and_tail_through_a_killed_server(project: Path) -> None:
    with serving(project, port=port_to_keep()) as server:
        thread_id, port = start(server, "refund", amount=7), server.port
        address = server.address
        assert run_json(project, "pending", CLEW_URL=address)["toolCalls"][0]["workflowId"] == thread_id
        with terminal(project, "threads", "tail", thread_id[:20], CLEW_URL=address) as shown:
            shown.sees("Pay 7 back?")
            os.kill(server.process.pid, signal.SIGKILL)
            shown.sees("trying again")
            with serving(project, port=port):
                with terminal(project, "approve", thread_id[:20], CLEW_URL=address) as approving:
                    assert approving.ends() == 0
                assert f"{thread_id} is approved." in approving.text
                assert shown.ends() == 0
    assert "· work" in shown.text


def test_commands_on_a_server_with_a_key(project: Path) -> None:
    key = run_json(project, "keys", "create", "--name", "cli", "--tenant", "acme")["key"]
    with serving(project) as server:
        refused = clew(project, "threads", "list", "--url", server.address)
        assert (refused.returncode, "API key is needed" in one_line(refused)) == (1, True)
        saved = clew(project, "context", "set", "test", "--url", server.address, "--key", key)
        assert saved.returncode == 0
        contexts = project / ".config" / "clew" / "contexts.json"
        assert contexts.stat().st_mode & 0o777 == 0o600
        assert key not in clew(project, "context", "list").stdout
        started = run_json(project, "run", "refund", "--input", '{"amount": 5}', code=4)
        thread_id = started["id"]
        (listed,) = run_json(project, "threads", "list")
        assert (listed["id"], listed["tenant"]) == (thread_id, "acme")
        rejected = run_json(project, "reject", thread_id, "--feedback", "no")
        assert rejected["workflowId"] == thread_id
        until(lambda: run_json(project, "threads", "show", thread_id)["thread"]["status"] != "blocked")
        exported = run_json(project, "threads", "export", thread_id)
        assert (project / exported["path"]).stat().st_size == exported["bytes"]
        assert run_json(project, "threads", "usage")["threads"] == 1
        assert {one["name"] for one in run_json(project, "graphs")["graphs"]} >= {"refund", "chat"}
        assert "refund" in {one["graph_id"] for one in run_json(project, "assistants")}
        assert run_json(project, "threads", "delete", thread_id, "--yes")["status"] == "deleted"
        assert clew(project, "context", "use", "local").returncode == 0
        assert run_json(project, "threads", "list") == []
        assert clew(project, "context", "remove", "test").returncode == 0


def test_stop_asks_first_and_needs_a_terminal_or_yes(project: Path) -> None:
    thread_id = run_json(project, "run", "refund", "--input", '{"amount": 1}', code=4)["id"]
    refused = clew(project, "threads", "stop", thread_id)
    assert (refused.returncode, "--yes" in one_line(refused)) == (1, True)
    with terminal(project, "threads", "stop", thread_id) as shown:
        shown.sees("[y/N]")
        shown.types("n")
        assert shown.ends() == 1
    assert run_json(project, "threads", "show", thread_id)["thread"]["status"] == "blocked"
    with terminal(project, "threads", "delete", thread_id) as shown:
        shown.sees("for good? [y/N]")
        shown.types("y")
        assert shown.ends() == 0
    assert run_json(project, "threads", "list") == []


def test_store_and_crons(project: Path) -> None:
    assert clew(project, "store", "put", "team.notes", "k1", '{"text": "x"}').returncode == 0
    assert run_json(project, "store", "get", "team.notes", "k1")["value"] == {"text": "x"}
    assert run_json(project, "store", "search", "team")["items"][0]["key"] == "k1"
    assert run_json(project, "store", "namespaces")["namespaces"] == [["team", "notes"]]
    assert clew(project, "store", "delete", "team.notes", "k1", "--yes").returncode == 0
    missing = clew(project, "store", "get", "team.notes", "k1")
    assert missing.returncode == 1
    made = run_json(project, "crons", "create", "refund", "@daily", "--input", '{"amount": 1}')
    (listed,) = run_json(project, "crons", "list")
    assert listed["cron_id"] == made["cron_id"]
    assert run_json(project, "crons", "delete", made["cron_id"][:20], "--yes")["status"] == "deleted"


def test_an_ambiguous_beginning_names_the_threads(project: Path) -> None:
    ids = [run_json(project, "run", "refund", "--input", '{"amount": 1}', code=4)["id"] for _ in range(2)]
    common = "".join(a for a, b in zip(*ids, strict=True) if a == b)[:8]
    refused = clew(project, "threads", "show", common)
    assert refused.returncode == 1
    assert all(one in refused.stderr for one in ids)


def test_a_list_cuts_names_and_never_ids(project: Path) -> None:
    long = "a name that is much longer than the terminal is wide, and goes on for a while after that"
    made = run_json(project, "run", "refund", "--input", '{"amount": 1}', "--name", long, code=4)
    with terminal(project, "threads", "list") as shown:
        assert shown.ends() == 0
    assert made["id"] in shown.text
    assert "…" in shown.text
    assert max(map(len, shown.text.splitlines())) <= COLUMNS


def test_a_command_needs_only_the_settings_it_uses(project: Path) -> None:
    with (project / "clew.yaml").open("a") as file:
        file.write("channels:\n  telegram:\n    support:\n      token: ${TELEGRAM_TOKEN}\n")
    assert clew(project, "migrate").returncode == 0
    assert clew(project, "cleanup").returncode == 0
    assert clew(project, "threads", "list").returncode == 0
    assert clew(project, "run", "refund", "--input", '{"amount": 1}').returncode == 4
    refused = clew(project, "channels", "set-webhook", "support", "--remove")
    assert (refused.returncode, "the variable TELEGRAM_TOKEN is not set" in one_line(refused)) == (2, True)


def test_a_dotenv_beside_clew_yaml_is_read(project: Path) -> None:
    (project / ".env").write_text("CLEW_DATABASE_URL=sqlite:///other.db\nREFUND_LIMIT=10\n")
    assert clew(project, "migrate").returncode == 0
    assert (project / "other.db").exists()
    assert clew(project, "migrate", CLEW_DATABASE_URL="sqlite:///third.db").returncode == 0
    assert (project / "third.db").exists()


def test_a_new_project_runs_as_it_is(tmp_path: Path) -> None:
    made = run_json(tmp_path, "new", "demo")
    assert set(made["files"]) == {"README.md", "agent.py", "clew.yaml", ".env.example", ".gitignore"}
    with terminal(tmp_path / "demo", "run", "refund", "--input", '{"amount": 42}') as shown:
        shown.sees("Approve?")
        shown.types("y")
        assert shown.ends() == 0
    again = clew(tmp_path, "new", "demo")
    assert (again.returncode, "is not empty" in one_line(again)) == (1, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command(tmp_path: Path, shell: str) -> None:
    script = clew(tmp_path, "completion", shell)
    assert f"_CLEW_COMPLETE=complete_{shell}" in script.stdout
    completed = clew(tmp_path, _CLEW_COMPLETE="complete_bash", COMP_WORDS="clew threads ta", COMP_CWORD="2")
    assert completed.stdout.split() == ["tail"]
