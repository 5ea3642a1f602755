"""Where agents come from: our own, installed packages, a folder; broken ones, and two of one name."""

import re
from pathlib import Path

import pytest

from clew.apps.chat.agents.registry import AgentRegistry, NotAnAgent, find_agents
from clew.apps.chat.offline.rules import RULES
from clew.apps.drivers.offline import OfflineDriver
from clew.domain.errors import ConfigError, NotFound
from tests.tasks import ScriptedDriver, task, text

GOOD = """
class Echo:
    name = "echo"
    description = "Says what it was told."

    async def process_task(self, task):
        return {"feedback": task["prompt"], "documents": []}
"""
TAKES_A_DRIVER = GOOD.replace(
    "    async def", "    def __init__(self, driver):\n        self.driver = driver\n\n    async def"
)


def folder_of(tmp_path: Path, **files: str) -> Path:
    for name, source in files.items():
        (tmp_path / f"{name}.py").write_text(source)
    return tmp_path


@pytest.mark.accept("004-28")
@pytest.mark.anyio
async def test_a_file_in_the_folder_is_an_agent(tmp_path: Path) -> None:
    registry = find_agents(folder_of(tmp_path, echo=GOOD))
    assert registry.descriptions["echo"] == "Says what it was told."
    made = registry.make("echo", OfflineDriver(RULES))
    assert (await made.process_task(task("hi")))["feedback"] == "hi"


def test_an_agent_that_takes_a_driver_gets_it(tmp_path: Path) -> None:
    driver = OfflineDriver(RULES)
    made = find_agents(folder_of(tmp_path, echo=TAKES_A_DRIVER)).make("echo", driver)
    assert made.driver is driver  # type: ignore[attr-defined]


@pytest.mark.accept("004-28")
@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("x = 1", "no class with a process_task"),
        (GOOD.replace('"echo"', '"../echo"'), "its name"),
        (GOOD.replace('"echo"', '"projectManager"'), "its name"),
        (GOOD.replace('"Says what it was told."', '""'), "what it is good for"),
        (GOOD.replace("async def", "def"), "async def process_task"),
    ],
)
def test_a_broken_one_is_named_and_the_others_are_there(tmp_path: Path, source: str, why: str) -> None:
    registry = find_agents(folder_of(tmp_path, broken=source, good=GOOD.replace("echo", "other")))
    assert "other" in registry.roles
    ((where, reason),) = registry.broken.items()
    assert where.endswith("broken.py")
    assert why in reason


@pytest.mark.accept("004-28")
@pytest.mark.parametrize("name", ["echo", "writer"])
def test_two_of_one_name_are_an_error_that_names_both(tmp_path: Path, name: str) -> None:
    source = GOOD.replace("echo", name)
    with pytest.raises(ConfigError, match=f"two agents are called '{name}'") as refused:
        find_agents(folder_of(tmp_path, one=source, two=source))
    assert "one.py" in str(refused.value)


def test_private_files_and_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    registry = find_agents(folder_of(tmp_path, _draft="raise RuntimeError"))
    assert registry.broken == {}


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a folder"):
        find_agents(tmp_path / "nowhere")


def test_an_installed_package_brings_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "brought.py").write_text(GOOD)
    info = tmp_path / "brought-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[clew.agents]\necho = brought:Echo\nlost = brought:Nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = find_agents()
    assert "echo" in registry.roles
    assert list(registry.broken) == ["brought:Nothing"]


def test_what_is_not_there_is_not_found() -> None:
    with pytest.raises(NotFound):
        AgentRegistry().make("nobody", OfflineDriver(RULES))


def test_an_object_can_be_an_agent_too() -> None:
    class Ready:
        name = "ready"
        description = "Is here."

        async def process_task(self, task: object) -> object:
            return task

    registry = AgentRegistry()
    one = Ready()
    registry.add(one, "here")
    made: object = registry.make("ready", OfflineDriver(RULES))
    assert made is one
    with pytest.raises(NotAnAgent):
        registry.add(object(), "there")


@pytest.mark.anyio
async def test_the_examples_of_the_guide_are_agents(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "howto" / "agents.md").read_text("utf-8")
    counter, critic = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    registry = find_agents(folder_of(tmp_path, counter=counter, critic=critic))
    assert registry.broken == {}
    asked = task("Count", text("a.txt", "one two", "three"), outputs=("n.txt",))
    result = await registry.make("counter", OfflineDriver(RULES)).process_task(asked)
    assert result["documents"] == [{"label": "n.txt", "content": "a: 3"}]
    driver = ScriptedDriver(lambda inquiry: f"{len(inquiry.material)} parts")
    assert (await registry.make("critic", driver).process_task(asked))["feedback"] == "2 parts"
