"""What was taken back is not told to a model, in its own words or in those of a summary."""

from pathlib import Path

import pytest

from clew.domain.errors import NotAllowed, NotFound
from clew.domain.events import AssistantMessage, UserMessage
from clew.domain.records import Summary
from clew.domain.thread import Status, Thread
from clew.engine.commands import Request
from tests.databases import DATABASES, locate
from tests.house import House, open_house
from tests.samples import NOW

pytestmark = pytest.mark.anyio


@pytest.fixture(params=DATABASES)
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
        with pytest.raises(NotAllowed):
            await commands.redact(thread.id, None, message)
        with pytest.raises(NotFound):
            await commands.redact(thread.id, None, "msg_unknown")
        await commands.stop(thread.id, None)
        assert message in (await commands.redact(thread.id, None, message)).redacted
