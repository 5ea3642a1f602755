"""Chat rounds with models as they are: what they see, what they may spend, and what becomes of their thoughts."""

import json
from pathlib import Path
from typing import Any

import pytest

from clew.domain.thread import Status
from tests.chats import open_chat, plan_of, step
from tests.made_files import image, pdf
from tests.openai_server import Move, Say, openai_server, prompt_of

pytestmark = pytest.mark.anyio


def profile(url: str, **options: Any) -> str:
    given = {"driver": "api:openai", "base_url": url, "model": "a-model", **options}
    return f"profiles: {json.dumps({'default': given})}\n"


def answering(plan: str, **said: str) -> Any:
    """The plan, then what `said` has for a word of the request."""

    def answer(body: dict[str, Any]) -> Move:
        asked = prompt_of(body)
        if "project manager" in asked:
            return Say(plan, thoughts="The user wants a plan.")
        if "team of agents has worked" in asked:
            return Say(said.get("end", "It is a cat."), thoughts="Now the end.")
        return Say(said.get("work", "I see a cat."))

    return answer


LOOK = plan_of(step("researcher", "What is on the picture?", "found.md", inputs=["photo.png"]))


async def test_a_model_that_sees_is_shown_the_picture(tmp_path: Path) -> None:
    async with (
        openai_server(answering(LOOK)) as model,
        open_chat("memory", tmp_path, more=profile(model.url, vision="yes")) as chat,
    ):
        thread = await chat.run("What is on it?", photo__png=image())
        said = await chat.messages(thread)
    assert thread.status is Status.COMPLETED
    shown = [body for body in model.requests if "data:image/png;base64," in json.dumps(body)]
    assert len(shown) == 1
    assert "What is on the picture?" in json.dumps(shown[0])
    assert str(said[-1].content).startswith("It is a cat.")
    assert "not seen" not in str(said[-1].content)


async def test_of_a_scan_the_model_sees_the_pages_without_text(tmp_path: Path) -> None:
    scan = pdf("", "Some words.", images={1: [image(width=300)], 2: [image(width=200)]})
    plan = plan_of(step("summarizer", "Sum it up", "sum.md", inputs=["scan.pdf"]))
    async with (
        openai_server(answering(plan)) as model,
        open_chat("memory", tmp_path, more=profile(model.url, vision="yes")) as chat,
    ):
        thread = await chat.run("Sum it up", scan__pdf=scan)
    assert thread.status is Status.COMPLETED
    (shown,) = [body for body in model.requests if ";base64," in json.dumps(body)]
    assert json.dumps(shown).count(";base64,") == 1
    assert "The picture scan.pdf, page 1:" in json.dumps(shown)
    assert "Some words." in json.dumps(shown)


async def test_with_one_that_does_not_the_answer_says_what_was_not_seen(tmp_path: Path) -> None:
    async with (
        openai_server(answering(LOOK, end="I cannot say.")) as model,
        open_chat("memory", tmp_path, more=profile(model.url, vision="no")) as chat,
    ):
        thread = await chat.run("What is on it?", photo__png=image())
        said = await chat.messages(thread)
    assert ";base64," not in json.dumps(model.requests)
    assert "I have not seen photo.png" in str(said[-1].content)


async def test_thoughts_are_in_no_message_and_no_file(tmp_path: Path) -> None:
    plan = plan_of(step("writer", "Write", "letter.md", inputs=[]))
    answer = answering(plan, work="<think>Dear? Hi?</think>Dear Ann,", end="<think>Done?</think>There it is.")
    async with (
        openai_server(answer) as model,
        open_chat("memory", tmp_path, more=profile(model.url)) as chat,
    ):
        thread = await chat.run("Write a letter to Ann")
        said, made = await chat.messages(thread), await chat.documents(thread)
    assert made["letter.md"][1].startswith(b"Dear Ann,")
    told = " ".join(str(one.content) for one in said)
    assert "There it is." in told
    for thought in ("Dear? Hi?", "Done?", "wants a plan", "Now the end", "<think>"):
        assert thought not in told


async def test_a_round_beyond_its_budget_fails_and_says_why(tmp_path: Path) -> None:
    plan = plan_of(step("writer", "One", "one.md"), step("writer", "Two", "two.md"), final=("one.md",))
    async with (
        openai_server(answering(plan)) as model,
        open_chat("memory", tmp_path, more=profile(model.url, budget={"tokens": 30})) as chat,
    ):
        thread = await chat.run("Write two letters")
        made = await chat.documents(thread)
    assert thread.status is Status.FAILED
    reason = thread.failure_reason or ""
    assert reason.endswith("budget of the profile: this round has used 36 of 30 tokens")
    assert "one.md" in made
    assert len(model.requests) == 2, "the plan and the first letter"


async def test_closing_words_beyond_the_budget_fail_no_round(tmp_path: Path) -> None:
    plan = plan_of(step("writer", "One", "one.md"), final=("one.md",))
    async with (
        openai_server(answering(plan)) as model,
        open_chat("memory", tmp_path, more=profile(model.url, budget={"tokens": 30})) as chat,
    ):
        thread = await chat.run("Write a letter")
        said = await chat.messages(thread)
    assert thread.status is Status.COMPLETED
    assert said[-1].content == "Done. Delivered: one.md."
