"""WeCom's envelope: its signature, and AES-256-CBC inside."""

import base64
import binascii
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha1

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from clew.domain.errors import ConfigError, Unauthenticated

# How far the clocks of the two sides may be apart.
SKEW = timedelta(seconds=300)
# WeCom pads to more than AES needs.
BLOCK = 32


@dataclass(frozen=True, slots=True)
class Envelope:
    """Decrypts messages with the token and the key of one app. Every decryption failure has the same message."""

    token: str
    key: bytes
    receive_id: str

    def open(self, encrypted: str, *, signature: str, timestamp: str, nonce: str, now: datetime) -> bytes:
        """Raises Unauthenticated if the signature does not match or is old, or the message is for another receiver."""
        expected = sign(self.token, timestamp, nonce, encrypted)
        if not hmac.compare_digest(_bytes(signature), expected.encode()):
            raise Unauthenticated("the signature does not fit")
        if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 11):
            raise Unauthenticated("the timestamp is no time")
        if abs(now - datetime.fromtimestamp(int(timestamp), UTC)) > SKEW:
            raise Unauthenticated("the timestamp is too old, or from the future")
        content, receive_id = self._decrypted(encrypted)
        if not hmac.compare_digest(receive_id, self.receive_id.encode()):
            raise Unauthenticated("the message is for another receiver")
        return content

    def seal(self, content: bytes, *, noise: bytes) -> str:
        """What `open` opens; `noise` is 16 random bytes."""
        plain = noise + len(content).to_bytes(4, "big") + content + self.receive_id.encode()
        padding = BLOCK - len(plain) % BLOCK
        encryptor = self._cipher().encryptor()
        sealed = encryptor.update(plain + bytes([padding]) * padding) + encryptor.finalize()
        return base64.b64encode(sealed).decode()

    def _decrypted(self, encrypted: str) -> tuple[bytes, bytes]:
        try:
            sealed = base64.b64decode(encrypted, validate=True)
            decryptor = self._cipher().decryptor()
            plain = decryptor.update(sealed) + decryptor.finalize()
        except (binascii.Error, ValueError):
            raise Unauthenticated("the message cannot be opened") from None
        padding = plain[-1] if plain else 0
        end = len(plain) - padding
        length = int.from_bytes(plain[16:20], "big")
        if (
            not 1 <= padding <= BLOCK
            or plain[end:] != bytes([padding]) * padding
            or not 20 <= 20 + length <= end
        ):
            raise Unauthenticated("the message cannot be opened")
        return plain[20 : 20 + length], plain[20 + length : end]

    def _cipher(self) -> Cipher[CBC]:
        return Cipher(AES(self.key), CBC(self.key[:16]))


def sign(token: str, timestamp: str, nonce: str, encrypted: str) -> str:
    # What WeCom signs with. The order of the parts is that of their bytes.
    parts = sorted(_bytes(part) for part in (token, timestamp, nonce, encrypted))
    return sha1(b"".join(parts), usedforsecurity=False).hexdigest()


def _bytes(text: str) -> bytes:
    """Of whatever a stranger sends, half a letter too: that is in no signature of WeCom's."""
    return text.encode("utf-8", "replace")


def read_key(encoding_aes_key: str) -> bytes:
    """The key as the admin page shows it: 43 letters. Raises ConfigError, without the key."""
    try:
        key = base64.b64decode(encoding_aes_key + "=", validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != 32:
        raise ConfigError("expected an encoding_aes_key of 43 letters and digits")
    return key
