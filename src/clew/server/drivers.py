"""Drivers of the settings' profiles, with the keys, models and programs that the settings name."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.language_models import BaseChatModel

from clew.apps.drivers.api import ApiDriver
from clew.apps.drivers.inquiries import Inquiry, Purpose
from clew.apps.drivers.models import ModelAccess
from clew.apps.drivers.profiles import DEFAULT, Drivers, Programs
from clew.config import Settings
from clew.domain.errors import ClewError, ConfigError
from clew.domain.profile import Budget, Profile
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Thread

_QUESTION = Inquiry(
    purpose=Purpose.ANSWER, role="You are being tested. Answer with one word.", prompt="Say: ready"
)
_SHOWN = 300

logger = logging.getLogger(__name__)


@asynccontextmanager
async def open_drivers(settings: Settings) -> AsyncGenerator[Drivers]:
    """Each driver is opened when it is first asked for."""
    models = settings.models
    access = ModelAccess(
        openai_key=models.openai_api_key,
        openai_base_url=models.openai_base_url,
        openai_model=models.openai_model,
        anthropic_key=models.anthropic_api_key,
        anthropic_base_url=models.anthropic_base_url,
        anthropic_model=models.anthropic_model,
        seconds=models.call_seconds,
    )
    environment = {name: value.get_secret_value() for name, value in settings.program_environment.items()}
    with TemporaryDirectory(prefix="clew-") as folder:
        programs = Programs(environment=environment, folder=Path(folder), seconds=settings.coding.cli_seconds)
        async with aclosing(Drivers(settings.profiles, access, programs, settings.profile_keys)) as drivers:
            yield drivers


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedProfile:
    """What came back from the model of a profile, or what its provider said in its place."""

    profile: str
    ok: bool
    detail: str


async def ask_profiles(settings: Settings) -> list[AskedProfile]:
    """One small question to the model of each profile, all at once."""
    async with open_drivers(settings) as drivers:
        asked = [_ask_profile(drivers, profile) for profile in settings.profiles.values()]
        return list(await asyncio.gather(*asked))


async def _ask_profile(drivers: Drivers, profile: Profile) -> AskedProfile:
    if profile.driver == "offline":
        return AskedProfile(profile=profile.name, ok=True, detail="offline: it has no model to ask")
    what = profile.driver
    started = time.perf_counter()
    try:
        driver = drivers.named(profile.name)
        what = f"{profile.driver} {driver.model}"
        reply = await driver.ask(_QUESTION)
    except ClewError as exc:
        answered = getattr(exc, "answered", None)
        said = f". It said: {' '.join(answered.text.split())[:_SHOWN]}" if answered is not None else ""
        return AskedProfile(profile=profile.name, ok=False, detail=f"{what}: {exc}{said}")
    milliseconds = int((time.perf_counter() - started) * 1000)
    sees = ", sees pictures" if driver.can(Purpose.SEE) else ""
    text = " ".join(reply.text.split())[:_SHOWN]
    return AskedProfile(
        profile=profile.name, ok=True, detail=f"{what} answered in {milliseconds} ms: {text}{sees}"
    )


def default_model(drivers: Drivers) -> BaseChatModel | None:
    """The chat model of the default profile, if it has one."""
    try:
        driver = drivers.named(DEFAULT)
    except ConfigError as exc:
        logger.warning("no graph `agent`: %s", exc)
        return None
    return driver.chat if isinstance(driver, ApiDriver) else None


def retry_policy(settings: Settings, thread: Thread) -> RetryPolicy:
    """That of the thread's profile."""
    profile = settings.profiles.get(str(thread.settings.get("profile", DEFAULT)))
    return profile.retry if profile else RetryPolicy()


def budget_of(settings: Settings, thread: Thread) -> Budget | None:
    """What a round of the thread may spend, by its profile."""
    profile = settings.profiles.get(str(thread.settings.get("profile", DEFAULT)))
    return profile.budget if profile else None
