"""Event logs as earlier versions wrote them: every later version reads them and comes to the same thread.

The first line of a file is what its log must lead to, the others are rows as they stood in the database. A file is
never changed; a new version of an event's content gets a file of its own.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from clew.domain.events import BODIES, Event, rebuild
from clew.domain.tool_calls import fold_calls
from clew.domain.views import logs, messages
from clew.stores.codec import VERSION, dump_body, load_event

FILES = sorted(Path(__file__).parent.glob("*.jsonl"))


def lines_of(file: Path) -> list[str]:
    # Not splitlines(): JSON may hold characters that end a line in Unicode and not in a file.
    return file.read_text("utf-8").rstrip("\n").split("\n")


def rows_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(file)[1:]]


def log_of(file: Path) -> Iterator[Event]:
    for row in rows_of(file):
        thread_id = row.pop("thread_id")
        yield load_event(thread_id, tuple(row.values()))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_old_log_leads_where_it_led(file: Path) -> None:
    expected: dict[str, Any] = json.loads(lines_of(file)[0])["expected"]
    log = list(log_of(file))
    thread = rebuild(log)
    assert {call.id: [call.status, call.result] for call in fold_calls({}, log).values()} == expected.pop(
        "calls"
    )
    assert [[one.number, one.role, one.content, list(one.documents)] for one in messages(thread, log)] == (
        expected.pop("messages")
    )
    assert [[one.message, one.progress, one.level, one.status] for one in logs(log)] == expected.pop("logs")
    assert thread.ttl is not None
    assert thread.ttl.days == expected.pop("ttl_days")
    assert thread.created_at == datetime.fromisoformat(expected.pop("created_at"))
    assert thread.last_active_at == datetime.fromisoformat(expected.pop("last_active_at"))
    found = asdict(thread) | {"redacted": sorted(thread.redacted), "fsm_state": thread.fsm_state}
    assert {name: found[name] for name in expected} == expected


def test_every_type_has_a_log_in_its_newest_version() -> None:
    seen = {row["type"] for file in FILES for row in rows_of(file) if row["version"] == VERSION}
    assert seen == set(BODIES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_writing_an_old_event_again_changes_no_byte(file: Path) -> None:
    newest = [row for row in rows_of(file) if row["version"] == VERSION]
    log = {event.seq: event for event in log_of(file)}
    assert [dump_body(log[row["seq"]].body) for row in newest] == [row["content"] for row in newest]
