"""The `profiles` of clew.yaml."""

from typing import Any

from clew.config.tree import Place
from clew.domain.errors import ConfigError, Invalid
from clew.domain.profile import Profile
from clew.domain.retry import RetryPolicy

DEFAULT = Profile(name="default", driver="offline")

_RETRY = ("max_retries", "base_delay", "max_delay", "retryable_errors")


def read_profiles(place: Place) -> dict[str, Profile]:
    """By name; there is always one called `default`, which works offline unless the file says otherwise."""
    return {DEFAULT.name: DEFAULT} | {name: _profile(name, entry) for name, entry in place.named().items()}


def _profile(name: str, place: Place) -> Profile:
    given = place.known(("driver", "tracker", "retry"))
    if "driver" not in given:
        raise place.expected("a driver")
    values: dict[str, Any] = {key: given[key].value for key in ("driver", "tracker") if key in given}
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
