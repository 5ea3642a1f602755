"""`clew cleanup`, `export` and `threads usage|delete|undelete`, as one types them."""

import asyncio
import json
import subprocess
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from clew.cli.retention import new_file
from clew.domain.errors import Unavailable
from clew.domain.events import AssistantMessage, RoundFinished
from clew.domain.thread import Owner, Status
from tests.databases import SHARED, locate, open_database, open_store, query
from tests.processes import clew, one_line
from tests.samples import opened, recorded

DATABASE = ".clew/clew.db"


@pytest.fixture(params=SHARED)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of SQLite the file that a command finds by itself."""
    if request.param == "sqlite":
        (tmp_path / ".clew").mkdir()
        return str(tmp_path / DATABASE)
    return locate(request.param, request)


def prepare(where: str) -> None:
    """Three threads that ended; nobody looked at the first two for a long time."""

    async def work() -> None:
        async with open_database(where) as db:
            store = open_store(db)
            for name, tenant in (("t1", "acme"), ("t2", "rival"), ("t3", "acme")):
                change = opened(name, ttl=timedelta(days=1), owner=Owner(tenant=tenant))
                await store.commit(change)
                said = AssistantMessage(content=f"the answer of {name}")
                await store.commit(recorded(change.thread, said, RoundFinished(status=Status.COMPLETED)))
            far = 2**52
            await query(db, "UPDATE threads SET last_accessed_at = $1, expires_at = $1 WHERE id = 't3'", far)

    asyncio.run(work())


@pytest.mark.accept("003-35")
def test_from_usage_to_cleanup(where: str, tmp_path: Path) -> None:
    prepare(where)
    environ = {"CLEW_DATABASE_URL": where} if where.startswith("postgres") else {}

    def type_(*arguments: str) -> subprocess.CompletedProcess[str]:
        return clew(tmp_path, *arguments, **environ)

    def run(*arguments: str) -> Any:
        ended = type_(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    usage = run("threads", "usage")
    assert (usage["threads"], usage["due"], usage["byStatus"]) == (3, 2, {"completed": 3})
    assert usage["tables"]["events"] > 0
    assert run("threads", "usage", "--tenant", "acme")["threads"] == 2

    exported = run("export", "t1")
    with zipfile.ZipFile(tmp_path / exported["path"]) as archive:
        assert archive.testzip() is None
        assert "the answer of t1" in archive.read("messages.md").decode()
        assert json.loads(archive.read("state.json")) is None
    assert (tmp_path / exported["path"]).stat().st_size == exported["bytes"]
    again = type_("export", "t1")
    assert (again.returncode, one_line(again)) == (1, "clew: thread-t1.zip already exists")

    assert run("threads", "delete", "t3", "--soft") == {"id": "t3", "status": "deleted"}
    assert run("threads", "usage")["deleted"] == 1
    assert run("threads", "undelete", "t3") == {"id": "t3", "status": "restored"}

    assert run("cleanup", "--dry-run")["due"] == 2
    assert run("cleanup", "--tenant", "rival")["threadIds"] == ["t2"]
    cleaned = type_("cleanup")
    assert cleaned.stdout == "1 deleted, 1 stay.\n", cleaned.stderr
    assert "thread deleted" in cleaned.stderr
    assert "t1" in cleaned.stderr, "each id is in the log"
    assert type_("threads", "delete", "t3", "--yes").stdout == "t3 is deleted.\n"
    gone = type_("threads", "delete", "t3", "--yes")
    assert (gone.returncode, one_line(gone)) == (1, "clew: no thread 't3'")
    assert run("threads", "usage")["threads"] == 0


def test_what_cannot_be_done_is_said_in_a_line(tmp_path: Path) -> None:
    nowhere = clew(tmp_path, "cleanup")
    assert nowhere.returncode == 2
    assert "there is no database" in one_line(nowhere)
    memory = clew(tmp_path, "cleanup", CLEW_DATABASE_URL="memory://")
    assert memory.returncode == 2
    assert "memory://" in one_line(memory)
    (tmp_path / ".clew").mkdir()
    prepare(str(tmp_path / DATABASE))
    user = clew(tmp_path, "cleanup", "--user", "ann")
    assert (user.returncode, one_line(user)) == (1, "clew: --user: needs --tenant, a user belongs to one")


def test_an_export_that_is_not_whole_says_so(where: str, tmp_path: Path) -> None:
    prepare(where)

    async def damage() -> None:
        async with open_database(where) as db:
            await query(db, "UPDATE events SET content = '{' WHERE thread_id = 't1' AND seq = 2")

    asyncio.run(damage())
    environ = {"CLEW_DATABASE_URL": where} if where.startswith("postgres") else {}
    ended = clew(tmp_path, "export", "t1", **environ)
    assert ended.returncode == 3
    assert ended.stderr == (
        "clew: thread-t1.zip is incomplete: problems.json in it lists what could not be read (1)\n"
    )
    with zipfile.ZipFile(tmp_path / "thread-t1.zip") as archive:
        assert archive.testzip() is None
        assert "the answer of t1" in archive.read("messages.md").decode()
        problems = json.loads(archive.read("problems.json"))
    assert [(one["table"], one["from_seq"], one["to_seq"]) for one in problems] == [("events", 2, 2)]

    again = clew(tmp_path, "export", "t1", "--output", "again.zip", "--json", **environ)
    assert again.returncode == 3
    assert json.loads(again.stdout)["problems"] == problems
    whole = clew(tmp_path, "export", "t2", "--json", **environ)
    assert (whole.returncode, json.loads(whole.stdout)["problems"]) == (0, [])


@pytest.mark.parametrize(
    ("damages", "status"),
    [
        # As older versions stored a time to live beyond the calendar.
        (["UPDATE threads SET ttl = 6000000000000000000, expires_at = 7000000000000000000"], None),
        (["UPDATE threads SET fsm_state = ''", "UPDATE events SET content = ''"], "failed"),
    ],
)
def test_a_thread_that_cannot_be_read_is_listed_with_the_others(
    where: str, tmp_path: Path, damages: list[str], status: str | None
) -> None:
    prepare(where)

    async def damage() -> None:
        async with open_database(where) as db:
            for each in damages:
                await query(db, f"{each} WHERE {'id' if 'threads' in each else 'thread_id'} = 't1'")

    environ = {"CLEW_DATABASE_URL": where} if where.startswith("postgres") else {}
    before = {
        one["id"]: one for one in json.loads(clew(tmp_path, "threads", "list", "--json", **environ).stdout)
    }
    asyncio.run(damage())
    listed = clew(tmp_path, "threads", "list", "--json", **environ)
    assert listed.returncode == 0, listed.stderr
    after = {one["id"]: one for one in json.loads(listed.stdout)}
    assert set(after) == set(before)
    assert after["t1"]["status"] == (status or before["t1"]["status"])
    assert {name: one for name, one in after.items() if name != "t1"} == {
        name: one for name, one in before.items() if name != "t1"
    }
    table = clew(tmp_path, "threads", "list", **environ)
    assert (table.returncode, "t1" in table.stdout) == (0, True)


def test_what_is_broken_off_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "thread.zip"
    with pytest.raises(Unavailable), new_file(path) as file:
        raise Unavailable(f"after {file.write(b'PK')} bytes")
    assert not path.exists()
