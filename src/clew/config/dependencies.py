"""Dependencies of langgraph.json: folders to import from, and packages, which must be installed already."""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from clew.config.tree import ConfigNode

_PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*(?:[<>=!~;].*)?")


def read_dependencies(place: ConfigNode) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """The folders, and warnings for what is not there. Raises ConfigError."""
    given = place.value if place.value is not None else []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise place.expected("a list of packages and folders")
    entries = [ConfigNode(place.file, f"{place.key}[{index}]", item) for index, item in enumerate(given)]
    folders = [place.folder / str(entry.value) for entry in entries if _is_folder(entry)]
    return (
        tuple(path for folder in folders for path in _import_paths(folder)),
        tuple(warning for entry in entries for warning in _missing(entry)),
    )


def _is_folder(entry: ConfigNode) -> bool:
    return str(entry.value).startswith(".")


def _import_paths(folder: Path) -> Iterator[Path]:
    """The folder; and its `src`, where a project of that layout has its packages."""
    yield folder
    if (folder / "src").is_dir():
        yield folder / "src"


def _missing(entry: ConfigNode) -> Iterator[str]:
    written = str(entry.value)
    if _is_folder(entry):
        if not (entry.folder / written).is_dir():
            yield f"{entry.where} names {entry.folder / written}, which is no folder"
        return
    package = _PACKAGE.fullmatch(written.strip())
    if package is None:
        # It may be an address with a token in it.
        yield f"{entry.where} has no effect: Clew installs nothing, and this is not the name of a package"
        return
    try:
        distribution(package[1])
    except PackageNotFoundError:
        yield f"{entry.where} names {package[1]}, which is not installed here; install it beside Clew"
