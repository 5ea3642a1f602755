"""Git work trees. Git runs with an argument list, in a private git folder: see `gitdir`."""

import asyncio
import os
import re
import shutil
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from clew.apps.coding.plan import Changes
from clew.apps.coding.ports import Edits
from clew.apps.coding.worktrees import files
from clew.apps.coding.worktrees.gitdir import (
    UNBORN,
    GitFolders,
    copied,
    find_folders,
    make_private,
    read_config,
    read_head,
    starts,
    variables,
)
from clew.apps.coding.worktrees.places import locate, refused
from clew.documents.passages import cut
from clew.domain.errors import Invalid, Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.processes.holders import StillHeld, alone
from clew.processes.run import Ended, NotStarted, TimedOut, TooMuch, run

_GIT = ("git", "--no-optional-locks", "--no-replace-objects", "--no-pager")
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
# Beside a private git folder: nothing of the machine, no transport, no question on a terminal.
_ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_OBJECT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SECONDS = 60.0
_MOST = 32 * 2**20
_LOCK = "clew.lock"
# How long a program left by an earlier attempt may take to end.
_PATIENCE = 10.0

MOST_FILES = 2_000
MOST_CHARACTERS = 60_000


class GitWorktrees:
    """The Worktrees port. `roots` are the folders under which they must be; without any, they may be anywhere."""

    def __init__(self, roots: Sequence[Path], environment: Mapping[str, str]) -> None:
        self._roots = roots
        # A relative entry would find git in the work tree. HOME is for the user's own list of ignored files.
        path = [entry for entry in environment.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
        home = {"HOME": environment["HOME"]} if "HOME" in environment else {}
        self._environment = {"PATH": os.pathsep.join(path), **home, **_ENVIRONMENT}

    @property
    def has_roots(self) -> bool:
        return bool(self._roots)

    async def find(self, path: str) -> "GitWorktree":
        folder = await asyncio.to_thread(locate, path, self._roots)
        folders = await asyncio.to_thread(find_folders, folder, self._roots)
        settings = await self.settings(folder, folders)
        return GitWorktree(folder, folders, copied(settings), self)

    async def settings(self, folder: Path, folders: GitFolders) -> list[tuple[str, str]]:
        """What the repository's configuration says now, in its order. Raises Invalid if it cannot be read."""
        text = await asyncio.to_thread(read_config, folders)
        with TemporaryDirectory(prefix="clew-git-") as empty:
            outside = {"GIT_DIR": f"{empty}/none"}
            asked = await self.call(
                Path(empty), outside, "config", "--file", "-", "--no-includes", "-z", "--list", given=text
            )
        if asked.code:
            raise refused(f"the git configuration of {folder} cannot be read")
        lines = asked.out.decode(errors="replace").split("\0")
        return [(name, value) for name, _, value in (line.partition("\n") for line in lines) if name]

    async def call(
        self,
        folder: Path,
        private: Mapping[str, str],
        *arguments: str,
        given: bytes = b"",
        seconds: float = _SECONDS,
    ) -> Ended:
        """Git with these variables, which say where its folder is. Raises Transient, Permanent."""
        try:
            return await run(
                [*_GIT, *arguments],
                folder=folder,
                environment={**self._environment, **private},
                seconds=seconds,
                most=_MOST,
                given=given,
            )
        except NotStarted as exc:
            raise Permanent("git is not installed here", ErrorClass.INTERNAL) from exc
        except TimedOut as exc:
            raise Transient("git did not answer in time", ErrorClass.CLI_TIMEOUT) from exc
        except TooMuch as exc:
            raise Permanent("the worktree's changes are too large to compare", ErrorClass.VALIDATION) from exc

    async def ask(self, worktree: "GitWorktree", *arguments: str, head: str = UNBORN) -> Ended:
        """Git's output, in a git folder that is made for this one call.

        Where it asks for its HEAD, the repository's refs can be read too.
        """
        with TemporaryDirectory(prefix="clew-git-") as made:
            private, folders = Path(made) / "git", worktree.folders
            with_refs = head is not UNBORN
            await asyncio.to_thread(
                make_private, private, folders, worktree.copied, head=head, refs=with_refs
            )
            given = variables(private, folders, worktree.folder, folders.index)
            return await self.call(worktree.folder, given, *arguments)


@dataclass(frozen=True, slots=True)
class GitWorktree:
    """The Worktree port."""

    folder: Path
    folders: GitFolders
    # Settings of the repository that only say how its files are compared.
    copied: Mapping[str, str]
    git: GitWorktrees

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def git_dir(self) -> Path:
        return self.folders.git_dir

    async def starts(self) -> Sequence[str]:
        try:
            found = starts(await self.git.settings(self.folder, self.folders), self.folders)
            # Git enters submodules by itself, with the settings of each.
            for path in await self._submodules():
                inner = await self.git.find(str(self.folder / path))
                found += [f"{path}: {name}" for name in await inner.starts()]
        except Invalid as exc:
            raise Permanent(str(exc), ErrorClass.VALIDATION) from exc
        return found

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[Mapping[str, str]]:
        with TemporaryDirectory(prefix="clew-git-") as made:
            private, index = Path(made) / "git", Path(made) / "index"
            head = await self._head()
            await asyncio.to_thread(
                make_private, private, self.folders, self.copied, head=f"{head}\n" if head else UNBORN
            )
            if self.folders.index.exists():
                # With its time, by which git knows what may have changed since.
                await asyncio.to_thread(shutil.copy2, self.folders.index, index)
            yield variables(private, self.folders, self.folder, index)

    async def base(self) -> str:
        # A repository without a commit: everything is new, compared with nothing at all.
        head = await self._head()
        return head or (await self._ask("hash-object", "-t", "tree", "/dev/null")).decode().strip()

    async def files(self) -> Sequence[str]:
        listed = await self._ask("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return list(dict.fromkeys(_names(listed)))

    async def changes(self, base: str) -> Changes:
        require_object(base)
        changed = _names(await self._ask(*_DIFF, "--name-only", "-z", base, "--"))
        diff = await self._ask(*_DIFF, base, "--")
        listed = await self._ask("ls-files", "-z", "--others", "--exclude-standard")
        everything = sorted(_names(listed))
        new, rest = everything[:MOST_FILES], everything[MOST_FILES:]
        shown = await asyncio.to_thread(lambda: [files.shown(self.folder, path) for path in new])
        whole = sha256(diff)
        for path, one in zip(new, shown, strict=True):
            whole.update(f"\0{path}\0{one.digest}".encode(errors="surrogatepass"))
        whole.update("\0".join(rest).encode(errors="surrogatepass"))
        texts = [
            diff.decode(errors="replace"),
            *(f"new file {p}\n{s.text}" for p, s in zip(new, shown, strict=True)),
            f"({len(rest)} more new files are not shown)" if rest else "",
        ]
        return Changes(
            files=tuple(dict.fromkeys([*changed, *new])),
            text=cut("\n".join(text for text in texts if text), MOST_CHARACTERS),
            fingerprint=whole.hexdigest(),
        )

    async def read(self, path: str) -> str | None:
        return await asyncio.to_thread(files.read, self.folder, path)

    async def apply(self, edits: Edits) -> None:
        await asyncio.to_thread(self._apply, edits)

    def _apply(self, edits: Edits) -> None:
        try:
            # All are checked before the first is carried out.
            for path in edits.write:
                files.check(self.folder, path, edits.over.get(path))
            for path, text in edits.delete.items():
                files.check(self.folder, path, text)
            for path, (new, text) in edits.rename.items():
                files.check(self.folder, path, text)
                files.check(self.folder, new, None)
            for path, text in edits.write.items():
                files.write(self.folder, path, text, edits.over.get(path))
            for path, (new, text) in edits.rename.items():
                files.move(self.folder, path, new, text)
            for path, text in edits.delete.items():
                files.remove(self.folder, path, text)
        except OSError as exc:
            raise Invalid(f"a file cannot be changed: {exc.strerror}", "files.path") from exc

    async def _submodules(self) -> list[str]:
        """Those that are checked out."""
        listed = await self._ask("ls-files", "-z", "--stage")
        linked = (line.partition("\t")[2] for line in _names(listed) if line.startswith("160000 "))
        return await asyncio.to_thread(
            lambda: [one for one in linked if os.path.lexists(self.folder / one / ".git")]
        )

    async def _head(self) -> str | None:
        """The commit, None before the first one."""
        try:
            head = await asyncio.to_thread(read_head, self.folders)
        except Invalid as exc:
            raise Permanent(str(exc), ErrorClass.VALIDATION) from exc
        asked = await self.git.ask(self, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", head=head)
        return None if asked.code else asked.out.decode().strip()

    async def _ask(self, *arguments: str) -> bytes:
        """Git's output. Raises Permanent if git fails."""
        asked = await self.git.ask(self, *arguments)
        if asked.code:
            raise Permanent(f"git {arguments[0]} failed: {reason(asked)}", ErrorClass.INTERNAL)
        return asked.out

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[int]:
        try:
            async with alone(self.git_dir / _LOCK, seconds=_PATIENCE) as lock:
                yield lock
        except StillHeld as exc:
            raise Transient(
                "a program of an earlier attempt is still at work in the worktree", ErrorClass.CLI_TIMEOUT
            ) from exc


def require_object(name: str) -> None:
    """Raises Permanent for what is no name of an object: a caller may write the state, and git takes options."""
    if not _OBJECT.fullmatch(name):
        raise Permanent("expected the name of a commit", ErrorClass.VALIDATION)


def reason(asked: Ended) -> str:
    """Git's last line, which names paths and objects of the work tree and no more."""
    lines = asked.err.decode(errors="replace").strip().splitlines()
    return cut(lines[-1], 300) if lines else f"exit code {asked.code}"


def _names(listed: bytes) -> Iterator[str]:
    # Undecodable bytes of a name are replaced for display; no write can reach the file by that name.
    return (name.decode(errors="replace") for name in listed.split(b"\0") if name)
