"""What a graph raised, in our words: whose error counts when one is the cause of another."""

import anthropic
import httpx2
import pytest

from clew.domain.errors import (
    ClewError,
    ConfigError,
    Invalid,
    NotFound,
    Permanent,
    RetriesExhausted,
    Transient,
)
from clew.domain.retry import ErrorClass
from clew.graph.failures import classify


def anthropic_error(body: object) -> Exception:
    """As its client raises it in the middle of a stream: the status was fine when that began."""
    response = httpx2.Response(200, request=httpx2.Request("POST", "https://example.com"))
    return anthropic.APIStatusError("sk-secret", response=response, body=body)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("ours", "error_class"),
    [
        (ConfigError("install it"), ErrorClass.INTERNAL),
        (NotFound("no thread"), ErrorClass.NOT_FOUND),
        (Invalid("a wrong value"), ErrorClass.INTERNAL),
    ],
)
@pytest.mark.parametrize("cause", [ModuleNotFoundError("No module named 'x'"), TimeoutError("slow")])
def test_what_we_say_ourselves_stands_above_its_cause(
    ours: ClewError, error_class: ErrorClass, cause: Exception
) -> None:
    failure = classify(caused(ours, cause))
    assert isinstance(failure, Permanent)
    assert (str(failure), failure.error_class) == (str(ours), error_class)


def test_what_stands_around_our_error_does_not_hide_it() -> None:
    failure = classify(caused(RuntimeError("the node failed"), ConfigError("install it")))
    assert str(failure) == "install it"


def test_the_cause_of_a_stranger_without_a_class_is_looked_at() -> None:
    failure = classify(caused(RuntimeError("the node failed"), TimeoutError("slow")))
    assert isinstance(failure, Transient)
    assert failure.error_class == ErrorClass.NETWORK_TIMEOUT


def test_what_was_given_up_below_stays_given_up() -> None:
    given_up = RetriesExhausted("rate_limit after 2 attempts: no retry left", ErrorClass.RATE_LIMIT)
    assert classify(caused(given_up, Transient("busy", ErrorClass.RATE_LIMIT))) is given_up


class Told(Exception):
    """A provider's error that has no status of its own."""

    def __init__(self, body: object = None, code: object = None) -> None:
        super().__init__("Bearer sk-secret was overloaded")
        self.body = body
        self.code = code


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (anthropic_error({"type": "error", "error": {"type": "overloaded_error"}}), ErrorClass.LLM_OVERLOAD),
        (anthropic_error({"type": "error", "error": {"type": "rate_limit_error"}}), ErrorClass.RATE_LIMIT),
        (Told({"type": "server_error", "code": None}), ErrorClass.LLM_OVERLOAD),
        (Told({"type": None, "code": "rate_limit_exceeded"}), ErrorClass.RATE_LIMIT),
        (Told({"type": "InternalServerError", "code": 503}), ErrorClass.LLM_OVERLOAD),
        (Told(code=503), ErrorClass.LLM_OVERLOAD),
        (Told(code=429), ErrorClass.RATE_LIMIT),
    ],
)
def test_what_a_provider_says_in_the_middle_of_a_stream_passes(
    error: Exception, error_class: ErrorClass
) -> None:
    found = classify(error)
    assert isinstance(found, Transient)
    assert found.error_class == error_class
    assert "sk-secret" not in str(found)


@pytest.mark.parametrize(
    ("error", "error_class"),
    [
        (Told({"type": "invalid_request_error"}), ErrorClass.VALIDATION),
        (Told({"error": {"type": "authentication_error"}}), ErrorClass.AUTH),
        (Told({"type": "something new"}), ErrorClass.INTERNAL),
        (Told("overloaded_error"), ErrorClass.INTERNAL),
        (Told(code="overloaded_error"), ErrorClass.INTERNAL),
    ],
)
def test_what_it_says_of_the_request_does_not_pass(error: Exception, error_class: ErrorClass) -> None:
    found = classify(error)
    assert isinstance(found, Permanent)
    assert found.error_class == error_class
    assert "sk-secret" not in str(found)
