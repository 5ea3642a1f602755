"""Seed 004, the chat workflow: every line of its contract over HTTP, against real servers with and without a model."""

import io
import json
import re
import signal
import sqlite3
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import docx
import httpx
import openpyxl
import pypdfium2  # type: ignore[import-untyped]
import pytest
from PIL import Image
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.platypus import Image as Picture
from reportlab.platypus import PageBreak, Paragraph, SimpleDocTemplate, Table

from tests import made_files
from tests.acceptance.chatting import Chat, Chats, Model, model_serving
from tests.acceptance.conftest import api_serving
from tests.chats import CSV, agents_folder, plan_of, tasks_of
from tests.openai_server import Hang, Move, Refuse, Say, prompt_of
from tests.processes import clew, filled, one_line, serving, until

PAGES = (
    "Revenue grew by 12 percent in the last year. The northern region grew most of all regions.",
    "Costs stayed flat because logistics were renegotiated. The board opened an office in Lisbon.",
    "Customer satisfaction rose to 87 percent. The supply of chips remains the main risk.",
)

# An agent that says that it began, and works until it is let go.
SLOW = """
import asyncio
import pathlib

HERE = pathlib.Path(__file__).parent


class Slow:
    name = "slow"
    description = "Takes its time."

    async def process_task(self, task):
        with open(HERE / "begun", "a") as kept:
            kept.write("x")
        while not (HERE / "go").exists():
            await asyncio.sleep(0.02)
        return {"feedback": "at last", "documents": []}
"""

# An agent that ends the task it runs in.
QUITTER = """
import asyncio


class Quitter:
    name = "quitter"
    description = "Cancels itself."

    async def process_task(self, task):
        raise asyncio.CancelledError
"""


def step(
    agent: str, prompt: str = "do it", out: str | None = None, inputs: list[str] | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "agent": agent,
        "prompt": prompt,
        "outputDocuments": [{"label": out, "description": f"the {out}"}] if out else [],
    }
    return made | ({} if inputs is None else {"inputDocuments": [{"label": label} for label in inputs]})


@dataclass(frozen=True, slots=True)
class Place:
    """A server with a model, and the folder of its agents."""

    chats: Chats
    model: Model
    agents: Path

    def tasks(self, chat: Chat) -> list[dict[str, Any]]:
        return [task for task in tasks_of(self.agents) if task["workflowId"] == chat.id]

    def begin_slowly(self, prompt: str = "Take your time") -> Chat:
        """A round that lasts until `let_go`."""
        (self.agents / "go").unlink(missing_ok=True)
        (self.agents / "begun").unlink(missing_ok=True)
        self.model.plans(plan_of(step("slow")))
        chat = Chat(self.chats, self.chats.start(prompt)["id"])
        until(filled(self.agents / "begun"))
        return chat

    def evict(self) -> None:
        (self.agents / "go").touch()


def folder_of_agents(folder: Path) -> Path:
    agents = agents_folder(folder, "ann", "bob")
    (agents / "slow.py").write_text(SLOW)
    (agents / "quitter.py").write_text(QUITTER)
    (agents / "broken.py").write_text("import nothing_of_the_kind")
    return agents


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with model_serving() as model:
        yield model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("chat")
    agents = folder_of_agents(folder)
    with api_serving(folder, CLEW_MODELS_OPENAI_BASE_URL=model.url, CLEW_AGENTS_FOLDER=str(agents)) as server:
        yield Place(Chats(server), model, agents)


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chats]:
    """As it is when nothing was set."""
    with serving(tmp_path_factory.mktemp("offline")) as server:
        yield Chats(server)


@dataclass(frozen=True, slots=True)
class Strict:
    """A server that asks for keys, allows little, and tells everything in its log."""

    ann: Chats
    bob: Chats
    model: Model


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Strict]:
    folder = tmp_path_factory.mktemp("strict")
    agents = folder_of_agents(folder)
    keys = []
    for user in ("ann", "bob"):
        made = clew(folder, "keys", "create", "--name", user, "--tenant", "acme", "--user", user, "--json")
        keys.append(json.loads(made.stdout)["key"])
    settings = {
        "CLEW_MODELS_OPENAI_BASE_URL": model.url,
        "CLEW_AGENTS_FOLDER": str(agents),
        "CLEW_LIMITS_UPLOAD_BYTES": "1024",
        "CLEW_DEBUG": "true",
    }
    with api_serving(folder, **settings) as server:
        ann, bob = (Chats(server, {"Authorization": f"Bearer {key}"}) for key in keys)
        yield Strict(ann, bob, model)


@pytest.fixture(scope="module")
def german(place: Place) -> Chat:
    """One round in which everything goes as planned, but for one document nobody makes."""
    place.model.plans(
        plan_of(
            step("ann", "look at the costs of logistics", "first.bin", ["report.pdf", "logo.png"]),
            step("bob", "look at the satisfaction", "second.txt", ["report.pdf", "first.bin"]),
            final=("second.txt", "third.txt"),
            language="de",
            says="Ich kümmere mich darum.",
        )
    )
    files = [
        place.chats.upload("report.pdf", made_files.pdf(*PAGES, images={1: [made_files.image()]})),
        place.chats.upload("logo.png", made_files.image()),
        place.chats.upload("notes.txt", "Nur ein paar Wörter.".encode()),
    ]
    return place.chats.run("Bitte sieh dir den Bericht an", *files)


@dataclass(frozen=True, slots=True)
class Story:
    """A chat of five rounds, and how it looked after each."""

    chat: Chat
    after: list[Any]


@pytest.fixture(scope="module")
def story(place: Place) -> Story:
    chats, model = place.chats, place.model
    model.plans(plan_of(says="First answer."))
    chat = chats.run("First question")
    seen = [chat.whole]
    model.plans("I would rather not plan anything.")
    seen.append(chats.run("Second question", id=chat.id).whole)
    (place.agents / "go").unlink(missing_ok=True)
    (place.agents / "begun").unlink(missing_ok=True)
    model.plans(plan_of(step("slow"), says="Third answer."))
    chats.start("Third question", id=chat.id)
    until(filled(place.agents / "begun"))
    chat.ask("POST", "/stop")
    seen.append(chat.whole)
    model.plans(plan_of(step("ann"), says="Fourth answer."))
    seen.append(chats.run("Fourth question", id=chat.id).whole)
    model.plans(plan_of(says="Fifth answer."))
    seen.append(chats.run("Fifth question", id=chat.id).whole)
    return Story(chat, seen)


