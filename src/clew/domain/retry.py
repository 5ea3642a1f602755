"""Retries: whether a failed attempt gets another one, and how long to wait before it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from math import isfinite

from clew.domain.errors import Answered, Invalid

MAX_RETRY_AFTER = 300.0


class ErrorClass(StrEnum):
    """Why an attempt failed. The list is closed; what fits nowhere is `internal`."""

    NETWORK_TIMEOUT = "network_timeout"
    RATE_LIMIT = "rate_limit"
    LLM_OVERLOAD = "llm_overload"
    CLI_TIMEOUT = "cli_timeout"
    AUTH = "auth"
    VALIDATION = "validation"
    NOT_FOUND = "not_found"
    INTERNAL = "internal"

    @classmethod
    def named(cls, name: str | None) -> "ErrorClass":
        try:
            return cls(name or cls.INTERNAL)
        except ValueError:
            return cls.INTERNAL


# What a policy may name: repeating any of the others gives the same answer again.
RETRYABLE = (
    ErrorClass.NETWORK_TIMEOUT,
    ErrorClass.RATE_LIMIT,
    ErrorClass.LLM_OVERLOAD,
    ErrorClass.CLI_TIMEOUT,
)


_BY_STATUS: Mapping[int, ErrorClass] = {
    401: ErrorClass.AUTH,
    403: ErrorClass.AUTH,
    404: ErrorClass.NOT_FOUND,
    408: ErrorClass.NETWORK_TIMEOUT,
    429: ErrorClass.RATE_LIMIT,
}
# What providers call it in the middle of a stream: the status was 200 when that began.
_BY_TYPE: Mapping[str, ErrorClass] = {
    "overloaded_error": ErrorClass.LLM_OVERLOAD,
    "api_error": ErrorClass.LLM_OVERLOAD,
    "server_error": ErrorClass.LLM_OVERLOAD,
    "timeout_error": ErrorClass.NETWORK_TIMEOUT,
    "rate_limit_error": ErrorClass.RATE_LIMIT,
    "rate_limit_exceeded": ErrorClass.RATE_LIMIT,
    "authentication_error": ErrorClass.AUTH,
    "permission_error": ErrorClass.AUTH,
    "not_found_error": ErrorClass.NOT_FOUND,
    "invalid_request_error": ErrorClass.VALIDATION,
}


# What a provider calls an error, where it is a name and no sentence.
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MAX_ANSWER = 4_000


def class_of_status(status: object) -> ErrorClass | None:
    """Of an HTTP status that says that something went wrong."""
    if not isinstance(status, int) or not 400 <= status < 600:
        return None
    return _BY_STATUS.get(status, ErrorClass.LLM_OVERLOAD if status >= 500 else ErrorClass.VALIDATION)


def class_in(body: object) -> ErrorClass | None:
    """Of what a provider answered: `{"type": "overloaded_error"}` or `{"code": 503}`, or the same under `error`."""
    for _ in range(2):
        if not isinstance(body, Mapping):
            return None
        for said in (body.get("type"), body.get("code")):
            found = _BY_TYPE.get(said) if isinstance(said, str) else class_of_status(said)
            if found is not None:
                return found
        body = body.get("error")
    return None


def answered_in(exc: BaseException) -> Answered | None:
    """What a provider answered, in the terms its clients have in common; None if it answered nothing."""
    status = status_in(exc)
    body = getattr(exc, "body", None) or _aws(exc)
    if status is None and body is None:
        return None
    error = body.get("error", body) if isinstance(body, Mapping) else {}
    told = (
        [error.get(name) for name in ("code", "type", "Code", "status")] if isinstance(error, Mapping) else []
    )
    code = next((one for one in told if isinstance(one, str) and _LABEL.fullmatch(one)), "")
    return Answered(str(exc)[:MAX_ANSWER], status, code)


def status_in(exc: BaseException) -> int | None:
    """The HTTP status of a provider's error; None for another error."""
    status = getattr(exc, "status_code", None)
    if status is None and (told := _aws(exc)) is not None:
        status = told.get("status")
    return status if isinstance(status, int) else None


