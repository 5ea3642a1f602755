"""From an issue to a pull request: a plan that a person edits, tests that fail once, a commit, a push, a comment.

The server speaks with a GitHub of the tests' own and a bare repository, and is killed on the way.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.conftest import Api
from tests.github_server import GitHubServer, github_server
from tests.processes import ROOT, serving, until
from tests.repositories import git, repository

TOKEN = "a-token-that-stays-here"
PLAN = "# Mend carts\n\n1. Write `hello.txt`, and nothing else.\n"
ISSUE = "acme/shop#7"
BRANCH = "clew/acme-shop-7"
CHECK = "import pathlib, sys; sys.exit(0 if pathlib.Path('hello.txt').read_text() == 'hello\\n' else 'hello is misspelt')"


@dataclass(slots=True)
class Delivery:
    """A repository with a remote, the GitHub beside it, and what the program that is asked is told."""

    folder: Path
    github: GitHubServer

    @property
    def shop(self) -> Path:
        return self.folder / "code" / "shop"

    @property
    def remote(self) -> Path:
        return self.folder / "remote.git"

    @property
    def program(self) -> Path:
        return self.folder / "program"

    def calls(self, role: str) -> list[Any]:
        lines = (self.program / "calls.jsonl").read_text().splitlines()
        found = [json.loads(line) for line in lines]
        return [call for call in found if call["prompt"].startswith(f"You are the {role}")]

    def prepare(self, **tests: Any) -> None:
        repository(self.shop)
        git(self.folder, "init", "--quiet", "--bare", str(self.remote))
        git(self.shop, "push", "--quiet", str(self.remote), "main")
        self.program.mkdir()
        (self.program / "typo").write_text("yes")
        profile = {
            "driver": "cli:claude",
            "command": [sys.executable, str(ROOT / "tests" / "fake_claude.py"), str(self.program)],
            "tracker": "github",
            "tests": {"command": [sys.executable, "-c", CHECK], **tests},
            "publish": {"remote": str(self.remote), "pull_request": True, "comment": True},
        }
        (self.folder / "clew.yaml").write_text(json.dumps({"profiles": {"default": profile}}))

    @contextmanager
    def serving(self, **environ: str) -> Iterator[Api]:
        settings: dict[str, Any] = {
            "CLEW_RUNNER_LEASE_SECONDS": "1",
            "CLEW_RUNNER_POLL_SECONDS": "0.1",
            "CLEW_TRACKERS_GITHUB_URL": self.github.url,
            "CLEW_TRACKERS_GITHUB_TOKEN": TOKEN,
            "CLEW_CODING_ROOTS": str(self.folder / "code"),
            "CLEW_CODING_ENVIRONMENT": "A_KEY",
            "A_KEY": "of the program",
            **environ,
        }
        with serving(self.folder, **settings) as server:
            yield Api(server)


def start(api: Api, delivery: Delivery) -> str:
    body = {"graph": "coding", "issueId": ISSUE, "worktreePath": str(delivery.shop)}
    return str(api.ask("POST", "/api/workflows/start", json=body)["id"])


def asked(api: Api, workflow: str) -> dict[str, Any]:
    """The one question it waits for."""
    (call,) = api.ask("GET", f"/api/workflows/{workflow}")["pending"].values()
    prompt: dict[str, Any] = call["prompt"]
    return prompt


def play(api: Api, workflow: str) -> Any:
    """Answer what is asked until it ends: the plan with another one, the rest with yes."""

    def step() -> bool:
        status = api.thread(workflow)["status"]
        if status == "blocked":
            body = {"plan": PLAN, "feedback": "smaller"} if "plan" in asked(api, workflow) else {}
            api.ask("POST", f"/api/workflows/{workflow}/approve", json=body)
        return status in ("completed", "failed")

    until(step, 60)
    return api.ask("GET", f"/api/workflows/{workflow}")


def require_delivered(delivery: Delivery, done: Any) -> None:
    """Once, whatever happened on the way."""
    assert done["workflow_status"] == "completed", done["failure_reason"]
    state, github = done["execution_state"], delivery.github
    assert state["plan"] == PLAN.strip()
    assert state["tests"]["passed"] is True
    assert state["reviews"] == 2
    published = state["published"]
    assert published["branch"] == BRANCH
    log = git(delivery.remote, "log", "--format=%H %s", f"main..{BRANCH}").splitlines()
    assert log == [f"{published['commit']} {ISSUE}: Carts crash"]
    assert git(delivery.remote, "show", f"{BRANCH}:hello.txt") == "hello\n"
    (pull,) = github.pulls
    assert (pull["head"], pull["base"], pull["title"]) == (BRANCH, "main", f"{ISSUE}: Carts crash")
    (comment,) = github.comments
    assert pull["html_url"] in comment["body"]
    assert published["pull_request"] == pull["html_url"]
    assert git(delivery.shop, "branch", "--show-current").strip() == BRANCH
    assert git(delivery.shop, "status", "--porcelain") == ""
    assert git(delivery.shop, "rev-parse", "HEAD").strip() == published["commit"]
    assert git(delivery.shop, "fsck", "--strict") == ""


@pytest.fixture
def delivery(tmp_path: Path) -> Iterator[Delivery]:
    (tmp_path / "code").mkdir()
    with github_server(TOKEN) as github:
        yield Delivery(tmp_path, github)


def test_an_issue_becomes_a_pull_request(delivery: Delivery) -> None:
    delivery.prepare()
    with delivery.serving() as api:
        workflow = start(api, delivery)
        done = play(api, workflow)
        require_delivered(delivery, done)
        # The developer got the plan as it was edited, and then what the tests wrote.
        first, second = delivery.calls("developer")
        assert "and nothing else" in first["prompt"]
        assert "smaller" in first["prompt"]
        assert "hello is misspelt" not in first["prompt"]
        assert "hello is misspelt" in second["prompt"]
        assert "Tests failed" in delivery.calls("reviewer")[0]["prompt"]
        stages = [str(event["stage"]) for event in api.content(workflow, "stage_changed")]
        again = ["developer_node", "tests_node", "reviewer_node"]
        # A node that asks begins again with the answer.
        last = ["publish_approval_node", "publish_approval_node", "publish_node"]
        assert stages == ["architect_node", "human_approval_node", *again, *again, *last]
        diff = api.ask("GET", f"/api/workflows/{workflow}/diff")
        assert diff["files"] == ["half.txt", "hello.txt"]
        assert "+++ b/hello.txt\n@@ -0,0 +1 @@\n+hello\n" in diff["diff"]
        lines = [one["message"] for one in api.ask("GET", f"/api/workflows/{workflow}")["logs"]]
        assert lines[-4:] == [
            f"Committed {done['execution_state']['published']['commit'][:12]} on {BRANCH}",
            f"Pushed {BRANCH}",
            f"Pull request: {delivery.github.pulls[0]['html_url']}",
            f"Comment: {delivery.github.comments[0]['html_url']}",
        ]
        assert TOKEN not in api.server.log
        # What was delivered is where the next round begins.
        api.ask("POST", f"/api/workflows/start?id={workflow}", json={"prompt": "Say more"})
        api.rest(workflow, "blocked")
        state = api.ask("GET", f"/api/workflows/{workflow}")["execution_state"]
        assert (state["base"], state["published"]) == (done["execution_state"]["published"]["commit"], {})


def test_what_is_published_is_shown_first_and_what_changes_meanwhile_is_shown_again(
    delivery: Delivery,
) -> None:
    delivery.prepare()
    with delivery.serving() as api:
        workflow = start(api, delivery)
        api.rest(workflow, "blocked")
        api.ask("POST", f"/api/workflows/{workflow}/approve")
        until(lambda: api.rest(workflow)["status"] == "blocked" and "publish" in asked(api, workflow))
        prompt = asked(api, workflow)
        assert prompt["message"].startswith(f"Commit to {BRANCH}, push to ")
        assert prompt["publish"]["branch"] == BRANCH
        assert prompt["publish"]["remote"] == str(delivery.remote)
        assert prompt["tests"].startswith("Tests passed")
        assert "+hello\n" in prompt["diff"]
        assert delivery.github.pulls == delivery.github.comments == []
        assert git(delivery.shop, "branch", "--show-current").strip() == "main"
        # Another file than was shown: it is shown before it is committed.
        (delivery.shop / "hello.txt").write_text("another one\n")
        api.ask("POST", f"/api/workflows/{workflow}/approve")
        until(
            lambda: (
                api.rest(workflow)["status"] == "blocked" and "+another one" in asked(api, workflow)["diff"]
            )
        )
        assert git(delivery.remote, "branch", "--list", BRANCH) == ""
        api.ask("POST", f"/api/workflows/{workflow}/approve")
        api.rest(workflow, "completed")
        assert git(delivery.remote, "show", f"{BRANCH}:hello.txt") == "another one\n"
        (pull,) = delivery.github.pulls
        assert pull["head"] == BRANCH


def test_a_no_to_publishing_leaves_the_worktree_and_the_world_alone(delivery: Delivery) -> None:
    delivery.prepare(approval=True)
    with delivery.serving() as api:
        workflow = start(api, delivery)
        api.rest(workflow, "blocked")
        api.ask("POST", f"/api/workflows/{workflow}/approve")
        until(lambda: api.rest(workflow)["status"] == "blocked" and "run_tests" in asked(api, workflow))
        # The tests run after a yes, each time.
        assert "tests" not in api.ask("GET", f"/api/workflows/{workflow}")["execution_state"].get("tests", {})
        while "publish" not in asked(api, workflow):
            api.ask("POST", f"/api/workflows/{workflow}/approve")
            until(lambda: api.rest(workflow)["status"] == "blocked")
        api.ask("POST", f"/api/workflows/{workflow}/reject", json={"feedback": "not today"})
        api.rest(workflow, "failed")
        assert api.ask("GET", f"/api/workflows/{workflow}")["failure_reason"] == "not today"
        assert git(delivery.shop, "branch", "--show-current").strip() == "main"
        assert "hello.txt" in git(delivery.shop, "status", "--porcelain")
        assert delivery.github.pulls == delivery.github.comments == []


def test_a_worktree_with_changes_of_its_own_is_not_published(delivery: Delivery) -> None:
    delivery.prepare()
    (delivery.shop / "mine.txt").write_text("mine\n")
    with delivery.serving() as api:
        workflow = start(api, delivery)
        api.rest(workflow, "failed")
        assert "changes of its own" in api.ask("GET", f"/api/workflows/{workflow}")["failure_reason"]


# Each stage, in the order in which a run passes them.
STAGES = (
    *("llm_before:kill@1", "llm_after_before_commit:kill@1", "interrupt_logged:kill@1"),
    *("decision_committed_before_resume:kill@1", "llm_before:kill@2", "llm_after_before_commit:kill@2"),
    *("checks_ended:kill@1", "llm_before:kill@3", "llm_after_before_commit:kill@3"),
    *("llm_before:kill@4", "checks_ended:kill@2", "llm_after_before_commit:kill@5"),
    *("interrupt_logged:kill@2", "decision_committed_before_resume:kill@2", "publish_committed:kill@1"),
    *("publish_pushed:kill@1", "publish_pull_request_opened:kill@1", "publish_commented:kill@1"),
)
_QUICK = ("checks_ended:kill@1", "publish_pull_request_opened:kill@1")
POINTS = [one if one in _QUICK else pytest.param(one, marks=pytest.mark.long) for one in STAGES]


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_stage_delivers_once(delivery: Delivery, point: str) -> None:
    delivery.prepare()
    with delivery.serving(CLEW_FAILPOINTS=point) as api:
        with suppress(httpx.TransportError):
            play(api, start(api, delivery))
        api.server.process.wait(60)
    with delivery.serving() as api:
        (found,) = api.ask("GET", "/api/workflows?graph=coding")["workflows"]
        require_delivered(delivery, play(api, found["id"]))
        assert len(api.content(found["id"], "resolution")) == 2
