"""Git commits of a worktree's changes: a patch, a branch with a commit, a push. Git runs in private folders: see `gitdir`.

A commit is the same, to its name, however often it is made: a step that was killed makes it again and goes on.
"""

import asyncio
import os
import re
import shutil
from base64 import b64encode
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from clew.apps.coding.ports import Commit, TreeChanged, WorktreePatch
from clew.apps.coding.worktrees.git import GitWorktree, reason, require_object
from clew.apps.coding.worktrees.gitdir import UNBORN, make_private, read_head, variables
from clew.documents.passages import cut
from clew.domain.errors import Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.processes.run import Ended

BRANCHES = "refs/heads/"
OURS = "clew/"
MOST_DIFF = 200_000
# A HEAD that names no branch. It is not UNBORN itself: with it, the private folder has the repository's refs.
_NONE = f"{UNBORN}\n"
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_QUIET = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
_PUSH_SECONDS = 300.0
_REFUSED = re.compile(r"non-fast-forward|fetch first|\[rejected\]|stale info")
_NOT_LET_IN = re.compile(
    r"authentication failed|could not read username|permission denied|\b40[13]\b|not found", re.IGNORECASE
)
_AWAY = re.compile(
    r"could not resolve|connection|timed out|unable to access|hung up|early eof|\b50[0234]\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A private git folder whose index has all changes of the worktree."""

    index: Path
    given: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GitCommits:
    """The Commits port, of one worktree."""

    worktree: GitWorktree
    # For git that reaches a remote: proxies, certificates, an agent of ssh.
    network: Mapping[str, str]

    async def patch(self, base: str) -> WorktreePatch:
        require_object(base)
        async with self._staged(base, is_kept=False) as stage:
            return await self._patch(stage, base)

    async def tree(self, base: str) -> tuple[str, WorktreePatch]:
        """What a commit of the worktree would hold, and the patch that leads there. Raises Permanent."""
        require_object(base)
        async with self._staged(base, is_kept=False) as stage:
            return await self._tree(stage), await self._patch(stage, base)

    async def free_branch(self, issue_id: str, base: str, *, taken: Collection[str]) -> str:
        """A branch for the work on an issue: the one the worktree is on, if it is one of ours, else an unused name."""
        head = (await asyncio.to_thread(read_head, self.worktree.folders)).strip()
        current = head.removeprefix(f"ref: {BRANCHES}")
        if current != head and current.startswith(OURS) and await self._tip(current) == base:
            return current
        stem = _UNSAFE.sub("-", issue_id).strip("-") or "issue"
        known = {*taken, *await self._branches()}
        candidate, number = f"{OURS}{stem}", 2
        while candidate in known:
            candidate, number = f"{OURS}{stem}-{number}", number + 1
        return candidate

    async def commit(self, what: Commit) -> str:
        """Make the commit, and put the branch, the worktree's HEAD and its index there. Raises Permanent, TreeChanged.

        What a worktree holds that differs from `what.tree` is not committed: it was not approved.
        """
        require_object(what.base)
        reference = f"{BRANCHES}{what.branch}"
        async with self._staged(what.base, is_kept=True) as stage:
            if await self._tree(stage) != what.tree:
                raise TreeChanged(
                    "the files changed after the approval: nothing was committed", ErrorClass.VALIDATION
                )
            made = await self._made(stage, what)
            tip = await self._tip(what.branch)
            if tip not in (None, what.base, made):
                raise Permanent(
                    f"the branch {what.branch} has other commits: nothing was changed", ErrorClass.VALIDATION
                )
            if tip != made:
                old = tip or "0" * len(made)
                await self._ask(stage.given, "update-ref", "--no-deref", reference, made, old)
            await asyncio.to_thread(self._switch, f"ref: {reference}\n".encode(), stage.index)
        return made

    async def remote_branches(self, remote: str, token: str) -> list[str]:
        asked = await self._reach(remote, token, "ls-remote", "--heads", remote)
        lines = asked.out.decode(errors="replace").splitlines()
        return [line.partition("\t")[2].removeprefix(BRANCHES) for line in lines]

    async def push(self, remote: str, token: str, *, commit: str, branch: str) -> None:
        """Raises Transient where the remote cannot be reached, Permanent where it refuses. Nothing is forced."""
        require_object(commit)
        options = ("--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no")
        await self._reach(remote, token, "push", *options, remote, f"{commit}:{BRANCHES}{branch}")

    @asynccontextmanager
    async def _staged(self, base: str, *, is_kept: bool) -> AsyncGenerator[_Stage]:
        """The index with all changes. New objects go to the repository only where `is_kept`."""
        tree = self.worktree
        paths = await self._paths(base)
        with TemporaryDirectory(prefix="clew-git-") as made:
            private, index, objects = Path(made) / "git", Path(made) / "index", Path(made) / "objects"
            await asyncio.to_thread(make_private, private, tree.folders, tree.copied, refs=True)
            if tree.folders.index.exists():
                await asyncio.to_thread(shutil.copy2, tree.folders.index, index)
            given = variables(private, tree.folders, tree.folder, index)
            if not is_kept:
                objects.mkdir()
                real = str(tree.folders.objects).replace("\\", "\\\\").replace('"', '\\"')
                given |= {
                    "GIT_OBJECT_DIRECTORY": str(objects),
                    "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{real}"',
                }
            listed = b"".join(path + b"\0" for path in paths)
            await self._require_no_filters(given, listed)
            await self._ask(given, "update-index", "--add", "--remove", "-z", "--stdin", stdin=listed)
            yield _Stage(index, given)

    async def _paths(self, base: str) -> list[bytes]:
        """The files that differ from the commit, in the index or on the disk. A repository in the worktree is none."""
        found: dict[bytes, None] = {}
        for arguments in (
            ("diff", *_QUIET, "--name-only", "--no-renames", "-z", base, "--"),
            ("diff", *_QUIET, "--cached", "--name-only", "--no-renames", "-z", base, "--"),
            ("ls-files", "-z", "--others", "--exclude-standard"),
        ):
            asked = await self.worktree.git.ask(self.worktree, *arguments)
            if asked.code:
                raise Permanent(f"git {arguments[0]} failed: {reason(asked)}", ErrorClass.INTERNAL)
            found |= dict.fromkeys(path for path in asked.out.split(b"\0") if path)
        return [path for path in found if not path.endswith(b"/")]

    async def _require_no_filters(self, given: Mapping[str, str], listed: bytes) -> None:
        """Raises Permanent for files that a filter would change on their way into a commit: none is run."""
        asked = await self._ask(given, "check-attr", "-z", "--stdin", "filter", stdin=listed)
        fields = asked.split(b"\0")
        found = [
            path.decode(errors="replace")
            for path, value in zip(fields[::3], fields[2::3], strict=False)
            if value not in (b"unspecified", b"unset")
        ]
        if found:
            raise Permanent(
                f"{found[0]} is kept with a git filter, and Clew runs none: commit the changes yourself",
                ErrorClass.VALIDATION,
            )

    async def _tree(self, stage: _Stage) -> str:
        return (await self._ask(stage.given, "write-tree")).decode().strip()

    async def _patch(self, stage: _Stage, base: str) -> WorktreePatch:
        names = await self._ask(stage.given, "diff", *_QUIET, "--cached", "--name-only", "-z", base, "--")
        text = (await self._ask(stage.given, "diff", *_QUIET, "--cached", base, "--")).decode(
            errors="replace"
        )
        return WorktreePatch(
            files=tuple(_decoded(names)), text=cut(text, MOST_DIFF), is_cut=len(text) > MOST_DIFF, base=base
        )

    async def _made(self, stage: _Stage, what: Commit) -> str:
        """The commit object. Its time is that of the approval."""
        name, _, address = what.author.rpartition(" <")
        when = f"{int(what.at.timestamp())} +0000"
        people = {
            f"GIT_{role}_{part}": value
            for role in ("AUTHOR", "COMMITTER")
            for part, value in (("NAME", name), ("EMAIL", address.rstrip(">")), ("DATE", when))
        }
        is_commit = (await self._ask(stage.given, "cat-file", "-t", what.base)).strip() == b"commit"
        parents = ("-p", what.base) if is_commit else ()
        made = await self._ask(
            {**stage.given, **people}, "commit-tree", what.tree, *parents, stdin=what.message.encode()
        )
        return made.decode().strip()

    def _switch(self, head: bytes, index: Path) -> None:
        """HEAD and index as `git switch` leaves them, each in one step. A lock of an attempt that was killed is ours."""
        try:
            _replace(self.worktree.git_dir / "HEAD", head)
            _replace(self.worktree.folders.index, index.read_bytes())
        except FileExistsError as exc:
            raise Transient("another git is at work in the worktree", ErrorClass.CLI_TIMEOUT) from exc
        except OSError as exc:
            raise Permanent(f"the branch cannot be checked out: {exc.strerror}", ErrorClass.INTERNAL) from exc

    async def _tip(self, branch: str) -> str | None:
        asked = await self.worktree.git.ask(
            self.worktree, "rev-parse", "--verify", "--quiet", f"{BRANCHES}{branch}^{{commit}}", head=_NONE
        )
        return None if asked.code else asked.out.decode().strip()

    async def _branches(self) -> list[str]:
        asked = await self.worktree.git.ask(
            self.worktree, "for-each-ref", "--format=%(refname)", BRANCHES, head=_NONE
        )
        return [line.removeprefix(BRANCHES) for line in asked.out.decode(errors="replace").splitlines()]

    async def _ask(self, given: Mapping[str, str], *arguments: str, stdin: bytes = b"") -> bytes:
        asked = await self.worktree.git.call(self.worktree.folder, given, *arguments, given=stdin)
        if asked.code:
            raise Permanent(f"git {arguments[0]} failed: {reason(asked)}", ErrorClass.INTERNAL)
        return asked.out

    async def _reach(self, remote: str, token: str, *arguments: str) -> Ended:
        """Git with the one transport that the remote's address names. Raises Transient, Permanent."""
        tree = self.worktree
        with TemporaryDirectory(prefix="clew-git-") as made:
            private = Path(made) / "git"
            await asyncio.to_thread(make_private, private, tree.folders, tree.copied, refs=True)
            given = {
                **variables(private, tree.folders, tree.folder, tree.folders.index),
                **self.network,
                **_settings(remote, token),
                "GIT_ALLOW_PROTOCOL": transport_of(remote),
                "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            }
            asked = await tree.git.call(tree.folder, given, *arguments, seconds=_PUSH_SECONDS)
        if asked.code:
            raise _failed(asked, arguments[0])
        return asked


def transport_of(remote: str) -> str:
    scheme = urlsplit(remote).scheme if "://" in remote else ""
    return scheme or ("file" if remote.startswith("/") else "ssh")


def _settings(remote: str, token: str) -> dict[str, str]:
    """Settings of one call, in variables: they are in no file and in no list of processes."""
    settings = [("http.followRedirects", "false")]
    if token and remote.startswith("http"):
        both = b64encode(f"x-access-token:{token}".encode()).decode()
        settings.append((f"http.{remote}.extraHeader", f"Authorization: Basic {both}"))
    given = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        given |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return given


def _failed(asked: Ended, what: str) -> Transient | Permanent:
    said = (asked.out + asked.err).decode(errors="replace")
    if _REFUSED.search(said):
        return Permanent(
            "the remote has other commits on this branch: nothing was pushed", ErrorClass.VALIDATION
        )
    if _NOT_LET_IN.search(said):
        return Permanent(f"git {what}: the remote does not let us in", ErrorClass.AUTH)
    if _AWAY.search(said):
        return Transient(f"git {what}: the remote cannot be reached", ErrorClass.NETWORK_TIMEOUT)
    return Permanent(f"git {what} failed: {reason(asked)}", ErrorClass.INTERNAL)


def _replace(path: Path, content: bytes) -> None:
    """As git does it: by a lock beside it that takes its place. Raises FileExistsError while another has the lock."""
    lock = path.with_name(f"{path.name}.lock")
    if path.exists() and path.read_bytes() == content:
        return
    draft = path.with_name(f"{path.name}.clew")
    with suppress(FileNotFoundError):
        draft.unlink()
    made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    with open(made, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(made)
    try:
        os.link(draft, lock)
    except FileExistsError:
        if lock.read_bytes() != content:
            raise
    finally:
        draft.unlink()
    os.rename(lock, path)


def _decoded(listed: bytes) -> Iterator[str]:
    return (name.decode(errors="replace") for name in listed.split(b"\0") if name)
