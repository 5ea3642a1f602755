"""Asks a chat model over HTTP: OpenAI, Anthropic, or anything that speaks OpenAI's protocol."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable
from pydantic import SecretStr

from clew.domain.documents import clean_text
from clew.domain.errors import ConfigError, Permanent, Transient
from clew.domain.inquiries import MAX_REPLY, Inquiry, Purpose, Reply
from clew.domain.retry import ErrorClass, class_in, seconds_in
from clew.drivers.wording import request_of, role_of

_CLASSES: Sequence[tuple[type[BaseException], ErrorClass]] = (
    (ModelRateLimitError, ErrorClass.RATE_LIMIT),
    (ModelTimeoutError, ErrorClass.NETWORK_TIMEOUT),
    (ModelConnectionError, ErrorClass.NETWORK_TIMEOUT),
    (ModelAuthenticationError, ErrorClass.AUTH),
    (ModelPermissionDeniedError, ErrorClass.AUTH),
    (ModelNotFoundError, ErrorClass.NOT_FOUND),
    (ModelInvalidRequestError, ErrorClass.VALIDATION),
    (ContextOverflowError, ErrorClass.VALIDATION),
    (ModelAPIError, ErrorClass.LLM_OVERLOAD),
    (TimeoutError, ErrorClass.NETWORK_TIMEOUT),
    (OSError, ErrorClass.NETWORK_TIMEOUT),
    # What came is not what the protocol allows: the server's trouble, and perhaps a passing one.
    (ValueError, ErrorClass.LLM_OVERLOAD),
)
Close = Callable[[], Awaitable[None]]

# Under the clients of the providers: what these raise is the connection's trouble.
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "anyio")
_PASSING = (ErrorClass.RATE_LIMIT, ErrorClass.NETWORK_TIMEOUT, ErrorClass.LLM_OVERLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What it takes to reach the providers."""

    openai_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_model: str = ""
    anthropic_key: SecretStr | None = None
    anthropic_model: str = ""
    seconds: float = 120

    def model_of(self, driver: str) -> str:
        return self.openai_model if driver == "api:openai" else self.anthropic_model


def open_model(driver: str, access: Access, *, model: str = "", base_url: str = "") -> "ApiDriver":
    """The driver of that name, with its model. Raises ConfigError when something it takes is missing."""
    name = model or access.model_of(driver)
    try:
        match driver:
            case "api:openai":
                chat, close = _openai(access, name, base_url or access.openai_base_url)
            case "api:anthropic":
                chat, close = _anthropic(access, name, base_url)
            case _:
                raise ConfigError(f"the driver {driver} asks no model over HTTP")
    except ModuleNotFoundError as exc:
        extra = driver.partition(":")[2]
        raise ConfigError(f"{driver} needs another package: pip install 'clew[{extra}]'") from exc
    return ApiDriver(driver, chat, model=name, seconds=access.seconds, close=close)


# Never a retry inside of a client: ours are counted, logged and bounded by the profile.


def _openai(access: Access, model: str, base_url: str | None) -> tuple[BaseChatModel, Close]:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - an extra, and slow to import
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - the same

    if access.openai_key is None and base_url is None:
        raise ConfigError("api:openai needs OPENAI_API_KEY, or a base URL")
    # Ours, so that it can be closed: the one LangChain makes is shared and never is.
    client = DefaultAsyncHttpxClient(timeout=access.seconds)
    chat = ChatOpenAI(
        model=model,
        api_key=access.openai_key or SecretStr("none"),
        base_url=base_url,
        timeout=access.seconds,
        max_retries=0,
        # Ours ends a call that says nothing. Theirs waits for each word in a way that, in Python 3.11, loses a stop
        # that comes together with the word.
        stream_chunk_timeout=None,
        stream_usage=True,
        http_async_client=client,
    )
    return chat, client.aclose


