"""Real git repositories for tests, without anything of the machine's own settings."""

import os
import subprocess
from pathlib import Path

_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
}


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **_ENVIRONMENT},  # noqa: TID251 - a child's
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def repository(folder: Path, *, commits: bool = True) -> Path:
    """A work tree at `folder` with one file in one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    if commits:
        (folder / "README.md").write_text("# Sample\n")
        git(folder, "add", "README.md")
        git(folder, "commit", "--quiet", "-m", "First")
    return folder
