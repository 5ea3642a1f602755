"""Telling whoever left an address, over real connections."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from clew.channels.webhooks import HttpWebhooks
from clew.domain.errors import Invalid, Permanent, Transient
from tests.providers import Provider, Reply, Sent, provider

pytestmark = pytest.mark.anyio

SECRET = "a-token-in-the-address"


@pytest.fixture
def receiver() -> Iterator[Provider]:
    with provider() as receiver:
        yield receiver


def webhooks(*, private: bool = True, **more: Any) -> HttpWebhooks:
    async def is_private() -> bool:
        return private

    return HttpWebhooks(agent="clew/test", private=is_private, **more)


async def required(url: str, **more: Any) -> None:
    require = await webhooks(**more).rules()
    require(url)


def port_of(receiver: Provider) -> str:
    return receiver.url.rpartition(":")[2]


async def test_the_body_arrives(receiver: Provider) -> None:
    await webhooks().post(f"{receiver.url}/hook?token={SECRET}", b'{"a": 1}', message_id="m")
    assert receiver.requests == [Sent("/hook", {"token": SECRET}, {"a": 1})]


@pytest.mark.fault("G9")
async def test_what_was_looked_up_and_checked_is_what_is_called(receiver: Provider) -> None:
    looked_up = []

    async def look_up(host: str) -> list[str]:
        looked_up.append(host)
        return ["127.0.0.1"]

    # There is no such name: whoever looked it up once more would find nothing.
    await webhooks(look_up=look_up).post(
        f"http://nowhere.invalid:{port_of(receiver)}/", b"{}", message_id="m"
    )
    assert looked_up == ["nowhere.invalid"]
    assert len(receiver.requests) == 1


async def test_of_several_addresses_the_next_one_is_tried(receiver: Provider) -> None:
    async def look_up(_: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]  # nobody listens on the first

    await webhooks(look_up=look_up).post(
        f"http://nowhere.invalid:{port_of(receiver)}/", b"{}", message_id="m"
    )
    assert len(receiver.requests) == 1


@pytest.mark.fault("G9")
@pytest.mark.parametrize(
    "found", [["127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["169.254.169.254"], ["::1"], ["168.63.129.16"]]
)
async def test_a_name_that_leads_inside_is_not_called(receiver: Provider, found: list[str]) -> None:
    async def look_up(_: str) -> list[str]:
        return found

    with pytest.raises(Permanent):
        await webhooks(private=False, look_up=look_up).post(
            f"http://nowhere.invalid:{port_of(receiver)}/", b"{}", message_id="m"
        )
    assert receiver.requests == []


@pytest.mark.fault("G9")
@pytest.mark.parametrize(
    "host", ["localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "[::ffff:7f00:1]"]
)
async def test_no_spelling_of_this_machine_is_called(receiver: Provider, host: str) -> None:
    with pytest.raises((Permanent, Transient)):
        await webhooks(private=False).post(f"http://{host}:{port_of(receiver)}/", b"{}", message_id="m")
    assert receiver.requests == []


@pytest.mark.parametrize(
    "url",
    [
        *("", "/relative", "example.com", "ftp://example.com/", "file:///etc/passwd", "http://", "http:///x"),
        *(
            "http://user:pass@example.com/",
            "http://user@example.com/",
            "gopher://example.com/",
            "http://[::1",
        ),
        *(
            "http://169.254.169.254/latest",
            "http://[fe80::1]/",
            "http://0.0.0.0/",
            "http://a b/",
            "http://a:99999/",
        ),
    ],
)
async def test_what_is_no_address_to_call_is_refused_at_once(url: str) -> None:
    with pytest.raises(Invalid) as refused:
        await required(url)
    assert refused.value.field == "webhook"
    with pytest.raises((Permanent, Transient)):
        await webhooks().post(url, b"{}", message_id="m")


async def test_private_addresses_are_refused_at_once_where_they_are_not_allowed() -> None:
    for url in ("http://127.0.0.1/", "http://10.0.0.1:80/", "https://[::1]/"):
        await required(url)
        with pytest.raises(Invalid, match="private"):
            await required(url, private=False)
    await required("https://example.com/hook?x=1", private=False)


async def test_where_there_are_none_there_are_none(receiver: Provider) -> None:
    with pytest.raises(Invalid, match="no webhooks"):
        await required(receiver.url, is_open=False)
    with pytest.raises(Permanent):
        await webhooks(is_open=False).post(receiver.url, b"{}", message_id="m")


@pytest.mark.fault("G9")
@pytest.mark.parametrize(
    ("status", "refusal"),
    [
        *((status, Permanent) for status in (301, 307, 400, 404, 410)),
        *((status, Transient) for status in (408, 429, 500, 503)),
    ],
)
async def test_any_answer_but_yes_is_a_failure(
    receiver: Provider, status: int, refusal: type[Exception]
) -> None:
    receiver.answer = lambda _: Reply(status=status, headers={"Location": f"{receiver.url}/elsewhere"})
    with pytest.raises(refusal) as failed:
        await webhooks().post(f"{receiver.url}/{SECRET}", b"{}", message_id="m")
    assert len(receiver.requests) == 1  # a redirect is not followed
    assert SECRET not in str(failed.value)
    assert "127.0.0.1" not in str(failed.value)


async def test_who_does_not_answer_is_not_waited_for() -> None:
    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await silence.wait()
        writer.close()

    silence = asyncio.Event()
    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        with pytest.raises(Transient, match=r"in time|ReadTimeout"):
            await webhooks(seconds=0.2).post(f"http://127.0.0.1:{port}/", b"{}", message_id="m")
    finally:
        silence.set()
        server.close()
        await server.wait_closed()


async def test_an_endless_answer_is_not_read() -> None:
    async def go_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\nyes")
        await writer.drain()
        gone.set_result(await reader.read() == b"{}")
        writer.close()

    gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(go_on, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        await webhooks().post(f"http://127.0.0.1:{port}/", b"{}", message_id="m")
        assert await asyncio.wait_for(gone, 10)
    finally:
        server.close()
        await server.wait_closed()


async def test_nobody_there_is_tried_again_later() -> None:
    with provider() as gone:
        pass
    for url in (gone.url, "http://nowhere.invalid/"):
        with pytest.raises(Transient) as failed:
            await webhooks().post(f"{url}/{SECRET}", b"{}", message_id="m")
        assert SECRET not in str(failed.value)
