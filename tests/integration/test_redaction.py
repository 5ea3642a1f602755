"""What was taken back is told to nobody, and nothing works on it: no model, no round that is taken up again."""

import asyncio
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from clew.domain.errors import InvalidState, NotFound
from clew.domain.events import AssistantMessage, Opening, UserMessage
from clew.domain.records import Summary
from clew.domain.thread import Owner, Status, Thread
from clew.engine.commands import Request
from tests.app import House, open_house
from tests.chats import CSV, open_chat, plan_of
from tests.databases import APP_DATABASES, locate
from tests.http_client import client_of
from tests.openai_server import Refuse, Say, in_turn, openai_server, prompt_of
from tests.samples import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture(params=APP_DATABASES)
def where(request: pytest.FixtureRequest) -> str:
    return locate(request.param, request)


async def said(house: House, thread: Thread, kind: type[UserMessage | AssistantMessage]) -> str:
    """The id of the first message of this kind."""
    return next(event.id for event in await house.log(thread) if isinstance(event.body, kind))


async def test_an_agent_forgets_what_was_taken_back(where: str, tmp_path: Path) -> None:
    async with open_house(where, tmp_path, CLEW_MODEL_CALLS_RECORD="true") as house:
        commands, summaries = house.app.execution.commands, house.app.stores.summaries
        thread = await house.run("agent", "tools: look_up word=clew")
        told = Summary(from_seq=1, to_seq=2, content="clew was looked up", version="1", created_at=NOW)
        await summaries.add(thread.id, told)
        await commands.redact(thread.id, None, await said(house, thread, UserMessage))
        hidden = await commands.redact(thread.id, None, await said(house, thread, AssistantMessage))
        assert (await summaries.load_since(thread.id))[0] is None
        again = await commands.next_round(thread.id, None, Request(message="hello again"))
        thread = await house.rest(again)
        call = (await house.app.stores.audit.find(thread.id))[0]
    assert (hidden.status, hidden.last_seq) == (Status.COMPLETED, again.last_seq - 2)
    shown = [(turn["role"], turn["content"]) for turn in call.rendered_context]
    # What a tool was asked and said belongs to the call, and a call must have its result.
    assert shown == [
        ("system", "You are a test."),
        ("assistant", ""),
        ("tool", "clew means something"),
        ("assistant", "clew means something"),
        ("user", "hello again"),
    ]


async def test_a_round_under_way_is_not_changed(tmp_path: Path) -> None:
    async with open_house("memory", tmp_path) as house:
        commands = house.app.execution.commands
        thread = await house.run("agent", "tools: send_mail to=ada")
        assert thread.status is Status.BLOCKED
        message = await said(house, thread, UserMessage)
        with pytest.raises(InvalidState):
            await commands.redact(thread.id, None, message)
        with pytest.raises(NotFound):
            await commands.redact(thread.id, None, "msg_unknown")
        await commands.stop(thread.id, None)
        assert message in (await commands.redact(thread.id, None, message)).redacted


async def test_what_models_were_told_of_it_is_shown_to_nobody(where: str, tmp_path: Path) -> None:
    async with (
        open_house(where, tmp_path, CLEW_MODEL_CALLS_RECORD="true") as house,
        client_of(house.app.http) as client,
    ):
        commands = house.app.execution.commands
        thread = await house.run("agent", "good morning")
        for text in ("my pin is 4711-canary", "thank you"):
            thread = await house.rest(await commands.next_round(thread.id, None, Request(message=text)))
        before = (await client.get(f"/api/threads/{thread.id}/model-calls")).json()["modelCalls"]
        assert ["4711-canary" in str(call["renderedContext"]) for call in before] == [True, True, False]
        assert not any(call["redacted"] for call in before)

        texts = [
            (event.id, event.body.content)
            for event in await house.log(thread)
            if isinstance(event.body, UserMessage | AssistantMessage)
        ]
        for event_id in [event_id for event_id, text in texts if "4711-canary" in text]:
            gone = await client.delete(f"/api/workflows/{thread.id}/messages/{event_id}")
            assert gone.status_code == 200, gone.text
        shown = await client.get(f"/api/threads/{thread.id}/model-calls")
        calls = shown.json()["modelCalls"]
        assert calls == [
            *({**call, "redacted": True, "renderedContext": None} for call in before[:2]),
            before[2],
        ]
        archive = ZipFile(BytesIO((await client.get(f"/api/threads/{thread.id}/export")).content))
        exported = b"".join(archive.read(name) for name in archive.namelist())
        assert b"good morning" in exported
        assert b"4711-canary" not in exported


