"""Real git repositories: which folder is meant, what changed in it, and that nothing of it leads out or runs."""

import os
from pathlib import Path

import pytest

from clew.apps.coding.ports import Edits
from clew.apps.coding.worktrees.git import GitWorktree, GitWorktrees
from clew.domain.errors import Invalid
from tests.repositories import git, repository

pytestmark = pytest.mark.anyio


def worktrees(*roots: Path) -> GitWorktrees:
    path = os.environ["PATH"]  # noqa: TID251 - a child's
    return GitWorktrees(roots, {"PATH": path, "HOME": "/nonexistent", "CLEW_SECRET": "x"})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return repository(tmp_path / "code" / "shop")


@pytest.fixture
async def worktree(shop: Path) -> GitWorktree:
    return await worktrees().find(str(shop))


async def refusal(path: str, *roots: Path) -> str:
    with pytest.raises(Invalid) as refused:
        await worktrees(*roots).find(path)
    assert refused.value.field == "worktreePath"
    return str(refused.value)


class TestFinding:
    async def test_every_name_of_a_folder_is_the_same_name(self, tmp_path: Path, shop: Path) -> None:
        (tmp_path / "link").symlink_to(shop)
        (tmp_path / "linked").symlink_to(shop.parent)
        names = [f"{shop}/", f"{shop}/.", f"{shop}/../shop", f"/{shop}", f"{shop.parent}//shop"]
        names += [str(tmp_path / "link"), str(tmp_path / "linked" / "shop")]
        found = [await worktrees().find(name) for name in [str(shop), *names]]
        assert {one.path for one in found} == {str(shop)}
        assert {one.name for one in found} == {"shop"}

    @pytest.mark.parametrize("path", ["", "shop", "./shop", "~/shop", "C:\\shop", "file:///x"])
    async def test_a_path_that_is_not_absolute_is_refused(self, path: str) -> None:
        assert "absolute" in await refusal(path)

    @pytest.mark.parametrize("path", ["/a\0b", "/a\nb", "/" + "x" * 5000])
    async def test_a_path_that_is_no_text_is_refused(self, path: str) -> None:
        assert "printable" in await refusal(path)

    async def test_what_is_not_there_or_no_work_tree_is_refused(self, tmp_path: Path, shop: Path) -> None:
        (tmp_path / "plain").mkdir()
        git(tmp_path, "init", "--quiet", "--bare", "bare.git")
        (shop / "src").mkdir()
        assert "does not exist" in await refusal(str(tmp_path / "none"))
        assert "not a folder" in await refusal(str(shop / "README.md"))
        assert "not a git work tree" in await refusal(str(tmp_path / "plain"))
        assert "not a git work tree" in await refusal(str(tmp_path / "bare.git"))
        assert "not a git work tree" in await refusal(str(shop / ".git"))
        assert "the top of it" in await refusal(str(shop / "src"))

    @pytest.mark.fault("X2")
    async def test_outside_of_the_roots_nothing_is_even_looked_at(self, tmp_path: Path, shop: Path) -> None:
        root = tmp_path / "code"
        repository(tmp_path / "elsewhere")
        (root / "out").symlink_to(tmp_path / "elsewhere")
        assert (await worktrees(root).find(str(shop))).path == str(shop)
        outside = [tmp_path / "elsewhere", root / "out", root / ".." / "elsewhere", tmp_path / "none"]
        assert {await refusal(str(path), root) for path in outside} == {
            "it is not under one of the folders that coding.roots allows"
        }
        assert "roots" in await refusal(f"{root}-elsewhere", root)

    async def test_a_root_may_be_a_link_itself(self, tmp_path: Path, shop: Path) -> None:
        (tmp_path / "mine").symlink_to(tmp_path / "code")
        assert (await worktrees(tmp_path / "mine").find(str(shop))).path == str(shop)

    async def test_a_linked_work_tree_is_one_of_its_own(self, tmp_path: Path, shop: Path) -> None:
        git(shop, "worktree", "add", "--quiet", str(tmp_path / "code" / "second"))
        second = await worktrees(tmp_path / "code").find(str(tmp_path / "code" / "second"))
        assert second.path != str(shop)
        assert second.git_dir != (await worktrees().find(str(shop))).git_dir

    @pytest.mark.fault("X2")
    async def test_a_git_folder_outside_of_the_roots_is_refused(self, tmp_path: Path, shop: Path) -> None:
        repository(tmp_path / "elsewhere")
        git(tmp_path / "elsewhere", "worktree", "add", "--quiet", str(tmp_path / "code" / "second"))
        assert "roots" in await refusal(str(tmp_path / "code" / "second"), tmp_path / "code")

    async def test_objects_or_refs_outside_of_the_roots_are_refused(self, tmp_path: Path, shop: Path) -> None:
        elsewhere = repository(tmp_path / "elsewhere")
        root = tmp_path / "code"
        alternates = shop / ".git" / "objects" / "info" / "alternates"
        alternates.write_text(f"{elsewhere}/.git/objects\n")
        assert "roots" in await refusal(str(shop), root)
        assert (await worktrees().find(str(shop))).path == str(shop)
        alternates.unlink()
        (shop / ".git" / "commondir").write_text(f"{elsewhere}/.git\n")
        assert "roots" in await refusal(str(shop), root)

    @pytest.mark.parametrize(
        "text", ["", "gitdir: ", "gitdir: nowhere", "nonsense", "gitdir: a\0b", "x" * 2**21]
    )
    async def test_a_git_file_that_leads_nowhere_is_refused(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "odd").mkdir()
        (tmp_path / "odd" / ".git").write_text(text)
        assert "not a git work tree" in await refusal(str(tmp_path / "odd"))

    async def test_a_configuration_that_git_cannot_read_is_refused(self, shop: Path) -> None:
        (shop / ".git" / "config").write_text("[core\n")
        assert "configuration" in await refusal(str(shop))
        (shop / ".git" / "config").unlink()
        os.mkfifo(shop / ".git" / "config")
        assert "plain file" in await refusal(str(shop))


