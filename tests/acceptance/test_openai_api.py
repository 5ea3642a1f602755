"""The OpenAI-compatible API as the `openai` client calls it, of a real server."""

import re
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import httpx
import openai
import pytest
from langgraph_sdk import get_client

from tests.acceptance import door_graphs
from tests.acceptance.sdk import SdkServer
from tests.acceptance.sdk_stage import Stage, stage_on
from tests.processes import ROOT
from tests.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.mainly_sqlite]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage_on(request.param, request, tmp_path_factory.mktemp("openai"), door_graphs) as stage:
        yield stage


@pytest.fixture(scope="module")
def served(stage: Stage) -> Iterator[SdkServer]:
    with stage.serving(CLEW_LANGGRAPH_BUILT_IN_GRAPHS="false") as served:
        yield served


def client_of(served: SdkServer, name: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"{served.server.address}/v1", api_key=served.keys[name], max_retries=0, timeout=60
    )


@pytest.fixture
async def client(served: SdkServer) -> AsyncIterator[openai.AsyncOpenAI]:
    async with client_of(served, "ann") as client:
        yield client


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def kept() -> dict[str, str]:
    return {"X-Clew-Thread": str(uuid4())}


async def reply(client: openai.AsyncOpenAI, model: str, messages: list[Any], **more: Any) -> str:
    answer = await client.chat.completions.create(model=model, messages=messages, **more)
    text = answer.choices[0].message.content
    assert text is not None
    return str(text)


async def streamed(client: openai.AsyncOpenAI, model: str, messages: list[Any], **more: Any) -> list[Any]:
    stream = await client.chat.completions.create(model=model, messages=messages, stream=True, **more)
    return [chunk async for chunk in stream]