def is_time(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is not None


def is_id(text: str, prefix: str) -> bool:
    return text.startswith(prefix) and str(UUID(text.removeprefix(prefix))) == text.removeprefix(prefix)


class TestStart:
    @pytest.mark.accept("004-1")
    def test_a_prompt_is_enough(self, place: Place) -> None:
        place.model.plans(plan_of(says="Hello yourself."))
        answer = place.chats.ask("POST", "/api/workflows/start", json={"prompt": "Hello"})
        assert (answer["currentRound"], answer["status"]) == (1, "running")
        chat = Chat(place.chats, answer["id"]).ended()
        assert [one["content"] for one in chat.messages] == ["Hello", "Hello yourself.", "Done."]

    @pytest.mark.accept("004-5")
    @pytest.mark.parametrize(
        ("path", "body", "field", "meant"),
        [
            ("start", {"prompt": "Hi", "listFileIds": ["a"]}, "listFileIds", "listFileId"),
            ("start", {"promt": "Hi"}, "promt", "prompt"),
            ("start", {"prompt": "Hi", "status": "completed"}, "status", None),
            ("{id}/reject", {"feedback": "no", "feedbak": "x"}, "feedbak", "feedback"),
            ("{id}/approve", {"comment": "yes"}, "comment", None),
        ],
    )
    def test_a_misspelt_key_is_refused_and_the_right_one_named(
        self, place: Place, story: Story, path: str, body: Any, field: str, meant: str | None
    ) -> None:
        before = len(place.chats.ask("GET", "/api/workflows?limit=200")["workflows"])
        error = place.chats.ask("POST", f"/api/workflows/{path.format(id=story.chat.id)}", 400, json=body)[
            "error"
        ]
        hint = f"; did you mean '{meant}'?" if meant else ""
        assert error == {"code": "INVALID", "message": f"unknown key '{field}'{hint}", "field": field}
        assert len(place.chats.ask("GET", "/api/workflows?limit=200")["workflows"]) == before

    @pytest.mark.accept("004-2", "004-14")
    def test_another_round_from_wherever_the_last_one_ended(self, story: Story) -> None:
        assert [one["status"] for one in story.after] == [
            *("completed", "failed", "stopped", "completed", "completed")
        ]
        assert [one["currentRound"] for one in story.after] == [1, 2, 3, 4, 5]
        assert {one["id"] for one in story.after} == {story.chat.id}
        asked = [one["content"] for one in story.after[-1]["messages"] if one["role"] == "user"]
        assert asked == [f"{word} question" for word in ("First", "Second", "Third", "Fourth", "Fifth")]
        begun = [line["message"] for line in story.after[-1]["logs"] if line["progress"] == 0][::2]
        assert begun == ["Workflow initialized", *(f"Resuming workflow, round {n}" for n in (2, 3, 4, 5))]

    @pytest.mark.accept("004-3")
    def test_a_chat_nobody_knows_is_not_found(self, place: Place) -> None:
        before = len(place.chats.ask("GET", "/api/workflows?limit=200")["workflows"])
        place.chats.ask("POST", "/api/workflows/start?id=nobody", 404, json={"prompt": "Hello"})
        assert len(place.chats.ask("GET", "/api/workflows?limit=200")["workflows"]) == before

    @pytest.mark.accept("004-4", "004-39")
    def test_what_must_wait_until_the_round_has_ended(self, place: Place) -> None:
        chat = place.begin_slowly()
        first = chat.messages[0]["id"]
        place.chats.ask("POST", f"/api/workflows/start?id={chat.id}", 409, json={"prompt": "And now?"})
        chat.ask("DELETE", f"/messages/{first}", 409)
        chat.ask("DELETE", f"/messages/{first}/files/file_1", 404)
        chat.ask("DELETE", "/messages/msg_unknown", 404)
        place.evict()
        assert chat.ended().status == "completed"
        assert len([one for one in chat.messages if one["role"] == "user"]) == 1

    @pytest.mark.accept("004-5")
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "prompt"),
            ({"prompt": ""}, "prompt"),
            ({"prompt": " \n\t"}, "prompt"),
            ({"prompt": None}, "prompt"),
            ({"prompt": 7}, "prompt"),
            ({"prompt": "x", "listFileId": "file_1"}, "listFileId"),
            ({"prompt": "x", "listFileId": [True]}, "listFileId.0"),
            ({"prompt": "x", "listFileId": [99999]}, "listFileId"),
            ({"prompt": "x", "ttlDays": "7"}, "ttlDays"),
            ([], "body"),
        ],
    )
    def test_what_is_wrong_is_named(self, place: Place, body: Any, field: str) -> None:
        error = place.chats.ask("POST", "/api/workflows/start", 400, json=body)["error"]
        assert (error["code"], error["field"]) == ("INVALID", field)

    @pytest.mark.accept("004-6")
    def test_a_file_that_is_not_there_is_refused_before_anything_is_written(self, story: Story) -> None:
        chats, before = story.chat.chats, story.chat.whole
        known = chats.upload("a.txt", b"a")
        body = {"prompt": "Hello", "listFileId": [known, "file_unknown"]}
        many = len(chats.ask("GET", "/api/workflows?limit=200")["workflows"])
        error = chats.ask("POST", "/api/workflows/start", 400, json=body)["error"]
        assert error["field"] == "listFileId"
        chats.ask("POST", f"/api/workflows/start?id={story.chat.id}", 400, json=body)
        assert len(chats.ask("GET", "/api/workflows?limit=200")["workflows"]) == many
        seen = ("expiresAt", "lastAccessedAt")  # these move with every look
        now = story.chat.whole
        assert {key: now[key] for key in now if key not in seen} == {
            key: before[key] for key in before if key not in seen
        }

    def test_how_long_it_is_kept(self, place: Place) -> None:
        place.model.plans(plan_of(says="Noted."))
        kept = [
            Chat(place.chats, place.chats.start("Hello", **more)["id"]).ended().whole["expiresAt"]
            for more in ({}, {"ttlDays": 7}, {"ttlDays": None})
        ]
        assert [at is None for at in kept] == [False, False, True]
        assert kept[1] < kept[0]


