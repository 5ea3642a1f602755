"""Work trees of git. Git is asked with an argument list, without hooks, monitors or drivers that a repository names."""

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from clew.domain.coding import Changes
from clew.domain.errors import Invalid, Permanent, Transient
from clew.domain.passages import cut
from clew.domain.retry import ErrorClass
from clew.processes.holders import StillHeld, alone
from clew.processes.run import Ended, NotStarted, TooLong, TooMuch, run
from clew.worktrees import files
from clew.worktrees.places import locate, refused, require_under

_GIT = (
    "git",
    "--no-optional-locks",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "protocol.allow=never",
    "-c",
    "core.quotePath=false",
)
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty")
_SECONDS = 60.0
_MOST = 32 * 2**20
_LOCK = "clew.lock"
# How long one who was left behind may take to leave.
_PATIENCE = 10.0

MOST_FILES = 2_000
MOST_CHARACTERS = 60_000


class GitWorktrees:
    """The Worktrees port. `roots` are the folders under which they must be; without any, they may be anywhere."""

    def __init__(self, roots: Sequence[Path], environment: Mapping[str, str]) -> None:
        self._roots = roots
        self._environment = {
            **{name: value for name, value in environment.items() if name in ("PATH", "HOME")},
            "LC_ALL": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
        }

    @property
    def has_roots(self) -> bool:
        return bool(self._roots)

    async def find(self, path: str) -> "GitWorktree":
        folder = await asyncio.to_thread(locate, path, self._roots)
        asked = await self._git(folder, "rev-parse", "--show-toplevel", "--absolute-git-dir")
        lines = asked.out.decode(errors="surrogateescape").splitlines()
        if asked.code or len(lines) != 2:
            raise refused(f"{folder} is not a git work tree, or git does not trust its owner")
        top, git_dir = await asyncio.to_thread(lambda: [Path(os.path.realpath(line)) for line in lines])
        if top != folder:
            raise refused(f"{folder} is inside of a git work tree: expected the top of it")
        require_under(git_dir, self._roots)
        return GitWorktree(folder, git_dir, self)

    async def _git(self, folder: Path, *arguments: str) -> Ended:
        try:
            return await run(
                [*_GIT, *arguments],
                folder=folder,
                environment=self._environment,
                seconds=_SECONDS,
                most=_MOST,
            )
        except NotStarted as exc:
            raise Permanent("git is not installed here", ErrorClass.INTERNAL) from exc
        except TooLong as exc:
            raise Transient("git did not answer in time", ErrorClass.CLI_TIMEOUT) from exc
        except TooMuch as exc:
            raise Permanent(
                "there is more in the worktree than can be looked at", ErrorClass.VALIDATION
            ) from exc

    async def ask(self, folder: Path, *arguments: str) -> bytes:
        """What git says. Raises Permanent if it cannot."""
        asked = await self._git(folder, *arguments)
        if asked.code:
            raise Permanent(f"git {arguments[0]} failed with exit code {asked.code}", ErrorClass.INTERNAL)
        return asked.out

    async def says(self, folder: Path, *arguments: str) -> str | None:
        """What git says, None if it says no."""
        asked = await self._git(folder, *arguments)
        return None if asked.code else asked.out.decode().strip()


@dataclass(frozen=True, slots=True)
class GitWorktree:
    """The Worktree port."""

    folder: Path
    git_dir: Path
    git: GitWorktrees

    @property
    def path(self) -> str:
        return str(self.folder)

    @property
    def name(self) -> str:
        return self.folder.name

    async def base(self) -> str:
        head = await self.git.says(self.folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        # A repository without a commit: everything is new, compared with nothing at all.
        return (
            head
            or (await self.git.ask(self.folder, "hash-object", "-t", "tree", "/dev/null")).decode().strip()
        )

    async def files(self) -> Sequence[str]:
        listed = await self.git.ask(
            self.folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard"
        )
        return list(dict.fromkeys(_names(listed)))[:MOST_FILES]

    async def changes(self, base: str) -> Changes:
        changed = _names(await self.git.ask(self.folder, *_DIFF, "--name-only", "-z", base, "--"))
        diff = await self.git.ask(self.folder, *_DIFF, base, "--")
        listed = await self.git.ask(self.folder, "ls-files", "-z", "--others", "--exclude-standard")
        new = sorted(_names(listed))[:MOST_FILES]
        shown = await asyncio.to_thread(lambda: [files.shown(self.folder, path) for path in new])
        whole = sha256(diff)
        for path, one in zip(new, shown, strict=True):
            whole.update(f"\0{path}\0{one.digest}".encode(errors="surrogatepass"))
        texts = [
            diff.decode(errors="replace"),
            *(f"new file {p}\n{s.text}" for p, s in zip(new, shown, strict=True)),
        ]
        return Changes(
            files=tuple(dict.fromkeys([*changed, *new])),
            text=cut("\n".join(text for text in texts if text), MOST_CHARACTERS),
            fingerprint=whole.hexdigest(),
        )

    async def read(self, path: str) -> str | None:
        return await asyncio.to_thread(files.read, self.folder, path)

    async def write(self, path: str, text: str) -> None:
        try:
            await asyncio.to_thread(files.write, self.folder, path, text)
        except OSError as exc:
            raise Invalid(f"{path} cannot be written: {exc.strerror}", "files.path") from exc

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[int]:
        try:
            async with alone(self.git_dir / _LOCK, seconds=_PATIENCE) as lock:
                yield lock
        except StillHeld as exc:
            raise Transient(
                "a program of an earlier attempt is still at work in the worktree", ErrorClass.CLI_TIMEOUT
            ) from exc


def _names(listed: bytes) -> Iterator[str]:
    # A name that is no text is shown as far as it is one; nobody can write to it by that.
    return (name.decode(errors="replace") for name in listed.split(b"\0") if name)
