"""Chat models of the providers, opened for a profile with its key, its options and no retries of their own."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from clew.domain.errors import ConfigError
from clew.domain.profile import API_DRIVERS, OFFICIAL, Profile, is_loopback, is_same_server
from clew.domain.thread import Json

# For servers that ask for none; their clients want one.
_NO_KEY = SecretStr("none")
_AZURE_VERSION = "2024-10-21"
Close = Callable[[], Awaitable[None]]


async def nothing_to_close() -> None:
    """Its client is shared by the whole process, or closes itself."""


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
        return {"api:openai": self.openai_model, "api:anthropic": self.anthropic_model}.get(driver, "")

    def address_of(self, driver: str) -> str:
        given = {"api:openai": self.openai_base_url, "api:anthropic": self.anthropic_base_url}.get(driver)
        return given or OFFICIAL.get(driver, "")

    def key_for(self, driver: str, address: str) -> SecretStr | None:
        """The key of the settings, if it is for this server: it goes to one and to no other."""
        if not is_same_server(address, self.address_of(driver)):
            return None
        return {"api:openai": self.openai_key, "api:anthropic": self.anthropic_key}.get(driver)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """A chat model with what its driver must know. `as_json` makes the arguments of a call that returns JSON."""

    name: str
    chat: BaseChatModel
    seconds: float
    has_key: bool
    sees: bool
    as_json: Callable[[Mapping[str, Json] | None], dict[str, Any]]
    close: Close


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """A model to open. Address and key are always set: what is not said, the clients take from the environment."""

    profile: Profile
    model: str
    address: str
    key: SecretStr | None
    seconds: float

    @property
    def sent_key(self) -> SecretStr:
        return self.key or _NO_KEY

    @property
    def sampling(self) -> dict[str, Any]:
        given = {"temperature": self.profile.temperature, "max_tokens": self.profile.max_tokens}
        return {name: value for name, value in given.items() if value is not None}


def open_model(profile: Profile, access: ModelAccess, *, key: SecretStr | None = None) -> OpenModel:
    """`key` is the profile's own. Raises ConfigError when something that its driver takes is missing."""
    driver = profile.driver
    if driver not in API_DRIVERS:
        raise ConfigError(f"the driver {driver} asks no model over HTTP")
    name, address = profile.model or access.model_of(driver), profile.base_url or access.address_of(driver)
    order = _Order(
        profile=profile,
        model=name,
        address=address,
        key=key or access.key_for(driver, address),
        seconds=profile.timeout or access.seconds,
    )
    _require_whole(order)
    try:
        chat, close = _OPENERS[driver](order)
    except ModuleNotFoundError as exc:
        extra = driver.partition(":")[2]
        raise ConfigError(f"{driver} needs another package: pip install 'clew-server[{extra}]'") from exc
    return OpenModel(
        name=name,
        chat=chat,
        seconds=order.seconds,
        has_key=order.key is not None,
        sees=_sees(profile, chat),
        as_json=_AS_JSON.get(driver, _response_format),
        close=close,
    )


def _require_whole(order: _Order) -> None:
    """Raises ConfigError naming the key of the profile that is missing."""
    driver, profile = order.profile.driver, order.profile
    if driver in ("api:openai", "api:anthropic"):
        if order.key is None and is_same_server(order.address, OFFICIAL[driver]):
            variable = f"{driver.partition(':')[2].upper()}_API_KEY"
            raise ConfigError(f"{driver} needs {variable}, an api_key in the profile, or a base URL")
        return
    if not order.model:
        raise ConfigError(f"{driver} needs a model in the profile")
    if driver == "api:azure" and not order.address:
        raise ConfigError(f"{driver} needs a base_url in the profile, like https://name.openai.azure.com")
    if driver in ("api:azure", "api:google") and order.key is None:
        raise ConfigError(f"{driver} needs an api_key or api_key_env in the profile")
    host = urlsplit(order.address).hostname or ""
    is_aws = not host or host.endswith(".amazonaws.com") or is_loopback(order.address)
    if driver == "api:bedrock" and order.key is None and not is_aws:
        # The credentials of the machine are AWS's own: no other server gets what is signed with them.
        raise ConfigError(f"{driver} needs an api_key in the profile for a base_url that is not of AWS")
    if driver == "api:bedrock" and profile.headers:
        raise ConfigError(f"{driver} takes no headers in the profile")


def _sees(profile: Profile, chat: BaseChatModel) -> bool:
    if profile.vision == "auto":
        return bool((chat.profile or {}).get("image_inputs"))
    return profile.vision == "yes"


# No retries inside a client: Clew's own are counted, logged and bounded by the profile. No redirects either: a client
# would send the profile's headers to another server.


def _openai(order: _Order) -> tuple[BaseChatModel, Close]:
    from langchain_openai import ChatOpenAI  # noqa: PLC0415 - an extra, and slow to import

    client = _openai_client(order)
    chat = ChatOpenAI(
        model=order.model,
        api_key=order.sent_key,
        base_url=order.address,
        timeout=order.seconds,
        max_retries=0,
        # Clew's own timeout ends a silent call. The client's, in Python 3.11, loses a stop
        # that arrives together with a part of the answer.
        stream_chunk_timeout=None,
        stream_usage=True,
        http_async_client=client,
        default_headers=dict(order.profile.headers) or None,
        **order.sampling,
    )
    return _with_refusals(chat), client.aclose


