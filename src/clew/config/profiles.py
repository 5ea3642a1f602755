"""The `profiles` of clew.yaml."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from clew.config.settings import Models
from clew.config.tree import Place
from clew.domain.errors import ConfigError, Invalid
from clew.domain.profile import Profile
from clew.domain.retry import RetryPolicy

DEFAULT = Profile(name="default", driver="offline")

# Whom the default profile may ask: the settings that choose the driver, and the package it takes.
_CHOICES = (
    ("api:openai", ("openai_api_key", "openai_base_url"), "langchain_openai"),
    ("api:anthropic", ("anthropic_api_key",), "langchain_anthropic"),
)

_VALUES = ("driver", "tracker", "model", "base_url", "command")
_RETRY = ("max_retries", "base_delay", "max_delay", "retryable_errors")


def read_profiles(
    place: Place, models: Models, sources: Mapping[str, str]
) -> tuple[dict[str, Profile], tuple[str, ...]]:
    """By name, and what is worth a warning. There is always one called `default`."""
    given = {name: _profile(name, entry) for name, entry in place.named().items()}
    if DEFAULT.name in given:
        return given, ()
    driver, unused = _choose_driver(models, sources)
    return {DEFAULT.name: replace(DEFAULT, driver=driver)} | given, unused


def _choose_driver(models: Models, sources: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The first there is a key and a package for, and a line on each key that has none.

    A shell may happen to have a key that nobody meant for us: that is no reason for every chat to fail.
    """
    unused: list[str] = []
    chosen = DEFAULT.driver
    for driver, names, package in _CHOICES:
        name = next((name for name in names if getattr(models, name) is not None), None)
        if name is None:
            continue
        if find_spec(package) is not None:
            chosen = driver
            break
        extra = driver.partition(":")[2]
        # No colon after a key's name: what follows one is masked in the log.
        unused.append(f"{sources[f'models.{name}']} is not used: {driver} needs pip install 'clew[{extra}]'")
    return chosen, tuple(f"{line}. The driver of the default profile is {chosen}" for line in unused)


def _profile(name: str, place: Place) -> Profile:
    given = place.known((*_VALUES, "retry"))
    if "driver" not in given:
        raise place.expected("a driver")
    values: dict[str, Any] = {key: given[key].value for key in _VALUES if key in given}
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