def text_of(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


async def test_every_assistant_that_takes_messages_is_a_model(
    served: SdkServer, client: openai.AsyncOpenAI
) -> None:
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
        made = await sdk.assistants.create("talk", name="My talker")
    names = {model.id: model for model in (await client.models.list()).data}
    assert {"talk", "asker", made["assistant_id"]} <= names.keys()
    assert "counter" not in names
    assert names[made["assistant_id"]].model_dump()["name"] == "My talker"
    assert (await client.models.retrieve("talk")).id == "talk"
    assert await reply(client, made["assistant_id"], said("hi")) == "you said hi"
    async with client_of(served, "rival") as rival:
        assert made["assistant_id"] not in {model.id for model in (await rival.models.list()).data}
        with pytest.raises(openai.NotFoundError):
            await rival.models.retrieve(made["assistant_id"])


@pytest.mark.parametrize("model", ["nothing", "counter"])
async def test_an_unknown_model_is_a_404_in_openais_words(client: openai.AsyncOpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await reply(client, model, said("hi"))
    assert caught.value.code == "model_not_found"
    assert caught.value.type == "invalid_request_error"


async def test_a_completion_is_the_text_of_the_run(client: openai.AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="recall", messages=said("hi"))
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == "human: hi"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)


async def test_a_stream_has_the_same_text_token_by_token(client: openai.AsyncOpenAI) -> None:
    chunks = await streamed(client, "talk", said("hi"))
    assert text_of(chunks) == "you said hi"
    assert len(chunks) > len("you said hi")
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len({chunk.id for chunk in chunks}) == 1


async def test_a_stream_ends_with_the_usage_where_it_is_asked_for(client: openai.AsyncOpenAI) -> None:
    chunks = await streamed(client, "recall", said("hi"), stream_options={"include_usage": True})
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 10


async def test_without_a_conversation_the_whole_list_is_the_input(client: openai.AsyncOpenAI) -> None:
    history = [
        {"role": "system", "content": "be brief"},
        *said("a"),
        {"role": "assistant", "content": "b"},
        *said("c"),
    ]
    assert await reply(client, "recall", history) == "system: be brief; human: a; ai: b; human: c"


async def test_a_kept_thread_gets_only_what_is_new(client: openai.AsyncOpenAI) -> None:
    where = kept()
    system = {"role": "system", "content": "be brief"}
    first = await reply(client, "recall", [system, *said("a")], extra_headers=where)
    assert first == "system: be brief; human: a"
    history = [system, *said("a"), {"role": "assistant", "content": "edited by the client"}, *said("b")]
    second = await reply(client, "recall", history, extra_headers=where)
    assert second == f"{first}; ai: {first}; human: b"
    # A client that sends no history repeats its system message only.
    third = await reply(client, "recall", [system, *said("c")], extra_headers=where)
    assert third.count("be brief") == second.count("be brief") + 2
    assert third.endswith("human: c")


@pytest.mark.parametrize("how", ["user", "X-OpenWebUI-Chat-Id"])
async def test_a_user_or_a_chat_of_open_webui_is_a_conversation(
    served: SdkServer, client: openai.AsyncOpenAI, how: str
) -> None:
    name = str(uuid4())
    more: dict[str, Any] = {"user": name} if how == "user" else {"extra_headers": {how: name}}
    await reply(client, "recall", said("a"), **more)
    assert "human: a; ai: human: a; human: b" in await reply(client, "recall", said("b"), **more)
    async with client_of(served, "bob") as bob:  # the same name is another conversation
        assert await reply(bob, "recall", said("c"), **more) == "human: c"


async def test_the_thread_is_named_in_the_answer_and_belongs_to_its_caller(
    served: SdkServer, client: openai.AsyncOpenAI
) -> None:
    raw = await client.chat.completions.with_raw_response.create(model="recall", messages=said("a"), user="x")
    thread_id = raw.headers["X-Clew-Thread"]
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:
        state: Any = await sdk.threads.get_state(thread_id)
    assert state["values"]["messages"][0]["content"] == "a"
    async with client_of(served, "bob") as bob:
        with pytest.raises(openai.NotFoundError):
            await reply(bob, "recall", said("b"), extra_headers={"X-Clew-Thread": thread_id})
    async with client_of(served, "rival") as rival:  # another tenant has its own thread of that id
        assert (
            await reply(rival, "recall", said("b"), extra_headers={"X-Clew-Thread": thread_id}) == "human: b"
        )


async def test_images_pass_through(client: openai.AsyncOpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "look"}, image]
    assert "data:image/png;base64,AAAA" in await reply(client, "recall", [{"role": "user", "content": parts}])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_interrupt_is_a_text_and_the_next_message_its_answer(
    client: openai.AsyncOpenAI, stream: bool
) -> None:
    where = kept()

    async def say(text: str) -> str:
        if stream:
            return text_of(await streamed(client, "asker", said(text), extra_headers=where))
        return await reply(client, "asker", said(text), extra_headers=where)

    assert await say("hi") == "Who are you?"
    assert await say("Ann") == "you are Ann"
    assert await say("hi") == "Who are you?"


async def test_an_answer_needs_the_scope_approve(stage: Stage, served: SdkServer) -> None:
    where = kept()
    address = f"{served.server.address}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=stage.writer(), max_retries=0) as writer:
        assert await reply(writer, "asker", said("hi"), extra_headers=where) == "Who are you?"
        with pytest.raises(openai.PermissionDeniedError):
            await reply(writer, "asker", said("Ann"), extra_headers=where)


async def test_a_question_in_a_conversation_that_is_not_kept_says_so(client: openai.AsyncOpenAI) -> None:
    text = await reply(client, "asker", said("hi"))
    assert text.startswith("Who are you?")
    assert "X-Clew-Thread" in text


async def test_an_approval_needs_a_yes_or_a_no(client: openai.AsyncOpenAI) -> None:
    where = kept()
    asked = await reply(client, "mailer", said("mail"), extra_headers=where)
    assert "send_mail" in asked
    assert "yes or no" in asked
    assert await reply(client, "mailer", said("well"), extra_headers=where) == asked
    again = await streamed(client, "mailer", said("perhaps"), extra_headers=where)
    assert text_of(again) == asked
    assert await reply(client, "mailer", said("Yes."), extra_headers=where) == "done: sent to ann"
    await reply(client, "mailer", said("mail"), extra_headers=where)
    refused = await reply(client, "mailer", said("no, too late"), extra_headers=where)
    assert "too late" in refused


