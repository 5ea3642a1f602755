"""The git folder of a work tree, and the private one that git is given in its place.

Git runs what a repository's configuration names: filters, monitors, transports, hooks. No variable makes it skip that
configuration, and a check before the call is too early: a program may write to `.git` between the two. So git never
sees the repository's own folder. It gets a new one, with a configuration of ours, and borrows from the real one what is
data alone: objects, the index, refs. Of the repository's settings a few that describe the disk are copied by value.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from clew.apps.coding.worktrees.places import refused, require_under

# What may be copied: how files are compared, and which hash names them. None of it names a program or a path.
_COPIED = frozenset(
    {
        *("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode"),
        *("core.autocrlf", "core.eol", "core.trustctime", "core.checkstat"),
        "extensions.objectformat",
    }
)
_VALUE = re.compile(r"[A-Za-z0-9]{1,20}")
_FIXED = """[core]
\tbare = false
\thooksPath = /dev/null
\tattributesFile = /dev/null
\tfsmonitor = false
\tuntrackedCache = false
\tquotePath = false
\tpager = cat
[protocol]
\tallow = never
[diff]
\tsubmodule = short
[gc]
\tauto = 0
"""
UNBORN = "ref: refs/heads/none\n"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LARGEST = 1_048_576

# Settings that make an ordinary `git status` or `git diff` start a program, or read more settings.
_STARTS = re.compile(
    r"filter\..*\.(clean|smudge|process)|diff\.external|diff\..*\.(command|textconv)|include\.path|includeif\..*\.path"
    r"|core\.gitproxy|remote\..*\.(uploadpack|vcs)|protocol\..*\.allow",
    re.DOTALL,
)
_BOOLEANS = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})


@dataclass(frozen=True, slots=True)
class GitFolders:
    """Where a work tree's data is. `common` is shared by the linked work trees of one repository."""

    git_dir: Path
    common: Path
    objects: Path

    @property
    def index(self) -> Path:
        return self.git_dir / "index"


def find_folders(folder: Path, roots: Sequence[Path]) -> GitFolders:
    """Raises Invalid unless `folder` is the top of a work tree and all of its data is under the roots."""
    git_dir = _git_dir(folder)
    common = _named(git_dir, _text(git_dir / "commondir") or ".")
    objects = _real(common / "objects")
    is_whole = (git_dir / "HEAD").is_file() and objects.is_dir() and (common / "refs").is_dir()
    if not is_whole:
        raise refused(f"{folder} is not a git work tree")
    for path in (git_dir, common, *_stores(objects), _real(git_dir / "index")):
        require_under(path, roots)
    return GitFolders(git_dir, common, objects)


