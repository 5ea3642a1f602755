"""Log lines: one a record, known fields only, and no secret or conversation in any of them."""

import ast
import io
import json
import logging
import sqlite3
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import clew
from clew.checkpointer.serializer import StrictSerializer
from clew.domain.errors import Unavailable
from clew.telemetry import (
    CHANNELS,
    FIELDS,
    Metrics,
    channel_label,
    configure_logs,
    log_context,
    shared_metrics,
)
from clew.telemetry.scrub import MAX_CHARACTERS, Scrubber

ours = logging.getLogger("clew.tests")
library = logging.getLogger("langchain_openai.chat_models")
users = logging.getLogger("my_bot.graph")


@dataclass
class Told:
    word: str


Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root, debug, access = map(logging.getLogger, ("", "clew.debug", "uvicorn.access"))
    handlers, levels, propagates = root.handlers[:], (root.level, debug.level), access.propagate
    yield
    root.handlers[:] = handlers
    for logger, level in zip((root, debug), levels, strict=True):
        logger.setLevel(level)
    access.propagate = propagates
    logging.captureWarnings(False)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def lines(stream: io.StringIO) -> Lines:
    configure_logs(stream, level="debug", secrets=["correct-horse-battery"])
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_record_is_one_json_line_with_its_fields(lines: Lines) -> None:
    ours.info(
        "deleted", extra={"thread_id": UUID(int=1), "count": 3, "seconds": 0.25, "namespace": ("a", "b")}
    )
    (line,) = lines()
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "clew.tests",
        "event": "deleted",
        "thread_id": "00000000-0000-0000-0000-000000000001",
        "count": 3,
        "seconds": 0.25,
        "namespace": ["a", "b"],
    }


def test_a_field_nobody_declared_is_left_out_by_name(lines: Lines) -> None:
    ours.info("answered", extra={"prompt": "my diagnosis", "graph": {"state": "my diagnosis"}})
    (line,) = lines()
    assert line["dropped_fields"] == ["prompt"]
    assert line["graph"] == "<dict>"
    assert "diagnosis" not in json.dumps(line)


def test_fields_can_be_set_for_a_block(lines: Lines) -> None:
    with log_context(thread_id="t1", round=2):
        with log_context(round=3):
            ours.info("inner", extra={"seq": 1})
        ours.info("outer")
    ours.info("after")
    inner, outer, after = lines()
    assert (inner["thread_id"], inner["round"], inner["seq"]) == ("t1", 3, 1)
    assert (outer["thread_id"], outer["round"]) == ("t1", 2)
    assert "thread_id" not in after


@pytest.mark.fault("F11")
@pytest.mark.parametrize("format", ["json", "text"])
@given(
    text=st.text()
    | st.sampled_from(["a\r\nb", "\x1b[31mred", "\x00", "a\u2028b", "\u202egnp", "\ud800", '"}\n{"'])
)
def test_no_text_can_break_out_of_its_line(format: str, text: str) -> None:
    stream = io.StringIO()
    configure_logs(stream, format=format)
    ours.warning("said %s", text, extra={"status": text})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    if format == "json":
        assert json.loads(written)["logger"] == "clew.tests"


@pytest.mark.fault("F11")
def test_format_strings_from_outside_do_nothing(stream: io.StringIO) -> None:
    configure_logs(stream)  # inside the test: pytest's own handler would choke on these
    ours.warning("%s %s %d", "only one")
    ours.warning("100%", "stray")
    ours.warning("%(secret)s", {"other": 1})
    events = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert events == ["%s %s %d", "100%", "%(secret)s"]


def test_an_exception_is_one_line_that_says_where(lines: Lines) -> None:
    def read() -> None:
        raise Unavailable("the database did not answer in 5 s")

    try:
        read()
    except Unavailable:
        ours.exception("read failed")
    (line,) = lines()
    assert (line["error"], line["reason"]) == ("Unavailable", "the database did not answer in 5 s")
    assert line["trace"].startswith("test_logs.py:")
    assert " read < " in line["trace"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("input_value='my diagnosis'"), None),
        (RuntimeError("my diagnosis"), None),
        (sqlite3.OperationalError("database or disk is full"), "database or disk is full"),
        (FileNotFoundError(2, "No such file", "/data/clew.db"), "[Errno 2] No such file: '/data/clew.db'"),
    ],
)
def test_words_of_an_exception_are_kept_only_when_they_cannot_be_a_conversation(
    lines: Lines, error: Exception, reason: str | None
) -> None:
    ours.error("failed", exc_info=error)
    (line,) = lines()
    assert line["error"] == type(error).__name__
    assert line.get("reason") == reason


