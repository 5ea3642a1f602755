"""Which addresses a server calls when somebody asks it to."""

import pytest

from clew.channels.private_addresses import why_refused


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_the_open_net_is_called(address: str) -> None:
    assert why_refused(address, private=False) is None


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "192.0.2.1"),
        *("::1", "fc00::1", "fd12:3456::1", "2001:db8::1"),
        # The same, dressed up.
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2002:a00:1::"),
        *("::127.0.0.1", "::ffff:0:10.0.0.1", "2600::5efe:a00:1", "2600::200:5efe:a00:1"),
        *("64:ff9b:1::a00:1", "64:ff9b:1:a00:0:100::", "64:ff9b:1::5db8:d822", "192.0.0.8"),
        # A relay of Teredo, and a client behind it: its address is written upside down.
        *("2001:0:5db8:d822::f5ff:fffe", "2001:0:a00:1::a247:27dd"),
    ],
)
def test_what_only_this_machine_or_its_net_can_reach_is_called_where_that_is_allowed(address: str) -> None:
    assert why_refused(address, private=False) is not None
    if address != "192.0.2.1":
        assert why_refused(address, private=True) is None


@pytest.mark.fault("G9")
@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "fe80::1", "fe80::1%eth0", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"),
        # Where clouds tell a machine its secrets, or take orders from it.
        *("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "100.100.100.200", "168.63.129.16"),
        *("192.0.0.192", "fec0::1", "feff::1"),
        # The same, dressed up.
        *("::ffff:168.63.129.16", "::168.63.129.16", "64:ff9b::a83f:8110", "64:ff9b::6464:64c8"),
        *(
            "2002:a83f:8110::1",
            "2001:0:a83f:8110::1",
            "2001:0:5db8:d822::57c0:7eef",
            "::ffff:0:169.254.169.254",
        ),
        *(
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "2600::5efe:a9fe:a9fe",
        ),
        *("0.0.0.0", "::", "224.0.0.1", "ff02::1", "::ffff:0.0.0.0"),
        *("", "example.com", "127.0.0.1.", "0x7f000001", "127.1"),
    ],
)
def test_some_are_never_called(address: str, private: bool) -> None:
    assert why_refused(address, private=private) is not None