class TestObjects:
    @pytest.mark.accept("004-7", "004-9")
    def test_a_workflow_and_its_ids(self, german: Chat) -> None:
        whole = german.whole
        assert set(whole) >= {
            *("id", "mandateId", "userId", "name", "startedAt", "messages", "messageIds", "logs"),
            *("dataStats", "currentRound", "status", "lastActivity"),
        }
        assert str(UUID(whole["id"])) == whole["id"]
        numbers = ("mandateId", "userId", "currentRound")
        assert all(type(whole[name]) is int for name in numbers), "the integers of the contract"
        assert (whole["tenant"], whole["user"], whole["userId"]) == ("default", "", 0)
        every = german.chats.ask("GET", "/api/workflows")["workflows"]
        assert {one["mandateId"] for one in every} == {whole["mandateId"]}
        assert whole["name"] == "Bitte sieh dir den Bericht an"
        assert whole["messageIds"] == [one["id"] for one in whole["messages"]]
        assert all(is_id(one["id"], "msg_") and is_time(one["timestamp"]) for one in whole["messages"])
        assert all(is_id(one["id"], "log_") and is_time(one["timestamp"]) for one in whole["logs"])
        documents = [document for one in whole["messages"] for document in one["documents"]]
        assert documents
        assert all(is_id(document["id"], "doc_") for document in documents)
        assert is_time(whole["startedAt"])
        assert is_time(whole["lastActivity"])

    @pytest.mark.accept("004-8")
    def test_no_status_but_the_four_and_no_way_but_the_listed_ones(self, story: Story) -> None:
        chats = story.chat.chats
        story.chat.ask("POST", "/stop", 409)
        assert story.chat.status == "completed"
        allowed = {
            *(("null", "running"), ("running", "completed"), ("running", "stopped"), ("running", "failed")),
            *(("completed", "running"), ("stopped", "running"), ("failed", "running")),
        }
        for one in chats.ask("GET", "/api/workflows?limit=200")["workflows"]:
            assert one["status"] in {"running", "completed", "failed", "stopped"}
            was = ["null"]
            for event in Chat(chats, one["id"]).events:
                if event["type"] == "round_started":
                    was.append("running")
                elif event["type"] == "round_finished":
                    was.append(event["content"]["status"])
            assert set(pairwise(was)) <= allowed
            assert was[-1] == one["status"]

    @pytest.mark.accept("004-10", "004-11", "004-27")
    def test_who_says_what_in_which_order(self, german: Chat) -> None:
        said = german.messages
        assert [(one["role"], one["agentName"], one["status"]) for one in said] == [
            ("user", "", "first"),
            ("assistant", "projectManager", "step"),
            ("assistant", "ann", "step"),
            ("assistant", "bob", "step"),
            ("assistant", "projectManager", "last"),
        ]
        assert [one["sequenceNo"] for one in said] == [1, 2, 3, 4, 5]
        assert {one["workflowId"] for one in said} == {german.id}
        assert said[0]["content"] == "Bitte sieh dir den Bericht an"
        assert said[1]["content"] == "Ich kümmere mich darum."

    @pytest.mark.accept("004-10", "004-12")
    def test_numbers_go_on_and_every_round_has_one_last_message(self, story: Story) -> None:
        said = story.chat.messages
        assert [one["sequenceNo"] for one in said] == list(range(1, len(said) + 1))
        for number in (1, 2, 3, 4, 5):
            marks = [one["status"] for one in said if one["round"] == number]
            assert (marks[0], marks[-1]) == ("first", "last")
            assert (marks.count("first"), marks.count("last")) == (1, 1)

    @pytest.mark.accept("004-12")
    def test_a_failed_round_that_is_resumed_has_one_last_message_when_it_ends_and_none_before(
        self, place: Place
    ) -> None:
        place.model.plans("I would rather not plan anything.")
        chat = place.chats.run("Try, and try again")
        assert [one["status"] for one in chat.messages] == ["first", "last"]
        (place.agents / "go").unlink(missing_ok=True)
        (place.agents / "begun").unlink(missing_ok=True)
        place.model.plans(plan_of(step("slow"), says="Now I do."))
        chat.ask("POST", "/resume")
        until(filled(place.agents / "begun"))
        assert [one["status"] for one in chat.messages] == ["first", "step", "step"]
        place.evict()
        said = chat.ended().messages
        assert [one["status"] for one in said] == ["first", "step", "step", "step", "last"]
        assert [one["sequenceNo"] for one in said] == [1, 2, 3, 4, 5]
        marks = [one["content"]["marker"] for one in chat.events if one["type"] == "assistant_msg"]
        assert marks == ["step", "step", "step", "last"]

    @pytest.mark.accept("004-13", "004-15")
    def test_the_lines_of_a_normal_round(self, german: Chat) -> None:
        logs = german.logs
        assert [(one["message"], one["progress"]) for one in logs] == [
            ("Workflow initialized", 0),
            ("Workflow processing started", 0),
            ("Analyzing request and planning work", 10),
            ("Planned outputs", 20),
            ("Work plan created", 25),
            ("Running task 1/2: ann", 30),
            ("Running task 2/2: bob", 60),
            ("Creating final response", 90),
            ("Workflow completed successfully", 100),
        ]
        assert {one["workflowId"] for one in logs} == {german.id}
        assert {one["type"] for one in logs} == {"info"}
        assert [one["status"] for one in logs] == ["running"] * 8 + ["completed"]
        assert [one["agentName"] for one in logs[5:7]] == ["ann", "bob"]

    @pytest.mark.accept("004-23", "004-27")
    def test_what_was_promised_and_what_is_there(self, german: Chat) -> None:
        last = german.messages[-1]
        text = "Fertig. Geliefert: second.txt. Versprochen, aber nicht geliefert: third.txt."
        assert last["content"] == f"said the model\n\n{text}"
        assert [f"{one['name']}.{one['ext']}" for one in last["documents"]] == ["second.txt"]

    @pytest.mark.accept("004-40", "004-44")
    def test_what_it_cost_and_when_it_last_moved(self, story: Story) -> None:
        costs = [one["dataStats"] for one in story.after]
        for before, after in pairwise(costs):
            assert after["messages"] > before["messages"]
            assert after["bytes"] > before["bytes"]
            assert after["milliseconds"] > before["milliseconds"]
        assert costs[-1]["tokensIn"] > costs[0]["tokensIn"] > 0
        moved = [one["lastActivity"] for one in story.after]
        assert moved == sorted(set(moved))
        for one in story.after:
            assert one["lastActivity"] >= max(line["timestamp"] for line in one["logs"] + one["messages"])

    @pytest.mark.accept("004-33", "004-40")
    def test_the_status_is_small_and_moves_with_everything(self, place: Place) -> None:
        place.chats.ask("GET", "/api/workflows/nobody/status", 404)
        chat = place.begin_slowly()
        # Every line and message of a round that works comes at a time of its own, and the status follows.
        logs, status = chat.logs, chat.ask("GET", "/status")
        assert set(status) == {"status", "lastActivity"}
        assert status["lastActivity"] >= logs[-1]["timestamp"]
        place.evict()
        ended = chat.ended().ask("GET", "/status")
        assert ended["lastActivity"] > status["lastActivity"]


