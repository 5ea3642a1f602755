"""Private addresses: those that a server must not call on a client's request."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# Metadata and control endpoints of clouds, apart from link-local addresses: Amazon, Google,
# Scaleway, Alibaba, Microsoft, Oracle. And the former site-local range, which firewall rules rarely cover.
_NEVER: tuple[Network, ...] = (
    *map(IPv6Network, ("fd00:ec2::/32", "fd20:ce::254/128", "fd00:42::42/128", "fec0::/10")),
    *map(IPv4Network, ("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32")),
)
# Not global, though Python says so: protocol assignments, and gateways of the local network.
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_PRIVATE: tuple[Network, ...] = (IPv4Network("192.0.0.0/24"), _LOCAL_NAT64)

# IPv4 addresses at the end of IPv6 ones: for gateways between the two, and in an old notation.
_LAST_FOUR = tuple(map(IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
# Where a local gateway puts the four bytes, by the length of its prefix; the ninth byte is skipped.
_LAYOUTS = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def why_refused(text: str, *, private: bool, loopback: bool = True) -> str | None:
    """Why this address is not called, or None if it is. `private` allows what only this machine or its net can reach;
    without `loopback` this machine is still refused.

    Link-local and other metadata addresses are never called: clouds serve a machine's credentials there.
    """
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return "is no address"
    for one in (address, *_within(address)):
        if one.is_link_local or one.is_multicast or one.is_unspecified or _is_in(one, _NEVER):
            return "is never called"
        if one.is_loopback and not loopback:
            return "is this machine's own"
        if not private and (not one.is_global or _is_in(one, _PRIVATE)):
            return "is private"
    return None


def _within(address: Address) -> tuple[IPv4Address, ...]:
    """IPv4 addresses that a gateway or a tunnel would derive from this one."""
    if isinstance(address, IPv4Address) or int(address) <= 1:  # neither `::` nor `::1` holds one
        return ()
    packed = address.packed
    found = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in net for net in _LAST_FOUR) or packed[8:12] in _ISATAP:
        found.append(IPv4Address(packed[-4:]))
    if address in _LOCAL_NAT64:
        # Its prefix may have any length, so all are tried; in the wrong ones there is mostly nothing.
        tried = (IPv4Address(bytes(packed[place] for place in layout)) for layout in _LAYOUTS)
        found += [one for one in tried if not one.is_unspecified]
    return tuple(one for one in found if one is not None)


def _is_in(address: Address, nets: tuple[Network, ...]) -> bool:
    return any(address in net for net in nets if net.version == address.version)
