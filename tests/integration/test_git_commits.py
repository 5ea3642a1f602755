"""Commits of a worktree's changes on real repositories: what is in them, where they go, and what refuses them."""

import os
from pathlib import Path

import pytest

from clew.apps.coding.ports import Commit
from clew.apps.coding.publishing import token_for
from clew.apps.coding.worktrees.commits import GitCommits, transport_of
from clew.apps.coding.worktrees.git import GitWorktrees
from clew.domain.errors import Permanent, Transient
from tests.repositories import git, repository
from tests.samples import NOW

pytestmark = pytest.mark.anyio

BRANCH = "clew/A-1"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return repository(tmp_path / "shop")


async def commits_of(shop: Path) -> GitCommits:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}  # noqa: TID251 - a child's
    return GitCommits(await GitWorktrees((), environment).find(str(shop)), {})


async def wanted(commits: GitCommits) -> Commit:
    base = await commits.worktree.base()
    tree, _ = await commits.tree(base)
    return Commit(
        base=base, tree=tree, branch=BRANCH, message="A-1: Mend it\n", author="Ann <ann@b.c>", at=NOW
    )


class TestCommit:
    async def test_it_has_what_was_made_changed_renamed_and_deleted(self, shop: Path) -> None:
        (shop / "gone.txt").write_text("gone\n")
        (shop / "run.sh").write_text("#!/bin/sh\n")
        (shop / ".gitignore").write_text("*.log\n")
        git(shop, "add", ".")
        git(shop, "commit", "--quiet", "-m", "Files")
        (shop / "gone.txt").unlink()
        (shop / "run.sh").chmod(0o755)
        (shop / "README.md").rename(shop / "LIESMICH.md")
        (shop / "ü ß").mkdir()
        (shop / "ü ß" / "new.txt").write_text("new\n")
        (shop / "a.log").write_text("ignored\n")
        (shop / "link").symlink_to("run.sh")
        commits = await commits_of(shop)
        made = await commits.commit(await wanted(commits))
        changed = git(shop, "-c", "core.quotePath=false", "show", "--format=", "--raw", "-M", "HEAD")
        assert [line.split(" ", 4)[4].split("\t", 1) for line in changed.splitlines()] == [
            ["R100", "README.md\tLIESMICH.md"],
            ["D", "gone.txt"],
            ["A", "link"],
            ["M", "run.sh"],
            ["A", "ü ß/new.txt"],
        ]
        assert git(shop, "log", "-1", "--format=%H %an <%ae> %cn %s %ct").strip() == (
            f"{made} Ann <ann@b.c> Ann A-1: Mend it {int(NOW.timestamp())}"
        )
        assert git(shop, "status", "--porcelain", "--branch").splitlines() == [f"## {BRANCH}"]
        assert git(shop, "rev-parse", "main") == git(shop, "rev-parse", f"{BRANCH}~1")

    async def test_made_twice_it_is_the_same_one(self, shop: Path) -> None:
        (shop / "new.txt").write_text("new\n")
        commits = await commits_of(shop)
        what = await wanted(commits)
        made = await commits.commit(what)
        assert await commits.commit(what) == made
        assert git(shop, "rev-list", "--count", BRANCH).strip() == "2"

    async def test_what_was_staged_and_then_changed_is_in_it_as_it_is_on_the_disk(self, shop: Path) -> None:
        (shop / "new.txt").write_text("staged\n")
        git(shop, "add", "new.txt")
        (shop / "new.txt").write_text("on the disk\n")
        (shop / "README.md").write_text("staged\n")
        git(shop, "add", "README.md")
        (shop / "README.md").write_text("# Sample\n")
        commits = await commits_of(shop)
        await commits.commit(await wanted(commits))
        assert git(shop, "show", "HEAD:new.txt") == "on the disk\n"
        assert git(shop, "show", "HEAD:README.md") == "# Sample\n"
        assert git(shop, "status", "--porcelain") == ""

    async def test_the_first_one_of_a_repository_has_no_parent(self, tmp_path: Path) -> None:
        shop = repository(tmp_path / "new", commits=False)
        (shop / "a.txt").write_text("a\n")
        commits = await commits_of(shop)
        await commits.commit(await wanted(commits))
        assert git(shop, "rev-list", "--count", "HEAD").strip() == "1"
        assert git(shop, "status", "--porcelain") == ""

    async def test_a_linked_work_tree_has_its_own_branch(self, tmp_path: Path, shop: Path) -> None:
        git(shop, "worktree", "add", "--quiet", str(tmp_path / "linked"), "-b", "side")
        (tmp_path / "linked" / "a.txt").write_text("a\n")
        commits = await commits_of(tmp_path / "linked")
        await commits.commit(await wanted(commits))
        assert git(tmp_path / "linked", "branch", "--show-current").strip() == BRANCH
        assert git(shop, "branch", "--show-current").strip() == "main"
        assert git(tmp_path / "linked", "status", "--porcelain") == ""

    async def test_files_that_changed_after_it_was_shown_are_not_committed(self, shop: Path) -> None:
        (shop / "a.txt").write_text("shown\n")
        commits = await commits_of(shop)
        what = await wanted(commits)
        (shop / "a.txt").write_text("not shown\n")
        with pytest.raises(Permanent, match="changed after the approval"):
            await commits.commit(what)
        assert git(shop, "branch", "--list", BRANCH) == ""

    async def test_a_branch_with_other_commits_is_left_alone(self, shop: Path) -> None:
        git(shop, "switch", "--quiet", "-c", BRANCH)
        git(shop, "commit", "--quiet", "--allow-empty", "-m", "Other")
        git(shop, "switch", "--quiet", "main")
        (shop / "a.txt").write_text("a\n")
        commits = await commits_of(shop)
        with pytest.raises(Permanent, match="has other commits"):
            await commits.commit(await wanted(commits))
        assert await commits.free_branch("A-1", await commits.worktree.base(), taken=["clew/A-1-2"]) == (
            "clew/A-1-3"
        )

    async def test_while_another_git_is_at_work_it_waits(self, shop: Path) -> None:
        (shop / "a.txt").write_text("a\n")
        (shop / ".git" / "index.lock").write_text("")
        commits = await commits_of(shop)
        what = await wanted(commits)
        with pytest.raises(Transient, match="another git"):
            await commits.commit(what)
        (shop / ".git" / "index.lock").unlink()
        await commits.commit(what)
        assert git(shop, "status", "--porcelain") == ""

    async def test_files_behind_a_filter_are_refused(self, shop: Path) -> None:
        (shop / ".gitattributes").write_text("*.bin filter=lfs\n")
        (shop / "a.bin").write_bytes(b"\0large")
        commits = await commits_of(shop)
        with pytest.raises(Permanent, match=r"a\.bin is kept with a git filter"):
            await wanted(commits)

    async def test_a_state_that_names_no_commit_gives_git_no_option(self, tmp_path: Path, shop: Path) -> None:
        commits = await commits_of(shop)
        with pytest.raises(Permanent, match="name of a commit"):
            await commits.patch(f"--output={tmp_path / 'written'}")
        with pytest.raises(Permanent, match="name of a commit"):
            await commits.worktree.changes(f"--output={tmp_path / 'written'}")
        assert not (tmp_path / "written").exists()

    async def test_a_patch_leaves_nothing_in_the_repository(self, shop: Path) -> None:
        (shop / "a.txt").write_text("a\n")
        commits = await commits_of(shop)
        before = git(shop, "count-objects", "-v"), git(shop, "status", "--porcelain")
        patch = await commits.patch(await commits.worktree.base())
        assert (patch.files, patch.is_cut) == (("a.txt",), False)
        assert "+++ b/a.txt\n@@ -0,0 +1 @@\n+a\n" in patch.text
        assert (git(shop, "count-objects", "-v"), git(shop, "status", "--porcelain")) == before