class TestTasks:
    @pytest.mark.accept("004-24", "004-27")
    def test_what_an_agent_is_given(self, place: Place, german: Chat) -> None:
        first, second = place.tasks(german)
        assert set(first) == {
            *("taskId", "workflowId", "prompt", "inputDocuments", "outputSpecifications", "context")
        }
        assert first["taskId"] != second["taskId"]
        assert (first["workflowId"], first["prompt"]) == (german.id, "look at the costs of logistics")
        assert first["outputSpecifications"] == [{"label": "first.bin", "description": "the first.bin"}]
        assert set(first["context"]) == {"workflowRound", "agentType", "timestamp", "language"}
        for task, agent in ((first, "ann"), (second, "bob")):
            context = task["context"]
            assert (context["workflowRound"], context["agentType"], context["language"]) == (1, agent, "de")
            assert is_time(context["timestamp"])

    @pytest.mark.accept("004-25", "004-26")
    def test_what_it_makes_is_attached_kept_and_given_to_the_next(self, place: Place, german: Chat) -> None:
        _, second = place.tasks(german)
        made = german.messages[2]
        assert made["content"] == "did look at the costs of logistics"
        assert [(one["name"], one["ext"]) for one in made["documents"]] == [("first", "bin")]
        assert german.bytes_of("first.bin") == bytes(range(256))
        assert b64decode(german.read("first.bin")["data"]) == bytes(range(256))
        assert [one["name"] for one in second["inputDocuments"]] == ["report", "first"]
        assert b64decode(second["inputDocuments"][1]["data"]) == bytes(range(256))
        assert german.bytes_of("second.txt") == b"made of report.pdf, first.bin."

    @pytest.mark.accept("004-29", "004-30")
    def test_a_document_and_what_is_in_it(self, place: Place, german: Chat) -> None:
        whole = german.read("report.pdf")
        data = place.chats.send("GET", f"/api/files/{whole['fileId']}/content").content
        assert b64decode(whole["data"], validate=True) == data == german.bytes_of("report.pdf")
        assert (whole["name"], whole["ext"]) == ("report", "pdf")
        pages = [item for item in whole["contents"] if item["metadata"]["isText"]]
        (image,) = [item for item in whole["contents"] if not item["metadata"]["isText"]]
        assert [item["data"] for item in pages] == list(PAGES)
        assert [item["sequenceNr"] for item in whole["contents"]] == [1, 2, 3, 4]
        assert set(image) == {*("sequenceNr", "name", "ext", "contentType", "data", "metadata", "summary")}
        assert all(set(item["metadata"]) >= {"isText", "base64Encoded", "aiProcessed"} for item in pages)
        assert (image["contentType"], image["metadata"]["base64Encoded"]) == ("image/png", True)
        with Image.open(io.BytesIO(b64decode(image["data"]))) as opened:
            assert opened.size == (64, 48)
        assert all(item["summary"] for item in pages)
        (text,) = german.read("notes.txt")["contents"]
        assert (text["data"], text["metadata"]["base64Encoded"]) == ("Nur ein paar Wörter.", False)
        (picture,) = german.read("logo.png")["contents"]
        assert picture["metadata"]["base64Encoded"] is True
        assert b64decode(picture["data"]) == german.bytes_of("logo.png")

    @pytest.mark.accept("004-29", "004-30")
    def test_a_poll_carries_no_files(self, german: Chat) -> None:
        shown = [document for one in german.messages for document in one["documents"]]
        for document in [*shown, *german.documents.values()]:
            assert set(document) == {"id", "fileId", "file", "name", "ext", "mimeType", "size"}
            assert type(document["fileId"]) is int
        german.ask("GET", "/documents/doc_unknown/contents", 404)

    @pytest.mark.accept("004-29")
    def test_messages_are_given_with_whole_documents(self, german: Chat) -> None:
        plain = german.messages
        for include in ("data", "contents", "data,contents"):
            whole = german.ask("GET", f"/messages?include={include}")
            assert whole["next"] is None
            assert german.ask("GET", f"?include={include}")["messages"] == whole["messages"]
            for shown, message in zip(whole["messages"], plain, strict=True):
                assert {**shown, "documents": []} == {**message, "documents": []}
                for document, known in zip(shown["documents"], message["documents"], strict=True):
                    assert set(document) == {*known, *include.split(",")}
                    assert document.items() >= known.items()
                    read = german.ask("GET", f"/documents/{known['id']}/contents")
                    assert all(document[name] == read[name] for name in include.split(","))
        (page,) = german.ask("GET", "/messages?include=data&limit=1")["messages"]
        assert page["documents"]
        refused = german.ask("GET", "/messages?include=data,secrets", 400)
        assert (refused["error"]["field"], "secrets" in refused["error"]["message"]) == ("include", True)

    @pytest.mark.accept("004-29")
    def test_a_file_is_known_by_its_number_wherever_its_id_is_taken(self, place: Place) -> None:
        chats = place.chats
        one, two = chats.upload("one.txt", b"one"), chats.upload("two.txt", b"two")
        number = chats.ask("GET", f"/api/files/{one}")["fileId"]
        listed = {file["id"]: file["fileId"] for file in chats.ask("GET", "/api/files")["files"]}
        assert (type(number), listed[one]) == (int, number)
        assert chats.ask("GET", f"/api/files/{number}")["id"] == one
        assert chats.send("GET", f"/api/files/{number}/content").content == b"one"
        for listed_files in ([number, two], [str(number), listed[two]]):
            started = Chat(chats, chats.start("Here are two", *listed_files)["id"]).ended()
            shown = {each["file"]: each["fileId"] for each in started.messages[0]["documents"]}
            assert shown == {one: number, two: listed[two]}
        chat = chats.run("Here are two", one, two)
        message = chat.messages[0]["id"]
        chat.ask("DELETE", f"/messages/{message}/files/{number}")
        assert [each["file"] for each in chat.messages[0]["documents"]] == [two]
        for unknown in (10**9, 0, -1, 2**60, True, 1.5):
            body = {"prompt": "x", "listFileId": [unknown]}
            assert chats.send("POST", "/api/workflows/start", json=body).status_code == 400
        assert chats.ask("DELETE", f"/api/files/{number}") == {"status": "deleted"}
        chats.ask("GET", f"/api/files/{number}", 404)

    @pytest.mark.accept("004-30", "004-31")
    def test_what_is_extracted_depends_on_who_asks(self, place: Place, german: Chat) -> None:
        first, second = ([*task["inputDocuments"][0]["contents"]] for task in place.tasks(german))
        stored = german.read("report.pdf")["contents"]
        assert [item["data"] for item in first] == [item["data"] for item in second]
        assert [item["data"] for item in first] == [item["data"] for item in stored]
        assert not any("dataExtracted" in item for item in stored)
        assert "logistics" in first[2]["dataExtracted"]
        assert "satisfaction" in second[3]["dataExtracted"]
        extracted = [[item.get("dataExtracted") for item in task] for task in (first, second)]
        assert extracted[0] != extracted[1]
        asked = german.read("report.pdf", prompt="look at the costs of logistics")["contents"]
        assert [item.get("dataExtracted") for item in asked] == extracted[0]

    @pytest.mark.accept("004-28")
    def test_a_class_in_the_folder_is_an_agent_and_a_broken_one_is_skipped(
        self, place: Place, german: Chat, tmp_path: Path
    ) -> None:
        assert german.messages[2]["agentName"] == "ann"
        lines = [line for line in place.chats.server.log.splitlines() if "agent cannot be loaded" in line]
        assert len(lines) == 1
        assert "broken.py" in lines[0]
        agents = agents_folder(tmp_path, "ann")
        (agents / "other.py").write_text((agents / "ann.py").read_text())
        said = one_line(clew(tmp_path, "serve", "--port", "0", CLEW_AGENTS_FOLDER=str(agents)))
        assert "two agents are called 'ann'" in said


