"""Addresses on the net that a server must not be talked into calling."""

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

# Addresses of the old kind inside of new ones, for gateways between the two.
_NAT64 = IPv6Network("64:ff9b::/96")


def why_refused(text: str, *, private: bool) -> str | None:
    """Why this address is not called, or None if it is. `private` allows what only this machine or its net can reach.

    Link-local ones are never called: that is where clouds tell a machine its own secrets.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return "is no address"
    for one in (address, *_within(address)):
        if one.is_link_local or one.is_multicast or one.is_unspecified:
            return "is never called"
        if not private and not one.is_global:
            return "is private"
    return None


def _within(address: Address) -> tuple[IPv4Address, ...]:
    if isinstance(address, IPv4Address):
        return ()
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        found.append(IPv4Address(address.packed[-4:]))
    return tuple(one for one in found if one is not None)