async def test_a_call_that_was_cut_off_tells_nothing_of_it_either(where: str, tmp_path: Path) -> None:
    async with open_house(where, tmp_path, CLEW_MODEL_CALLS_RECORD="true") as house:
        commands, audit = house.app.execution.commands, house.app.stores.audit
        thread = await house.start("agent", "slowly: " + "my pin is 4711-canary " * 100)
        message = await said(house, thread, UserMessage)
        async with asyncio.timeout(30):
            while thread.id not in commands.drafts:
                await asyncio.sleep(0.01)
            await commands.stop(thread.id, None)
            await commands.redact(thread.id, None, message)
            while not (calls := await audit.find(thread.id)):
                await asyncio.sleep(0.01)
    assert [(call.status, call.rendered_context) for call in calls] == [("cancelled", None)]


async def test_a_failed_round_is_not_taken_up_without_the_message_it_began_with(
    where: str, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    async with open_house(where, tmp_path) as house, client_of(house.app.http) as client:
        commands = house.app.execution.commands
        given = Request(message="look at issue 4711-canary", graph_input={"log": [], "marks": str(marks)})
        thread = await house.rest(await commands.start(Opening(owner=Owner(), graph="broken"), given))
        thread = await house.rest(await commands.next_round(thread.id, None, given))
        first, second = (event.id for event in await house.log(thread) if isinstance(event.body, UserMessage))
        thread = await commands.redact(thread.id, None, first)
        thread = await house.rest(await commands.resume(thread.id, None))
        assert marks.read_text().split() == ["tried"] * 3, (
            "an earlier round's message is not what it works on"
        )

        path = f"/api/workflows/{thread.id}"
        assert (await client.delete(f"{path}/messages/{second}")).status_code == 200
        refused = await client.post(f"{path}/resume")
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "INVALID_STATE")
        assert "the message its round began with was deleted" in refused.json()["error"]["message"]
        assert (await client.get(f"{path}/status")).json()["status"] == "failed"

        thread = await house.rest(await commands.next_round(thread.id, None, given))
        await commands.resume(thread.id, None)


async def test_a_failed_round_is_not_taken_up_without_a_file_it_was_given(where: str, tmp_path: Path) -> None:
    async with (
        openai_server(in_turn(Refuse(401))) as model,
        open_chat(where, tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
    ):
        commands = chat.house.app.execution.commands
        thread = await chat.run("Chart the sales", sales__csv=CSV)
        assert thread.status is Status.FAILED
        (asked,) = [event for event in await chat.house.log(thread) if isinstance(event.body, UserMessage)]
        assert isinstance(asked.body, UserMessage)
        await commands.redact(thread.id, None, asked.id, asked.body.documents[0])
        with pytest.raises(InvalidState, match="a file of the message its round began with was deleted"):
            await commands.resume(thread.id, None)


async def test_a_chat_that_is_taken_up_works_with_no_document_taken_back_meanwhile(
    where: str, tmp_path: Path
) -> None:
    answers = in_turn(Say(plan_of(says="noted")), Refuse(401), Refuse(401))
    async with (
        openai_server(answers) as model,
        open_chat(where, tmp_path, CLEW_MODELS_OPENAI_BASE_URL=model.url) as chat,
    ):
        commands = chat.house.app.execution.commands
        thread = await chat.run("Keep this", payroll__csv=CSV)
        thread = await chat.again(thread, "and now?")
        assert thread.status is Status.FAILED
        assert "payroll" in prompt_of(model.requests[-1])
        asked = await said(chat.house, thread, UserMessage)
        thread = await commands.redact(thread.id, None, asked)
        await chat.house.rest(await commands.resume(thread.id, None))
        assert len(model.requests) == 3
        assert "payroll" not in prompt_of(model.requests[-1])


async def test_a_round_that_is_held_must_be_stopped_first_and_then_never_begins(
    where: str, tmp_path: Path
) -> None:
    async with open_house(where, tmp_path) as house:
        commands = house.app.execution.commands
        opening = Opening(owner=Owner(), graph="two_steps")
        thread = await commands.start(opening, Request(message="later"), held=True)
        message = await said(house, thread, UserMessage)
        with pytest.raises(InvalidState, match="begin or stop it first"):
            await commands.redact(thread.id, None, message)
        await commands.stop(thread.id, None)
        await commands.redact(thread.id, None, message)
        for verb in (commands.begin, commands.resume):
            with pytest.raises(InvalidState):
                await verb(thread.id, None)
