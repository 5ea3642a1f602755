"""Checks: the tests that a profile names, run in the worktree within limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import join

from clew.apps.coding.plan import visible
from clew.domain.errors import Permanent
from clew.domain.profile import CheckCommand
from clew.domain.retry import ErrorClass
from clew.domain.thread import Json
from clew.processes.run import NotStarted, TimedOut, TooMuch, run

_MOST = 32 * 2**20
# Of the output its end, where a test runner says what failed.
_SHOWN = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    command: str
    passed: bool
    # How it ended, in words.
    how: str
    output: str = ""

    def as_json(self) -> dict[str, Json]:
        return {"command": self.command, "passed": self.passed, "how": self.how, "output": self.output}

    @property
    def line(self) -> str:
        return f"Tests {'passed' if self.passed else 'failed'}: {self.command} {self.how}"


def result_of(value: Json) -> CheckResult | None:
    """The result in a state; None if there is none."""
    if not isinstance(value, dict) or not value.get("command"):
        return None
    return CheckResult(
        command=str(value["command"]),
        passed=value.get("passed") is True,
        how=str(value.get("how") or ""),
        output=str(value.get("output") or "")[-_SHOWN:],
    )


async def run_checks(
    check: CheckCommand, folder: str, lock: int | None, environment: Mapping[str, str]
) -> CheckResult:
    """A run that fails, takes too long or writes too much is a result. Raises Permanent if it cannot be started."""
    command = join(check.command)
    try:
        ended = await run(
            check.command,
            folder=Path(folder),
            environment=environment,
            seconds=check.seconds,
            most=_MOST,
            lock=lock,
        )
    except NotStarted as exc:
        raise Permanent(
            f"the tests cannot be started: there is no program {check.command[0]!r}", ErrorClass.NOT_FOUND
        ) from exc
    except TimedOut:
        return CheckResult(command=command, passed=False, how=f"did not end within {check.seconds:g} s")
    except TooMuch:
        return CheckResult(command=command, passed=False, how="wrote more output than allowed")
    said = (ended.out + (b"\n" if ended.out and ended.err else b"") + ended.err).decode(errors="replace")
    return CheckResult(
        command=command,
        passed=ended.code == 0,
        how=f"ended with exit code {ended.code}",
        output=visible(said)[-_SHOWN:],
    )