def test_causes_and_groups_are_named(lines: Lines) -> None:
    failed = Unavailable()
    failed.__cause__ = ConnectionRefusedError()
    ours.error("failed", exc_info=failed)
    ours.error("failed", exc_info=ExceptionGroup("two", [ValueError("x"), KeyError("y")]))
    one, group = lines()
    assert one["cause"] == "ConnectionRefusedError"
    assert group["error"] == "ExceptionGroup[ValueError, KeyError]"


def test_libraries_are_heard_from_warnings_up_and_without_what_they_quote(lines: Lines) -> None:
    library.debug("request body: %s", "my diagnosis")
    library.info("POST %s", "/bot1/send?text=my diagnosis")
    library.warning("could not parse %r", "my diagnosis")
    library.warning("could not parse my diagnosis")
    library.warning("%(what)s came %(times)d times", {"what": "my diagnosis", "times": 3})
    formatted, composed, named = (line["event"] for line in lines())
    assert formatted == "could not parse <str>"
    assert composed.startswith("test_logs.py:")
    assert named == "<str> came 3 times"


def test_langgraph_names_the_type_that_it_did_not_read_back(lines: Lines) -> None:
    packed = JsonPlusSerializer().dumps_typed(Told(word="my diagnosis"))
    StrictSerializer().loads_typed(packed)
    (line,) = lines()
    assert f"{__name__}.Told" in line["event"]
    assert "%" not in line["event"]
    assert "diagnosis" not in json.dumps(line)


@pytest.mark.parametrize("name", ["httpx", "httpx2", "httpcore.connection", "httpcore2.connection"])
def test_requests_to_models_are_not_written(lines: Lines, name: str) -> None:
    logging.getLogger(name).info(
        'HTTP Request: %s %s "%s"', "POST", "http://model/v1?key=x", "HTTP/1.1 200 OK"
    )
    assert lines() == []


def test_graphs_of_the_user_say_what_they_like(lines: Lines) -> None:
    users.info("asked about %s", "the weather")
    (line,) = lines()
    assert (line["logger"], line["event"]) == ("my_bot.graph", "asked about the weather")


def test_debug_shows_what_is_private_but_still_no_secret(stream: io.StringIO) -> None:
    configure_logs(stream, level="debug", debug=True, secrets=["correct-horse-battery"])
    library.debug("body: %s %s", "my diagnosis", "correct-horse-battery")
    assert "my diagnosis ***" in stream.getvalue()


def test_warnings_are_lines_too_without_their_words(lines: Lines) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("got `my diagnosis`", UserWarning, stacklevel=1)
    (line,) = lines()
    assert line["event"].endswith(": UserWarning")
    assert "diagnosis" not in json.dumps(line)


def test_uvicorn_speaks_through_us_and_its_access_log_is_silent(stream: io.StringIO) -> None:
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).addHandler(logging.StreamHandler(sys.stderr))
    configure_logs(stream)
    logging.getLogger("uvicorn.error").info("Uvicorn running on %s", "http://127.0.0.1:8124")
    logging.getLogger("uvicorn.access").info('%s - "%s"', "127.0.0.1", "GET /?token=correct-horse-battery")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "Uvicorn running on http://127.0.0.1:8124"


@pytest.mark.fault("F11")
@pytest.mark.parametrize(
    ("text", "canary"),
    [
        ("connecting to postgresql://clew:hunter22@db:5432/clew", "hunter22"),
        ("connecting to postgresql://clew:hun@ter22@db/clew", "ter22"),
        ("Authorization: Bearer abc.def-ghi", "abc.def"),
        ("sent basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("host=db password=hunter22 user=clew", "hunter22"),
        ('{"api_key": "hunter22"}', "hunter22"),
        ("?secret_token=hunter22&x=1", "hunter22"),
        ("DSN: hunter22", "hunter22"),
        ("key sk-ant-api03-AAAABBBBCCCCDDDD", "AAAABBBB"),
        ("key ghp_AAAABBBBCCCCDDDDEEEE", "AAAABBBB"),
        ("key clew_3f9AAAABBBBCCCCDDDDEEEE", "AAAABBBB"),
        ("key AKIAABCDEFGHIJKLMNOP", "ABCDEFGH"),
        ("https://api.telegram.org/bot123456789:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr/send", "AAbbCC"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("the word correct-horse-battery itself", "correct-horse-battery"),
    ],
)
@pytest.mark.parametrize("where", ["event", "field", "error"])
def test_what_looks_like_a_credential_never_passes(lines: Lines, text: str, canary: str, where: str) -> None:
    match where:
        case "event":
            ours.error(text.replace("%", "%%"))
        case "field":
            ours.error("failed", extra={"address": text})
        case _:
            ours.error("failed", exc_info=Unavailable(text))
    (line,) = lines()
    assert canary not in json.dumps(line)
    assert "***" in json.dumps(line)


@pytest.mark.fault("F12")
@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "://" * 33_000,
        "://a" * 25_000,
        "bearer " * 14_000,
        "token" + " " * 100_000,
        "token='" * 14_000,
        "clew_" * 20_000,
        "1" * 100_000,
        "eyJ" * 33_000,
        "\x1b" * 100_000,
    ],
)
def test_a_hostile_string_costs_no_time(text: str) -> None:
    scrub = Scrubber(["correct-horse-battery"])
    before = time.process_time()
    scrubbed = scrub(text)
    assert time.process_time() - before < 2
    assert len(scrubbed) <= 10 * MAX_CHARACTERS


