"""Keeper: starts a program in its own process group and ends the group when the process that asked for it is gone.

A killed server leaves no program behind, also none that ignores the end of its input. The file is run by its path, with
nothing but the standard library.
"""

import os
import signal
import subprocess
import sys

_LOOK_SECONDS = 0.5


def keep(parent: int, command: list[str]) -> int:
    try:
        program = subprocess.Popen(command)  # noqa: S603 - the operator's own command, without a shell
    except OSError as exc:
        sys.stderr.write(f"cannot start {command[0]}: {type(exc).__name__}\n")
        return 127
    while True:
        try:
            return program.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(keep(int(sys.argv[1]), sys.argv[2:]))
