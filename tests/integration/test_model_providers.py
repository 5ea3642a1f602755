"""Drivers of the providers: key and headers, options, reasoning, errors, JSON by their own means, ends of answers."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from clew.apps.drivers.api import ApiDriver
from clew.apps.drivers.inquiries import Inquiry, Purpose, ShownPicture
from clew.apps.drivers.models import ModelAccess, open_model
from clew.apps.drivers.session import DriverSession
from clew.domain.errors import LimitExceeded, Permanent, Transient
from clew.domain.profile import Budget, Profile
from clew.domain.retry import ErrorClass, RetryPolicy
from tests.made_files import image
from tests.openai_server import (
    Decline,
    Move,
    OpenAIServer,
    Refuse,
    Say,
    in_turn,
    openai_server,
)
from tests.provider_servers import ProviderServer, provider_server

pytestmark = pytest.mark.anyio

ASKED = Inquiry(purpose=Purpose.SUMMARIZE, role="You sum up.", prompt="What is it about?")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
PLANNED = replace(ASKED, purpose=Purpose.PLAN, wants_json=True, schema=SCHEMA)
PICTURE = ShownPicture(label="photo.png", mime="image/png", data=image())
# Of servers whose addresses may be any.
OTHERS: dict[str, dict[str, str]] = {
    "api:ollama": {},
    "api:google": {},
    "api:bedrock": {"region": "eu-central-1"},
}


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the machine, with which Bedrock is asked on this machine."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-sk-secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")


@asynccontextmanager
async def asked_of(
    driver: str, *, key: str | None = "sk-secret", server: dict[str, Any] | None = None, **options: Any
) -> AsyncGenerator[tuple[ApiDriver, ProviderServer]]:
    async with provider_server(**(server or {})) as there:
        model = "anthropic.claude-3-5-sonnet-20240620-v1:0" if driver == "api:bedrock" else "m"
        profile = Profile(
            name="work", driver=driver, model=model, base_url=there.url, **{**OTHERS[driver], **options}
        )
        own = SecretStr(key) if key and driver != "api:bedrock" else None
        opened = open_model(profile, ModelAccess(seconds=30), key=own)
        async with aclosing(ApiDriver(driver, opened)) as asked:
            yield asked, there


@asynccontextmanager
async def asked_of_openai(
    *moves: Move, driver: str = "api:openai", key: str | None = "sk-secret", **options: Any
) -> AsyncGenerator[tuple[ApiDriver, OpenAIServer]]:
    async with openai_server(in_turn(*moves)) as there:
        address = there.url.removesuffix("/v1") if driver == "api:azure" else there.url
        profile = Profile(name="work", driver=driver, model="m", base_url=address, **options)
        opened = open_model(profile, ModelAccess(seconds=30), key=SecretStr(key) if key else None)
        async with aclosing(ApiDriver(driver, opened)) as asked:
            yield asked, there


@pytest.mark.parametrize("driver", OTHERS)
async def test_a_provider_answers_without_its_thoughts_and_is_counted(driver: str) -> None:
    options: Any = {} if driver == "api:bedrock" else {"headers": {"X-Team": "labyrinth"}}
    async with asked_of(driver, temperature=0.5, max_tokens=77, **options) as (asked, there):
        reply = await asked.ask(ASKED)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("It is about a thread.", 11, 7)
    (request,) = there.asked
    assert "sk-secret" in str(request.headers)
    assert "What is it about?" in str(request.body)
    assert "0.5" in str(request.body)
    assert "77" in str(request.body)
    if options:
        assert request.headers["x-team"] == "labyrinth"


async def test_azure_is_asked_for_its_deployment_with_its_version() -> None:
    options: Any = {"headers": {"X-Team": "labyrinth"}, "temperature": 0.5, "max_tokens": 77}
    async with asked_of_openai(Say("Hello."), driver="api:azure", **options) as (asked, there):
        assert (await asked.ask(ASKED)).text == "Hello."
    (headers,), (body,) = there.headers, there.requests
    assert headers["api-key"] == "sk-secret"
    assert headers["x-team"] == "labyrinth"
    assert (body["temperature"], body.get("max_tokens") or body["max_completion_tokens"]) == (0.5, 77)


@pytest.mark.parametrize(
    ("driver", "status", "error_class"),
    [
        ("api:ollama", 404, ErrorClass.NOT_FOUND),
        ("api:ollama", 503, ErrorClass.LLM_OVERLOAD),
        ("api:google", 403, ErrorClass.AUTH),
        ("api:google", 429, ErrorClass.RATE_LIMIT),
        ("api:bedrock", 403, ErrorClass.AUTH),
        ("api:bedrock", 500, ErrorClass.LLM_OVERLOAD),
    ],
)
async def test_an_error_has_a_class_and_what_the_provider_said(
    driver: str, status: int, error_class: ErrorClass
) -> None:
    async with asked_of(driver, server={"status": status}) as (asked, there):
        with pytest.raises((Permanent, Transient)) as caught:
            await asked.ask(ASKED)
    failed: Any = caught.value
    assert (failed.error_class, len(there.asked)) == (error_class, 1)  # one attempt: no client repeats it
    assert "sk-secret" not in str(failed)
    assert failed.answered is not None
    assert "refused" in failed.answered.text


@pytest.mark.parametrize("driver", ["api:ollama", "api:google"])
async def test_key_and_headers_follow_no_redirect(driver: str) -> None:
    async with provider_server() as thief:
        server = {"status": 307, "elsewhere": f"{thief.url}/api/chat"}
        async with asked_of(driver, server=server, headers={"X-Api-Key": "hunter2"}) as (asked, _):
            with pytest.raises((Permanent, Transient)):
                await asked.ask(ASKED)
        assert thief.asked == []


@pytest.mark.parametrize("driver", ["api:openai", "api:azure", "api:anthropic"])
async def test_nor_do_those_of_openai_and_anthropic(driver: str) -> None:
    async with provider_server() as thief, provider_server(status=307, elsewhere=thief.url) as there:
        profile = Profile(
            name="work", driver=driver, model="m", base_url=there.url, headers={"X-Api-Key": "hunter2"}
        )
        opened = open_model(profile, ModelAccess(seconds=30), key=SecretStr("sk-secret"))
        async with aclosing(ApiDriver(driver, opened)) as asked:
            with pytest.raises((Permanent, Transient)):
                await asked.ask(ASKED)
        assert len(there.asked) == 1
        assert there.asked[0].headers["x-api-key"]
        assert thief.asked == []


@pytest.mark.parametrize(
    ("driver", "place"),
    [
        ("api:ollama", lambda body: body["format"]),
        ("api:google", lambda body: body["generationConfig"]["responseJsonSchema"]),
    ],
)
async def test_json_is_asked_for_by_the_providers_own_means(driver: str, place: Any) -> None:
    async with asked_of(driver, server={"text": '{"n": 1}'}) as (asked, there):
        assert (await asked.ask(PLANNED)).text == '{"n": 1}'
    assert place(there.asked[0].body)["required"] == ["n"]


async def test_bedrock_is_given_the_schema() -> None:
    async with asked_of("api:bedrock", server={"text": '{"n": 1}'}) as (asked, there):
        assert (await asked.ask(PLANNED)).text == '{"n": 1}'
    told = there.asked[0].body["outputConfig"]["textFormat"]["structure"]["jsonSchema"]
    assert '"required": ["n"]' in told["schema"]


async def test_a_server_without_schemas_is_asked_for_json_and_then_in_words() -> None:
    no = Refuse(400, message="unknown option")
    async with asked_of_openai(no, no, Say('{"n": 1}')) as (asked, there):
        assert (await asked.ask(PLANNED)).text == '{"n": 1}'
    formats = [(body.get("response_format") or {}).get("type") for body in there.requests]
    assert formats == ["json_schema", "json_object", None]


async def test_a_refusal_is_no_answer_and_is_not_asked_again() -> None:
    async with asked_of_openai(Decline("I will not help with that.")) as (asked, there):
        session = DriverSession(asked, RetryPolicy(max_retries=3, base_delay=0.1))
        with pytest.raises(Permanent, match="the model refused to answer") as caught:
            await session.ask(ASKED)
    assert len(there.requests) == 1
    assert caught.value.answered is not None


async def test_an_answer_that_is_cut_says_so_and_code_that_is_cut_is_none() -> None:
    async with asked_of_openai(Say("Half of the", finish="length")) as (asked, _):
        text = (await asked.ask(replace(ASKED, language="de"))).text
        assert text.startswith("Half of the\n\n[Das Modell hat die Höchstlänge")
        with pytest.raises(Permanent, match="max_tokens"):
            await asked.ask(replace(ASKED, purpose=Purpose.CODE))
    async with asked_of_openai(Say("", thoughts="long thoughts", finish="length")) as (asked, _):
        with pytest.raises(Permanent, match="used up its tokens before it answered"):
            await asked.ask(ASKED)


async def test_reasoning_beside_the_answer_is_not_in_it() -> None:
    async with asked_of_openai(Say("It is blue.", thoughts="The user wants a colour.")) as (asked, _):
        assert (await asked.ask(ASKED)).text == "It is blue."


@pytest.mark.parametrize(("vision", "is_sent"), [("yes", True), ("no", False), ("auto", False)])
async def test_pictures_go_to_models_that_see(vision: Any, is_sent: bool) -> None:
    async with asked_of_openai(Say("A cat."), vision=vision) as (asked, there):
        assert asked.can(Purpose.SEE) is is_sent
        await asked.ask(replace(ASKED, pictures=(PICTURE,)))
    content = there.requests[0]["messages"][1]["content"]
    assert ("data:image/png;base64," in str(content)) is is_sent
    assert "What is it about?" in str(content)


async def test_langchain_knows_which_models_see() -> None:
    for model, sees in {"gpt-4o": True, "gpt-3.5-turbo": False}.items():
        profile = Profile(name="work", driver="api:openai", model=model, base_url="http://127.0.0.1:9/v1")
        assert open_model(profile, ModelAccess()).sees is sees


@pytest.mark.parametrize("driver", OTHERS)
async def test_every_provider_is_sent_pictures_as_it_takes_them(driver: str) -> None:
    async with asked_of(driver, vision="yes") as (asked, there):
        await asked.ask(replace(ASKED, pictures=(PICTURE,)))
    assert len(str(there.asked[0].body)) > len(PICTURE.data)
    assert "iVBOR" in str(there.asked[0].body)  # how the base64 of a PNG begins


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (Budget(tokens=30), "has used 36 of 30 tokens"),
        (Budget(cost=0.00003, input_price=1, output_price=1), "has cost 3.6e-05 of 3e-05"),
    ],
)
async def test_no_call_begins_once_the_budget_is_spent(budget: Budget, said: str) -> None:
    async def spent() -> tuple[int, int]:
        return 11, 7

    async with asked_of_openai(Say("Hello.")) as (asked, there):
        session = DriverSession(asked, RetryPolicy(), budget=budget, spent=spent)
        await session.ask(ASKED)
        with pytest.raises(LimitExceeded, match=said):
            await session.ask(ASKED)
    assert len(there.requests) == 1