def test_ordinary_lines_are_left_alone() -> None:
    scrub = Scrubber()
    for text in [
        "listening on http://127.0.0.1:8124",
        "migration 0001_threads applied to sqlite:////data/clew.db",
        "lease of thread 0190c6f2-7b1e-7c3a-9d3e-0123456789ab lost at 12:30:59",
    ]:
        assert scrub(text) == text


def test_people_get_a_line_they_can_read(stream: io.StringIO) -> None:
    configure_logs(stream, format="text")
    ours.warning("lease lost", extra={"thread_id": "t1", "runner": "host 1"})
    written = stream.getvalue()
    assert "warning  lease lost  (clew.tests)  thread_id=t1" in written
    assert 'runner="host 1"' in written


def test_auto_is_json_unless_a_person_is_looking() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, starts_with_brace in ((io.StringIO(), True), (Terminal(), False)):
        configure_logs(stream, format="auto")
        ours.warning("hello")
        assert stream.getvalue().startswith("{") is starts_with_brace


def test_a_closed_pipe_under_the_log_goes_unnoticed(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    configure_logs(stream)
    stream.close()
    ours.warning("correct-horse-battery")
    assert capsys.readouterr() == ("", "")


def test_an_ascii_terminal_still_gets_its_line(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as stream:
        configure_logs(stream, format="text")
        ours.warning("größer")
    assert "gr\\xf6\\xdfer" in (tmp_path / "log").read_text("ascii")


def test_fields_do_not_shadow_what_logging_puts_on_a_record() -> None:
    assert FIELDS.isdisjoint(logging.makeLogRecord({}).__dict__)


def test_the_history_metrics_have_their_published_names_and_labels() -> None:
    metrics = Metrics()
    labels = {"backend": "sqlite", "channel": "telegram"}
    metrics.history_key_failures.labels(**labels, outcome="fallback").inc()
    metrics.history_read_failures.labels(**labels, outcome="fallback").inc()
    metrics.history_write_failures.labels(**labels, outcome="conflict").inc()
    metrics.history_truncations.labels(**labels, outcome="ok").inc()
    metrics.history_read_ms.labels(**labels, outcome="ok").observe(3)
    metrics.history_write_ms.labels(**labels, outcome="conflict").observe(30)
    text = metrics.render().decode()
    for name, outcome in (
        ("key_resolution_failures", "fallback"),
        ("store_read_failures", "fallback"),
        ("store_write_failures", "conflict"),
        ("truncation_events", "ok"),
    ):
        tags = f'backend="sqlite",channel="telegram",outcome="{outcome}"'
        assert f"agent_history_{name}_total{{{tags}}} 1.0" in text
    for name, outcome in (("read", "ok"), ("write", "conflict")):
        count = f'agent_history_store_{name}_latency_ms_count{{backend="sqlite",channel="telegram",outcome="{outcome}"}}'
        assert f"{count} 1.0" in text


def test_product_code_logs_only_fields_that_are_written() -> None:
    used = {
        (path.name, name)
        for path in Path(clew.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Call)
        for name in logged_fields(node)
    }
    assert {(where, name) for where, name in used if name not in FIELDS} == set()


def logged_fields(call: ast.Call) -> Iterator[str]:
    if isinstance(call.func, ast.Name) and call.func.id == "log_context":
        yield from (keyword.arg for keyword in call.keywords if keyword.arg)
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            yield from (str(key.value) for key in keyword.value.keys if isinstance(key, ast.Constant))


def test_two_sets_of_metrics_do_not_add_up() -> None:
    one, two = Metrics(), Metrics()
    one.lost_leases.inc()
    assert "clew_lost_leases_total 1.0" in one.render().decode()
    assert "clew_lost_leases_total 0.0" in two.render().decode()
    assert shared_metrics() is shared_metrics()


@pytest.mark.parametrize(
    ("key", "label"),
    [("telegram:1", "telegram"), ("wecom_cs:kf:u", "wecom_cs"), ("support-room-1", "other"), ("", "other")],
)
def test_a_conversation_key_has_one_of_five_channels(key: str, label: str) -> None:
    assert channel_label(key) == label
    assert label in CHANNELS