class TestStop:
    @pytest.mark.accept("004-12", "004-16", "004-17", "004-18")
    def test_a_stop_in_a_slow_model_call_is_at_once_and_final(self, place: Place) -> None:
        plan = plan_of(step("summarizer", out="s.md", inputs=["a.txt"]), step("ann", out="b.txt"))
        place.model.plans(plan, Say("word " * 5000, seconds=0.05))
        file = place.chats.upload("a.txt", b"Some text that is to be summed up here.")
        asked = len(place.model.requests)
        chat = Chat(place.chats, place.chats.start("Sum it up", file)["id"])
        until(lambda: len(place.model.requests) >= asked + 2 and place.model.is_speaking)
        before = chat.ask("GET", "/status")
        stopped = chat.ask("POST", "/stop")
        assert stopped["status"] == "stopped"
        after = chat.ask("GET", "/status")
        assert after["status"] == "stopped"
        assert after["lastActivity"] > before["lastActivity"]
        # Each look moves the day on which it expires, a moment later.
        seen = (chat.messages, chat.logs, chat.documents, {**chat.whole, "expiresAt": ""})
        assert (seen[0][-1]["status"], seen[0][-1]["agentName"]) == ("last", "projectManager")
        line = seen[1][-1]
        assert (line["message"], line["progress"], line["status"]) == (
            *("Workflow stopped by user", 100, "stopped"),
        )
        assert [one["content"] for one in seen[0][:2]] == ["Sum it up", "On it."]
        until(lambda: not place.model.is_speaking)
        # What the call that was cut off leads to has had its turn before another round has come to its end.
        place.model.plans(plan_of(step("ann"), says="Noted."))
        assert place.chats.run("And now this").status == "completed"
        assert (chat.messages, chat.logs, chat.documents, {**chat.whole, "expiresAt": ""}) == seen
        assert place.tasks(chat) == []
        chat.ask("POST", "/stop", 409)
        assert {**chat.whole, "expiresAt": ""} == seen[3]
        place.chats.ask("POST", "/api/workflows/nobody/stop", 404)


