"""Which failures are tried again, how often, and how long we wait; and the profiles that say so."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.domain.errors import Invalid
from clew.domain.profile import DRIVERS, TRACKERS, Profile
from clew.domain.retry import RETRYABLE, ErrorClass, GiveUp, Retry, RetryPolicy, decide, seconds_in

policies = st.builds(
    RetryPolicy,
    max_retries=st.integers(0, 10),
    base_delay=st.floats(0.1, 30),
    max_delay=st.floats(1, 300),
    retryable_errors=st.lists(st.sampled_from(RETRYABLE)).map(tuple),
)


def test_the_defaults_are_those_of_the_published_schema() -> None:
    policy = RetryPolicy()
    assert (policy.max_retries, policy.base_delay, policy.max_delay) == (3, 1.0, 30.0)
    assert policy.retryable_errors == ("network_timeout", "rate_limit", "llm_overload")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", -1),
        ("max_retries", 11),
        ("max_retries", 3.0),
        ("max_retries", True),
        ("max_retries", "3"),
        ("max_retries", None),
        ("base_delay", 0.09),
        ("base_delay", 30.1),
        ("base_delay", -1.0),
        ("base_delay", float("nan")),
        ("base_delay", True),
        ("base_delay", "1"),
        ("max_delay", 0.9),
        ("max_delay", 300.1),
        ("max_delay", float("inf")),
        ("max_delay", None),
        ("retryable_errors", ["timeout"]),
        ("retryable_errors", ["auth"]),
        ("retryable_errors", "rate_limit"),
        ("retryable_errors", [["rate_limit"]]),
        ("retryable_errors", {"rate_limit": True}),
        ("retryable_errors", None),
    ],
)
def test_a_value_out_of_bounds_is_refused_and_the_field_named(field: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        RetryPolicy(**{field: value})
    assert refused.value.field == field
    assert str(refused.value).startswith("expected ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_retries", 0),
        ("max_retries", 10),
        ("base_delay", 0.1),
        ("base_delay", 30),
        ("max_delay", 1),
        ("max_delay", 300),
    ],
)
def test_the_bounds_themselves_are_accepted(field: str, value: Any) -> None:
    assert getattr(RetryPolicy(**{field: value}), field) == value


def test_delays_double_up_to_the_cap() -> None:
    policy = RetryPolicy(max_retries=10, base_delay=2.0, max_delay=20.0)
    assert [policy.delay(n) for n in range(1, 7)] == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0]


@given(policies, st.integers(1, 10**9), st.floats(0, 1))
def test_jitter_only_ever_shortens_a_delay(policy: RetryPolicy, retry: int, jitter: float) -> None:
    assert 0 <= policy.delay(retry, jitter=jitter) <= policy.delay(retry) <= policy.max_delay


@given(policies, st.integers(1, 10), st.floats(0, 1), st.floats(0, 10_000))
def test_nobody_comes_back_before_retry_after(
    policy: RetryPolicy, retry: int, jitter: float, after: float
) -> None:
    assert policy.delay(retry, jitter=jitter, retry_after=after) >= after


@pytest.mark.parametrize(
    ("retry", "jitter", "field"), [(0, 0.0, "retry"), (1, 1.1, "jitter"), (1, -0.1, "jitter")]
)
def test_a_nonsensical_question_is_refused(retry: int, jitter: float, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        RetryPolicy().delay(retry, jitter=jitter)
    assert refused.value.field == field


@given(policies, st.sampled_from(ErrorClass))
def test_attempts_never_exceed_one_more_than_max_retries(
    policy: RetryPolicy, error_class: ErrorClass
) -> None:
    attempts = next(n for n in itertools.count(1) if isinstance(decide(policy, error_class, n), GiveUp))
    assert attempts == (policy.max_retries + 1 if error_class in policy.retryable_errors else 1)


def test_giving_up_says_what_failed_and_how_often() -> None:
    policy = RetryPolicy(max_retries=3)
    assert decide(policy, ErrorClass.RATE_LIMIT, 3) == Retry(4.0)
    assert decide(policy, ErrorClass.RATE_LIMIT, 4) == GiveUp("rate_limit after 4 attempts: no retry left")
    assert decide(policy, ErrorClass.AUTH, 1) == GiveUp("auth after 1 attempt: not retried")


def test_a_class_is_retried_only_when_the_policy_names_it() -> None:
    assert isinstance(decide(RetryPolicy(), ErrorClass.CLI_TIMEOUT, 1), GiveUp)
    patient = RetryPolicy(retryable_errors=(ErrorClass.CLI_TIMEOUT,))
    assert isinstance(decide(patient, ErrorClass.CLI_TIMEOUT, 1), Retry)
    assert isinstance(decide(patient, ErrorClass.RATE_LIMIT, 1), GiveUp)


def test_retry_after_is_kept_even_past_max_delay_but_not_for_hours() -> None:
    policy = RetryPolicy(max_delay=30.0)
    assert decide(policy, ErrorClass.RATE_LIMIT, 1, retry_after=90.0) == Retry(90.0)
    assert isinstance(decide(policy, ErrorClass.RATE_LIMIT, 1, retry_after=7200.0), GiveUp)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("tracker", TRACKERS)
def test_a_profile_takes_every_driver_and_tracker_there_is(driver: str, tracker: str) -> None:
    assert Profile(name="work", driver=driver, tracker=tracker).retry == RetryPolicy()


@pytest.mark.fault("F9")
@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"driver": "api:acme"}, "driver"),
        ({"driver": ""}, "driver"),
        ({"driver": ["offline"]}, "driver"),
        ({"driver": "offline", "tracker": "svn"}, "tracker"),
        ({"driver": "offline", "tracker": None}, "tracker"),
        ({"driver": "offline", "name": "a/b"}, "name"),
        ({"driver": "offline", "name": "work\n"}, "name"),
        ({"driver": "offline", "name": "x" * 65}, "name"),
    ],
)
def test_a_bad_profile_is_refused_and_the_field_named(values: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        Profile(**{"name": "work", **values})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("7", 7.0),
        ("-7", 0.0),
        ("Sun, 01 Mar 2026 12:01:00 GMT", 60.0),
        ("Sun, 01 Mar 2026 11:00:00 GMT", 0.0),
        ("Sun, 01 Mar 2026 12:01:00", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(given: str, seconds: float | None) -> None:
    assert seconds_in(given, now=datetime(2026, 3, 1, 12, tzinfo=UTC)) == seconds