class TestPush:
    @pytest.fixture
    def remote(self, tmp_path: Path) -> Path:
        git(tmp_path, "init", "--quiet", "--bare", "remote.git")
        return tmp_path / "remote.git"

    async def test_a_branch_with_other_commits_there_is_not_overwritten(
        self, tmp_path: Path, shop: Path, remote: Path
    ) -> None:
        other = repository(tmp_path / "other")
        git(other, "push", "--quiet", str(remote), f"main:{BRANCH}")
        (shop / "a.txt").write_text("a\n")
        commits = await commits_of(shop)
        assert await commits.remote_branches(str(remote), "") == [BRANCH]
        git(shop, "commit", "--quiet", "--allow-empty", "--amend", "-m", "Another beginning")
        made = await commits.commit(await wanted(commits))
        with pytest.raises(Permanent, match="other commits"):
            await commits.push(str(remote), "", commit=made, branch=BRANCH)

    async def test_a_remote_that_is_not_there_is_said_so_without_a_token(self, shop: Path) -> None:
        commits = await commits_of(shop)
        with pytest.raises(Transient, match="cannot be reached") as failed:
            await commits.remote_branches("http://127.0.0.1:1/shop.git", "a-token")
        assert "a-token" not in str(failed.value)

    async def test_the_repository_s_own_words_for_a_remote_are_not_used(
        self, tmp_path: Path, shop: Path, remote: Path
    ) -> None:
        git(shop, "config", f"url.{tmp_path / 'elsewhere'}.insteadOf", str(remote))
        commits = await commits_of(shop)
        (shop / "a.txt").write_text("a\n")
        made = await commits.commit(await wanted(commits))
        await commits.push(str(remote), "", commit=made, branch=BRANCH)
        await commits.push(str(remote), "", commit=made, branch=BRANCH)
        assert git(remote, "rev-parse", BRANCH).strip() == made


@pytest.mark.parametrize(
    ("remote", "transport"),
    [("https://a/b", "https"), ("ssh://a/b", "ssh"), ("git@a:b/c.git", "ssh"), ("/srv/a.git", "file")],
)
def test_one_transport_is_open(remote: str, transport: str) -> None:
    assert transport_of(remote) == transport


@pytest.mark.parametrize(
    ("remote", "api", "is_sent"),
    [
        ("https://github.com/a/b.git", "https://api.github.com", True),
        ("https://git.example.com/a/b.git", "https://git.example.com/api/v3", True),
        ("https://evil.example.com/a/b.git", "https://api.github.com", False),
        ("https://github.com.evil.example/a/b.git", "https://api.github.com", False),
        ("http://github.com/a/b.git", "https://api.github.com", False),
        ("git@github.com:a/b.git", "https://api.github.com", False),
        ("/srv/b.git", "https://api.github.com", False),
    ],
)
def test_the_token_goes_to_the_same_github_alone(remote: str, api: str, is_sent: bool) -> None:
    assert token_for(remote, api, "a-token") == ("a-token" if is_sent else "")
