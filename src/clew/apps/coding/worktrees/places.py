"""Worktree paths: the canonical name of a folder, and whether `coding.roots` allows it."""

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from clew.domain.errors import Invalid

FIELD = "worktreePath"
_LONGEST = 4096


def locate(path: str, roots: Sequence[Path]) -> Path:
    """The folder without links, `..` or a slash at its end: two names of one folder are the same here.

    Raises Invalid. With `roots`, a path outside of them is refused before it is read.
    """
    if not os.path.isabs(path):
        raise refused("expected an absolute path")
    if len(path) > _LONGEST or not path.isprintable():
        raise refused("expected a path of printable characters")
    real = Path(os.path.realpath(path))
    require_under(real, roots)
    if not real.exists():
        raise refused(f"{real} does not exist")
    if not real.is_dir():
        raise refused(f"{real} is not a folder")
    if not is_spelled(real, _names):
        raise refused(
            f"{real} is written in another way on this disk: expected upper and lower case as there"
        )
    return real


def require_under(path: Path, roots: Sequence[Path]) -> None:
    """Raises Invalid for what is outside of all roots, if there are any."""
    reals = [Path(os.path.realpath(root)) for root in roots]
    if reals and not any(path.is_relative_to(root) for root in reals):
        raise refused("it is not under one of the folders that coding.roots allows")


def is_spelled(path: Path, names: Callable[[Path], Iterable[str] | None]) -> bool:
    """Whether every part stands in its folder letter by letter: some disks find it under other spellings too.

    `names` is None for a folder that cannot be listed; its spelling is then accepted.
    """
    return all(
        listed is None or part.name in listed
        for part in (path, *path.parents)
        if part != part.parent
        for listed in [names(part.parent)]
    )


def refused(why: str) -> Invalid:
    return Invalid(why, field=FIELD)


def _names(folder: Path) -> Iterable[str] | None:
    try:
        return os.listdir(folder)
    except OSError:
        return None