def _anthropic(access: Access, model: str, base_url: str) -> tuple[BaseChatModel, Close]:
    from langchain_anthropic import ChatAnthropic  # noqa: PLC0415 - an extra, and slow to import

    if access.anthropic_key is None:
        raise ConfigError("api:anthropic needs ANTHROPIC_API_KEY")
    chat = ChatAnthropic(
        model_name=model,
        api_key=access.anthropic_key,
        base_url=base_url or None,
        timeout=access.seconds,
        max_retries=0,
        stop=None,
    )
    return chat, _nothing_to_close


async def _nothing_to_close() -> None:
    """Its client is shared by the whole process and cannot be ours to close."""


class ApiDriver:
    """One model. Answers are streamed: a stop ends them at once, and who listens hears them grow."""

    def __init__(
        self, name: str, chat: BaseChatModel, *, model: str, seconds: float, close: Close = _nothing_to_close
    ) -> None:
        self.name = name
        self.model = model
        self.chat = chat
        self.aclose = close
        self._seconds = seconds

    def can(self, purpose: Purpose) -> bool:
        # A model can be asked anything, but it has no hands.
        return purpose is not Purpose.EDIT

    async def ask(self, inquiry: Inquiry) -> Reply:
        messages = to_messages(inquiry)
        try:
            async with asyncio.timeout(self._seconds):
                try:
                    return await self._stream(messages, wants_json=inquiry.wants_json)
                except ModelInvalidRequestError:
                    if not inquiry.wants_json or self.name != "api:openai":
                        raise
                    # Servers that speak the protocol do not all know how to be held to JSON.
                    return await self._stream(messages, wants_json=False)
        except (Transient, Permanent):
            raise
        except Exception as exc:
            raise failure(exc) from exc

    async def _stream(self, messages: list[BaseMessage], *, wants_json: bool) -> Reply:
        chat: Runnable[list[BaseMessage], BaseMessage] = self.chat
        if wants_json and self.name == "api:openai":
            # Not as the argument LangChain knows: with that it takes another way, which loses the count of tokens.
            chat = self.chat.bind(extra_body={"response_format": {"type": "json_object"}})
        whole: AIMessageChunk | None = None
        size = 0
        async for chunk in chat.astream(messages):
            if not isinstance(chunk, AIMessageChunk):
                continue
            whole = chunk if whole is None else whole + chunk
            size += len(str(chunk.text))
            if size > MAX_REPLY:
                raise Permanent("the model does not stop talking", ErrorClass.VALIDATION)
        if whole is None or not str(whole.text).strip():
            raise Transient("the model answered nothing", ErrorClass.LLM_OVERLOAD)
        usage = whole.usage_metadata
        return Reply(
            text=clean_text(str(whole.text)),
            tokens_in=usage["input_tokens"] if usage else 0,
            tokens_out=usage["output_tokens"] if usage else 0,
        )


def to_messages(inquiry: Inquiry) -> list[BaseMessage]:
    """The role and the language first; then facts and material, apart from the request that they serve."""
    return [SystemMessage(role_of(inquiry)), HumanMessage(request_of(inquiry))]


def failure(exc: Exception) -> Transient | Permanent:
    """A provider's error in our words. What it answered is left out: it may quote the key or the prompt."""
    error_class = next((name for kind, name in _CLASSES if isinstance(exc, kind)), None)
    error_class = error_class or class_in(getattr(exc, "body", None))
    if error_class is None:
        # Errors of the connection itself, where the provider's client lets them through.
        is_network = type(exc).__module__.partition(".")[0] in _NETWORK
        error_class = ErrorClass.NETWORK_TIMEOUT if is_network else ErrorClass.INTERNAL
    said = f"the model could not be asked: {type(exc).__name__}"
    if error_class in _PASSING:
        return Transient(said, error_class, _retry_after(exc))
    return Permanent(said, error_class)


def _retry_after(exc: Exception) -> float | None:
    headers = getattr(getattr(exc, "response", None), "headers", None) or {}
    return seconds_in(str(headers.get("retry-after", "")), now=datetime.now(UTC))
