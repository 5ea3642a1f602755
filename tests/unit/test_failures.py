"""What a graph raised, in our words: whose error counts when one is the cause of another."""

import pytest

from clew.domain.errors import ClewError, ConfigError, GivenUp, Invalid, NotFound, Permanent, Transient
from clew.domain.retry import ErrorClass
from clew.graph.failures import classify


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
    given_up = GivenUp("rate_limit after 2 attempts: no retry left", ErrorClass.RATE_LIMIT)
    assert classify(caused(given_up, Transient("busy", ErrorClass.RATE_LIMIT))) is given_up
