"""Webhook policy: what an operator says of the URLs that runs may call, and of what is sent there."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookPolicy:
    """Nothing is ruled out unless it is said. Addresses of this machine's network have rules of their own besides."""

    requires_https: bool = False
    domains: tuple[str, ...] = ()
    """Hosts; `*.example.com` is any host below that one. All, if none is named."""
    ports: tuple[int, ...] = ()
    max_length: int = 4096
    allows_loopback: bool = True
    allows_private: bool = True
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every call. They may be secrets."""
    fields: Collection[str] | None = None
    """Of the body, those that are sent. None is all."""

    def why_refused(self, *, scheme: str, host: str, port: int | None, length: int) -> str | None:
        if length > self.max_length:
            return f"is longer than {self.max_length} characters"
        if self.requires_https and scheme != "https":
            return "must begin with https://"
        if self.ports and (port or DEFAULT_PORTS.get(scheme)) not in self.ports:
            return "has a port that this server does not call"
        if self.domains and not any(_matches(host.lower(), domain) for domain in self.domains):
            return "has a host that this server does not call"
        return None


def _matches(host: str, domain: str) -> bool:
    return host.endswith(domain[1:]) if domain.startswith("*.") else host == domain
