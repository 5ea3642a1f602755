"""`clew serve` and its sisters as a user meets them: a real process in an empty folder, started, used, ended and killed."""

import asyncio
import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from clew.config import load_settings
from clew.server.database import open_stores
from clew.stores.migrations import migrations
from tests.processes import Server, begin_upload, clew, environment, one_line, port_to_keep, serving, until
from tests.samples import opened

GRACE = 1.0


@dataclass(frozen=True, slots=True)
class Served:
    """One server for all tests that only ask, and clients that came before them and do not come to the point."""

    server: Server
    hesitant: list[socket.socket]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as server, ExitStack() as stack:
        hesitant = []
        for words in (b"", b"\r\n" * 10, b"GET / HTTP/1.1\r\nX-Slow: "):
            connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            hesitant.append(stack.enter_context(connection))
            connection.sendall(words)
        yield Served(server, hesitant)


@pytest.fixture(scope="module")
def server(served: Served) -> Server:
    return served.server


def commit(folder: Path, thread_id: str, **environ: str) -> None:
    """Put a thread there that waits to be begun, from another process than the server's."""

    async def work() -> None:
        async with open_stores(load_settings(environ, cwd=folder)) as stores:
            await stores.threads.commit(opened(thread_id, held=True))

    asyncio.run(work())


class TestStart:
    def test_an_empty_folder_is_enough(self, tmp_path: Path) -> None:
        with serving(tmp_path) as server:
            assert server.address.startswith("http://127.0.0.1:")
            assert server.get("/health").json() == {"status": "ok"}
            assert server.get("/ready").json() == {"status": "ready"}
            assert server.get("/api/threads").json() == {"threads": [], "next": None}
            assert f"sqlite:///{tmp_path}/.clew/clew.db" in server.stdout.read_text()
            assert stat.S_IMODE((tmp_path / ".clew").stat().st_mode) == 0o700
            assert (tmp_path / ".clew" / ".gitignore").read_text() == "*\n"

    def test_the_files_of_the_database_are_the_owners_in_a_folder_that_was_there(
        self, tmp_path: Path
    ) -> None:
        data = tmp_path / "data"
        data.mkdir(mode=0o755)
        with serving(tmp_path, CLEW_DATABASE_URL=f"sqlite:///{data}/clew.db") as server:
            httpx.post(f"{server.address}/threads", json={}).raise_for_status()
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.glob("clew.db*")}
        assert modes.pop("clew.db-processes") == 0o700
        assert {"clew.db", "clew.db-wal", "clew.db-shm"} <= set(modes)
        assert set(modes.values()) == {0o600}

    def test_the_log_is_one_json_object_a_line(self, server: Server) -> None:
        server.get("/api/threads/no-such-thread")  # a refusal is worth a line, a poll is not
        until(lambda: '"request"' in server.log)
        events = [json.loads(line)["event"] for line in server.log.splitlines()]
        assert events[0] == "listening"

    def test_memory_only_leaves_nothing_behind(self, tmp_path: Path) -> None:
        with serving(tmp_path, CLEW_DATABASE_URL="memory://") as server:
            assert server.get("/ready").status_code == 200
        assert {path.name for path in tmp_path.iterdir()} == {"stdout", "stderr"}

    def test_postgres(self, tmp_path: Path, postgres_url: str) -> None:
        with serving(tmp_path, CLEW_DATABASE_URL=postgres_url) as server:
            assert server.get("/ready").status_code == 200
            server.signal(signal.SIGTERM)
            assert server.wait()[0] == 0

    def test_under_a_path_of_a_proxy(self, tmp_path: Path) -> None:
        with serving(tmp_path, CLEW_ROOT_PATH="/clew") as server:
            assert server.address.endswith("/clew")
            address = server.address.removesuffix("/clew")
            server.address = address
            assert server.get("/health").status_code == 200
            assert server.get("/api/threads").status_code == 200

    def test_a_busy_port_is_named(self, server: Server, tmp_path: Path) -> None:
        result = clew(tmp_path, "serve", "--port", str(server.port))
        assert result.returncode == 2
        assert one_line(result) == (
            f"clew: port {server.port} on 127.0.0.1 is in use; choose another with --port, or --port 0 for a free one"
        )

    def test_another_address_without_keys_is_refused(self, tmp_path: Path) -> None:
        for arguments, environ in (
            (("--host", "0.0.0.0"), {}),
            ((), {"CLEW_HOST": "0.0.0.0"}),
            (("--host", "::"), {}),
            (("--host", "0.0.0.0"), {"CLEW_DATABASE_URL": "memory://"}),
        ):
            result = clew(tmp_path, "serve", "--port", "0", *arguments, **environ)
            assert result.returncode == 2
            assert "clew keys create" in one_line(result)

    def test_another_address_with_a_key_asks_for_it(self, tmp_path: Path) -> None:
        key = json.loads(clew(tmp_path, "keys", "create", "--name", "ci", "--json").stdout)["key"]
        with serving(tmp_path, "--host", "0.0.0.0") as server:
            server.address = f"http://127.0.0.1:{server.port}"
            assert server.get("/health").status_code == 200
            assert server.get("/api/threads").status_code == 401
            assert server.get("/api/threads", **{"X-API-Key": key}).status_code == 200

    def test_a_host_that_is_nobody(self, tmp_path: Path) -> None:
        result = clew(tmp_path, "serve", "--host", "no-such-host.invalid", "--port", "0")
        assert result.returncode == 2
        assert "no-such-host.invalid" in one_line(result)