async def test_several_questions_are_answered_by_their_ids(client: openai.AsyncOpenAI) -> None:
    where = kept()
    asked = await reply(client, "panel", said("hi"), extra_headers=where)
    ids = [line.partition(": ")[0] for line in asked.splitlines() if line.endswith("?")]
    assert len(ids) == 2
    assert await reply(client, "panel", said("both"), extra_headers=where) == asked
    answers = "{" + ", ".join(f'"{one}": "A{number}"' for number, one in enumerate(ids)) + "}"
    text = await reply(client, "panel", said(answers), extra_headers=where)
    assert "left A" in text
    assert "right A" in text


async def test_a_failed_run_is_an_error_that_is_not_retried(served: SdkServer) -> None:
    async with client_of(served, "ann").with_options(max_retries=2) as client:
        with pytest.raises(openai.APIStatusError) as caught:
            await reply(client, "boom", said("hi"))
        assert caught.value.status_code == 502
        assert caught.value.response.headers["x-should-retry"] == "false"
        assert caught.value.body == {
            "message": "it does not work",
            "type": "server_error",
            "param": None,
            "code": "ValueError",
        }
        with pytest.raises(openai.APIError, match="it does not work"):
            await streamed(client, "boom", said("hi"))


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"n": 2},
        {"logprobs": True},
        {"temperature": 0.2},
        {"response_format": {"type": "json_object"}},
        {"extra_body": {"made_up": 1}},
    ],
    ids=lambda more: str(next(iter(more))),
)
async def test_a_parameter_that_the_graph_has_no_setting_for_is_refused_by_name(
    client: openai.AsyncOpenAI, more: dict[str, Any]
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await reply(client, "talk", said("hi"), **more)
    assert caught.value.param == ("made_up" if "extra_body" in more else next(iter(more)))


async def test_a_parameter_that_the_graph_names_reaches_it(client: openai.AsyncOpenAI) -> None:
    assert await reply(client, "settings", said("hi"), temperature=0.2) == "temperature 0.2"
    assert await reply(client, "talk", said("hi"), temperature=1, n=1, logprobs=False) == "you said hi"


async def test_errors_have_openais_shape(served: SdkServer, client: openai.AsyncOpenAI) -> None:
    url = f"{served.server.address}/v1/chat/completions"
    async with httpx.AsyncClient(verify=False) as http:
        nameless = await http.post(url, json={"model": "talk", "messages": said("hi")})
        wrong = await http.post(
            url, json={"model": "talk"}, headers={"Authorization": f"Bearer {served.keys['ann']}"}
        )
        nowhere = await http.get(
            f"{served.server.address}/v1/nothing", headers={"Authorization": f"Bearer {served.keys['ann']}"}
        )
    assert (nameless.status_code, nameless.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "messages")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_run_is_cancelled_when_its_client_is_gone(
    served: SdkServer, client: openai.AsyncOpenAI, stream: bool
) -> None:
    where = kept()
    ask: Any = streamed if stream else reply
    with pytest.raises(openai.APITimeoutError):
        await ask(client, "slow", said("hi"), extra_headers=where, timeout=2)
    async with get_client(url=served.server.address, api_key=served.keys["ann"]) as sdk:

        async def is_cancelled() -> bool:
            runs = await sdk.runs.list(where["X-Clew-Thread"])
            return [run["status"] for run in runs] == ["interrupted"]

        await until(is_cancelled)


def test_the_synchronous_client_streams_too(served: SdkServer) -> None:
    client = openai.OpenAI(base_url=f"{served.server.address}/v1", api_key=served.keys["ann"], timeout=60)
    with client:
        stream = client.chat.completions.create(model="talk", messages=said("hi"), stream=True)
        assert text_of([*stream]) == "you said hi"


def test_the_code_of_the_guide_runs(served: SdkServer, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (ROOT / "docs" / "howto" / "openai.md").read_text("utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL))
    code = code.replace("http://127.0.0.1:8124", served.server.address).replace(
        "clew_...", served.keys["ann"]
    )
    code = code.replace('"support"', '"talk"').replace("7c9e6679-7425-40de-944b-e07fc1f90ae7", str(uuid4()))
    names: dict[str, Any] = {}
    exec(code, names)
    names["client"].close()
    assert capsys.readouterr().out == "you said My parcel is lateyou said And where is it now?\n"
