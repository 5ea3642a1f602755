"""HTTP driver: asks the model of a provider, or of any server that speaks OpenAI's protocol."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

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
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import Runnable, RunnableConfig

from clew.apps.drivers.inquiries import MAX_REPLY, Inquiry, Purpose, Reply
from clew.apps.drivers.models import OpenModel
from clew.apps.drivers.wording import request_of, role_of
from clew.domain.documents import clean_text
from clew.domain.errors import Answered, Permanent, Transient
from clew.domain.retry import (
    MAX_ANSWER,
    ErrorClass,
    answered_in,
    class_in,
    class_of_status,
    seconds_in,
    status_in,
)
from clew.texts.phrases import Text, say
from clew.texts.reasoning import without_reasoning, without_thoughts

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
# LangGraph streams no tokens of a call with this tag: JSON for a program is nothing to show to a person.
UNHEARD = "nostream"

# The HTTP layer under the providers' clients: its exceptions are connection errors.
_NETWORK = ("httpx", "httpx2", "httpcore", "httpcore2", "anyio", "botocore")
_SENTENCES = {
    ErrorClass.RATE_LIMIT: "too many requests, or the quota is used up",
    ErrorClass.NETWORK_TIMEOUT: "its provider did not answer in time",
    ErrorClass.LLM_OVERLOAD: "its provider reports an internal error",
    ErrorClass.AUTH: "its provider does not accept the key",
    ErrorClass.NOT_FOUND: "its provider does not know this model",
    ErrorClass.VALIDATION: "its provider does not accept the request",
}
# The statuses with which a server refuses an option that it does not have.
_NOT_SO = (400, 422)
# Why an answer ended, as providers call it. Anything else is an end like others.
_CUT = ("length", "max_tokens", "model_length", "MAX_TOKENS")
_REFUSED = ("content_filter", "refusal", "SAFETY", "guardrail_intervened", "content_filtered")
_PASSING = (ErrorClass.RATE_LIMIT, ErrorClass.NETWORK_TIMEOUT, ErrorClass.LLM_OVERLOAD)


class ApiDriver:
    """One model. Answers are streamed: a stop ends them at once, and clients see tokens as they arrive."""

    def __init__(self, name: str, opened: OpenModel) -> None:
        self.name = name
        self.model = opened.name
        self.chat = opened.chat
        self.aclose = opened.close
        self._opened = opened

    def can(self, purpose: Purpose) -> bool:
        if purpose is Purpose.SEE:
            return self._opened.sees
        # A model answers any inquiry, but it cannot edit files.
        return purpose is not Purpose.EDIT

    async def ask(self, inquiry: Inquiry) -> Reply:
        # By the provider's own means first. Not every server, nor every model, has them: the answer is validated anyway.
        ways: list[dict[str, Any]] = [{}]
        if inquiry.wants_json and inquiry.tool_use is None:
            found = [self._opened.as_json(inquiry.schema), self._opened.as_json(None), {}]
            ways = [way for at, way in enumerate(found) if way not in found[:at]]
        try:
            async with asyncio.timeout(self._opened.seconds):
                for way in ways[:-1]:
                    try:
                        return await self._stream(inquiry, way)
                    except Exception as exc:
                        if not isinstance(exc, ModelInvalidRequestError) and status_in(exc) not in _NOT_SO:
                            raise
                return await self._stream(inquiry, ways[-1])
        except (Transient, Permanent):
            raise
        except Exception as exc:
            raise self._failure(exc) from exc

    def _failure(self, exc: Exception) -> Transient | Permanent:
        failed = failure(exc)
        if failed.error_class == ErrorClass.AUTH and not self._opened.has_key:
            hint = "the server asks for a key: set api_key or api_key_env in the profile"
            hinted = Permanent(f"{failed}; {hint}", ErrorClass.AUTH)
            hinted.answered = failed.answered
            return hinted
        return failed

    async def _stream(self, inquiry: Inquiry, options: dict[str, Any]) -> Reply:
        chat: Runnable[Any, BaseMessage] = self.chat.bind(**options) if options else self.chat
        messages = to_messages(inquiry, sees=self._opened.sees)
        if (use := inquiry.tool_use) is not None:
            messages += use.turns
            chat = self.chat.bind_tools(list(use.tools)) if use.tools else chat
        whole: AIMessageChunk | None = None
        size = 0
        config: RunnableConfig | None = {"tags": [UNHEARD]} if inquiry.wants_json else None
        async for chunk in chat.astream(messages, config):
            if not isinstance(chunk, AIMessageChunk):
                continue
            whole = chunk if whole is None else whole + chunk
            size += len(str(chunk.text))
            if size > MAX_REPLY:
                raise Permanent("the model's answer is longer than allowed", ErrorClass.VALIDATION)
        text = without_reasoning(str(whole.text)) if whole is not None else ""
        reason = _reason_of(whole)
        if reason in _REFUSED:
            raise _ended("the model refused to answer", reason, text)
        # Calls of tools that were not offered are no answer.
        is_offered = inquiry.tool_use is not None
        has_calls = is_offered and whole is not None and bool(whole.tool_calls or whole.invalid_tool_calls)
        if whole is None or not (text or has_calls):
            if reason in _CUT:
                raise _ended("the model used up its tokens before it answered", reason, text)
            raise Transient("the model answered nothing", ErrorClass.LLM_OVERLOAD)
        if reason in _CUT and not inquiry.wants_json and not has_calls:
            if inquiry.purpose is Purpose.CODE:
                raise _ended("the model's answer is longer than its tokens (max_tokens)", reason, text)
            text = f"{text}\n\n{say(Text.CUT_OFF, inquiry.language)}"
        usage = whole.usage_metadata
        return Reply(
            text=clean_text(text),
            tokens_in=usage["input_tokens"] if usage else 0,
            tokens_out=usage["output_tokens"] if usage else 0,
            message=_turn(whole, text) if inquiry.tool_use is not None else None,
        )


def _turn(whole: AIMessageChunk, text: str) -> AIMessage:
    """The model's turn. One with calls goes back to the provider as it came: some sign what stands beside a call."""
    has_calls = whole.tool_calls or whole.invalid_tool_calls
    return AIMessage(
        content=without_thoughts(whole.content) if has_calls else text,
        additional_kwargs=whole.additional_kwargs if has_calls else {},
        tool_calls=whole.tool_calls,
        invalid_tool_calls=whole.invalid_tool_calls,
        usage_metadata=whole.usage_metadata,
    )