SECRET = "s3cr3t-canary-in-the-dsn"
DSN = f"postgresql://clew:{SECRET}@127.0.0.1:1/clew"


class TestBadSettings:
    @pytest.mark.accept("000-1", "000-2", "000-3")
    @pytest.mark.parametrize(
        ("environ", "named"),
        [
            ({"CLEW_GRAPH_STORE_BACKEND": "mysql"}, "CLEW_GRAPH_STORE_BACKEND"),
            ({"CLEW_GRAPH_STORE_SQLITE_PATH": "data/x.sqlite"}, "CLEW_GRAPH_STORE_SQLITE_PATH"),
            ({"CLEW_GRAPH_STORE_SQLITE_PATH": "~/x.sqlite"}, "CLEW_GRAPH_STORE_SQLITE_PATH"),
            ({"CLEW_GRAPH_STORE_BACKEND": "postgres"}, "CLEW_POSTGRES_DSN"),
            ({"CLEW_PORT": "http"}, "CLEW_PORT"),
            ({"CLEW_HOST": "a b"}, "CLEW_HOST"),
            ({"CLEW_DATABASE_URL": f"mysql://u:{SECRET}@h/d"}, "CLEW_DATABASE_URL"),
            ({"DATABASE_URL": f"{SECRET}"}, "DATABASE_URL"),
            ({"CLEW_DATABASE_URL": DSN}, "Postgres"),
            ({"CLEW_DATABASE_URL": "sqlite:////proc/nowhere/clew.db"}, "/proc/nowhere"),
            ({"CLEW_DATABASE_URL": "sqlite:////etc/passwd"}, "/etc/passwd"),
            ({"CLEW_FAILPOINTS": "nowhere:kill"}, "CLEW_FAILPOINTS"),
            ({"CLEW_ALLOWED_ORIGINS": "*"}, "CLEW_ALLOWED_ORIGINS"),
            ({"CLEW_AUTH": "off"}, "CLEW_AUTH"),
        ],
        ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
    )
    def test_a_wrong_setting_is_one_line_that_names_it(
        self, tmp_path: Path, environ: dict[str, str], named: str
    ) -> None:
        result = clew(tmp_path, "serve", **{"CLEW_PORT": "0", **environ})
        assert result.returncode == 2
        assert named in one_line(result, {"secret": SECRET})

    @pytest.mark.accept("000-1", "000-2", "000-3")
    def test_right_ones_are_accepted(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "in" / "store.sqlite"
        with serving(
            tmp_path, CLEW_GRAPH_STORE_BACKEND="SQLite", CLEW_GRAPH_STORE_SQLITE_PATH=str(path)
        ) as server:
            assert server.get("/health").status_code == 200

    def test_a_wrong_file_is_named_with_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "clew.yaml").write_text("server:\n  prot: 9000\n")
        result = clew(tmp_path, "serve")
        assert result.returncode == 2
        assert "clew.yaml: server.prot" in one_line(result)

    def test_wrong_options_are_refused(self, tmp_path: Path) -> None:
        for arguments in (("serve", "--port", "x"), ("serve", "--nonsense"), ("nonsense",)):
            result = clew(tmp_path, *arguments)
            assert result.returncode == 2
            assert "Traceback" not in result.stderr


