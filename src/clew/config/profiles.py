"""The `profiles` of clew.yaml."""

from dataclasses import replace
from typing import Any

from clew.config.tree import Place
from clew.domain.errors import ConfigError, Invalid
from clew.domain.profile import Profile
from clew.domain.retry import RetryPolicy

DEFAULT = Profile(name="default", driver="offline")

_TEXTS = ("driver", "tracker", "model", "base_url")
_RETRY = ("max_retries", "base_delay", "max_delay", "retryable_errors")


def read_profiles(place: Place, *, openai: bool = False, anthropic: bool = False) -> dict[str, Profile]:
    """By name; there is always one called `default`. Unless the file says what it is, it asks whom there is a key for."""
    driver = "api:openai" if openai else "api:anthropic" if anthropic else DEFAULT.driver
    given = {name: _profile(name, entry) for name, entry in place.named().items()}
    return {DEFAULT.name: replace(DEFAULT, driver=driver)} | given


def _profile(name: str, place: Place) -> Profile:
    given = place.known((*_TEXTS, "retry"))
    if "driver" not in given:
        raise place.expected("a driver")
    values: dict[str, Any] = {key: given[key].value for key in _TEXTS if key in given}
    if "retry" in given:
        values["retry"] = _retry(given["retry"])
    try:
        return Profile(name=name, **values)
    except Invalid as error:
        raise _named(place, error) from None


def _retry(place: Place) -> RetryPolicy:
    values: dict[str, Any] = {key: entry.value for key, entry in place.known(_RETRY).items()}
    try:
        return RetryPolicy(**values)
    except Invalid as error:
        raise _named(place, error) from None


def _named(place: Place, error: Invalid) -> ConfigError:
    return ConfigError(f"{place.where}.{error.field}: {error}")
