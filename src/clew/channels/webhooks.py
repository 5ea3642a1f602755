"""Webhook calls: only to allowed addresses, at the address that was checked, and in bounded time."""

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache

import httpx
from standardwebhooks import Webhook

from clew.channels.http import HttpReply, check_status
from clew.channels.private_addresses import why_refused
from clew.domain.errors import Invalid, Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.domain.runs import WebhookPolicy

SECONDS = 10.0
_HOST = re.compile(rb"[A-Za-z0-9._:-]{1,253}")


@cache
def certificates() -> ssl.SSLContext:
    """Loaded once, at the first call, because it is slow."""
    return httpx.create_ssl_context()


async def look_up(host: str) -> list[str]:
    """Every address of a name. Raises Transient if there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Transient("the name is not known", ErrorClass.NETWORK_TIMEOUT) from None
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def unsigned(message_id: str, body: bytes) -> Mapping[str, str]:  # noqa: ARG001 - as signatures are called
    return {}


def signatures(
    secrets: Sequence[str], clock: Callable[[], datetime]
) -> Callable[[str, bytes], Mapping[str, str]]:
    """The headers of Standard Webhooks, with a signature for each secret; none without a secret."""
    if not secrets:
        return unsigned
    keys = [Webhook(secret) for secret in secrets]

    def sign(message_id: str, body: bytes) -> Mapping[str, str]:
        now = clock()
        signed = [key.sign(msg_id=message_id, timestamp=now, data=body.decode()) for key in keys]
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(signed),
        }

    return sign


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpWebhooks:
    """The Webhooks port. Errors do not contain the URL: there may be a token in it."""

    agent: str
    # Whether private addresses may be called. Checked for each call: the first API
    # key that is created changes who the callers are.
    private: Callable[[], Awaitable[bool]]
    is_open: bool = True  # else there are none
    policy: WebhookPolicy = field(default_factory=WebhookPolicy)
    seconds: float = SECONDS
    look_up: Callable[[str], Awaitable[Sequence[str]]] = look_up
    sign: Callable[[str, bytes], Mapping[str, str]] = unsigned

    async def rules(self) -> Callable[[str], None]:
        private = await self.private()

        def require(url: str) -> None:
            host = self._parsed(url).host
            if host.replace(".", "").isdigit() or ":" in host:
                refusal = self._why_refused(host, private)
                if refusal is not None:
                    raise Invalid(f"the address {refusal}", field="webhook")

        return require

    async def post(self, url: str, body: bytes, *, message_id: str) -> None:
        try:
            parsed = self._parsed(url)
        except Invalid as exc:
            raise Permanent(str(exc), ErrorClass.VALIDATION) from None
        try:
            async with asyncio.timeout(self.seconds):
                addresses = await self._allowed(parsed)
                check_status(await self._post(parsed, addresses, body, self.sign(message_id, body)))
        except TimeoutError:
            raise Transient("no answer in time", ErrorClass.NETWORK_TIMEOUT) from None
        except httpx.HTTPError as exc:
            raise Transient(f"not reached: {type(exc).__name__}", ErrorClass.NETWORK_TIMEOUT) from None

    def _parsed(self, url: str) -> httpx.URL:
        """Raises Invalid. Parsed once for all: what is checked and what is called are the same."""
        if not self.is_open:
            raise Invalid("this server calls no webhooks", field="webhook")
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError):
            raise Invalid("is no address", field="webhook") from None
        is_place = _HOST.fullmatch(parsed.raw_host) and (parsed.port is None or 0 < parsed.port < 65536)
        if parsed.scheme not in ("http", "https") or not is_place:
            raise Invalid("expected http:// or https:// and a host", field="webhook")
        if parsed.userinfo:
            raise Invalid("an address with a password in it is not called", field="webhook")
        refusal = self.policy.why_refused(
            scheme=parsed.scheme, host=parsed.host, port=parsed.port, length=len(url)
        )
        if refusal is not None:
            raise Invalid(f"the address {refusal}", field="webhook")
        return parsed

    def _why_refused(self, address: str, private: bool) -> str | None:
        policy = self.policy
        return why_refused(
            address, private=private and policy.allows_private, loopback=policy.allows_loopback
        )

    async def _allowed(self, url: httpx.URL) -> Sequence[str]:
        """The addresses of the name, if all are allowed: a name with public and private ones may be an attack."""
        private = await self.private()
        addresses = await self.look_up(url.raw_host.decode("ascii"))
        for address in addresses:
            if (refusal := self._why_refused(address, private)) is not None:
                raise Permanent(f"the address {refusal}", ErrorClass.VALIDATION)
        return addresses

    async def _post(
        self, url: httpx.URL, addresses: Sequence[str], body: bytes, signed: Mapping[str, str]
    ) -> HttpReply:
        headers = {
            "User-Agent": self.agent,
            **self.policy.headers,
            **signed,
            "Host": url.netloc.decode("ascii"),
            "Content-Type": "application/json",
        }
        tls = await asyncio.to_thread(certificates)
        # No proxy from the environment: it would resolve the name again. No connection is kept: by an address
        # alone, one made for a name could be used for another.
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=self.seconds) as client:
            for address in addresses:
                request = client.build_request(
                    "POST",
                    url.copy_with(host=address),
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": url.raw_host.decode("ascii")},
                )
                try:
                    response = await client.send(request, stream=True, follow_redirects=False)
                except httpx.ConnectError:
                    if address == addresses[-1]:
                        raise
                    continue
                await response.aclose()
                return HttpReply(response.status_code, None, None)
        raise Transient("the name has no address", ErrorClass.NETWORK_TIMEOUT)
