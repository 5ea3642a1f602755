"""The subscription and the living word: rung and said without waiting, heard by those who keep up."""

import asyncio

import pytest

from clew.domain.thread import Owner
from clew.domain.views import Token
from clew.engine.notifier import LocalNotifier
from clew.engine.tokens import BEHIND_CHARS, FRAMES_PER_SECOND, LocalTokens

pytestmark = pytest.mark.anyio


class Speaker:
    """Says one message piece by piece."""

    def __init__(self, live: LocalTokens, message: str = "m1", thread_id: str = "t1") -> None:
        self._live = live
        self._message = message
        self._thread_id = thread_id
        self._said = 0

    def say(self, text: str) -> None:
        token = Token(
            thread_id=self._thread_id,
            owner=Owner(),
            message=self._message,
            agent="a",
            offset=self._said,
            text=text,
        )
        self._said += len(text)
        self._live.say(token)


class TestBus:
    async def test_a_bell_rings_for_its_thread_and_for_those_who_hear_all(self) -> None:
        notifier = LocalNotifier()
        with (
            notifier.subscribe("t1") as one,
            notifier.subscribe("t2") as other,
            notifier.subscribe() as every,
        ):
            notifier.publish("t1", 3)
            assert await one.wait(0)
            assert not await other.wait(0)
            assert await every.wait(0)
            assert not await one.wait(0)

    @pytest.mark.fault("E5")
    async def test_many_rings_are_one_that_says_where_the_news_begin(self) -> None:
        notifier = LocalNotifier()
        with notifier.subscribe() as subscription:
            for thread_id, after in (("t1", 5), ("t2", 0), ("t1", 3), ("t1", 9), ("t3", 4), ("t3", None)):
                notifier.publish(thread_id, after)
            assert subscription.rung() == {"t1": 3, "t2": 0, "t3": None}
            assert subscription.rung() == {}

    async def test_who_waits_for_a_rest_sleeps_through_the_run(self) -> None:
        notifier = LocalNotifier()
        with notifier.subscribe("t1", for_rest=True) as subscription, notifier.subscribe("t1") as every:
            notifier.publish("t1", 3, goes_on=True)
            assert (await subscription.wait(0), await every.wait(0)) == (False, True)
            notifier.publish("t1", 4)
            assert await subscription.wait(0)
            notifier.ring("t1", None)
            assert await subscription.wait(0), "another process may have ended it"

    async def test_nobody_is_remembered_after_leaving(self) -> None:
        notifier = LocalNotifier()
        with notifier.subscribe("t1"), notifier.subscribe("t1"), notifier.subscribe():
            pass
        assert not notifier._listeners


class TestLive:
    async def test_what_is_said_meanwhile_comes_as_one_piece(self) -> None:
        live = LocalTokens()
        with live.listen(lambda _: True) as listener:
            speaker = Speaker(live)
            speaker.say("one ")
            first = await listener.next()
            for word in ("two ", "three ", "four"):
                speaker.say(word)
            second = await listener.next()
        assert (first.text, first.offset) == ("one ", 0)
        assert (second.text, second.offset) == ("two three four", 4)

    async def test_only_what_is_wanted_is_heard(self) -> None:
        live = LocalTokens()
        with live.listen(lambda token: token.thread_id == "t2") as listener:
            Speaker(live, "m1", "t1").say("no")
            Speaker(live, "m2", "t2").say("yes")
            assert (await listener.next()).text == "yes"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await listener.next()

    @pytest.mark.fault("E6")
    async def test_a_flood_becomes_a_few_frames_and_no_model_silences_the_others(self) -> None:
        live = LocalTokens()
        speakers = [Speaker(live, f"m{n}") for n in range(10)]
        frames: list[Token] = []

        async def listen() -> None:
            with live.listen(lambda _: True) as listener:
                while True:
                    frames.append(await listener.next())

        listening = asyncio.create_task(listen())
        loop = asyncio.get_running_loop()
        begun = loop.time()
        async with asyncio.timeout(30):
            while len(frames) < 2 * len(speakers):
                for speaker in speakers:
                    speaker.say("word ")
                await asyncio.sleep(0.002)
        seconds = loop.time() - begun
        listening.cancel()
        assert len(frames) <= FRAMES_PER_SECOND * seconds + 1
        assert {frame.message for frame in frames} == {f"m{n}" for n in range(10)}
        for n in range(10):
            told = [frame for frame in frames if frame.message == f"m{n}"]
            assert [frame.offset for frame in told[1:]] == [
                frame.offset + len(frame.text) for frame in told[:-1]
            ]

    @pytest.mark.fault("E5")
    async def test_whoever_does_not_listen_loses_words_and_costs_no_more(self) -> None:
        live = LocalTokens()
        with live.listen(lambda _: True) as listener:
            speaker = Speaker(live)
            for _ in range(100):
                speaker.say("x" * 1000)
            behind = await listener.next()
            assert len(behind.text) <= BEHIND_CHARS
            speaker.say("end")
            last = await listener.next()
        # The offset says that something is missing in between.
        assert (last.text, last.offset) == ("end", 100_000)

    async def test_what_can_be_read_whole_is_not_told_any_more(self) -> None:
        live = LocalTokens()
        with live.listen(lambda _: True) as listener:
            Speaker(live, "m1").say("old")
            Speaker(live, "m2").say("new")
            listener.forget("m1")
            listener.forget("m3")
            assert (await listener.next()).message == "m2"
