"""Profiles of clew.yaml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, cast

from pydantic import SecretStr

from clew.config.agents import ModelAccessSettings
from clew.config.kinds import secret
from clew.config.tree import ConfigNode
from clew.domain.errors import ConfigError, Invalid
from clew.domain.profile import OFFICIAL, Budget, CheckCommand, Profile, Publication, is_same_server
from clew.domain.retry import RetryPolicy

DEFAULT = Profile(name="default", driver="offline")

# Which models the default profile may use: the settings that choose the driver, and the package it takes.
_CHOICES = (
    ("api:openai", ("openai_api_key", "openai_base_url"), "langchain_openai"),
    ("api:anthropic", ("anthropic_api_key",), "langchain_anthropic"),
)

_VALUES = (
    *("driver", "tracker", "model", "base_url", "command"),
    *("temperature", "max_tokens", "timeout", "headers", "vision", "api_version", "region"),
)
_KEYS = ("api_key", "api_key_env")
_BUDGET = ("tokens", "cost", "input_price", "output_price")
_TESTS = ("command", "seconds", "approval")
_PUBLISH = ("remote", "base", "pull_request", "comment", "author")
_RETRY = ("max_retries", "base_delay", "max_delay", "retryable_errors")


@dataclass(frozen=True, slots=True)
class Profiles:
    """By name; there is always one called `default`. `keys` are those that profiles have of their own."""

    named: Mapping[str, Profile]
    keys: Mapping[str, SecretStr]
    # Warnings for the log.
    warnings: tuple[str, ...]


def read_profiles(
    place: ConfigNode, models: ModelAccessSettings, sources: Mapping[str, str], environ: Mapping[str, str]
) -> Profiles:
    entries = place.named()
    given = {name: _profile(name, entry) for name, entry in entries.items()}
    keys = {
        name: key
        for name, entry in entries.items()
        if (key := _key(entry, given[name].driver, environ)) is not None
    }
    unsent = _unsent(given, keys, models)
    if DEFAULT.name in given:
        return Profiles(given, keys, unsent)
    driver, unused = _choose_driver(models, sources)
    return Profiles({DEFAULT.name: replace(DEFAULT, driver=driver)} | given, keys, (*unused, *unsent))


def _key(place: ConfigNode, driver: str, environ: Mapping[str, str]) -> SecretStr | None:
    """The profile's own key, as it stands there or in the variable that is named. Raises ConfigError."""
    found = [entry for name, entry in place.entries().items() if name in _KEYS and entry.value is not None]
    if not found:
        return None
    if len(found) > 1:
        raise place.expected("api_key or api_key_env, not both")
    entry = found[0]
    if not driver.startswith("api:"):
        raise ConfigError(f"{entry.where}: {driver} takes no key; see coding.environment for programs")
    value = entry.value
    if entry.key.endswith("_env"):
        name = entry.text("the name of a variable")
        value = environ.get(name, "").strip()
        if not value:
            raise ConfigError(f"{entry.where}: the variable {name} is not set")
    kind = secret()
    try:
        return kind.read(value)
    except ValueError:
        raise entry.expected(kind.expected) from None


def _unsent(
    profiles: Mapping[str, Profile], keys: Mapping[str, SecretStr], models: ModelAccessSettings
) -> tuple[str, ...]:
    """A warning for each profile that a user may expect to share the key of the settings, and that does not."""
    found = []
    for name, profile in profiles.items():
        kind = profile.driver.removeprefix("api:")
        if kind not in ("openai", "anthropic") or not profile.base_url or name in keys:
            continue
        ours = getattr(models, f"{kind}_base_url") or OFFICIAL[profile.driver]
        if getattr(models, f"{kind}_api_key") is not None and not is_same_server(profile.base_url, ours):
            # No colon after a key's name: what follows one is masked in the log.
            found.append(
                f"the key of models.{kind}_api_key is not sent to the base_url of profiles.{name}. If that server asks"
                " for a key, set api_key or api_key_env in the profile"
            )
    return tuple(found)


def _choose_driver(models: ModelAccessSettings, sources: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The first there is a key and a package for, and a line on each key that has none.

    A shell may have a key that was not meant for Clew: that is no reason for every chat to fail.
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
        unused.append(
            f"{sources[f'models.{name}']} is not used: {driver} needs pip install 'clew-server[{extra}]'"
        )
    return chosen, tuple(f"{line}. The driver of the default profile is {chosen}" for line in unused)


def _profile(name: str, place: ConfigNode) -> Profile:
    given = place.known((*_VALUES, *_KEYS, "retry", "budget", "tests", "publish"))
    if "driver" not in given:
        raise place.expected("a driver")
    values: dict[str, Any] = {key: given[key].value for key in _VALUES if key in given}
    if "retry" in given:
        values["retry"] = _retry(given["retry"])
    try:
        if "budget" in given:
            values["budget"] = Budget(**_values(given["budget"], _BUDGET))
        if "tests" in given:
            values["tests"] = _tests(given["tests"])
        if "publish" in given:
            values["publish"] = Publication(**_values(given["publish"], _PUBLISH))
        return Profile(name=name, **values)
    except Invalid as error:
        raise _named(place, error) from None


def _values(place: ConfigNode, names: Sequence[str]) -> dict[str, Any]:
    return {key: one.value for key, one in place.known(names).items()}


def _tests(place: ConfigNode) -> CheckCommand:
    """A command, or a section that has one. Raises Invalid, ConfigError."""
    if isinstance(place.value, str | list):
        return CheckCommand(command=cast("tuple[str, ...]", place.value))
    values = _values(place, _TESTS)
    if "command" not in values:
        raise place.expected("a command")
    return CheckCommand(**values)


def _retry(place: ConfigNode) -> RetryPolicy:
    values: dict[str, Any] = {key: entry.value for key, entry in place.known(_RETRY).items()}
    try:
        return RetryPolicy(**values)
    except Invalid as error:
        raise _named(place, error) from None


def _named(place: ConfigNode, error: Invalid) -> ConfigError:
    return ConfigError(f"{place.where}.{error.field}: {error}")