def _with_refusals(chat: BaseChatModel) -> BaseChatModel:
    """LangChain drops a refusal from a streamed answer: it would look like an empty answer, worth another attempt."""
    model: Any = chat
    convert = model._convert_chunk_to_generation_chunk

    def converted(chunk: dict[str, Any], *given: Any) -> Any:
        made = convert(chunk, *given)
        for choice in chunk.get("choices") or ():
            if made is not None and (refusal := (choice.get("delta") or {}).get("refusal")):
                made.message.additional_kwargs["refusal"] = refusal
        return made

    model.__dict__["_convert_chunk_to_generation_chunk"] = converted
    return chat


def _openai_client(order: _Order) -> Any:
    """Ours, so that it can be closed: the one LangChain makes is shared and never is."""
    from openai import DefaultAsyncHttpxClient  # noqa: PLC0415 - an extra, and slow to import

    return DefaultAsyncHttpxClient(timeout=order.seconds, follow_redirects=False)


def _azure(order: _Order) -> tuple[BaseChatModel, Close]:
    client = _openai_client(order)
    chat = _init(
        order,
        "azure_openai",
        azure_deployment=order.model,
        azure_endpoint=order.address,
        api_version=order.profile.api_version or _AZURE_VERSION,
        api_key=order.sent_key,
        timeout=order.seconds,
        max_retries=0,
        stream_chunk_timeout=None,
        stream_usage=True,
        http_async_client=client,
        default_headers=dict(order.profile.headers) or None,
    )
    return _with_refusals(chat), client.aclose


def _anthropic(order: _Order) -> tuple[BaseChatModel, Close]:
    from langchain_anthropic import ChatAnthropic  # noqa: PLC0415 - the same

    chat = ChatAnthropic(
        model_name=order.model,
        api_key=order.sent_key,
        base_url=order.address,
        timeout=order.seconds,
        max_retries=0,
        stop=None,
        default_headers=dict(order.profile.headers) or None,
        **order.sampling,
    )
    # It has no option for this. Its client belongs to all models of one address.
    chat._async_client._client.follow_redirects = False
    return chat, nothing_to_close


def _google(order: _Order) -> tuple[BaseChatModel, Close]:
    chat = _init(
        order,
        "google_genai",
        google_api_key=order.sent_key,
        base_url=order.address,
        timeout=order.seconds,
        max_retries=1,  # the first attempt; 0 is Google's own number of retries
        additional_headers=dict(order.profile.headers) or None,
        client_args={"follow_redirects": False},
    )
    client: Any = chat
    return chat, client.client.aio.aclose


def _bedrock(order: _Order) -> tuple[BaseChatModel, Close]:
    config = import_module("botocore.config").Config  # an extra, without types
    try:
        chat = _init(
            order,
            "bedrock_converse",
            region_name=order.profile.region or None,
            base_url=order.address or None,
            api_key=order.key,
            config=config(read_timeout=order.seconds, retries={"total_max_attempts": 1}),
        )
    except ValueError as exc:
        raise ConfigError("api:bedrock needs a region in the profile, and credentials of AWS") from exc
    return chat, nothing_to_close


def _ollama(order: _Order) -> tuple[BaseChatModel, Close]:
    headers = dict(order.profile.headers)
    if order.key is not None:
        headers["Authorization"] = f"Bearer {order.key.get_secret_value()}"
    sampling = order.sampling
    if "max_tokens" in sampling:
        sampling["num_predict"] = sampling.pop("max_tokens")
    chat = _init(
        replace(order, profile=replace(order.profile, temperature=None, max_tokens=None)),
        "ollama",
        base_url=order.address,
        client_kwargs={"timeout": order.seconds, "headers": headers, "follow_redirects": False},
        **sampling,
    )
    client: Any = chat
    return chat, client._async_client.close


def _init(order: _Order, provider: str, **options: Any) -> BaseChatModel:
    from langchain.chat_models import init_chat_model  # noqa: PLC0415 - an extra, and slow to import

    try:
        made: BaseChatModel = init_chat_model(
            order.model, model_provider=provider, **order.sampling, **options
        )
    except ModuleNotFoundError:
        raise
    except ImportError as exc:  # what LangChain makes of a missing package
        raise ModuleNotFoundError(str(exc)) from exc
    return made


def _response_format(schema: Mapping[str, Json] | None) -> dict[str, Any]:
    """As OpenAI calls it; LangChain translates it for the other providers."""
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    named = {"name": "answer", "schema": dict(schema), "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _in_extra_body(schema: Mapping[str, Json] | None) -> dict[str, Any]:
    # Not as the argument LangChain knows: with that it takes another way, which loses the count of tokens.
    return {"extra_body": _response_format(schema)}


def _only_by_schema(schema: Mapping[str, Json] | None) -> dict[str, Any]:
    """Anthropic has no JSON mode without a schema."""
    return {} if schema is None else _response_format(schema)


def _in_output_config(schema: Mapping[str, Json] | None) -> dict[str, Any]:
    if schema is None:
        return {}
    said = {"name": "answer", "schema": json.dumps(schema)}
    return {
        "output_config": {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": said}}},
    }


_OPENERS: Mapping[str, Callable[[_Order], tuple[BaseChatModel, Close]]] = {
    "api:openai": _openai,
    "api:anthropic": _anthropic,
    "api:azure": _azure,
    "api:google": _google,
    "api:bedrock": _bedrock,
    "api:ollama": _ollama,
}
_AS_JSON: Mapping[str, Callable[[Mapping[str, Json] | None], dict[str, Any]]] = {
    "api:openai": _in_extra_body,
    "api:azure": _in_extra_body,
    "api:anthropic": _only_by_schema,
    "api:bedrock": _in_output_config,
}
