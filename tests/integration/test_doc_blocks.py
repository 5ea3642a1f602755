"""Blocks of code in the documentation: Python runs, commands are those of the command line, YAML and JSON can be read.

A block that is not run has a comment before it, `<!-- not run: why -->`.
"""

import ast
import asyncio
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
import yaml
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph_sdk import get_client

from clew.cli import app
from clew.config import load_settings
from tests.processes import ROOT, Server, serving

PAGES = sorted(
    [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples/README.md"]
)
BLOCK = re.compile(
    r"^(?P<skip><!-- not run: [^>]+-->\n+)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$",
    re.DOTALL | re.MULTILINE,
)
# Pages whose Python another test runs, which reads the page itself.
ELSEWHERE = {
    "docs/howto/agents.md": "tests/unit/test_agent_registry.py",
    "docs/howto/custom-auth.md": "tests/acceptance/test_custom_auth.py",
    "docs/howto/custom-routes.md": "tests/acceptance/test_custom_app.py",
    "docs/howto/mcp.md": "tests/acceptance/test_mcp_api.py",
    "docs/howto/openai.md": "tests/acceptance/test_openai_api.py",
    "docs/howto/semantic-store.md": "tests/acceptance/test_langgraph_store_index.py",
    "docs/howto/write-an-app.md": "tests/integration/test_apps.py",
    "docs/quickstart.md": "tests/acceptance/test_quickstart.py",
}
ADDRESS = "http://127.0.0.1:8124"
GRAPHS = """
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt


def answer(state):
    return {"messages": [("ai", "It is on its way")]}


def ask(state):
    if not state.get("messages"):
        interrupt("Shall I?")
    return answer(state)


def one(node):
    class State(MessagesState, total=False):
        note: str

    graph = StateGraph(State)
    graph.add_node("work", node)
    graph.add_edge(START, "work")
    graph.add_edge("work", END)
    return graph


support, report, summarize = one(ask), one(answer), one(answer)
"""


class Block(NamedTuple):
    page: str
    language: str
    code: str
    is_skipped: bool


@dataclass(frozen=True)
class Given:
    """What a page takes for granted: names, and texts that stand for others."""

    names: dict[str, Any]
    replaced: dict[str, str]
    server: str = ""


def blocks(*languages: str) -> Iterator[Block]:
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        for found in BLOCK.finditer(page.read_text("utf-8")):
            if found["language"] in languages:
                code = "".join(
                    line.removeprefix(found["indent"]) for line in found["code"].splitlines(keepends=True)
                )
                yield Block(name, found["language"], code, found["skip"] is not None)


def of(page: str) -> list[str]:
    return [block.code for block in blocks("python") if block.page == page and not block.is_skipped]


def echo() -> StateGraph[Any, Any, Any, Any]:
    builder = StateGraph(MessagesState)
    builder.add_node("work", lambda state: {"messages": [("ai", "hello")]})
    builder.add_edge(START, "work")
    builder.add_edge("work", END)
    return builder


def model() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage("hello")] * 10))


class Ticket:
    pass


@asynccontextmanager
async def talking(given: Given) -> AsyncGenerator[dict[str, Any]]:
    """With a client of the server, and a thread, where the page has them from its first block."""
    client = get_client(url=given.server)
    thread = await client.threads.create()
    yield given.names | {"client": client, "thread": thread}
    await client.aclose()


def prepared(page: str, folder: Path, server: Server) -> Given:
    database = f"sqlite:///{folder}/docs.db"
    match page:
        case "docs/howto/checkpointer.md":
            names = {"builder": echo(), "url": database, "Ticket": Ticket}
            return Given(names, {"sqlite:////absolute/path.db": database})
        case "docs/howto/remember-a-chat.md":
            names = {
                "url": database,
                "StateGraph": StateGraph,
                "MessagesState": MessagesState,
                "START": START,
            }
            return Given(names | {"model": model()}, {'"openai:gpt-5"': "model"})
        case "docs/howto/tools.md":
            return Given({"model": model(), "tools": []}, {})
        case "docs/howto/langgraph-sdk.md" | "docs/howto/queue.md":
            return Given({}, {ADDRESS: server.address, "asyncio.run(main())": "await main()"}, server.address)
        case _:
            return Given({}, {})


HERE = sorted({block.page for block in blocks("python") if not block.is_skipped} - set(ELSEWHERE))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("docs")
    (folder / "agent.py").write_text(GRAPHS)
    names = ("support", "report", "summarize")
    (folder / "clew.yaml").write_text("graphs:\n" + "".join(f"  {n}: ./agent.py:{n}\n" for n in names))
    with serving(folder) as opened:
        yield opened


async def execute(code: str, names: dict[str, Any]) -> None:
    """As a notebook does: `await` may stand outside of functions."""
    compiled = compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    running = eval(compiled, names)
    if inspect.iscoroutine(running):
        await running


