"""Entry points of installed packages, which bring apps and chat agents."""

import sys
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points


def installed(group: str) -> EntryPoints:
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=8)
def _read(group: str, _path: tuple[str, ...]) -> EntryPoints:
    """Read once for a search path: it opens a file of every installed package."""
    return entry_points(group=group)
