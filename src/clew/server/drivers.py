"""Drivers of the settings' profiles, with the keys, models and programs that the settings name."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.language_models import BaseChatModel

from clew.apps.drivers.api import ApiDriver, ModelAccess
from clew.apps.drivers.profiles import DEFAULT, Drivers, Programs
from clew.config import Settings
from clew.domain.errors import ConfigError
from clew.domain.retry import RetryPolicy
from clew.domain.thread import Thread

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
