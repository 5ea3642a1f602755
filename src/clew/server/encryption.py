"""Encryption at rest: the cipher that the settings ask for."""

import asyncio
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from clew.config import EncryptionSettings, Settings, load_encryption, printed_keys
from clew.domain.errors import ConfigError
from clew.ports.cipher import PLAIN, Cipher

COMMAND_SECONDS = 30


@asynccontextmanager
async def open_cipher(settings: Settings | str) -> AsyncGenerator[Cipher]:
    """The handlers of the project if it has some, or else the keys. Raises ConfigError where neither can encrypt."""
    if not isinstance(settings, Settings):
        yield await _open_keys(load_encryption())
        return
    keys = await _open_keys(settings.encryption)
    if settings.custom_encryption is None:
        yield keys
        return
    from clew.server.encryption_handlers import open_handlers  # noqa: PLC0415 - LangGraph takes seconds

    async with open_handlers(settings.custom_encryption, settings, keys) as cipher:
        yield cipher


async def _open_keys(settings: EncryptionSettings) -> Cipher:
    """Raises ConfigError for a command that prints no key, and where the extra is missing."""
    if settings.key_command is None:
        keys = settings.keys()
    elif settings.key is None:
        keys = printed_keys(await _printed(settings.key_command))
    else:
        raise ConfigError("encryption: `key` and `key_command` are both set; keep one of them")
    if not keys:
        return PLAIN
    try:
        from clew.stores.aes_cipher import AesCipher  # noqa: PLC0415 - the extra may be missing
    except ModuleNotFoundError as exc:
        raise ConfigError("encryption needs another package: pip install 'clew-server[encryption]'") from exc
    return AesCipher(keys)


async def _printed(command: str) -> str:
    """What the command prints; its errors go to ours, so that its own words say what is wrong."""
    name = "encryption.key_command"
    try:
        program = await asyncio.create_subprocess_exec(
            *shlex.split(command), stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
        )
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{name}: the command cannot be run ({type(exc).__name__})") from exc
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            printed, _ = await program.communicate()
    except TimeoutError:
        raise ConfigError(f"{name}: the command took longer than {COMMAND_SECONDS} seconds") from None
    finally:
        with suppress(ProcessLookupError):
            program.kill()
    if program.returncode:
        raise ConfigError(f"{name}: the command ended with code {program.returncode}")
    return printed.decode("utf-8", "replace")
