"""Failpoints: strict to parse, exact in when they fire, and nothing at all when off."""

import asyncio
import errno
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.domain.errors import ConfigError
from clew.failpoints import NAMES, FailpointHit, failpoint, install, installed, parse

SOURCE = Path(clew.__path__[0])


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    install("")


def test_nothing_happens_unless_installed(caplog: pytest.LogCaptureFixture) -> None:
    assert NAMES
    for name in NAMES:
        failpoint(name)
    assert caplog.records == []


def test_only_the_passage_that_was_named_fires() -> None:
    install("llm_before:raise@3")
    failpoint("llm_before")
    failpoint("checkpoint_put")
    failpoint("llm_before")
    with pytest.raises(FailpointHit, match="llm_before"):
        failpoint("llm_before")
    failpoint("llm_before")


def test_what_fires_is_in_the_log_before_it_does_its_harm(caplog: pytest.LogCaptureFixture) -> None:
    install("llm_before:raise@2,commit_done:sleep(0)")
    failpoint("llm_before")
    assert caplog.messages == []
    with pytest.raises(FailpointHit):
        failpoint("llm_before")
    failpoint("commit_done")
    assert caplog.messages == ["failpoint llm_before:raise@2 fires", "failpoint commit_done:sleep@1 fires"]


def test_one_place_can_do_several_things_in_turn() -> None:
    install("commit_begun:io_error, commit_begun:raise@2")
    with pytest.raises(OSError, match="commit_begun") as failed:
        failpoint("commit_begun")
    assert failed.value.errno == errno.EIO
    with pytest.raises(FailpointHit):
        failpoint("commit_begun")


def test_installing_again_counts_from_zero_and_a_block_disarms_at_its_end() -> None:
    with installed("commit_done:raise@2"):
        failpoint("commit_done")
    failpoint("commit_done")
    install("commit_done:raise@1")
    with pytest.raises(FailpointHit):
        failpoint("commit_done")


def test_two_threads_never_both_get_the_same_passage() -> None:
    install("commit_written:raise@1000")
    fired: list[str] = []

    def pass_often() -> None:
        for _ in range(500):
            try:
                failpoint("commit_written")
            except FailpointHit as hit:
                fired.append(str(hit))

    threads = [threading.Thread(target=pass_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fired == ["commit_written"]


def test_sleep_takes_its_time() -> None:
    install("expiry_fired:sleep(0.05)")
    before = time.monotonic()
    failpoint("expiry_fired")
    assert time.monotonic() - before >= 0.05


def test_cancel_reaches_the_task_at_its_next_await() -> None:
    reached = []

    async def work() -> None:
        failpoint("lease_taken")
        reached.append("after the failpoint")
        await asyncio.sleep(60)

    install("lease_taken:cancel")
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())
    assert reached == ["after the failpoint"]


def test_cancel_outside_a_task_is_raised_on_the_spot() -> None:
    install("lease_taken:cancel")
    with pytest.raises(asyncio.CancelledError):
        failpoint("lease_taken")


def test_kill_leaves_no_time_for_goodbye() -> None:
    script = (
        "from clew.failpoints import failpoint, install\n"
        "install('commit_written:kill@2')\n"
        "failpoint('commit_written'); print('once', flush=True)\n"
        "try: failpoint('commit_written')\n"
        "finally: print('never', flush=True)\n"
    )
    child = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (child.returncode, child.stdout) == (-signal.SIGKILL, "once\n")


@pytest.mark.parametrize(
    "spec",
    [
        "llm_before",
        "llm_before:",
        ":kill",
        "llm_before:explode",
        "llm_before:kill@0",
        "llm_before:kill@-1",
        "llm_before:kill@x",
        "llm_before:kill@1@2",
        "llm_before:sleep",
        "llm_before:sleep()",
        "llm_before:sleep(-1)",
        "llm_before:sleep(1e9)",
        "llm_before:raise(1)",
        "llm_before:kill,",
        "llm_before:kill;commit_done:kill",
        "llm_befor:kill",
        "LLM_BEFORE:kill",
        "llm_before:kill@1\n@2",
    ],
)
def test_a_spec_that_is_not_understood_is_refused_whole(spec: str) -> None:
    install("commit_done:raise")
    with pytest.raises(ConfigError, match="CLEW_FAILPOINTS"):
        install(spec)
    with pytest.raises(FailpointHit):
        failpoint("commit_done")


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no failpoint 'llm_befor'.*llm_before"):
        parse("llm_befor:kill")


def test_product_code_passes_only_failpoints_that_exist() -> None:
    used = {
        name: path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if path.name != "failpoints.py"
        for name in re.findall(r"\bfailpoint\(\s*['\"]([^'\"]*)['\"]", path.read_text(encoding="utf-8"))
    }
    assert {name: where for name, where in used.items() if name not in NAMES} == {}