def _aws(exc: BaseException) -> Mapping[str, object] | None:
    """What AWS answered, which its client keeps in a shape of its own."""
    response = getattr(exc, "response", None)
    if not isinstance(response, Mapping) or not isinstance(told := response.get("Error"), Mapping):
        return None
    about = response.get("ResponseMetadata")
    return {**told, "status": about.get("HTTPStatusCode") if isinstance(about, Mapping) else None}


def seconds_in(retry_after: str, *, now: datetime) -> float | None:
    """Of a `Retry-After`: seconds, or a date. None for anything else."""
    try:
        seconds = float(retry_after)
    except ValueError:
        pass
    else:
        return max(0.0, seconds) if isfinite(seconds) else None
    try:
        when = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    return max(0.0, (when - now).total_seconds()) if when.tzinfo is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    retryable_errors: tuple[ErrorClass, ...] = RETRYABLE[:3]

    def __post_init__(self) -> None:
        if type(self.max_retries) is not int or not 0 <= self.max_retries <= 10:
            raise Invalid("expected a whole number from 0 to 10", field="max_retries")
        object.__setattr__(self, "base_delay", _seconds(self.base_delay, 0.1, 30, field="base_delay"))
        object.__setattr__(self, "max_delay", _seconds(self.max_delay, 1, 300, field="max_delay"))
        object.__setattr__(self, "retryable_errors", _retryable(self.retryable_errors))

    def delay(self, retry: int, *, jitter: float = 0.0, retry_after: float | None = None) -> float:
        """Seconds to wait before retry number 1, 2, 3...

        `jitter` is the share of the wait to take off: 0 waits it all, a random number below 1 spreads a crowd.
        `max_delay` bounds our own patience; the other side's `retry_after` is never cut short.
        """
        if retry < 1:
            raise Invalid("expected a retry number from 1", field="retry")
        if not 0 <= jitter <= 1:
            raise Invalid("expected a share from 0 to 1", field="jitter")
        doublings = min(retry - 1, 32)  # far past any max_delay, and no overflow on the way
        wait = min(self.max_delay, self.base_delay * 2.0**doublings) * (1 - jitter)
        return max(wait, retry_after or 0.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Trying again will not help, or was tried often enough."""

    reason: str


def decide(
    policy: RetryPolicy,
    error_class: ErrorClass,
    attempts: int,
    *,
    jitter: float = 0.0,
    retry_after: float | None = None,
    is_passing: bool = True,
) -> Retry | GiveUp:
    """What to do after `attempts` failed attempts, the last of them with `error_class`.

    What is not `is_passing` is not tried again whatever its class: the code that raised it decided so.
    """
    made = f"{attempts} attempt{'' if attempts == 1 else 's'}"
    if not is_passing or error_class not in policy.retryable_errors:
        return GiveUp(f"{error_class} after {made}: not retried")
    if attempts > policy.max_retries:
        return GiveUp(f"{error_class} after {made}: no retry left")
    if retry_after is not None and retry_after > MAX_RETRY_AFTER:
        return GiveUp(f"{error_class} after {made}: asked to wait longer than {MAX_RETRY_AFTER:.0f} s")
    return Retry(policy.delay(attempts, jitter=jitter, retry_after=retry_after))


def _seconds(value: object, low: float, high: float, *, field: str) -> float:
    # bool is an int and nan compares as false: both must end here.
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise Invalid(f"expected seconds from {low} to {high}", field=field)


def _retryable(names: object) -> tuple[ErrorClass, ...]:
    if isinstance(names, list | tuple) and all(name in RETRYABLE for name in names):
        return tuple(dict.fromkeys(ErrorClass(name) for name in names))
    raise Invalid(f"expected a list of {', '.join(RETRYABLE)}", field="retryable_errors")
