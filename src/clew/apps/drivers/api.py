"""HTTP driver: OpenAI, Anthropic, or any server that speaks OpenAI's protocol."""

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
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import SecretStr

from clew.apps.drivers.inquiries import MAX_REPLY, Inquiry, Purpose, Reply
from clew.apps.drivers.wording import request_of, role_of
from clew.domain.documents import clean_text
from clew.domain.errors import Answered, ConfigError, Permanent, Transient
from clew.domain.profile import OFFICIAL, is_same_server
from clew.domain.retry import MAX_ANSWER, ErrorClass, answered_in, class_in, seconds_in
from clew.texts.reasoning import without_reasoning

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
    # The response violates the protocol: an error of the server, and perhaps a transient one.
    (ValueError, ErrorClass.LLM_OVERLOAD),
)
# For servers that ask for none; their clients want one.
_NO_KEY = SecretStr("none")
Close = Callable[[], Awaitable[None]]

# LangGraph streams no tokens of a call with this tag: JSON for a program is nothing to show to a person.
UNHEARD = "nostream"

# The HTTP layer under the providers' clients: its exceptions are connection errors.
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "anyio")
_SENTENCES = {
    ErrorClass.RATE_LIMIT: "too many requests, or the quota is used up",
    ErrorClass.NETWORK_TIMEOUT: "its provider did not answer in time",
    ErrorClass.LLM_OVERLOAD: "its provider reports an internal error",
    ErrorClass.AUTH: "its provider does not accept the key",
    ErrorClass.NOT_FOUND: "its provider does not know this model",
    ErrorClass.VALIDATION: "its provider does not accept the request",
}
_PASSING = (ErrorClass.RATE_LIMIT, ErrorClass.NETWORK_TIMEOUT, ErrorClass.LLM_OVERLOAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """What it takes to reach the providers."""

    openai_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_model: str = ""
    anthropic_key: SecretStr | None = None
    anthropic_base_url: str | None = None
    anthropic_model: str = ""
    seconds: float = 120

    def model_of(self, driver: str) -> str:
        return self.openai_model if driver == "api:openai" else self.anthropic_model

    def address_of(self, driver: str) -> str:
        url = self.openai_base_url if driver == "api:openai" else self.anthropic_base_url
        return url or OFFICIAL[driver]

    def key_for(self, driver: str, address: str) -> SecretStr | None:
        """The key of the settings, if it is for this server: it goes to one and to no other."""
        if not is_same_server(address, self.address_of(driver)):
            return None
        return self.openai_key if driver == "api:openai" else self.anthropic_key


def open_model(
    driver: str, access: ModelAccess, *, model: str = "", base_url: str = "", key: SecretStr | None = None
) -> "ApiDriver":
    """The driver of that name, with its model. Raises ConfigError when something it takes is missing.

    `key` is the profile's own, `base_url` its own server.
    """
    if driver not in OFFICIAL:
        raise ConfigError(f"the driver {driver} asks no model over HTTP")
    name = model or access.model_of(driver)
    address = base_url or access.address_of(driver)
    key = key or access.key_for(driver, address)
    if key is None and is_same_server(address, OFFICIAL[driver]):
        variable = f"{driver.partition(':')[2].upper()}_API_KEY"
        raise ConfigError(f"{driver} needs {variable}, an api_key in the profile, or a base URL")
    try:
        make = _openai if driver == "api:openai" else _anthropic
        # Always said, also that there is none: what is not said, the clients take from the environment.
        chat, close = make(name, address, key or _NO_KEY, access.seconds)
    except ModuleNotFoundError as exc:
        extra = driver.partition(":")[2]
        raise ConfigError(f"{driver} needs another package: pip install 'clew[{extra}]'") from exc
    return ApiDriver(driver, chat, model=name, seconds=access.seconds, has_key=key is not None, close=close)


# No retries inside a client: Clew's own are counted, logged and bounded by the profile.


def _openai(model: str, address: str, key: SecretStr, seconds: float) -> tuple[BaseChatModel, Close]:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - an extra, and slow to import
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - the same

    # Ours, so that it can be closed: the one LangChain makes is shared and never is.
    client = DefaultAsyncHttpxClient(timeout=seconds)
    chat = ChatOpenAI(
        model=model,
        api_key=key,
        base_url=address,
        timeout=seconds,
        max_retries=0,
        # Clew's own timeout ends a silent call. The client's, in Python 3.11, loses a stop
        # that arrives together with a part of the answer.
        stream_chunk_timeout=None,
        stream_usage=True,
        http_async_client=client,
    )
    return chat, client.aclose


def _anthropic(model: str, address: str, key: SecretStr, seconds: float) -> tuple[BaseChatModel, Close]:
    from langchain_anthropic import ChatAnthropic  # noqa: PLC0415 - an extra, and slow to import

    chat = ChatAnthropic(
        model_name=model,
        api_key=key,
        base_url=address,
        timeout=seconds,
        max_retries=0,
        stop=None,
    )
    return chat, _nothing_to_close


async def _nothing_to_close() -> None:
    """Its client is shared by the whole process, so it is not closed here."""


class ApiDriver:
    """One model. Answers are streamed: a stop ends them at once, and clients see tokens as they arrive."""

    def __init__(
        self,
        name: str,
        chat: BaseChatModel,
        *,
        model: str,
        seconds: float,
        has_key: bool = True,
        close: Close = _nothing_to_close,
    ) -> None:
        self.name = name
        self.model = model
        self.chat = chat
        self.aclose = close
        self._seconds = seconds
        self._has_key = has_key

    def can(self, purpose: Purpose) -> bool:
        # A model answers any inquiry, but it cannot edit files.
        return purpose is not Purpose.EDIT

    async def ask(self, inquiry: Inquiry) -> Reply:
        try:
            async with asyncio.timeout(self._seconds):
                try:
                    return await self._stream(inquiry, json_mode=inquiry.wants_json)
                except ModelInvalidRequestError:
                    if not inquiry.wants_json or self.name != "api:openai":
                        raise
                    # Not every server that speaks the protocol supports JSON mode.
                    return await self._stream(inquiry, json_mode=False)
        except (Transient, Permanent):
            raise
        except Exception as exc:
            raise self._failure(exc) from exc

    def _failure(self, exc: Exception) -> Transient | Permanent:
        failed = failure(exc)
        if failed.error_class == ErrorClass.AUTH and not self._has_key:
            hint = "the server asks for a key: set api_key or api_key_env in the profile"
            hinted = Permanent(f"{failed}; {hint}", ErrorClass.AUTH)
            hinted.answered = failed.answered
            return hinted
        return failed

    async def _stream(self, inquiry: Inquiry, *, json_mode: bool) -> Reply:
        chat: Runnable[list[BaseMessage], BaseMessage] = self.chat
        if json_mode and self.name == "api:openai":
            # Not as the argument LangChain knows: with that it takes another way, which loses the count of tokens.
            chat = self.chat.bind(extra_body={"response_format": {"type": "json_object"}})
        whole: AIMessageChunk | None = None
        size = 0
        config: RunnableConfig | None = {"tags": [UNHEARD]} if inquiry.wants_json else None
        async for chunk in chat.astream(to_messages(inquiry), config):
            if not isinstance(chunk, AIMessageChunk):
                continue
            whole = chunk if whole is None else whole + chunk
            size += len(str(chunk.text))
            if size > MAX_REPLY:
                raise Permanent("the model's answer is longer than allowed", ErrorClass.VALIDATION)
        text = without_reasoning(str(whole.text)) if whole is not None else ""
        if whole is None or not text:
            raise Transient("the model answered nothing", ErrorClass.LLM_OVERLOAD)
        usage = whole.usage_metadata
        return Reply(
            text=clean_text(text),
            tokens_in=usage["input_tokens"] if usage else 0,
            tokens_out=usage["output_tokens"] if usage else 0,
        )


def to_messages(inquiry: Inquiry) -> list[BaseMessage]:
    """The role and the language first; then facts and material, apart from the request that they serve."""
    return [SystemMessage(role_of(inquiry)), HumanMessage(request_of(inquiry))]


def failure(exc: Exception) -> Transient | Permanent:
    """A provider's error as Clew's own. The provider's text is kept apart: it may quote the key or the prompt."""
    error_class = next((name for kind, name in _CLASSES if isinstance(exc, kind)), None)
    error_class = error_class or class_in(getattr(exc, "body", None))
    if error_class is None:
        # Errors of the connection itself, where the provider's client lets them through.
        is_network = type(exc).__module__.partition(".")[0] in _NETWORK
        error_class = ErrorClass.NETWORK_TIMEOUT if is_network else ErrorClass.INTERNAL
    said = f"the model could not be asked: {_SENTENCES.get(error_class, type(exc).__name__)}"
    failed: Transient | Permanent
    if error_class in _PASSING:
        failed = Transient(said, error_class, _retry_after(exc))
    else:
        failed = Permanent(said, error_class)
    failed.answered = answered_in(exc) or Answered(f"{type(exc).__name__}: {exc}"[:MAX_ANSWER])
    return failed


def _retry_after(exc: Exception) -> float | None:
    headers = getattr(getattr(exc, "response", None), "headers", None) or {}
    return seconds_in(str(headers.get("retry-after", "")), now=datetime.now(UTC))