@pytest.mark.fault("B6")
@pytest.mark.parametrize("is_replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path, is_replaced: bool) -> None:
    with serving(tmp_path) as server:
        assert server.get("/ready").status_code == 200
        # At once, or the server might put something into it meanwhile.
        shutil.rmtree((tmp_path / ".clew").rename(tmp_path / "gone"))
        if is_replaced:
            (tmp_path / ".clew").mkdir()
            (tmp_path / ".clew" / "clew.db").touch()
        assert server.get("/ready").status_code == 503
        started = httpx.post(f"{server.address}/api/workflows/start", json={"prompt": "hello"}, timeout=20)
        assert started.status_code == 503
        assert "removed or replaced" in started.json()["error"]["message"]
        assert "Traceback" not in server.log
    with serving(tmp_path) as server:
        assert server.get("/api/threads").json()["threads"] == []


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_a_signal_ends_it_well(self, tmp_path: Path, number: int) -> None:
        with serving(tmp_path, CLEW_SHUTDOWN_SECONDS="600") as server:  # of which it needs none
            server.get("/health")
            server.signal(number)
            assert server.wait()[0] == 0
        assert "Traceback" not in server.log
        assert json.loads(server.log.splitlines()[-1])["event"] == "stopped"

    @pytest.mark.fault("A8")
    def test_a_request_under_way_has_the_grace_and_no_more(self, tmp_path: Path) -> None:
        with serving(tmp_path, CLEW_SHUTDOWN_SECONDS=str(GRACE)) as server:
            hanging = begin_upload(server)
            told = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.wait()[0] == 0
            assert time.monotonic() - told >= GRACE
            hanging.close()

    @pytest.mark.fault("A8")
    def test_a_second_signal_means_now(self, tmp_path: Path) -> None:
        with serving(tmp_path, CLEW_SHUTDOWN_SECONDS="60") as server:
            hanging = begin_upload(server)
            server.signal(signal.SIGTERM)
            until(lambda: "stopping" in server.log)
            server.signal(signal.SIGTERM)
            assert server.wait()[0] == 128 + signal.SIGTERM
            hanging.close()

    @pytest.mark.fault("A8")
    def test_no_new_work_once_told_to_stop(self, tmp_path: Path) -> None:
        with serving(tmp_path, CLEW_SHUTDOWN_SECONDS="60") as server:
            hanging = begin_upload(server)
            server.signal(signal.SIGTERM)
            until(lambda: not is_open(server.port))
            hanging.close()
            assert server.wait()[0] == 0

    def test_killed_and_started_again_it_knows_everything(self, tmp_path: Path) -> None:
        with serving(tmp_path, port=port_to_keep()) as server:
            commit(tmp_path, "t1")
            assert server.get("/api/threads/t1").status_code == 404  # another tenant's
            made = clew(tmp_path, "keys", "create", "--name", "n", "--tenant", "acme", "--json")
            key = json.loads(made.stdout)["key"]
            server.signal(signal.SIGKILL)
            assert server.wait()[0] == -signal.SIGKILL
        with serving(tmp_path, port=server.port) as server:
            answer = server.get("/api/threads/t1/events", Authorization=f"Bearer {key}").json()
        assert [event["type"] for event in answer["events"]] == ["round_started", "user_msg"]


def is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def talk(server: Server, *parts: bytes, seconds: float = 60) -> bytes:
    """Send the parts and return everything that comes back until the server hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        received = b""
        with suppress(ConnectionError):  # it may have heard enough, and answered
            for part in parts:
                connection.sendall(part)
        with suppress(ConnectionError):
            while data := connection.recv(65536):
                received += data
        return received


class TestHostileClients:
    def test_a_body_over_the_limit_is_refused_before_it_is_sent(self, server: Server) -> None:
        head = b"POST /api/threads HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\n"
        answer = talk(server, head.replace(b"POST", b"GET"), b"x" * 100_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"TOO_LARGE"' in answer

    def test_a_chunked_body_over_the_limit_is_cut_off(self, server: Server) -> None:
        head = b"GET /api/threads HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        assert talk(server, head, *([chunk] * 300)).startswith(b"HTTP/1.1 413 ")

    def test_a_head_without_end_is_cut_off(self, server: Server) -> None:
        answer = talk(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ", *([b"x" * 10_000] * 20))
        assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""

    @pytest.mark.parametrize(
        "request_line",
        [
            b"\x00\x01\x02\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        ],
    )
    def test_nonsense_is_answered_or_hung_up_on(self, server: Server, request_line: bytes) -> None:
        answer = talk(server, request_line)
        assert answer == b"" or answer.split(b" ")[1] in (b"400", b"404", b"505")
        assert server.get("/health").status_code == 200

    def test_requests_that_hide_in_others_are_not_obeyed(self, server: Server) -> None:
        both = (
            b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"
            b"Connection: close\r\n\r\n0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        assert b"clew_http" not in talk(server, both)

    @pytest.mark.fault("E4")
    def test_many_who_say_nothing_keep_nobody_out(self, server: Server) -> None:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        try:
            for connection in idle:
                connection.sendall(b"GET / HTTP/1.1\r\n")
            assert server.get("/health").status_code == 200
        finally:
            for connection in idle:
                connection.close()


def test_a_connection_outlives_what_clients_and_proxies_keep_theirs_for(server: Server) -> None:
    """Httpx keeps one for five seconds; a server that hangs up just then has a request answered by nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    with closing(connection):
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        wire = connection.sock
        time.sleep(6)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        assert connection.sock is wire


class TestKeys:
    def test_a_key_over_its_life(self, tmp_path: Path) -> None:
        with serving(tmp_path) as server:
            assert server.get("/api/threads").status_code == 200
            made = json.loads(
                clew(
                    tmp_path,
                    "keys",
                    "create",
                    "--name",
                    "ci",
                    "--scope",
                    "read",
                    "--expires-days",
                    "1",
                    "--json",
                ).stdout
            )
            bearer = {"Authorization": f"Bearer {made['key']}"}
            assert server.get("/api/threads", **bearer).status_code == 200
            until(lambda: server.get("/api/threads").status_code == 401)
            assert server.get("/metrics", **bearer).status_code == 403
            assert server.get(f"/api/threads?key={made['key']}").status_code == 401

            (listed,) = json.loads(clew(tmp_path, "keys", "list", "--json").stdout)
            assert listed == {name: made[name] for name in made if name != "key"}
            assert made["key"] not in clew(tmp_path, "keys", "list").stdout

            assert clew(tmp_path, "keys", "revoke", made["id"], "--yes").returncode == 0
            until(lambda: server.get("/api/threads", **bearer).status_code == 401)
            assert "revoked" in clew(tmp_path, "keys", "list").stdout
            assert server.get("/api/threads").status_code == 401
            assert made["key"] not in server.log

    def test_what_is_wrong_with_a_key_is_said(self, tmp_path: Path) -> None:
        for arguments, expected in (
            (("--name", "n", "--scope", "root"), "--scope: no scope 'root'"),
            (("--name", ""), "--name"),
            (("--name", "n", "--tenant", "a/b"), "--tenant"),
            (("--name", "n", "--user", "a\nb"), "--user"),
        ):
            result = clew(tmp_path, "keys", "create", *arguments)
            assert (result.returncode, expected in one_line(result)) == (1, True)
        assert not (tmp_path / ".clew").exists()

    def test_in_the_wrong_folder_nothing_is_made(self, tmp_path: Path) -> None:
        for arguments in (
            ("keys", "list"),
            ("keys", "revoke", "key_x", "--yes"),
            ("threads", "list"),
            ("threads", "show", "t"),
        ):
            result = clew(tmp_path, *arguments)
            assert (result.returncode, "is this the right folder?" in one_line(result)) == (2, True)
        assert list(tmp_path.iterdir()) == []


class TestOtherCommands:
    def test_migrate_makes_the_database(self, tmp_path: Path) -> None:
        version = json.loads(clew(tmp_path, "migrate", "--json").stdout)["version"]
        assert version == len(migrations("sqlite"))
        assert clew(tmp_path, "migrate").stdout == f"The database is at version {version}.\n"

    def test_threads_are_shown(self, tmp_path: Path) -> None:
        commit(tmp_path, "t1")
        (listed,) = json.loads(clew(tmp_path, "threads", "list", "--status", "pending", "--json").stdout)
        assert (listed["id"], listed["tenant"], listed["status"]) == ("t1", "acme", "pending")
        assert json.loads(clew(tmp_path, "threads", "list", "--tenant", "rival", "--json").stdout) == []
        assert "t1" in clew(tmp_path, "threads", "list").stdout
        shown = json.loads(clew(tmp_path, "threads", "show", "t1", "--json").stdout)
        assert [event["content"].get("content") for event in shown["events"]] == [None, "hello"]
        people = clew(tmp_path, "threads", "show", "t1").stdout
        assert "user_msg" in people
        assert "hello" not in people
        missing = clew(tmp_path, "threads", "show", "t2")
        assert (missing.returncode, one_line(missing)) == (1, "clew: no thread 't2'")

    def test_the_doctor_tells_all_but_secrets(self, tmp_path: Path) -> None:
        environ = {"CLEANUP_API_KEY": SECRET, "CLEW_POSTGRES_DSN": DSN, "CLEW_PROT": "1"}
        clew(tmp_path, "migrate")
        for arguments in (("doctor",), ("doctor", "--json")):
            result = clew(tmp_path, *arguments, **environ)
            assert result.returncode == 0, result.stderr
            assert SECRET not in result.stdout + result.stderr
            assert "CLEW_PROT" in result.stdout
        found = json.loads(clew(tmp_path, "doctor", "--json", **environ).stdout)
        assert found["ok"]
        assert {check["name"] for check in found["checks"]} == {"database", "serializer"}

    def test_the_doctor_says_what_is_ill(self, tmp_path: Path) -> None:
        result = clew(tmp_path, "doctor", "--json", CLEW_DATABASE_URL=DSN)
        assert result.returncode == 1
        assert SECRET not in result.stdout + result.stderr
        assert not json.loads(result.stdout)["ok"]

    def test_the_doctor_names_the_graphs_that_cannot_be_loaded(self, tmp_path: Path) -> None:
        write_graphs(tmp_path)
        result = clew(tmp_path, "doctor", "--json")
        assert result.returncode == 1, result.stderr
        found = json.loads(result.stdout)
        assert not found["ok"]
        graphs = {one["name"]: (one["ok"], one["detail"]) for one in found["checks"][2:]}
        assert graphs == {
            "graph good": (True, "./flows/good.py:graph"),
            "graph noattr": (False, "./flows/good.py:grpah: it has no 'grpah'"),
            "graph nothing": (
                False,
                "flows.nothing:graph: ModuleNotFoundError: No module named 'flows.nothing'",
            ),
            "graph raising": (False, "./flows/raising.py:graph: ValueError: no access, token=*** in raising"),
        }
        shown = clew(tmp_path, "doctor")
        assert shown.returncode == 1
        assert all(f"graph {name}" in shown.stdout for name in ("good", "noattr", "nothing", "raising"))

    def test_the_doctor_is_content_with_graphs_that_can_be_loaded(self, tmp_path: Path) -> None:
        write_graphs(tmp_path)
        (tmp_path / "clew.yaml").unlink()
        project = {"dependencies": ["."], "env": {"FLOWS": "here"}, "graphs": {"good": "flows.good:graph"}}
        (tmp_path / "langgraph.json").write_text(json.dumps(project))
        result = clew(tmp_path, "doctor", "--json")
        assert (result.returncode, json.loads(result.stdout)["ok"]) == (0, True), result.stdout

    def test_why_a_graph_cannot_be_loaded_is_in_the_log_and_not_in_the_answer(self, tmp_path: Path) -> None:
        write_graphs(tmp_path)
        with serving(tmp_path) as server:
            for name in ("noattr", "nothing", "raising"):
                answer = httpx.post(
                    f"{server.address}/api/workflows/start",
                    json={"graph": name, "prompt": "hello"},
                    timeout=30,
                )
                assert (answer.status_code, answer.json()["error"]) == (
                    400,
                    {
                        "code": "INVALID",
                        "field": "graph",
                        "message": f"the graph '{name}' could not be loaded; the server's log says why",
                    },
                )
            log = server.log
        assert "./flows/good.py:grpah: it has no 'grpah'" in log
        assert "./flows/raising.py:graph: ValueError: no access, token=*** in raising" in log
        assert "clew_graph_" not in log

    def test_a_database_of_another_program_is_one_line(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "mail.db")) as file:
            file.execute("CREATE TABLE Threads (subject TEXT)")
        for arguments in (("serve", "--port", "0"), ("migrate",), ("threads", "list")):
            result = clew(tmp_path, *arguments, CLEW_DATABASE_URL="sqlite:///mail.db")
            assert (result.returncode, one_line(result)) == (
                2,
                "clew: the database holds tables of something else, such as 'threads': choose another file",
            )

    def test_a_database_from_before_0_1_0_is_one_line(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "old.db")) as file:
            file.execute(
                "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT, applied_at BIGINT)"
            )
            file.executemany(
                "INSERT INTO migrations VALUES (?, ?, 1)", [(1, "threads_and_events"), (2, "checkpoints")]
            )
            file.commit()
        for arguments in (("serve", "--port", "0"), ("migrate",)):
            result = clew(tmp_path, *arguments, CLEW_DATABASE_URL="sqlite:///old.db")
            assert (result.returncode, one_line(result)) == (
                2,
                "clew: the database is at version 2 of a Clew from before 0.1.0, which cannot be upgraded:"
                " choose another file, or keep using the Clew that wrote it",
            )


