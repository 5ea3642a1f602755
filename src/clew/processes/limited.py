"""Limited program: sets the limits of its process, then becomes the program it is given.

    python -I limited.py CPU_SECONDS MEMORY_BYTES PROGRAM [ARGUMENTS]

The file is run by its path, with nothing but the standard library.
"""

import os
import resource
import sys


def limit(cpu_seconds: int, memory_bytes: int) -> None:
    for what, amount in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
    ):
        try:
            resource.setrlimit(what, (amount, amount))
        except (ValueError, OSError):  # macOS has no limit of the address space
            continue


if __name__ == "__main__":
    cpu, memory, *command = sys.argv[1:]
    limit(int(cpu), int(memory))
    os.nice(5)
    try:
        os.execv(command[0], command)  # noqa: S606 - that is what it is for
    except OSError as exc:
        sys.stderr.write(f"cannot start {command[0]}: {type(exc).__name__}\n")
        sys.exit(127)
