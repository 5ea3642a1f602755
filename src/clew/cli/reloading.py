"""`clew serve --reload`: runs the server in a child process and restarts it when a file of the project changes."""

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from watchfiles import Change, DefaultFilter, watch

from clew.cli.opening import read_settings
from clew.cli.serving import bind
from clew.config import Settings
from clew.domain.errors import ConfigError

logger = logging.getLogger(__name__)

# How often the child is checked while no file changes.
CHECK_MILLISECONDS = 500


class ProjectFiles(DefaultFilter):
    """Python files, and the files that settings are read from. Not those in `.venv`, `.git` and the like."""

    def __init__(self, settings: Collection[Path]) -> None:
        super().__init__()
        self._settings = {str(path) for path in settings}

    def __call__(self, change: Change, path: str) -> bool:
        wanted = path.endswith(".py") or path in self._settings or Path(path).name.startswith(".env")
        return wanted and super().__call__(change, path)


@dataclass(slots=True)
class ReloadingServer:
    """One child at a time. A child that ends by itself is started again at the next change."""

    command: Sequence[str]
    folders: Collection[Path]
    files: ProjectFiles
    stopping: threading.Event = field(default_factory=threading.Event)
    child: "subprocess.Popen[bytes] | None" = None

    def run(self) -> int:
        """Until a signal; the exit code of the last child."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._start()
        changes = watch(
            *self.folders,
            watch_filter=self.files,
            stop_event=self.stopping,
            rust_timeout=CHECK_MILLISECONDS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        for changed in changes:
            if self.stopping.is_set():
                break
            if changed:
                logger.info("reloading", extra={"source": min(path for _, path in changed)})
                self._end()
                self._start()
            elif self.child is not None and (code := self.child.poll()) is not None:
                logger.error("the server ended with code %d; it is started again at the next change", code)
                self.child = None
        return self._end()

    def _start(self) -> None:
        # In a session of its own: Ctrl-C in a terminal reaches this process only, which passes it on once.
        self.child = subprocess.Popen(self.command, start_new_session=True)  # noqa: S603 - our own command

    def _end(self) -> int:
        """Let the child hand its running threads over to the next one."""
        if self.child is None:
            return 0
        if not self.stopping.is_set():
            self.child.terminate()
        code = self.child.wait()
        self.child = None
        return code

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler
        self.stopping.set()
        if self.child is not None:
            self.child.terminate()


def serve_reloading(
    *, host: str | None, port: int | None, config: Path | None, log_format: str | None = None
) -> int:
    """The exit code. Raises ConfigError."""
    settings = read_settings(config, {"server.host": host, "server.port": port, "logs.format": log_format})
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it counts changes, of which ours names one
    if not settings.server.is_loopback:
        raise ConfigError("--reload: expected a loopback address; it is for development")
    if settings.database.url.kind == "memory":
        logger.warning("the database is memory://, so each reload forgets all threads")
    # One address for all children: 0 would be another free port each time.
    with bind(settings.server.host, settings.server.port) as listener:
        chosen = listener.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "clew.cli",
        "serve",
        "--host",
        settings.server.host,
        "--port",
        str(chosen),
    ]
    if log_format is not None:
        command += ["--log-format", log_format]
    if config is not None:
        command += ["--config", str(config)]
    return ReloadingServer(command, _folders(settings), ProjectFiles(_files(config))).run()


def _folders(settings: Settings) -> list[Path]:
    return [path for path in dict.fromkeys((Path.cwd(), *settings.import_paths)) if path.is_dir()]


def _files(config: Path | None) -> list[Path]:
    names = ["clew.yaml", "langgraph.json", *([] if config is None else [str(config)])]
    return [Path.cwd() / name for name in names]
