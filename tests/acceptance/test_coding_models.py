"""The coding workflow with a model over HTTP, on a real server: what the model is shown, told and sent, and what it says."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.chatting import Model, model_serving
from tests.acceptance.conftest import Api
from tests.openai_server import CallTool, Move, Refuse, Say, prompt_of
from tests.processes import serving
from tests.repositories import git, repository

PLAN = "# Plan\n\n1. Change `README.md` and `data.csv`.\n"
LARGE = "a,b\n" * 32_500


@dataclass(slots=True)
class Office:
    api: Api
    model: Model
    folder: Path
    # What the developer answers, one after another; the last one for ever.
    answers: list[Any] = field(default_factory=list)

    def repository(self, **files: str) -> Path:
        number = len(list((self.folder / "code").iterdir()))
        made = repository(self.folder / "code" / f"shop{number}")
        for name, text in files.items():
            (made / name.replace("__", ".")).write_text(text)
        git(made, "add", ".")
        git(made, "commit", "--quiet", "--allow-empty", "-m", "Files")
        return made

    def start(self, path: Path, **more: Any) -> str:
        body = {"graph": "coding", "issueId": "A-1", "worktreePath": str(path), "prompt": "Fix it", **more}
        workflow = str(self.api.ask("POST", "/api/workflows/start", json=body)["id"])
        self.api.rest(workflow, "blocked")
        return workflow

    def done(self, workflow: str, **approval: Any) -> Any:
        self.api.ask("POST", f"/api/workflows/{workflow}/approve", json=approval)
        self.api.rest(workflow, "completed", "failed")
        return self.api.ask("GET", f"/api/workflows/{workflow}")

    def asked(self, role: str) -> list[str]:
        prompts = [prompt_of(body) for body in self.model.requests]
        return [prompt for prompt in prompts if prompt.startswith(f"You are the {role}")]


def files(**named: str) -> str:
    written = [{"path": name.replace("__", "."), "content": text} for name, text in named.items()]
    return json.dumps({"files": written, "summary": "done"})


def roles(office: Office) -> Callable[[dict[str, Any]], Move]:
    def answer(body: dict[str, Any]) -> Move:
        prompt = prompt_of(body)
        if prompt.startswith("You are the architect"):
            return Say(PLAN)
        if prompt.startswith("You are the developer"):
            return Say(office.answers.pop(0) if len(office.answers) > 1 else office.answers[0])
        return Say(json.dumps({"approved": True, "remarks": "fine"}))

    return answer


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    folder = tmp_path_factory.mktemp("office")
    (folder / "code").mkdir()
    with model_serving() as model:
        (folder / "clew.yaml").write_text(
            f"profiles: {{default: {{driver: 'api:openai', model: m, base_url: '{model.url}'}}}}\n"
        )
        with serving(folder, CLEW_RUNNER_POLL_SECONDS="0.1") as server:
            yield Office(Api(server), model, folder)


@pytest.fixture
def office(shared: Office) -> Office:
    shared.model.requests.clear()
    shared.answers = []
    shared.model.fake.answer = roles(shared)
    return shared


class TestOverwriting:
    def test_a_file_that_is_too_large_to_show_is_never_replaced(self, office: Office) -> None:
        shop = office.repository(data__csv=LARGE)
        office.answers = [files(data__csv="all of it is gone")]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "failed"
        assert "data.csv exists and was not shown whole" in done["failure_reason"]
        assert (shop / "data.csv").read_text() == LARGE
        assert git(shop, "status", "--porcelain") == ""
        assert '"not shown": ["data.csv"]' in office.asked("developer")[0]

    def test_of_several_files_none_is_written_if_one_may_not_be(self, office: Office) -> None:
        shop = office.repository(data__csv=LARGE)
        office.answers = [files(README__md="new\n", data__csv="gone")]
        assert office.done(office.start(shop))["workflow_status"] == "failed"
        assert git(shop, "status", "--porcelain") == ""

    def test_a_file_that_the_plan_does_not_name_is_shown_before_it_is_replaced(self, office: Office) -> None:
        shop = office.repository(other__py="x = 1\n")
        office.answers = [files(other__py="y = 2\n"), files(other__py="x = 1\ny = 2\n")]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "completed", done["failure_reason"]
        first, second = office.asked("developer")
        assert "x = 1" not in first
        assert "x = 1" in second
        assert (shop / "other.py").read_text() == "x = 1\ny = 2\n"

    def test_what_git_ignores_is_neither_shown_nor_replaced(self, office: Office) -> None:
        shop = office.repository(__gitignore="secrets.env\n")
        (shop / "secrets.env").write_text("TOKEN=very-secret\n")
        office.answers = [files(secrets__env="TOKEN=\n")]
        assert office.done(office.start(shop))["workflow_status"] == "failed"
        assert (shop / "secrets.env").read_text() == "TOKEN=very-secret\n"
        assert not [prompt for prompt in office.asked("developer") if "very-secret" in prompt]

    def test_bytes_that_are_no_text_are_not_replaced(self, office: Office) -> None:
        shop = office.repository()
        (shop / "data.csv").write_bytes("Zürich\n".encode("latin-1"))
        office.answers = [files(data__csv="Zürich\nBern\n")]
        assert office.done(office.start(shop))["workflow_status"] == "failed"
        assert (shop / "data.csv").read_bytes() == "Zürich\n".encode("latin-1")

    def test_what_was_shown_is_replaced_and_what_is_new_is_made(self, office: Office) -> None:
        shop = office.repository(data__csv="a,b\n")
        office.answers = [files(data__csv="a,b\n1,2\n", new__txt="new\n")]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert (shop / "data.csv").read_text() == "a,b\n1,2\n"
        assert (shop / "new.txt").read_text() == "new\n"


def edits(**given: Any) -> str:
    return json.dumps({**given, "summary": "done"})


class TestEdits:
    def test_a_large_file_is_patched_where_a_text_stands_once(self, office: Office) -> None:
        shop = office.repository(data__csv=f"head\n{LARGE}")
        patch = {"path": "data.csv", "find": "head\n", "replace": "name,price\n"}
        office.answers = [edits(edits=[patch])]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert (shop / "data.csv").read_text() == f"name,price\n{LARGE}"

    def test_a_text_that_stands_there_more_than_once_is_asked_for_again(self, office: Office) -> None:
        shop = office.repository(data__csv="a\na\nb\n")
        unclear = {"path": "data.csv", "find": "a\n", "replace": "c\n"}
        clear = {"path": "data.csv", "find": "a\nb\n", "replace": "c\n"}
        office.answers = [edits(edits=[unclear]), edits(edits=[clear])]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert "stands there 2 times" in office.asked("developer")[1]
        assert (shop / "data.csv").read_text() == "a\nc\n"

    def test_files_are_made_deleted_and_renamed(self, office: Office) -> None:
        shop = office.repository(old__py="x = 1\n", gone__py="y = 1\n")
        (shop / "old.py").chmod(0o755)
        office.answers = [
            edits(
                files=[{"path": "src/new.py", "content": "z = 1\n"}],
                delete=["gone.py"],
                rename=[{"from": "old.py", "to": "src/moved.py"}],
            )
        ]
        done = office.done(office.start(shop))
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert (shop / "src/new.py").read_text() == "z = 1\n"
        assert (shop / "src/moved.py").read_text() == "x = 1\n"
        assert (shop / "src/moved.py").stat().st_mode & 0o111
        assert not (shop / "gone.py").exists()
        assert not (shop / "old.py").exists()
        diff = office.api.ask("GET", f"/api/workflows/{done['id']}/diff")["diff"]
        assert "rename from old.py\nrename to src/moved.py" in diff

    def test_what_git_does_not_have_is_not_deleted_unseen(self, office: Office) -> None:
        shop = office.repository(__gitignore="secrets.env\n")
        (shop / "secrets.env").write_text("TOKEN=very-secret\n")
        (shop / "draft.md").write_text(LARGE)
        for path in ("secrets.env", "draft.md"):
            office.answers = [edits(delete=[path])]
            assert office.done(office.start(shop))["workflow_status"] == "failed"
            assert (shop / path).exists()


class TestReading:
    """A model looks at the code with tools before it answers."""

    def tools(self, office: Office, role: str, *calls: CallTool, then: str) -> None:
        usual = office.model.fake.answer
        left = [*calls]

        def answer(body: dict[str, Any]) -> Move:
            if not prompt_of(body).startswith(f"You are the {role}"):
                return usual(body)
            return left.pop(0) if left else Say(then)

        office.model.fake.answer = answer

    def results(self, office: Office) -> list[str]:
        said = [message for body in office.model.requests for message in body["messages"]]
        return list(dict.fromkeys(str(one["content"]) for one in said if one["role"] == "tool"))

    def test_the_architect_lists_searches_and_reads(self, office: Office) -> None:
        shop = office.repository(cart__py="def total(cart):\n    return cart[0]\n", __gitignore="secret.py\n")
        (shop / "secret.py").write_text("cart = 'very-secret'\n")
        self.tools(
            office,
            "architect",
            CallTool("list_files", {"pattern": "*.py"}, "call_1"),
            CallTool("search_code", {"text": "CART"}, "call_2"),
            CallTool("read_file", {"path": "cart.py", "first_line": 2}, "call_3"),
            CallTool("read_file", {"path": "secret.py"}, "call_4"),
            CallTool("read_file", {"path": "../../../etc/passwd"}, "call_5"),
            then="# Plan\n\n1. Change `cart.py`.\n",
        )
        workflow = office.start(shop)
        assert self.results(office) == [
            "cart.py",
            "cart.py:1: def total(cart):\ncart.py:2: return cart[0]",
            "2:     return cart[0]\n(lines 2 to 2 of 2)",
            "secret.py is no text file that git lists here",
            "../../../etc/passwd is no text file that git lists here",
        ]
        plan = office.api.ask("GET", f"/api/workflows/{workflow}")["execution_state"]["plan"]
        assert plan == "# Plan\n\n1. Change `cart.py`."

    def test_the_developer_reads_what_it_was_not_shown_and_patches_it(self, office: Office) -> None:
        shop = office.repository(cart__py="def total(cart):\n    return cart[0]\n")
        patch = {"path": "cart.py", "find": "cart[0]", "replace": "sum(cart)"}
        workflow = office.start(shop)
        self.tools(office, "developer", CallTool("read_file", {"path": "cart.py"}), then=edits(edits=[patch]))
        done = office.done(workflow)
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert (shop / "cart.py").read_text() == "def total(cart):\n    return sum(cart)\n"

    def test_a_server_without_tools_is_asked_without_them(self, office: Office) -> None:
        usual = roles(office)

        def answer(body: dict[str, Any]) -> Move:
            return (
                Refuse(400, message="this model does not support tools") if body.get("tools") else usual(body)
            )

        office.model.fake.answer = answer
        office.answers = [files(README__md="new\n")]
        done = office.done(office.start(office.repository()))
        assert done["workflow_status"] == "completed", done["failure_reason"]


class TestWhatAProviderSays:
    def test_it_is_kept_for_operators_and_the_user_gets_a_sentence(self, office: Office) -> None:
        words = "This prompt of 9000 tokens is too long for key sk-abcdefghijklmnop"
        office.model.fake.answer = lambda _: Refuse(400, message=words, code="context_length_exceeded")
        body = {
            "graph": "coding",
            "issueId": "A-1",
            "worktreePath": str(office.repository()),
            "prompt": "Fix it",
        }
        workflow = str(office.api.ask("POST", "/api/workflows/start", json=body)["id"])
        office.api.rest(workflow, "failed")
        reason = office.api.ask("GET", f"/api/workflows/{workflow}")["failure_reason"]
        assert reason.endswith("the model could not be asked: its provider does not accept the request")
        (call,) = office.api.ask("GET", f"/api/threads/{workflow}/model-calls")["modelCalls"]
        assert (call["status"], call["renderedContext"], call["redacted"]) == ("failed", {}, False)
        assert "This prompt of 9000 tokens is too long" in call["error"]
        assert "sk-abcdef" not in call["error"]
        lines = [json.loads(line) for line in office.api.server.log.splitlines() if workflow in line]
        (line,) = [line for line in lines if line["event"] == "model call failed"]
        assert (line["status_code"], line["code"], line["error_class"], line["driver"], line["model"]) == (
            *(400, "context_length_exceeded", "validation", "api:openai", "m"),
        )
        assert "9000 tokens" not in office.api.server.log
        assert "sk-abcdef" not in office.api.server.log


class TestComments:
    @pytest.mark.parametrize("by", ["approve", "resolve"])
    def test_what_is_said_with_an_approval_reaches_the_developer_and_the_reviewer(
        self, office: Office, by: str
    ) -> None:
        shop = office.repository()
        office.answers = [files(README__md="new\n")]
        workflow = office.start(shop)
        comment = "Keep the title as it is"
        if by == "approve":
            done = office.done(workflow, feedback=comment)
        else:
            (call_id,) = office.api.thread(workflow)["pending"]
            office.api.resolve(workflow, call_id, approved=True, feedback=comment)
            office.api.rest(workflow, "completed", "failed")
            done = office.api.ask("GET", f"/api/workflows/{workflow}")
        assert done["workflow_status"] == "completed", done["failure_reason"]
        assert done["execution_state"]["comment"] == comment
        for role in ("developer", "reviewer"):
            assert comment in office.asked(role)[0]
        assert comment not in office.asked("architect")[0]

    def test_an_approval_without_a_word_brings_none(self, office: Office) -> None:
        office.answers = [files(README__md="new\n")]
        done = office.done(office.start(office.repository()))
        assert done["execution_state"]["comment"] == ""
        assert "comment" not in office.asked("developer")[0].partition("<facts>")[2]