class TestOrdinaryRepositories:
    """What a repository's own settings say about its files still counts; the rest is not read."""

    async def changed(self, shop: Path) -> set[str]:
        found = await worktrees().find(str(shop))
        return set((await found.changes(await found.base())).files)

    async def test_settings_of_every_day_do_no_harm(self, shop: Path) -> None:
        settings = {
            "user.name": "Ann",
            "remote.origin.url": "https://example.com/shop.git",
            "remote.origin.fetch": "+refs/heads/*:refs/remotes/origin/*",
            "branch.main.merge": "refs/heads/main",
            "core.hooksPath": ".husky/_",
            "core.sshCommand": "ssh -i key",
            "filter.lfs.clean": "git-lfs clean -- %f",
            "filter.lfs.required": "true",
        }
        for name, value in settings.items():
            git(shop, "config", name, value)
        (shop / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
        (shop / "a.bin").write_bytes(b"\1\2")
        (shop / "README.md").write_text("more\n")
        assert await self.changed(shop) == {"README.md", ".gitattributes", "a.bin"}

    async def test_a_linked_work_tree_has_its_own_index_and_commit(self, tmp_path: Path, shop: Path) -> None:
        second = tmp_path / "code" / "second"
        git(shop, "worktree", "add", "--quiet", "-b", "other", str(second))
        (second / "kept.txt").write_text("kept\n")
        git(second, "add", "kept.txt")
        git(second, "commit", "--quiet", "-m", "Second")
        (second / "new.txt").write_text("new\n")
        found = await worktrees(tmp_path / "code").find(str(second))
        assert await found.base() == git(second, "rev-parse", "HEAD").strip()
        assert await found.base() != git(shop, "rev-parse", "HEAD").strip()
        assert set(await found.files()) == {"README.md", "kept.txt", "new.txt"}
        assert await self.changed(second) == {"new.txt"}
        assert await self.changed(shop) == set()

    async def test_commits_are_found_in_packed_refs_and_by_a_detached_head(self, shop: Path) -> None:
        head = git(shop, "rev-parse", "HEAD").strip()
        git(shop, "pack-refs", "--all")
        git(shop, "gc", "--quiet")
        assert await (await worktrees().find(str(shop))).base() == head
        git(shop, "checkout", "--quiet", "--detach")
        assert await (await worktrees().find(str(shop))).base() == head

    async def test_how_files_are_compared_is_the_repository_s(self, shop: Path) -> None:
        git(shop, "config", "core.fileMode", "false")
        git(shop, "config", "core.autocrlf", "true")
        (shop / "README.md").chmod(0o755)
        (shop / "README.md").write_bytes(b"# Sample\r\n")
        assert await self.changed(shop) == set()
        git(shop, "config", "core.fileMode", "true")
        assert await self.changed(shop) == {"README.md"}

    async def test_what_the_repository_leaves_out_is_left_out(self, tmp_path: Path, shop: Path) -> None:
        (shop / ".git" / "info").mkdir(exist_ok=True)
        (shop / ".git" / "info" / "exclude").write_text("*.log\n")
        (shop / "a.log").write_text("x")
        (shop / "b.txt").write_text("x")
        assert await self.changed(shop) == {"b.txt"}

    async def test_a_split_index_and_a_longer_hash_are_read(self, tmp_path: Path, shop: Path) -> None:
        git(shop, "update-index", "--split-index")
        (shop / "README.md").write_text("more\n")
        assert await self.changed(shop) == {"README.md"}
        long = tmp_path / "long"
        long.mkdir()
        git(long, "init", "--quiet", "--object-format=sha256")
        (long / "a.txt").write_text("a\n")
        git(long, "add", "a.txt")
        git(long, "commit", "--quiet", "-m", "First")
        (long / "a.txt").write_text("b\n")
        assert await self.changed(long) == {"a.txt"}
        assert len(await (await worktrees().find(str(long))).base()) == 64

    async def test_git_in_the_work_tree_itself_is_not_the_git_that_is_asked(
        self, tmp_path: Path, shop: Path
    ) -> None:
        (shop / "git").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (shop / "git").chmod(0o755)
        path = os.environ["PATH"]  # noqa: TID251 - a child's
        found = await GitWorktrees((), {"PATH": f".::{path}"}).find(str(shop))
        assert "git" in await found.files()
        assert not (tmp_path / "ran").exists()


class TestChanges:
    async def test_new_changed_and_committed_files_are_all_seen(
        self, shop: Path, worktree: GitWorktree
    ) -> None:
        base = await worktree.base()
        assert (await worktree.changes(base)).files == ()
        (shop / "README.md").write_text("# Sample\n\nmore\n")
        (shop / "new é.txt").write_text("new\n")
        (shop / "kept.txt").write_text("kept\n")
        git(shop, "add", "kept.txt")
        git(shop, "commit", "--quiet", "-m", "Second")
        changes = await worktree.changes(base)
        assert set(changes.files) == {"README.md", "new é.txt", "kept.txt"}
        assert all(text in changes.text for text in ("+more", "+kept", "new file new é.txt\nnew"))

    async def test_every_byte_counts_also_of_what_is_not_shown(
        self, shop: Path, worktree: GitWorktree
    ) -> None:
        base = await worktree.base()
        seen = set()
        for content in (b"a\0b", b"a\0c", b"x" * 300_000, b"x" * 300_001):
            (shop / "new.bin").write_bytes(content)
            seen.add((await worktree.changes(base)).fingerprint)
        assert len(seen) == 4

    async def test_what_git_ignores_is_not_seen(self, shop: Path, worktree: GitWorktree) -> None:
        base = await worktree.base()
        (shop / ".gitignore").write_text("*.log\n")
        (shop / "a.log").write_text("x")
        assert (await worktree.changes(base)).files == (".gitignore",)
        assert "a.log" not in await worktree.files()

    async def test_a_repository_without_a_commit_has_everything_new(self, tmp_path: Path) -> None:
        empty = await worktrees().find(str(repository(tmp_path / "empty", commits=False)))
        (tmp_path / "empty" / "a.txt").write_text("a\n")
        assert (await empty.changes(await empty.base())).files == ("a.txt",)

    async def test_a_link_is_named_and_not_followed(
        self, tmp_path: Path, shop: Path, worktree: GitWorktree
    ) -> None:
        (tmp_path / "secret").write_text("the secret")
        (shop / "link").symlink_to(tmp_path / "secret")
        changes = await worktree.changes(await worktree.base())
        assert changes.files == ("link",)
        assert "the secret" not in changes.text

    @pytest.mark.fault("X2")
    async def test_nothing_a_repository_names_is_run(
        self, tmp_path: Path, shop: Path, worktree: GitWorktree
    ) -> None:
        base = await worktree.base()
        canary = tmp_path / "ran"
        script = tmp_path / "script"
        script.write_text(f"#!/bin/sh\ntouch {canary}\n")
        script.chmod(0o755)
        for name in ("core.fsmonitor", "diff.external", "core.pager", "diff.x.textconv", "diff.x.command"):
            git(shop, "config", name, str(script))
        (shop / ".gitattributes").write_text("* diff=x\n")
        for hook in ("post-index-change", "reference-transaction", "post-checkout"):
            (shop / ".git" / "hooks" / hook).write_text(script.read_text())
            (shop / ".git" / "hooks" / hook).chmod(0o755)
        (shop / "README.md").write_text("changed\n")
        await worktree.changes(base)
        await worktree.files()
        await worktrees().find(str(shop))
        assert not canary.exists()


class TestWriting:
    async def test_files_are_written_whole_in_folders_that_are_made(
        self, shop: Path, worktree: GitWorktree
    ) -> None:
        await worktree.apply(Edits(write={"a/b/c.txt": "one\r\n"}, over={}))
        await worktree.apply(Edits(write={"a/b/c.txt": "two\n"}, over={"a/b/c.txt": "one\r\n"}))
        assert (shop / "a/b/c.txt").read_bytes() == b"two\n"
        assert await worktree.read("a/b/c.txt") == "two\n"
        assert [path.name for path in (shop / "a/b").iterdir()] == ["c.txt"]

    async def test_a_file_stays_executable(self, shop: Path, worktree: GitWorktree) -> None:
        (shop / "run.sh").write_text("#!/bin/sh\n")
        (shop / "run.sh").chmod(0o755)
        await worktree.apply(Edits(write={"run.sh": "#!/bin/sh\necho\n"}, over={"run.sh": "#!/bin/sh\n"}))
        assert (shop / "run.sh").stat().st_mode & 0o777 == 0o755

    @pytest.mark.fault("X2")
    @pytest.mark.parametrize("path", ["../out.txt", "/etc/x", ".git/config", "out/x.txt", "there"])
    async def test_nothing_is_written_outside(
        self, tmp_path: Path, shop: Path, worktree: GitWorktree, path: str
    ) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "there").write_text("keep")
        (shop / "out").symlink_to(outside)
        (shop / "there").symlink_to(outside / "there")
        with pytest.raises(Invalid):
            await worktree.apply(Edits(write={path: "mine now"}, over={}))
        assert [(one.name, one.read_text()) for one in outside.iterdir()] == [("there", "keep")]

    @pytest.mark.parametrize("over", [{}, {"README.md": "as it once was\n"}, {"gone.txt": "was here"}])
    async def test_a_file_that_is_not_as_its_writer_knows_it_is_not_replaced(
        self, shop: Path, worktree: GitWorktree, over: dict[str, str]
    ) -> None:
        with pytest.raises(Invalid):
            await worktree.apply(
                Edits(write={"a.txt": "a", "README.md": "new\n", "gone.txt": "x"}, over=over)
            )
        assert git(shop, "status", "--porcelain") == ""

    async def test_nothing_is_read_through_a_link(
        self, tmp_path: Path, shop: Path, worktree: GitWorktree
    ) -> None:
        (tmp_path / "secret").write_text("the secret")
        (shop / "link").symlink_to(tmp_path / "secret")
        os.mkfifo(shop / "pipe")
        assert await worktree.read("link") is None
        assert await worktree.read("../../secret") is None
        assert await worktree.read("pipe") is None