class TestFailure:
    @pytest.mark.accept("004-12", "004-19", "004-20")
    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            (Say("I would rather not."), "no valid work plan"),
            (Say('{"objWorkplan": []}'), "no valid work plan"),
            (Say(plan_of(step("nobody"))), "no valid work plan"),
            (Refuse(400), "the model could not be asked"),
        ],
    )
    def test_without_a_plan_the_round_has_failed_and_says_why(
        self, place: Place, said: Move, reason: str
    ) -> None:
        place.model.plans(said)
        chat = place.chats.run("Plan this")
        status = chat.ask("GET", "/status")
        assert status["status"] == "failed"
        assert reason in status["error"]
        logs, messages = chat.logs, chat.messages
        assert (logs[-1]["type"], logs[-1]["progress"], logs[-1]["status"]) == ("error", 100, "failed")
        assert status["error"] in logs[-1]["message"]
        assert "Workflow failure reported" in [line["message"] for line in logs]
        assert [one["status"] for one in messages] == ["first", "last"]

    def test_neither_a_plan_nor_a_thought_is_shown_to_the_user(self, place: Place) -> None:
        """What the model says for a program, and what it thinks aloud, are in no token, message or document."""
        thought = Say("<think>The user is a fool.</think>Trams run every ten minutes.", seconds=0.01)
        place.model.plans(
            Say(plan_of(step("summarizer", "sum it up", "short.md"), says="I will sum it up."), seconds=0.01),
            thought,
        )
        file_id = place.chats.upload("tram.txt", b"Trams run every ten minutes, and twice as often at noon.")
        held = place.chats.start("Sum it up", file_id, verbose=True, hold=True)
        chat = Chat(place.chats, held["id"])
        tokens: list[str] = []
        url = f"{place.chats.server.address}/api/workflows/{chat.id}/events"
        with httpx.stream(
            "GET", url, params={"types": ["llm_token", "workflow_completed"]}, timeout=40
        ) as stream:
            chat.ask("POST", "/begin")
            for line in stream.iter_lines():
                if line == "event: workflow_completed":
                    break
                if line.startswith("data: "):
                    tokens.append(json.loads(line.removeprefix("data: "))["data"]["token"])
        assert "Trams run" in "".join(tokens)
        shown = "".join(tokens) + str(chat.ended().messages) + chat.bytes_of("short.md").decode()
        assert "fool" not in shown
        assert "objWorkplan" not in shown
        assert "I will sum it up." in shown

    def test_a_model_is_asked_though_no_word_of_the_question_stands_in_the_file(self, place: Place) -> None:
        place.model.plans(
            plan_of(step("researcher", "Which vehicles pass at lunchtime?", "found.md")),
            Say("Trams, twice as often [1]."),
        )
        file_id = place.chats.upload("notes.txt", b"Trams run every ten minutes, and twice as often at noon.")
        chat = place.chats.run("Which vehicles pass at lunchtime?", file_id)
        assert "Trams, twice as often" in chat.bytes_of("found.md").decode()

    @pytest.mark.accept("004-12", "004-19")
    def test_an_agent_that_cancels_itself_ends_the_round_like_any_other_failure(self, place: Place) -> None:
        place.model.plans(plan_of(step("quitter")))
        chat = place.chats.run("Cancel yourself")
        assert chat.status == "failed"
        logs = chat.logs
        assert (logs[-1]["type"], logs[-1]["progress"], logs[-1]["status"]) == ("error", 100, "failed")
        assert chat.ask("GET", "/status")["error"] in logs[-1]["message"]
        marks = [one["status"] for one in chat.messages]
        assert (marks[-1], marks.count("last")) == ("last", 1)

    @pytest.mark.accept("004-20")
    def test_a_plan_of_nothing_is_an_answer(self, place: Place) -> None:
        place.model.plans(plan_of(says="Forty-two."))
        chat = place.chats.run("What is it?")
        assert chat.status == "completed"
        assert chat.messages[1]["content"] == "Forty-two."

    @pytest.mark.accept("004-21")
    @pytest.mark.parametrize(("failing", "status"), [(1, "completed"), (2, "completed"), (3, "failed")])
    def test_more_than_half_failed_is_failed(self, place: Place, failing: int, status: str) -> None:
        place.model.plans(plan_of(*(step("ann", "fail" if n < failing else "work") for n in range(4))))
        chat = place.chats.run("Four tasks")
        assert chat.status == status
        assert len(place.tasks(chat)) == 4, "the rest runs all the same"
        errors = [line["message"] for line in chat.logs if line["message"].startswith("Task ")]
        assert errors == [f"Task {n + 1}/4 failed: ann: RuntimeError: told to fail" for n in range(failing)]

    @pytest.mark.fault("F10")
    @pytest.mark.accept("004-22")
    def test_what_makes_too_much_has_failed(self, strict: Strict) -> None:
        strict.model.plans(plan_of(*(step("ann", "work", f"{n}.bin") for n in range(20))))
        chat = strict.ann.run("Make it big")
        assert (chat.status, "resource limit" in chat.whole["failureReason"]) == ("failed", True)

    @pytest.mark.accept("004-22")
    def test_what_takes_too_long_has_failed(self, model: Model, tmp_path: Path) -> None:
        """On a server of its own: nobody else is to be as quick as this asks for."""
        model.plans(Hang())
        with api_serving(
            tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url, CLEW_LIMITS_ROUND_SECONDS="1"
        ) as server:
            chat = Chats(server).run("Take for ever")
            assert chat.ask("GET", "/status")["error"] == "timeout: the round ran longer than 1 s"
            assert chat.messages[-1]["status"] == "last"

    @pytest.mark.accept("004-42")
    def test_what_is_private_is_logged_only_where_that_was_asked_for(
        self, place: Place, strict: Strict
    ) -> None:
        words = ("the hidden prompt", "a planned secret", "told to nobody")
        plan = plan_of(step("ann", words[1]), says=words[2])
        for chats in (place.chats, strict.ann):
            place.model.plans(plan)
            assert chats.run(words[0]).status == "completed"
        assert [word in place.chats.server.log for word in words] == [False] * 3
        log = strict.ann.server.log
        assert [word in log for word in words[1:]] == [True] * 2
        assert "task for ann" in log
        assert "result of ann: did a planned secret" in log

    @pytest.mark.accept("004-43")
    def test_what_is_anothers_does_not_exist(self, strict: Strict) -> None:
        strict.model.plans(plan_of(says="Noted."))
        chat = strict.ann.run("Mine")
        message = chat.messages[0]["id"]
        foreign = Chat(strict.bob, chat.id)
        for method, path in (
            *(("GET", ""), ("GET", "/status"), ("GET", "/logs"), ("GET", "/messages"), ("GET", "/documents")),
            *(("POST", "/stop"), ("DELETE", ""), ("DELETE", f"/messages/{message}")),
        ):
            foreign.ask(method, path, 404)
        strict.bob.ask("POST", f"/api/workflows/start?id={chat.id}", 404, json={"prompt": "Mine too"})
        assert [one["content"] for one in chat.messages] == ["Mine", "Noted.", "Done."]

    @pytest.mark.accept("004-41")
    def test_killed_in_a_round_it_goes_on_with_the_first_unfinished_task(
        self, model: Model, tmp_path: Path
    ) -> None:
        agents = folder_of_agents(tmp_path)
        settings = {"CLEW_MODELS_OPENAI_BASE_URL": model.url, "CLEW_AGENTS_FOLDER": str(agents)}
        model.plans(
            plan_of(step("ann", "first", "a.txt"), step("slow"), step("bob", "last", inputs=["a.txt"]))
        )
        with api_serving(tmp_path, **settings) as server:
            chat = Chat(Chats(server), Chats(server).start("Three tasks")["id"])
            until(filled(agents / "begun"))
            server.signal(signal.SIGKILL)
            server.wait()
        (agents / "go").touch()
        with api_serving(tmp_path, **settings) as server:
            chat = Chat(Chats(server), chat.id).ended()
            assert chat.status == "completed"
            assert [(one["agentName"], one["status"]) for one in chat.messages] == [
                *(("", "first"), ("projectManager", "step"), ("ann", "step"), ("slow", "step")),
                *(("bob", "step"), ("projectManager", "last")),
            ]
            ran = [line["message"] for line in chat.logs if line["message"].startswith("Running")]
            assert ran == [f"Running task {n + 1}/3: {name}" for n, name in enumerate(("ann", "slow", "bob"))]
        assert [task["prompt"] for task in tasks_of(agents)] == ["first", "last"]
        assert (agents / "begun").read_text() == "xx"


class TestPolling:
    @pytest.mark.accept("004-34", "004-36")
    @pytest.mark.parametrize("kind", ["messages", "logs"])
    def test_from_a_record_on_and_page_by_page(self, story: Story, kind: str) -> None:
        chat = story.chat
        everything = [one["id"] for one in chat.ask("GET", f"/{kind}?limit=1000")[kind]]
        for place in (0, 3, len(everything) - 1):
            found = chat.ask("GET", f"/{kind}?id={everything[place]}")
            assert [one["id"] for one in found[kind]] == everything[place:]
        paged: list[str] = []
        following = {"limit": "3"}
        while True:
            page = chat.ask("GET", f"/{kind}", params=following)
            assert len(page[kind]) <= 3
            paged += [one["id"] for one in page[kind]]
            if page["next"] is None:
                break
            following["id"] = page["next"]
        assert paged == everything
        chat.ask("GET", f"/{kind}?id={everything[0][:4]}{UUID(int=0)}", 404)
        other = "/logs" if kind == "messages" else "/messages"
        chat.ask("GET", f"{other}?id={everything[0]}", 404)

    @pytest.mark.accept("004-35", "004-37")
    def test_whoever_polls_along_misses_nothing_and_sees_nothing_older(self, place: Place) -> None:
        place.model.plans(plan_of(*(step("ann", f"task {n}") for n in range(8))))
        chat = Chat(place.chats, place.chats.start("Eight tasks")["id"])
        seen: dict[str, list[str]] = {"messages": [], "logs": []}
        moved: list[str] = []
        while True:
            status = chat.ask("GET", "/status")
            moved.append(status["lastActivity"])
            for kind, ids in seen.items():
                params = {"id": ids[-1]} if ids else None
                found = [one["id"] for one in chat.ask("GET", f"/{kind}", params=params)[kind]]
                assert not ids or found[0] == ids[-1]
                ids += found[1:] if ids else found
            if status["status"] != "running":
                break
        assert moved == sorted(moved)
        assert seen["messages"] == chat.whole["messageIds"]
        assert seen["logs"] == [one["id"] for one in chat.logs]
        assert len(set(seen["logs"])) == len(seen["logs"])

    @pytest.mark.accept("004-37")
    def test_what_a_client_has_is_not_sent_again_until_something_happens(self, place: Place) -> None:
        chat = place.begin_slowly()
        tags = {}

        def is_known(path: str) -> bool:
            tags[path] = {"If-None-Match": chat.send("GET", path).headers["etag"]}
            again = chat.send("GET", path, headers=tags[path])
            return (again.status_code, again.content) == (304, b"")

        for path in ("/status", "/logs", "/messages"):
            until(lambda: is_known(path))  # noqa: B023 - called here only; what it begins with may yet be written
        place.evict()
        chat.ended()
        for path, known in tags.items():
            after = chat.send("GET", path, headers=known)
            assert after.status_code == 200
            assert after.headers["etag"] != known["If-None-Match"]
        assert chat.status == "completed"