def read_config(folders: GitFolders) -> bytes:
    """The repository's own settings, and those of this work tree: read once, by us. Raises Invalid."""
    parts = []
    for path in dict.fromkeys((folders.common / "config", folders.git_dir / "config.worktree")):
        try:
            # Also by a link, which some tools make of it: nothing of it is used but a few words.
            parts.append(_bytes(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            continue
        except OSError:
            raise refused(f"{path} cannot be read as a plain file") from None
    return b"\n".join(parts)


def copied(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Of the repository's settings those that only describe its files. The last of a name counts, as for git."""
    return {name: value for name, value in settings if name in _COPIED and _VALUE.fullmatch(value)}


def starts(settings: Iterable[tuple[str, str]], folders: GitFolders) -> list[str]:
    """What makes a git that does read the repository's settings start a program without being asked to."""
    given = list(settings)
    names = dict(given)
    found = [name for name in names if _STARTS.fullmatch(name)]
    found += [name for name, value in given if name.endswith(".url") and "::" in value]
    if names.get("core.fsmonitor", "").lower() not in _BOOLEANS:
        found.append("core.fsmonitor")
    if "core.sshcommand" in names and any(name.endswith(".promisor") for name in names):
        found.append("core.sshcommand")
    hooks = folders.git_dir / Path(names.get("core.hookspath", folders.common / "hooks")).expanduser()
    if (hooks / "post-index-change").exists():
        found.append("the hook post-index-change")
    return sorted(set(found))


def make_private(
    place: Path, folders: GitFolders, settings: Mapping[str, str], *, head: str = UNBORN, refs: bool = False
) -> None:
    """A git folder at `place`. With `refs`, those of the repository can be read there."""
    (place / "info").mkdir(parents=True)
    (place / "HEAD").write_text(head)
    (place / "config").write_text(_FIXED + _lines(settings))
    if refs:
        (place / "refs").symlink_to(folders.common / "refs")
        (place / "packed-refs").symlink_to(folders.common / "packed-refs")
        if (folders.common / "shallow").is_file():
            (place / "shallow").symlink_to(folders.common / "shallow")
    else:
        (place / "refs").mkdir()
    for name in ("exclude", "attributes"):
        with suppress(
            OSError
        ):  # most have none, and they name no program: which files are new, how lines end
            (place / "info" / name).write_bytes(_bytes(folders.common / "info" / name))
    for shared in folders.git_dir.glob("sharedindex.*"):
        (place / shared.name).symlink_to(shared)


def read_head(folders: GitFolders) -> str:
    """Raises Invalid."""
    text = _text(folders.git_dir / "HEAD")
    if not text:
        raise refused(f"{folders.git_dir / 'HEAD'} cannot be read")
    return f"{text}\n"


def variables(place: Path, folders: GitFolders, folder: Path, index: Path) -> dict[str, str]:
    """What makes git use the private folder, and nothing of its own search."""
    return {
        "GIT_DIR": str(place),
        "GIT_WORK_TREE": str(folder),
        "GIT_OBJECT_DIRECTORY": str(folders.objects),
        "GIT_INDEX_FILE": str(index),
    }


def _lines(settings: Mapping[str, str]) -> str:
    format_version = 1 if "extensions.objectformat" in settings else 0
    lines = [f"[core]\n\trepositoryFormatVersion = {format_version}\n"]
    for name, value in settings.items():
        section, key = name.split(".")
        lines.append(f"[{section}]\n\t{key} = {value}\n")
    return "".join(lines)


def _git_dir(folder: Path) -> Path:
    """Of a folder that has one: a folder `.git`, or a file of that name which says where it is."""
    entry = folder / ".git"
    if ".git" in folder.parts or not os.path.lexists(entry):
        outer = ".git" not in folder.parts and any(os.path.lexists(up / ".git") for up in folder.parents)
        if outer:
            raise refused(f"{folder} is inside of a git work tree: expected the top of it")
        raise refused(f"{folder} is not a git work tree")
    if entry.is_dir():
        return _real(entry)
    kind, _, path = (_text(entry) or "").partition(": ")
    if kind != "gitdir" or not path:
        raise refused(f"{folder} is not a git work tree")
    return _named(folder, path)


def _stores(objects: Path) -> list[Path]:
    """The folder of objects, and those it says are in others, as deep as git follows them."""
    found = [objects]
    for store in found:
        lines = (_text(store / "info" / "alternates") or "").splitlines()
        others = [_named(store, line) for line in lines if line and not line.startswith("#")]
        found += [other for other in others if other not in found]
        if len(found) > 50:
            raise refused("the repository takes its objects from too many others")
    return found


def _text(path: Path) -> str | None:
    """A short file that says where something is. None if there is none that can be read so."""
    try:
        return _bytes(path).decode(errors="surrogateescape").rstrip("\r\n")
    except OSError:
        return None


def _named(start: Path, path: str) -> Path:
    return _real(start / path) if "\0" not in path else start / "\ufffd"


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _bytes(path: Path, flags: int = _FILE) -> bytes:
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("not a plain file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise OSError("too long")
    return data
