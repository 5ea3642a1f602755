"""`clew channels poll|set-webhook|simulate`, as one types them, with a Telegram on loopback that keeps its updates."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ROOT, clew, one_line, serving, until
from tests.providers import SECRET, TOKEN, Provider, Reply, Sent, provider, says_yes, update

AES_KEY = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C"
PYTHONPATH = f"{ROOT / 'src'}:{ROOT}"


@dataclass(slots=True)
class Telegram:
    """Updates wait until they are confirmed by an offset; while a webhook is set they cannot be fetched."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    webhook: str = ""
    offsets: list[int] = field(default_factory=list)

    def answer(self, sent: Sent) -> Reply:
        match sent.method:
            case "getUpdates":
                return self._updates(sent.body)
            case "setWebhook":
                if not sent.body["url"].startswith("https://"):
                    said = {
                        "ok": False,
                        "description": "Bad Request: bad webhook: HTTPS url must be provided",
                    }
                    return Reply(said, 400)
                self.webhook = sent.body["url"]
            case "deleteWebhook":
                self.webhook = ""
            case _:
                pass
        return says_yes(sent)

    def _updates(self, body: dict[str, Any]) -> Reply:
        if self.webhook:
            return Reply(
                {"ok": False, "error_code": 409, "description": "Conflict: a webhook is active"}, 409
            )
        self.offsets.append(body["offset"])
        self.updates = [one for one in self.updates if one["update_id"] >= body["offset"]]
        if body["timeout"] and not self.updates:
            with suppress(AssertionError):
                until(lambda: bool(self.updates) or bool(self.webhook), seconds=1)
        return Reply({"ok": True, "result": self.updates[:2]})


