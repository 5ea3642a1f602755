"""Drivers by profile, opened when first needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from clew.apps.drivers.api import ApiDriver
from clew.apps.drivers.cli import CliDriver
from clew.apps.drivers.driver import Driver
from clew.apps.drivers.inquiries import Purpose
from clew.apps.drivers.models import ModelAccess, open_model
from clew.apps.drivers.offline import OfflineDriver, OfflineRule
from clew.apps.drivers.programs import PROGRAMS
from clew.domain.errors import ConfigError
from clew.domain.profile import Profile
from clew.domain.thread import Thread

DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """How programs are started. `folder` is an empty one, for inquiries without a workplace."""

    environment: Mapping[str, str]
    folder: Path
    seconds: float = 1800


class Drivers:
    """Drivers by profile. A profile's missing setting fails the thread that needs it, not the whole process."""

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        access: ModelAccess,
        programs: Programs,
        keys: Mapping[str, SecretStr] | None = None,
    ) -> None:
        self._profiles = profiles
        # Of the profiles that have one of their own.
        self._keys = keys or {}
        self._access = access
        self._programs = programs
        self._opened: dict[str, Driver] = {}

    def of(self, thread: Thread, rules: Mapping[Purpose, OfflineRule]) -> Driver:
        """`rules` answer where the profile has no model.

        Raises ConfigError when the thread's profile is gone, or its driver cannot be used here.
        """
        name = str(thread.settings.get("profile", DEFAULT))
        profile = self._profiles.get(name)
        return OfflineDriver(rules) if profile is not None and _is_offline(profile) else self.named(name)

    def named(self, name: str) -> Driver:
        """Raises ConfigError."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    async def aclose(self) -> None:
        for driver in self._opened.values():
            if isinstance(driver, ApiDriver):
                await driver.aclose()

    def _open(self, name: str) -> Driver:
        if name not in self._profiles:
            raise ConfigError(f"there is no profile {name!r} any more")
        profile = self._profiles[name]
        if _is_offline(profile):
            return OfflineDriver({})
        if profile.driver in PROGRAMS:
            return CliDriver(
                profile.driver,
                profile.command,
                model=profile.model,
                environment=self._programs.environment,
                folder=self._programs.folder,
                seconds=self._programs.seconds,
            )
        return ApiDriver(profile.driver, open_model(profile, self._access, key=self._keys.get(name)))


def _is_offline(profile: Profile) -> bool:
    return profile.driver == OfflineDriver.name
