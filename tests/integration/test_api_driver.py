"""The driver that asks models over HTTP, against a server that speaks OpenAI's protocol, well and badly."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from clew.apps.drivers.api import ApiDriver
from clew.apps.drivers.inquiries import MAX_REPLY, Inquiry, Material, Purpose
from clew.apps.drivers.models import ModelAccess, open_model
from clew.apps.drivers.session import DriverSession
from clew.domain.errors import ConfigError, Permanent, Transient
from clew.domain.profile import Profile
from clew.domain.retry import ErrorClass, RetryPolicy
from tests.openai_server import (
    Cut,
    Endless,
    Garbage,
    Hang,
    Move,
    OpenAIServer,
    Refuse,
    Say,
    Trouble,
    in_turn,
    openai_server,
    prompt_of,
)
from tests.waiting import until

pytestmark = pytest.mark.anyio

ASKED = Inquiry(
    purpose=Purpose.SUMMARIZE,
    role="You sum up.",
    prompt="What is it about?",
    language="de",
    material=(Material(label="a.txt", text="A thread through the labyrinth."),),
    facts={"pages": 3},
)
QUICK = RetryPolicy(max_retries=2, base_delay=0.1)
# Far more than anything here takes.
SECONDS = 30.0


def opened(driver: str, access: ModelAccess | None = None, **options: Any) -> ApiDriver:
    profile = Profile(name="work", driver=driver, **options)
    return ApiDriver(driver, open_model(profile, access or ModelAccess()))


@asynccontextmanager
async def asked_by(
    answer: Callable[[dict[str, Any]], Move], *, seconds: float = SECONDS
) -> AsyncGenerator[tuple[ApiDriver, OpenAIServer]]:
    async with openai_server(answer) as server:
        access = ModelAccess(
            openai_key=SecretStr("sk-secret"), openai_base_url=server.url, openai_model="m", seconds=seconds
        )
        async with aclosing(opened("api:openai", access)) as driver:
            yield driver, server


async def failure_of(move: Move, *, seconds: float = SECONDS) -> Transient | Permanent:
    async with asked_by(in_turn(move), seconds=seconds) as (driver, _):
        with pytest.raises((Transient, Permanent)) as caught:
            await driver.ask(ASKED)
    assert "sk-secret" not in str(caught.value)
    return caught.value  # type: ignore[return-value]


async def test_an_answer_is_streamed_put_together_and_counted() -> None:
    async with asked_by(in_turn(Say("It is about a thread."))) as (driver, server):
        reply = await driver.ask(ASKED)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("It is about a thread.", 11, 7)
    (body,) = server.requests
    assert body["stream"] is True
    assert body["model"] == "m"
    said = prompt_of(body)
    for part in (
        "You sum up.",
        "Language: de",
        "What is it about?",
        "a.txt",
        "A thread through the labyrinth.",
        '"pages": 3',
    ):
        assert part in said


async def test_material_stands_apart_from_the_request() -> None:
    async with asked_by(in_turn(Say("x"))) as (driver, server):
        await driver.ask(ASKED)
    system, user = server.requests[0]["messages"]
    assert "labyrinth" not in system["content"]
    assert user["content"].index("</document>") < user["content"].index("<request>")


@pytest.mark.parametrize(
    ("move", "error_class", "is_transient"),
    [
        (Refuse(429), ErrorClass.RATE_LIMIT, True),
        (Refuse(500), ErrorClass.LLM_OVERLOAD, True),
        (Refuse(503), ErrorClass.LLM_OVERLOAD, True),
        (Refuse(401), ErrorClass.AUTH, False),
        (Refuse(403), ErrorClass.AUTH, False),
        (Refuse(404), ErrorClass.NOT_FOUND, False),
        (Refuse(400), ErrorClass.VALIDATION, False),
        (Garbage(), ErrorClass.LLM_OVERLOAD, True),
        (Cut(), ErrorClass.NETWORK_TIMEOUT, True),
        (Trouble("server_error"), ErrorClass.LLM_OVERLOAD, True),
        (Trouble("invalid_request_error"), ErrorClass.VALIDATION, False),
        (Say(""), ErrorClass.LLM_OVERLOAD, True),
        (Endless(), ErrorClass.VALIDATION, False),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str | bool) else str(value),
)
async def test_what_goes_wrong_has_a_class(move: Move, error_class: str, is_transient: bool) -> None:
    failed = await failure_of(move)
    assert (failed.error_class, isinstance(failed, Transient)) == (error_class, is_transient)


async def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_told() -> None:
    async with asyncio.timeout(SECONDS):
        failed = await failure_of(Hang(), seconds=0.5)
    assert isinstance(failed, Transient)
    assert failed.error_class == ErrorClass.NETWORK_TIMEOUT


async def test_nobody_there_is_a_passing_failure() -> None:
    access = ModelAccess(openai_base_url="http://127.0.0.1:9/v1", openai_model="m", seconds=5)
    async with aclosing(opened("api:openai", access)) as driver:
        with pytest.raises(Transient) as caught:
            await driver.ask(ASKED)
    assert caught.value.error_class == ErrorClass.NETWORK_TIMEOUT


async def test_how_long_to_wait_is_heard() -> None:
    failed = await failure_of(Refuse(429, {"retry-after": "7"}))
    assert isinstance(failed, Transient)
    assert failed.retry_after == 7


async def test_an_endless_answer_is_cut_before_it_fills_the_memory() -> None:
    async with asked_by(in_turn(Endless())) as (driver, server):
        with pytest.raises(Permanent):
            await driver.ask(ASKED)
        await until(lambda: not server.open, SECONDS)
    assert MAX_REPLY < 10**7


async def test_json_is_asked_for_and_given_up_where_the_server_does_not_know_how() -> None:
    def answer(body: dict[str, Any]) -> Move:
        return Refuse(400) if "response_format" in body else Say('{"a": 1}')

    inquiry = Inquiry(purpose=Purpose.PLAN, role="Answer in JSON.", prompt="plan", wants_json=True)
    async with asked_by(answer) as (driver, server):
        assert (await driver.ask(inquiry)).text == '{"a": 1}'
        assert ["response_format" in body for body in server.requests] == [True, False]


async def test_cancelling_ends_the_call_on_the_wire() -> None:
    async with asked_by(in_turn(Say("word " * 1000, seconds=0.05))) as (driver, server):
        asking = asyncio.create_task(driver.ask(ASKED))
        await until(lambda: server.open, SECONDS)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: not server.open, SECONDS)


@pytest.mark.parametrize("turns", range(0, 60, 6))
async def test_a_stop_that_comes_together_with_a_word_is_a_stop(turns: int) -> None:
    async with asked_by(in_turn(Say("word " * 1000))) as (driver, server):
        asking = asyncio.create_task(driver.ask(ASKED))
        await until(lambda: server.open, SECONDS)
        for _ in range(turns):
            await asyncio.sleep(0)
        assert asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_session_asks_again_by_the_policy_and_counts_what_it_cost() -> None:
    told: list[str] = []
    async with asked_by(in_turn(Refuse(429), Refuse(500), Say("at last"))) as (driver, server):
        session = DriverSession(driver, QUICK, tell=told.append)
        assert (await session.ask(ASKED)).text == "at last"
    assert len(server.requests) == 3
    assert [line.split("(")[1].split(")")[0] for line in told] == ["rate_limit", "llm_overload"]
    assert (session.tokens_in, session.tokens_out) == (11, 7)


async def test_a_session_gives_up_for_good_when_no_retry_is_left() -> None:
    async with asked_by(in_turn(Refuse(429))) as (driver, server):
        with pytest.raises(Permanent, match="no retry left"):
            await DriverSession(driver, QUICK).ask(ASKED)
    assert len(server.requests) == 3


async def test_what_a_retry_does_not_cure_is_not_retried() -> None:
    async with asked_by(in_turn(Refuse(401))) as (driver, server):
        with pytest.raises(Permanent):
            await DriverSession(driver, QUICK).ask(ASKED)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("open_it", "missing"),
    [
        (lambda: opened("api:openai"), "OPENAI_API_KEY"),
        (lambda: opened("api:anthropic"), "ANTHROPIC_API_KEY"),
        (lambda: opened("cli:claude"), "cli:claude"),
        (lambda: opened("api:google"), "api:google needs a model"),
        (lambda: opened("api:google", model="m"), "api:google needs an api_key"),
        (lambda: opened("api:azure", model="m"), "api:azure needs a base_url"),
        (lambda: opened("api:bedrock", model="m.x", base_url="http://192.0.2.1"), "that is not of AWS"),
    ],
)
def test_what_is_missing_is_named(open_it: Callable[[], object], missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        open_it()


def test_both_providers_are_opened_without_retries_of_their_own() -> None:
    access = ModelAccess(
        openai_key=SecretStr("k"), anthropic_key=SecretStr("k"), openai_model="m", anthropic_model="n"
    )
    for driver in ("api:openai", "api:anthropic"):
        assert opened(driver, access).chat.max_retries == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("driver", "variable", "official"),
    [
        ("api:openai", "OPENAI_BASE_URL", "https://api.openai.com/v1"),
        ("api:openai", "OPENAI_API_BASE", "https://api.openai.com/v1"),
        ("api:anthropic", "ANTHROPIC_BASE_URL", "https://api.anthropic.com"),
    ],
)
def test_a_variable_that_only_the_client_knows_takes_the_key_nowhere(
    monkeypatch: pytest.MonkeyPatch, driver: str, variable: str, official: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9/elsewhere")
    access = ModelAccess(openai_key=SecretStr("k"), anthropic_key=SecretStr("k"))
    chat: Any = opened(driver, access, model="m").chat
    client = chat.root_async_client if driver == "api:openai" else chat._async_client
    assert str(client.base_url).rstrip("/") == official


@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_a_server_of_a_profile_gets_no_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "the-key")
    access = ModelAccess(anthropic_key=SecretStr("the-key"))
    chat: Any = opened("api:anthropic", access, model="m", base_url="http://127.0.0.1:9").chat
    assert "the-key" not in str(chat._async_client.auth_headers)