@pytest.mark.parametrize("page", HERE)
def test_python_of_the_page_runs(
    page: str, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")  # a client is made with it; nothing is asked
    given = prepared(page, tmp_path, server)

    async def run() -> None:
        names: dict[str, Any] = {"__name__": "docs", **given.names}
        if not given.server:
            await each(names)
            return
        async with talking(given) as more:
            await each(names | more)

    async def each(names: dict[str, Any]) -> None:
        for code in of(page):
            for text, other in given.replaced.items():
                code = code.replace(text, other)
            await execute(code, names)

    asyncio.run(run())


def test_every_page_with_python_is_run_by_a_test_or_says_why_not() -> None:
    with_python = {block.page for block in blocks("python")}
    assert set(ELSEWHERE) <= with_python
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text("utf-8"), (page, test)
    assert set(HERE) | set(ELSEWHERE) | {b.page for b in blocks("python") if b.is_skipped} == with_python


def test_pages_that_show_a_file_show_the_file_itself() -> None:
    assert of("docs/index.md") == of("docs/quickstart.md")
    template = (ROOT / "src/clew/cli/template/agent.py.txt").read_text()
    assert of("docs/index.md")[0] in template
    (bot,) = of("docs/tutorial.md")
    assert bot == (ROOT / "examples/telegram_bot/bot.py").read_text()
    settings = (ROOT / "examples/telegram_bot/clew.yaml").read_text()
    assert settings in [block.code for block in blocks("yaml") if block.page == "docs/tutorial.md"]


def test_yaml_json_and_toml_can_be_read() -> None:
    read = {"yaml": yaml.safe_load_all, "toml": tomllib.loads, "json": json.loads}
    found = list(blocks(*read))
    assert {block.language for block in found} == set(read)
    for block in found:
        if block.language == "json" and "..." in block.code:
            continue  # a part of an answer is left out
        try:
            list(read[block.language](block.code))  # type: ignore[operator]
        except ValueError as exc:
            raise AssertionError(f"{block.page}: {exc}\n{block.code}") from exc


SECTIONS = {
    "graphs",
    "profiles",
    "channels",
    "budgets",
    "prices",
    "queue",
    "quotas",
    "server",
    "cleanup",
    "runner",
}
CLEW_YAML = [
    block
    for block in blocks("yaml")
    if not block.is_skipped and set(yaml.safe_load(block.code) or ()) <= SECTIONS
]


@pytest.mark.parametrize("block", CLEW_YAML, ids=lambda block: block.page)
def test_settings_that_are_shown_are_accepted(block: Block, tmp_path: Path) -> None:
    """A page may show a part of a profile, and name a profile that another page shows."""
    variables = dict.fromkeys(re.findall(r"(?:\$\{|api_key_env: )(\w+)", block.code), "x" * 43)
    shown = yaml.safe_load(block.code)
    profiles = shown.setdefault("profiles", {}) if "profile:" in block.code else shown.get("profiles", {})
    for name in re.findall(r" profile: (\w+)", block.code):
        profiles.setdefault(name, {})
    for profile in profiles.values():
        profile.setdefault("driver", "offline")
    (tmp_path / "clew.yaml").write_text(yaml.safe_dump(shown))
    assert load_settings(variables, cwd=tmp_path).config_file == tmp_path / "clew.yaml"


def commands() -> Iterator[tuple[str, str]]:
    """Command lines of `clew` in blocks of a shell, as a person types them."""
    for block in blocks("console", "sh"):
        code = block.code.replace("\\\n", " ")
        for line in code.splitlines():
            typed = line.removeprefix("$ ") if block.language == "sh" or line.startswith("$ ") else ""
            if typed:
                yield block.page, typed


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of each call of `clew` in a line."""
    lexer = shlex.shlex(re.sub(r"> ?\S+", "", line), posix=True, punctuation_chars="&|;>")
    lexer.whitespace_split = True
    part: list[str] = []
    for word in [*lexer, ";"]:
        if not set(word) <= set("&|;>"):
            part.append(word)
            continue
        while part and re.match(r"[A-Z_]+=", part[0]):
            del part[0]
        if part and part[0] == "uvx":
            del part[: part.index("clew")]
        if part and Path(part[0]).name == "clew":
            yield part[1:]
        part = []


CALLS = [(page, call) for page, line in commands() if "clew" in line for call in calls(line)]


@pytest.mark.parametrize(
    ("page", "call"), CALLS, ids=lambda one: one if isinstance(one, str) else " ".join(one)[:40]
)
def test_commands_that_are_shown_exist_with_their_options(page: str, call: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and call:
        assert call[0] in command.commands, (page, call)
        command, call = command.commands[call[0]], call[1:]
    with command.make_context(command.name, [*call]):  # raises for an option that it does not have
        pass


def test_the_front_page_is_read_in_two_minutes() -> None:
    """200 words a minute, and a code block as long as its words."""
    words = re.findall(r"[\w'/.-]+", (ROOT / "docs/index.md").read_text("utf-8"))
    assert len(words) <= 400, len(words)