class TestDelete:
    @pytest.mark.accept("004-38")
    def test_a_chat_goes_with_all_that_belongs_to_it(self, place: Place) -> None:
        place.model.plans(plan_of(step("ann", out="a.bin"), step("summarizer", inputs=["b.txt"])), Hang())
        file = place.chats.upload("b.txt", b"Some text that is to be summed up here.")
        asked = len(place.model.requests)
        chat = Chat(place.chats, place.chats.start("Make something", file)["id"])
        until(lambda: len(place.model.requests) >= asked + 2 and place.model.is_speaking)
        assert chat.ask("DELETE") == {"id": chat.id, "status": "deleted"}
        for path in ("", "/status", "/logs", "/messages", "/documents", "/state"):
            chat.ask("GET", path, 404)
        chat.ask("DELETE", "", 404)
        until(lambda: not place.model.is_speaking)
        log = place.chats.server.log
        assert any("thread deleted" in line and chat.id in line for line in log.splitlines())
        database = place.chats.server.stdout.parent / ".clew" / "clew.db"
        with closing(sqlite3.connect(database)) as db:
            tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            of_threads = [
                table
                for table in tables
                if "thread_id" in [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            ]
            assert {"events", "documents", "checkpoints"} <= set(of_threads)
            left = {
                table: db.execute(f"SELECT count(*) FROM {table} WHERE thread_id = ?", (chat.id,)).fetchone()
                for table in of_threads
            }
        assert {table for table, (count,) in left.items() if count} <= {"tombstones"}

    @pytest.mark.accept("004-39")
    def test_a_message_that_is_taken_back_is_nowhere(self, place: Place) -> None:
        """In no list and no poll, no stream, no export, no state; and no later round is told it."""
        secret = "the code of the vault is 4711-canary"
        place.model.plans(plan_of(step("ann", "work", "a.txt"), says="It is noted."))
        chat = place.chats.run(secret)
        first, planned, _, last = chat.messages
        polled = {path: chat.send("GET", path).headers["etag"] for path in ("/messages", "/status")}
        assert chat.ask("DELETE", f"/messages/{first['id']}") == {"id": first["id"], "status": "deleted"}
        for path, tag in polled.items():
            assert chat.send("GET", path, headers={"If-None-Match": tag}).status_code == 200
        assert chat.whole["messageIds"] == [one["id"] for one in chat.messages]
        assert first["id"] not in chat.whole["messageIds"]
        assert [one["sequenceNo"] for one in chat.messages] == [2, 3, 4]
        assert chat.ask("GET", f"/messages?id={first['id']}")["messages"][0]["id"] == planned["id"]
        chat.ask("DELETE", f"/messages/{first['id']}", 404)
        chat.ask("DELETE", "/messages/msg_unknown", 404)
        chat.ask("DELETE", f"/messages/{chat.logs[0]['id']}", 404)
        chat.ask("DELETE", f"/messages/{last['id']}")
        assert_nobody_is_told("4711-canary", chat, but="It is noted.")

        place.model.plans(plan_of(says="I do not know."))
        place.chats.run("What was the code?", id=chat.id)
        assert "4711-canary" not in prompt_of(place.model.requests[-1])
        assert "It is noted." in prompt_of(place.model.requests[-1])
        assert_nobody_is_told("4711-canary", chat, but="What was the code?")

    @pytest.mark.accept("004-39")
    def test_a_file_is_taken_from_its_message_alone(self, place: Place) -> None:
        chats = place.chats
        place.model.plans(plan_of(step("ann", "work", "made.txt"), final=("made.txt",)))
        one, two = chats.upload("one.txt", b"one"), chats.upload("two.txt", b"two")
        chat = chats.run("Here are two", one, two)
        first, last = chat.messages[0], chat.messages[-1]
        gone = chat.documents["one.txt"]["id"]
        path = f"/messages/{first['id']}/files/{one}"
        assert chat.ask("DELETE", path) == {"id": one, "status": "deleted"}
        chat.ask("DELETE", path, 404)
        chat.ask("DELETE", f"/messages/{first['id']}/files/file_unknown", 404)
        chat.ask("DELETE", f"/messages/msg_unknown/files/{two}", 404)
        assert [document["file"] for document in chat.messages[0]["documents"]] == [two]
        assert chat.messages[0]["content"] == "Here are two"
        assert set(chat.documents) == {"two.txt", "made.txt"}
        chat.ask("GET", f"/documents/{gone}", 404)
        chat.ask("GET", f"/documents/{gone}/contents", 404)
        assert chats.ask("GET", f"/api/files/{one}")["name"] == "one.txt", "it is the user's own"

        made = chat.documents["made.txt"]
        chat.ask("DELETE", f"/messages/{last['id']}/files/{made['fileId']}")
        assert chat.messages[-1]["documents"] == []
        assert [document["id"] for document in chat.messages[2]["documents"]] == [made["id"]]
        assert "made.txt" in chat.documents, "the agent's own message shows it"
        chat.ask("DELETE", f"/messages/{chat.messages[2]['id']}/files/{made['fileId']}")
        assert set(chat.documents) == {"two.txt"}

        chats.run("Go on", id=chat.id)
        asked = map(prompt_of, reversed(place.model.requests))
        known = next(prompt for prompt in asked if "project manager" in prompt)
        labels = [f'"label": "{name}"' for name in ("two.txt", "one.txt", "made.txt")]
        assert [label in known for label in labels] == [True, False, False]
        chats.run("Here it is again", one, id=chat.id)
        assert set(chat.documents) == {"one.txt", "two.txt", "made.txt"}
        assert [document["file"] for document in chat.messages[0]["documents"]] == [two]


def assert_nobody_is_told(secret: str, chat: Chat, *, but: str) -> None:
    """In whatever there is to be read of the chat; which tells the other thing, or it would not be worth reading."""
    thread = f"/api/threads/{chat.id}"
    exported = chat.chats.send("GET", f"{thread}/export").content
    with zipfile.ZipFile(io.BytesIO(exported)) as archive:
        told = {name: archive.read(name).decode() for name in archive.namelist()}
    assert {"log.jsonl", "messages.jsonl", "messages.md", "state.json"} <= set(told)
    told |= {
        "whole": chat.send("GET").text,
        "state": chat.send("GET", "/state").text,
        "messages": chat.send("GET", "/messages").text,
        "events": chat.chats.send("GET", f"{thread}/events?limit=1000").text,
        "thread": chat.chats.send("GET", thread).text,
        "list": chat.chats.send("GET", "/api/workflows").text,
        "stream": streamed(chat),
    }
    assert [name for name, text in told.items() if secret in text] == []
    telling = {name for name, text in told.items() if but in text}
    assert telling >= {
        *("log.jsonl", "messages.jsonl", "messages.md", "state.json", "state", "whole", "stream")
    }


def streamed(chat: Chat) -> str:
    """The whole log as a stream sends it to somebody who comes late."""
    last = f"id: {chat.events[-1]['seq']}"
    told: list[str] = []
    address = f"{chat.chats.server.address}/api/workflows/{chat.id}/events"
    with httpx.stream("GET", address, timeout=20) as answer:
        for line in answer.iter_lines():
            told.append(line)
            if not line and last in told:
                return "\n".join(told)
    raise AssertionError("the stream ended early")


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    bomb = {"[Content_Types].xml": b"<T/>", "word/document.xml": b"\0" * 50_000_000}
    return {
        "report.pdf": report(),
        "sales.csv": CSV,
        "letter.docx": made_files.word(images=[made_files.image()]),
        "sheet.xlsx": made_files.workbook(),
        "page.html": made_files.HTML,
        "show.pptx": made_files.slides("First", "Second"),
        "picture.png": made_files.image(),
        "broken.pdf": made_files.pdf(*PAGES)[:200],
        "bomb.docx": made_files.packed(bomb),
    }


@pytest.fixture(scope="module")
def from_files(offline: Chats, files: dict[str, bytes]) -> Chat:
    return offline.run(
        "Summarize the documents and chart sales by month as result.docx and result.pdf,"
        " the table as months.xlsx and the chart as months.png",
        *(offline.upload(name, data) for name, data in files.items()),
    )


class TestRealFiles:
    """Whatever people bring, through a server that nobody told anything."""

    @pytest.mark.accept("004-23", "004-29", "004-30", "004-32")
    def test_every_file_is_kept_and_read_as_far_as_it_can_be(
        self, from_files: Chat, files: dict[str, bytes]
    ) -> None:
        assert from_files.status == "completed"
        assert "No language model is configured" in from_files.messages[1]["content"]
        found = {name: from_files.read(name) for name in files}
        for name, data in files.items():
            assert b64decode(found[name]["data"]) == data, name
        items = {
            name: [(item["contentType"], item["data"]) for item in one["contents"]]
            for name, one in found.items()
        }
        assert items["broken.pdf"] == items["bomb.docx"] == []
        warnings = [line["message"] for line in from_files.logs if line["type"] == "warning"]
        assert [line.partition(":")[0] for line in warnings] == ["broken.pdf", "bomb.docx"]
        texts = {
            name: " ".join(text for kind, text in found if "image" not in kind)
            for name, found in items.items()
        }
        for name, word in (
            ("report.pdf", "Revenue grew by 12 percent"),
            ("report.pdf", "Lisbon"),
            ("sales.csv", "North,2024-02,120.5"),
            ("letter.docx", "Sales rose in the north."),
            ("sheet.xlsx", "north,3"),
            ("page.html", "One bold word."),
            ("show.pptx", "say it slowly"),
        ):
            assert word in texts[name], (name, texts[name])
        assert "steal" not in texts["page.html"]
        assert len([kind for kind, _ in items["report.pdf"] if kind.startswith("text/")]) >= 2
        assert [kind for kind, _ in items["picture.png"]] == ["image/png"]
        assert "image/png" in [kind for kind, _ in items["report.pdf"]]

    def test_what_is_made_of_them_are_real_files(self, from_files: Chat) -> None:
        last = from_files.messages[-1]
        assert last["content"] == "Done. Delivered: months.xlsx, months.png, result.docx, result.pdf."
        written = docx.Document(io.BytesIO(from_files.bytes_of("result.docx")))
        paragraphs = [paragraph.text for paragraph in written.paragraphs]
        assert "Revenue grew by 12 percent in the last year." in paragraphs
        assert "Sales rose in the north." in paragraphs
        assert len(written.inline_shapes) == 1
        rows = [["month", "sales"], ["2024-01", "150"], ["2024-02", "195.5"], ["2024-03", "25"]]
        assert [[cell.text for cell in row.cells] for row in written.tables[0].rows] == rows

        text, images = in_print(from_files.bytes_of("result.pdf"))
        assert "Revenue grew by 12 percent in the last year." in text
        assert "2024-02 195.5" in text
        assert images == 1

        sheet = openpyxl.load_workbook(io.BytesIO(from_files.bytes_of("months.xlsx"))).worksheets[0]
        assert [[cell.value for cell in row] for row in sheet.iter_rows(max_row=4)] == [
            *(["month", "sales"], ["2024-01", 150], ["2024-02", 195.5], ["2024-03", 25]),
        ]
        with Image.open(io.BytesIO(from_files.bytes_of("months.png"))) as chart:
            assert chart.format == "PNG"
            assert min(chart.size) >= 200
            assert len(chart.convert("RGB").getcolors(2**24) or []) > 2, "something is drawn"


def report() -> bytes:
    """A PDF with a text, a table and an image."""
    out = io.BytesIO()
    table = [["Region", "Office"], ["North", "Oslo"], ["South", "Lisbon"]]
    SimpleDocTemplate(out).build(
        [
            Paragraph(PAGES[0], getSampleStyleSheet()["BodyText"]),
            Picture(io.BytesIO(made_files.image()), 64, 48),
            PageBreak(),
            Table(table),
        ]
    )
    return out.getvalue()


def in_print(data: bytes) -> tuple[str, int]:
    """The words of a PDF, and how many images it shows."""
    with closing(pypdfium2.PdfDocument(data)) as document:
        pages = list(document)
        text = " ".join(page.get_textpage().get_text_bounded() for page in pages)
        images = [one for page in pages for one in page.get_objects([pypdfium2.raw.FPDF_PAGEOBJ_IMAGE])]
    return re.sub(r"\s+", " ", text), len(images)
