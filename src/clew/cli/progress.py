"""Progress bar of commands that take long."""

import sys
from collections.abc import Callable

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


class progress_bar:  # noqa: N801 - used as a function
    """A progress bar on standard error, if that is a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self._progress = Progress(*columns, transient=True, disable=not sys.stderr.isatty())

    def __enter__(self) -> Callable[[int, int], None]:
        self._progress.start()
        task = self._progress.add_task(self._title)
        return lambda done, total: self._progress.update(task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
