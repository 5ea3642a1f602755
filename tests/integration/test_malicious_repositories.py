"""Work trees whose git configuration names programs: none of them is started, whatever Clew asks git there."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from clew.apps.coding.ports import Commit
from clew.apps.coding.worktrees.commits import GitCommits
from clew.apps.coding.worktrees.git import GitWorktree, GitWorktrees
from clew.domain.errors import Permanent
from tests.malicious_repositories import TRAPS, Trap, script, springs, touch
from tests.repositories import git, repository
from tests.samples import NOW

pytestmark = pytest.mark.anyio


_QUICK = ("clean filter", "hooks", "core.fsmonitor", "lazy fetch, ext::", "submodule")
COMMITTED = [name if name in _QUICK else pytest.param(name, marks=pytest.mark.long) for name in TRAPS]


@pytest.fixture(params=TRAPS)
def name(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def trap(name: str) -> Trap:
    return TRAPS[name]


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    return tmp_path / "ran"


async def asked(worktree: GitWorktree) -> None:
    """Everything git is ever asked. It may fail, as where an object or the git folder is gone."""
    with suppress(Permanent):
        base = await worktree.base()
        await worktree.files()
        await worktree.changes(base)


def sprung(marker: Path) -> bool:
    return marker.exists()


def planted(trap: Trap, shop: Path, marker: Path) -> Path:
    trap.plant(shop, script(marker.parent, marker))
    touch(shop)
    marker.unlink(missing_ok=True)  # setting it may have sprung it
    return shop


@pytest.mark.fault("X2")
async def test_nothing_that_is_planted_is_run(tmp_path: Path, marker: Path, trap: Trap) -> None:
    shop = planted(trap, repository(tmp_path / "shop"), marker)
    found = GitWorktrees((), {**_environment(), "HOME": str(tmp_path)})
    await asked(await found.find(str(shop)))
    assert not sprung(marker)


async def test_nor_what_is_planted_while_a_workflow_is_under_way(
    tmp_path: Path, marker: Path, trap: Trap
) -> None:
    shop = repository(tmp_path / "shop")
    worktree = await GitWorktrees((), {**_environment(), "HOME": str(tmp_path)}).find(str(shop))
    await asked(worktree)
    planted(trap, shop, marker)
    await asked(worktree)
    assert not sprung(marker)


@pytest.mark.parametrize("name", COMMITTED)
async def test_nor_when_what_is_there_is_committed_and_pushed(
    tmp_path: Path, marker: Path, name: str
) -> None:
    trap = TRAPS[name]
    remote = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    shop = planted(trap, repository(tmp_path / "shop"), marker)
    worktree = await GitWorktrees((), {**_environment(), "HOME": str(tmp_path)}).find(str(shop))
    with suppress(Permanent):
        base = await worktree.base()
        commits = GitCommits(worktree, {})
        tree, _ = await commits.tree(base)
        branch = await commits.free_branch("A-1", base, taken=await commits.remote_branches(str(remote), ""))
        what = Commit(base=base, tree=tree, branch=branch, message="m", author="A <a@b>", at=NOW)
        made = await commits.commit(what)
        await commits.push(str(remote), "", commit=made, branch=branch)
    assert not sprung(marker)


def test_git_itself_falls_for_each_of_them(tmp_path: Path, marker: Path, trap: Trap) -> None:
    assert springs(trap, planted(trap, repository(tmp_path / "shop"), marker), marker)


def _environment() -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"]}  # noqa: TID251 - a child's