@dataclass(slots=True)
class Bots:
    folder: Path
    telegram: Telegram
    provider: Provider

    def type(self, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        return clew(self.folder, "channels", *arguments, PYTHONPATH=PYTHONPATH, **environ)

    def run(self, *arguments: str) -> Any:
        ended = self.type(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture
def bots(tmp_path: Path) -> Iterator[Bots]:
    known = Telegram()
    with provider(known.answer) as loopback:
        bot = f"token: {TOKEN}, secret_token: {SECRET}, base_url: '{loopback.url}', graph: agent"
        envelope = f"token: t, encoding_aes_key: {AES_KEY}, graph: agent"
        corp = f"{envelope}, corp_id: ww1, secret: s"
        (tmp_path / "clew.yaml").write_text(
            "graphs: {agent: 'tests.graphs:agent'}\n"
            f"channels:\n  telegram: {{bot: {{{bot}}}}}\n"
            f"  wecom:\n    desk: {{{corp}, agent_id: 7}}\n    helper: {{{envelope}, kind: ai_bot}}\n"
            f"    service: {{{corp}, kind: customer_service}}\n    bot: {{{corp}, agent_id: 8}}\n"
        )
        yield Bots(tmp_path, known, loopback)


@contextmanager
def polling(bots: Bots) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        (sys.executable, "-m", "clew.cli", "channels", "poll", "telegram:bot"),
        cwd=bots.folder,
        env={"PYTHONPATH": PYTHONPATH},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_updates_are_fetched_once_and_answered_by_the_server(bots: Bots) -> None:
    bots.telegram.updates = [update(number, f"m{number}", chat=number) for number in range(5, 10)]
    assert bots.run("poll", "telegram:bot", "--once") == {"bot": "telegram:bot", "fetched": 5}
    assert bots.telegram.updates == []
    assert bots.telegram.offsets == [0, 7, 9, 10]
    with serving(bots.folder, PYTHONPATH=PYTHONPATH, CLEW_RUNNER_POLL_SECONDS="0.1"):
        assert sorted(bots.provider.wait_for(5)) == [f"you said: m{number}" for number in range(5, 10)]
        with polling(bots) as process:
            bots.telegram.updates.append(update(10, "and now?"))
            assert bots.provider.wait_for(6)[5] == "you said: and now?"
            until(lambda: bots.telegram.offsets[-1] == 11)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            assert process.stdout is not None
            assert "1 fetched." in process.stdout.read()
    assert len(bots.provider.texts()) == 6


@pytest.mark.parametrize(
    "where", ["delivery_admitted:kill@1", "delivery_admitted:kill@2", "updates_admitted:kill@1"]
)
def test_killed_between_an_update_and_the_cursor_nothing_is_lost_or_doubled(bots: Bots, where: str) -> None:
    bots.telegram.updates = [update(number, f"m{number}") for number in (1, 2, 3)]
    killed = bots.type("poll", "telegram:bot", "--once", CLEW_FAILPOINTS=where)
    assert killed.returncode == -signal.SIGKILL
    assert len(bots.telegram.updates) == 3  # none was confirmed
    bots.run("poll", "telegram:bot", "--once")
    assert bots.telegram.updates == []
    with serving(bots.folder, PYTHONPATH=PYTHONPATH, CLEW_RUNNER_POLL_SECONDS="0.1") as server:
        bots.provider.wait_for(3)
        (thread,) = server.get("/api/threads").json()["threads"]
        assert thread["round"] == 3
    assert bots.provider.texts() == ["you said: m1", "you said: m2", "you said: m3"]


def test_a_webhook_is_set_and_removed(bots: Bots) -> None:
    expected = "https://clew.example.org/channels/telegram/bot"
    for url in ("https://clew.example.org", "https://clew.example.org/", expected):
        assert bots.run("set-webhook", "telegram:bot", "--url", url)["url"] == expected
        assert bots.provider.sent("setWebhook")[-1].body == {
            "url": expected,
            "secret_token": SECRET,
            "allowed_updates": ["message", "callback_query"],
        }
    refused = bots.type("poll", "telegram:bot", "--once")
    assert refused.returncode == 1
    assert "set-webhook telegram:bot --remove" in one_line(refused)
    assert bots.run("set-webhook", "telegram:bot", "--remove") == {"bot": "telegram:bot", "url": None}
    assert bots.run("poll", "telegram:bot", "--once")["fetched"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("set-webhook", "telegram:bot"), 1, "--url"),
        (("set-webhook", "telegram:bot", "--url", "clew.example.org"), 1, "--url"),
        (
            ("set-webhook", "telegram:bot", "--url", "http://clew.example.org"),
            1,
            "HTTPS url must be provided",
        ),
        (("set-webhook", "desk", "--url", "https://x.example"), 2, "only Telegram"),
        (("poll", "desk"), 2, "only Telegram"),
        (("poll", "bot"), 2, "telegram:bot, wecom:bot"),
        (("simulate", "nobody", "--text", "hi"), 2, "there is no bot 'nobody'"),
        (("simulate", "desk", "--text", " "), 1, "--text"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    bots: Bots, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = bots.type(*arguments)
    assert ended.returncode == code
    assert said in one_line(ended)


def test_a_conversation_is_simulated_without_a_packet_or_a_file(bots: Bots) -> None:
    texts = ("hello", "tools: send_mail to=bob", "yes")
    spoken = [word for text in texts for word in ("--text", text)]
    first, asked, done = bots.run("simulate", "telegram:bot", *spoken)
    assert first == {"text": "hello", "answers": [{"text": "you said: hello", "buttons": []}]}
    (question,) = asked["answers"]
    assert question["buttons"] == ["Approve", "Reject"]
    assert "send_mail" in question["text"]
    assert len(done["answers"]) == 1
    shown = bots.type("simulate", "telegram:bot", "--text", "hello").stdout
    assert shown == "> hello\n  you said: hello\n"
    assert bots.provider.requests == []
    assert not (bots.folder / ".clew").exists()


@pytest.mark.parametrize("name", ["desk", "helper", "service"])
def test_wecom_is_simulated_too(bots: Bots, name: str) -> None:
    exchanges = bots.run("simulate", name, "--text", "one", "--text", "two]]> & <b>")
    assert next([shown["text"] for shown in one["answers"]] for one in exchanges) == ["you said: one"]
    assert len(exchanges[1]["answers"]) == 1
