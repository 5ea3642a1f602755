"""AES-GCM cipher: values are encrypted with the first of its keys and read with all of them, so that keys can change."""

import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clew.domain.errors import Corrupt, Invalid
from clew.ports.cipher import OpenMetadata, V
from clew.stores.sql.private import HEAD, MARK, head_of

NONCE: Final = 12
TAG: Final = 16


class AesCipher(OpenMetadata):
    """A value is its mark, the id of its key, a random nonce and the ciphertext; of a text, the last two in Base64."""

    is_active = True

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): AESGCM(key) for key in keys}
        self._current = key_id(keys[0])

    @property
    def current(self) -> str:
        return self._current

    @property
    def key_ids(self) -> Collection[str]:
        return self._keys.keys()

    def plain_size(self, start: bytes, size: int) -> int:
        return size - (HEAD + NONCE + TAG) if start.startswith(MARK.encode()) else size

    def seal(self, value: V, context: str) -> V:
        if isinstance(value, bytes):
            return head_of(self._current).encode() + self._encrypted(value, context)
        try:
            plain = value.encode()
        except UnicodeEncodeError:
            raise Invalid("not storable as text: it has half of a surrogate pair") from None
        return head_of(self._current) + b64encode(self._encrypted(plain, context)).decode()

    def open(self, value: V, context: str) -> V:
        try:
            if isinstance(value, bytes):
                if not value.startswith(MARK.encode()):
                    return value
                return self._decrypted(value[:HEAD].decode("latin-1"), value[HEAD:], context)
            if not value.startswith(MARK):
                return value
            return self._decrypted(value[:HEAD], b64decode(value[HEAD:], validate=True), context).decode()
        except (InvalidTag, ValueError) as exc:
            raise Corrupt(
                "a stored value cannot be decrypted: it was changed or moved by other hands"
            ) from exc

    def _encrypted(self, plain: bytes, context: str) -> bytes:
        nonce = os.urandom(NONCE)
        aes = self._keys[self._current]
        return nonce + aes.encrypt(nonce, plain, _bound(head_of(self._current), context))

    def _decrypted(self, head: str, sealed: bytes, context: str) -> bytes:
        aes = self._keys.get(head[len(MARK) : -1])
        if aes is None:
            raise Corrupt("a stored value is encrypted with a key that this process was not given")
        return aes.decrypt(sealed[:NONCE], sealed[NONCE:], _bound(head, context))


def key_id(key: bytes) -> str:
    """Names a key and tells nothing of it."""
    return hmac.new(key, b"clew key id", "sha256").hexdigest()[:8]


def _bound(head: str, context: str) -> bytes:
    # A text with half of a surrogate pair is refused later, in the words of the database.
    return f"{head}\0{context}".encode(errors="surrogatepass")
