"""Failures: what a graph raised as one of our error classes, by our classes, HTTP status or the client's class names."""

from datetime import UTC, datetime

from clew.domain.errors import ClewError, Permanent, Transient
from clew.domain.retry import ErrorClass, answered_in, class_in, class_of_status, seconds_in
from clew.graph.stream import storable

# Names of the common clients (openai, anthropic, httpx, langchain-core), longest meaning first.
_BY_NAME = (
    ("RateLimit", ErrorClass.RATE_LIMIT),
    ("TooManyRequests", ErrorClass.RATE_LIMIT),
    ("Overload", ErrorClass.LLM_OVERLOAD),
    ("ServiceUnavailable", ErrorClass.LLM_OVERLOAD),
    ("InternalServer", ErrorClass.LLM_OVERLOAD),
    ("Timeout", ErrorClass.NETWORK_TIMEOUT),
    ("Connection", ErrorClass.NETWORK_TIMEOUT),
    ("ConnectError", ErrorClass.NETWORK_TIMEOUT),
    ("ReadError", ErrorClass.NETWORK_TIMEOUT),
    ("RemoteProtocolError", ErrorClass.NETWORK_TIMEOUT),
    ("Authentication", ErrorClass.AUTH),
    ("PermissionDenied", ErrorClass.AUTH),
    ("Validation", ErrorClass.VALIDATION),
    ("BadRequest", ErrorClass.VALIDATION),
    ("NotFound", ErrorClass.NOT_FOUND),
)
# The longest line for a thread's reason, and the most that is kept of what failed.
LINE = 300
DETAIL = 10_000
_TRANSIENT = (
    ErrorClass.NETWORK_TIMEOUT,
    ErrorClass.RATE_LIMIT,
    ErrorClass.LLM_OVERLOAD,
    ErrorClass.CLI_TIMEOUT,
)


def classify(exc: Exception) -> Transient | Permanent:
    """The failure as one of our errors. An error of ours stays, whatever a library raised beneath it."""
    for cause in _chain(exc):
        if isinstance(cause, Transient | Permanent):
            return cause
        if isinstance(cause, ClewError):
            return _failure(_class_of(cause) or ErrorClass.INTERNAL, cause)
        if (error_class := _class_of(cause)) is not None:
            failed = _failure(error_class, cause)
            failed.answered = answered_in(cause)
            return failed
    return _failure(ErrorClass.INTERNAL, exc)


def _failure(error_class: ErrorClass, cause: BaseException) -> Transient | Permanent:
    detail = _said(cause)
    line = detail.partition("\n")[0][:LINE]
    if error_class in _TRANSIENT:
        return Transient(line, error_class, _retry_after(cause), detail=detail)
    return Permanent(line, error_class, detail=detail)


def _chain(exc: BaseException) -> list[BaseException]:
    found: list[BaseException] = []
    cause: BaseException | None = exc
    while cause is not None and len(found) < 10 and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found


def _class_of(exc: BaseException) -> ErrorClass | None:
    response = getattr(exc, "response", None)
    # Google's clients call it `code`. In the middle of a stream the status is the one with which it began.
    for whose, name in ((exc, "status_code"), (response, "status_code"), (exc, "code")):
        if (found := class_of_status(getattr(whose, name, None))) is not None:
            return found
    if (said := class_in(getattr(exc, "body", None))) is not None:
        return said
    if isinstance(exc, TimeoutError | ConnectionError):
        return ErrorClass.NETWORK_TIMEOUT
    names = [base.__name__ for base in type(exc).__mro__ if base not in (Exception, BaseException, object)]
    for part, error_class in _BY_NAME:
        if any(part in name for name in names):
            return error_class
    return None


def _retry_after(exc: BaseException) -> float | None:
    headers = getattr(getattr(exc, "response", None), "headers", None) or {}
    return seconds_in(str(headers.get("retry-after", "")), now=datetime.now(UTC))


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException:  # noqa: BLE001 - an exception of a graph's code may raise anything here, SystemExit included
        return ""


def _said(exc: BaseException) -> str:
    """For the thread's owner. What a provider answered is left out: it may quote a key or the prompt."""
    if isinstance(exc, ClewError):
        return str(exc)
    if getattr(exc, "response", None) is not None or hasattr(exc, "status_code") or hasattr(exc, "body"):
        return type(exc).__name__
    words = storable(_text(exc)[:DETAIL]).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"{type(exc).__name__}: {words}" if words else type(exc).__name__
