"""What a user installs carries everything Clew reads at run time."""

import zipfile
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_every_file_of_the_package(tmp_path: Path) -> None:
    [built] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        carried = set(wheel.namelist())
    package = ROOT / "src" / "clew"
    wanted = {
        path.relative_to(ROOT / "src").as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert wanted - carried == set()
    assert {"clew/py.typed", "clew/__init__.py"} <= carried
