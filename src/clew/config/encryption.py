"""Settings of encryption at rest: the keys, or the command that prints them."""

from base64 import b64decode, b64encode
from typing import Annotated, ClassVar

from pydantic import SecretStr

from clew.config.declare import Section, setting
from clew.config.kinds import SettingKind, line
from clew.domain.errors import ConfigError

SIZES = (16, 24, 32)


def _keys(text: str) -> list[bytes]:
    keys = [b64decode(key.strip(), validate=True) for key in text.split(",")]
    if any(len(key) not in SIZES for key in keys) or len(set(keys)) < len(keys):
        raise ValueError
    return keys


def aes_keys() -> SettingKind[SecretStr]:
    def read(raw: object) -> SecretStr:
        if isinstance(raw, str) and _keys(raw):
            return SecretStr(raw)
        raise ValueError

    return SettingKind("AES keys of 32 bytes (or 16, or 24) in Base64, with commas between them", read)


class EncryptionSettings(Section):
    PREFIX: ClassVar[str] = "CLEW_ENCRYPTION_"

    key: Annotated[SecretStr | None, aes_keys()] = setting(
        None, "Encrypts what people wrote: 32 bytes in Base64. Older keys, to read with, follow after commas."
    )
    key_command: Annotated[str | None, line()] = setting(
        None, "A program and its arguments that prints the key, in the same form."
    )

    def keys(self) -> list[bytes]:
        """The keys of `key`, the one that encrypts first."""
        return [] if self.key is None else _keys(self.key.get_secret_value())


def printed_keys(text: str) -> list[bytes]:
    """What the command printed. Raises ConfigError, which does not repeat it."""
    try:
        return _keys(text.strip())
    except ValueError:
        raise ConfigError(
            f"encryption.key_command: expected the command to print {aes_keys().expected}"
        ) from None


def langgraph_key(text: str) -> str:
    """LangGraph's key is the bytes of the text itself."""
    return b64encode(text.encode()).decode()
