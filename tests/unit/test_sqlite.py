"""SQLite as it is found: what its library must be able to do."""

import sqlite3
from pathlib import Path

import pytest

from clew.domain.errors import ConfigError
from clew.stores.sqlite import open_sqlite, require_version


@pytest.mark.parametrize("version", [(3, 34, 1), (2, 99)])
def test_a_library_that_is_too_old_is_named(version: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"is {version[0]}.{version[1]}.* needs 3.35 or newer"):
        require_version(version)
    require_version((3, 35, 0))


@pytest.mark.anyio
async def test_a_database_that_others_may_read_becomes_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "clew.db"
    files = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("PRAGMA user_version = 1")
        for file in files:
            file.chmod(0o644)
        async with open_sqlite(path):
            assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    other.close()


@pytest.mark.anyio
async def test_a_database_whose_mode_cannot_be_changed_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "clew.db"
    path.touch(0o644)
    path.chmod(0o644)

    def refuse(*_: object, **__: object) -> None:  # as for a file of another user
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    async with open_sqlite(path):
        pass
    assert "may read the database file" in caplog.text
    assert "644" in caplog.text