def _reason_of(whole: AIMessageChunk | None) -> str:
    """Why the answer ended. A refusal of OpenAI has the reason `stop`, and a text of its own."""
    if whole is None:
        return ""
    if whole.additional_kwargs.get("refusal"):
        return "refusal"
    told = whole.response_metadata
    return str(
        told.get("finish_reason")
        or told.get("stop_reason")
        or told.get("done_reason")
        or told.get("stopReason")
        or ""
    )


def _ended(message: str, reason: str, text: str) -> Permanent:
    failed = Permanent(message, ErrorClass.VALIDATION)
    failed.answered = Answered(f"{reason}: {text}"[:MAX_ANSWER], code=reason)
    return failed


def to_messages(inquiry: Inquiry, *, sees: bool = False) -> list[BaseMessage]:
    """The role and the language first; then facts, material and pictures, apart from the request that they serve."""
    said = request_of(inquiry)
    if not (sees and inquiry.pictures):
        return [SystemMessage(role_of(inquiry)), HumanMessage(said)]
    parts: list[str | dict[str, Any]] = []
    for one in inquiry.pictures:
        parts.append({"type": "text", "text": f"The picture {one.label}:"})
        encoded = b64encode(one.data).decode()
        parts.append({"type": "image", "base64": encoded, "mime_type": one.mime})
    return [SystemMessage(role_of(inquiry)), HumanMessage([*parts, {"type": "text", "text": said}])]


def failure(exc: Exception) -> Transient | Permanent:
    """A provider's error as Clew's own. The provider's text is kept apart: it may quote the key or the prompt."""
    error_class = _class_of(exc)
    said = f"the model could not be asked: {_SENTENCES.get(error_class, type(exc).__name__)}"
    failed: Transient | Permanent
    if error_class in _PASSING:
        failed = Transient(said, error_class, _retry_after(exc))
    else:
        failed = Permanent(said, error_class)
    failed.answered = answered_in(exc) or Answered(f"{type(exc).__name__}: {exc}"[:MAX_ANSWER])
    return failed


def _class_of(exc: Exception) -> ErrorClass:
    error_class = next((name for kind, name in _CLASSES if isinstance(exc, kind)), None)
    error_class = error_class or class_in(getattr(exc, "body", None)) or class_of_status(status_in(exc))
    if error_class is not None:
        return error_class
    # Errors of the connection itself, where the provider's client lets them through.
    is_network = type(exc).__module__.partition(".")[0] in _NETWORK
    return ErrorClass.NETWORK_TIMEOUT if is_network else ErrorClass.INTERNAL


def _retry_after(exc: Exception) -> float | None:
    headers = getattr(getattr(exc, "response", None), "headers", None) or {}
    return seconds_in(str(headers.get("retry-after", "")), now=datetime.now(UTC))
