"""Migrations: numbered SQL files per database, forward only. Applied in order, each in one transaction."""

from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def migrations(dialect: str) -> list[Migration]:
    """The files of one dialect in order; their numbers must be 1, 2, 3, ..."""
    folder = resources.files(__name__) / dialect
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    found = [Migration(int(file.name[:4]), file.name[5:-4], file.read_text("utf-8")) for file in files]
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError(f"the {dialect} migrations are not numbered 1 to {len(found)}")
    return found