def write_graphs(folder: Path) -> None:
    """One graph that can be loaded, and others that cannot, each for a reason of its own."""
    flows = folder / "flows"
    flows.mkdir()
    (flows / "__init__.py").touch()
    (flows / "good.py").write_text(
        "from langgraph.graph import StateGraph\n"
        "print('a graph that chatters')\n"
        "graph = StateGraph(dict).add_node('one', lambda state: state).set_entry_point('one')\n"
    )
    (flows / "raising.py").write_text("raise ValueError(f'no access, token=abc in {__name__}')\n")
    (folder / "clew.yaml").write_text(
        "graphs:\n"
        "  good: ./flows/good.py:graph\n"
        "  noattr: ./flows/good.py:grpah\n"
        "  nothing: flows.nothing:graph\n"
        "  raising: ./flows/raising.py:graph\n"
    )


HEAVY = {"fastapi", "langgraph", "langchain_core", "uvicorn", "starlette", "prometheus_client", "sqlite3"}


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (("-c", "import clew"), HEAVY | {"pydantic", "typer", "asyncio"}),
        (("-m", "clew.cli", "--help"), HEAVY | {"pydantic"}),
        (("-m", "clew.cli", "--version"), HEAVY | {"pydantic"}),
        (("-m", "clew.cli", "serve", "--help"), HEAVY),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_help_and_import_stay_light(tmp_path: Path, arguments: tuple[str, ...], heavy: set[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in result.stderr.splitlines()}
    assert "clew" in imported
    assert imported & heavy == set()


def test_a_cold_start(tmp_path: Path) -> None:
    """From an interpreter that has imported nothing yet, where the other tests fork from one that has."""
    command, environ = [sys.executable, "-m", "clew.cli"], environment(tmp_path)
    subprocess.run([*command, "keys", "create", "--name", "ci"], cwd=tmp_path, env=environ, check=True)
    output = tmp_path / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [*command, "serve", "--port", "0"],
            cwd=tmp_path,
            env=environ,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            until(lambda: "listening" in output.read_text() or process.poll() is not None)
            found = re.search(r"address +(\S+)", output.read_text())
            assert found, output.read_text()
            assert httpx.get(f"{found[1]}/ready", timeout=30).status_code == 200
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()


@pytest.mark.fault("F11")
def test_no_word_of_a_request_gets_into_the_log(tmp_path: Path) -> None:
    canary = "canary-4711"
    with serving(tmp_path, CLEW_LOG_LEVEL="debug") as server:
        for path in (f"/{canary}", f"/api/threads/{canary}", f"/api/threads?graph={canary}&key={canary}"):
            server.get(path, **{"X-API-Key": canary})
            server.get(path, Authorization=f"Basic {canary}", Cookie=canary, Referer=canary)
            head = f"GET {path} HTTP/1.1\r\nHost: {canary}\r\nConnection: close\r\nUser-Agent: {canary}\r\n"
            talk(server, f"{head}X-Request-ID: {canary}\t{canary}\r\n\r\n".encode())
        assert canary not in server.get("/metrics").text
        server.signal(signal.SIGTERM)
        server.wait()
    assert canary not in server.log
    assert canary not in server.stdout.read_text()
    assert all(json.loads(line) for line in server.log.splitlines())


def test_a_connection_that_does_not_come_to_the_point_is_closed(served: Served) -> None:
    """At the end of this module, where their time is over."""
    assert [connection.recv(1) for connection in served.hesitant] == [b"", b"", b""]
